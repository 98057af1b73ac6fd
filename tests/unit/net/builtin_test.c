#include "net/transport.h"
#include "tests/support/unit.h"

SL_CASE(builtin_find__knows_the_schemes)
{
    const enum sl_endpoint_scheme unknown = (enum sl_endpoint_scheme)(SL_ENDPOINT_DPDK + 1);
    assert_string_equal(sl_builtin_find(SL_ENDPOINT_TCP)->scheme, "tcp");
    assert_string_equal(sl_builtin_find(SL_ENDPOINT_SHM)->scheme, "shm");
    assert_null(sl_builtin_find(unknown));
    assert_non_null(sl_builtin_missing(unknown));
}
