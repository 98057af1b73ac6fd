/* The arguments of a memif device. */

#include <string.h>

#include "net/dpdk/module/memif_arguments.h"
#include "tests/support/unit.h"

SL_CASE(arguments__default)
{
    struct sl_module_memif_arguments read;
    assert_null(sl_module_memif_arguments_read(NULL, &read));
    assert_false(read.is_server);
    assert_true(read.is_abstract);
    assert_int_equal(read.buffer_bytes, 2048);
    assert_string_equal(read.path, "/run/memif.sock");
}

SL_CASE(arguments__given)
{
    struct sl_module_memif_arguments read;
    assert_null(sl_module_memif_arguments_read(
        "role=server,id=4294967295,bsize=70000,socket=/tmp/m,socket-abstract=no,zero-copy=no",
        &read));
    assert_true(read.is_server);
    assert_false(read.is_abstract);
    assert_int_equal(read.buffer_bytes, UINT16_MAX);
    assert_string_equal(read.path, "/tmp/m");
}

SL_CASE(arguments__wrong)
{
    static const char *const wrong[] = {"id=",
                                        "id=x",
                                        "id=1x",
                                        "id=-1",
                                        "id=4294967296",
                                        "socket=",
                                        "role=client,id= 1",
                                        "role=server,zero-copy=yes"};
    char longest[7 + 107 + 1] = "socket=";
    struct sl_module_memif_arguments read;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_non_null(sl_module_memif_arguments_read(wrong[i], &read));
    }
    memset(longest + 7, 'a', 107);
    assert_non_null(sl_module_memif_arguments_read(longest, &read));
    longest[7 + 106] = '\0';
    assert_null(sl_module_memif_arguments_read(longest, &read));
}
