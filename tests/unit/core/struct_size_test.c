#include "core/struct_size.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

struct now {
    size_t struct_size;
    uint64_t old, later;
};

struct next {
    struct now now;
    uint64_t unknown;
};

static int read_now(const void *from, struct now *to, struct sl_reason *reason)
{
    *to = (struct now){.struct_size = 77, .old = 78, .later = 79};
    return sl_struct_size_read(from, to, sizeof *to, "NOW_INIT", reason);
}

SL_CASE(struct_size_read__zeroes_what_an_older_header_lacks)
{
    struct sl_reason reason;
    struct now to, from = {.struct_size = sizeof from, .old = 1, .later = 2};
    assert_int_equal(read_now(&from, &to, &reason), 0);
    assert_memory_equal(&to, &from, sizeof to);
    from.struct_size = offsetof(struct now, later);
    assert_int_equal(read_now(&from, &to, &reason), 0);
    assert_int_equal(to.struct_size, sizeof to);
    assert_int_equal(to.old, 1);
    assert_int_equal(to.later, 0);
}

SL_CASE(struct_size_read__takes_a_later_header_without_new_members)
{
    struct sl_reason reason;
    struct now to;
    struct next from = {.now = {.struct_size = sizeof from, .old = 1, .later = 2}};
    assert_int_equal(read_now(&from, &to, &reason), 0);
    assert_int_equal(to.struct_size, sizeof to);
    assert_int_equal(to.later, 2);
    from.unknown = 1ULL << 63;
    assert_int_equal(read_now(&from, &to, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "struct_size is 32, "));
    assert_non_null(strstr(reason.text, "has 24 bytes"));
    assert_int_equal(to.old, 78);
}

SL_CASE(struct_size_read__names_the_macro_if_the_size_is_not_set)
{
    const size_t sizes[] = {0, 1, sizeof(size_t) - 1, SL_STRUCT_SIZE_MAX + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct sl_reason reason;
        struct now to;
        const struct now from = {.struct_size = sizes[i]};
        assert_int_equal(read_now(&from, &to, &reason), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "initialize the struct with NOW_INIT"));
    }
}

SL_CASE(struct_size_write__writes_the_members_of_the_caller)
{
    const struct now from = {.struct_size = sizeof from, .old = 1, .later = 2};
    struct now to = {.struct_size = offsetof(struct now, later), .later = 9};
    sl_struct_size_write(&from, &to, sizeof from);
    assert_int_equal(to.struct_size, offsetof(struct now, later));
    assert_int_equal(to.old, 1);
    assert_int_equal(to.later, 9);
}

SL_CASE(version__is_the_parts_of_the_header)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", SL_VERSION_MAJOR, SL_VERSION_MINOR,
                   SL_VERSION_PATCH);
    assert_string_equal(SL_VERSION, text);
    assert_string_equal(sl_version(), text);
    assert_string_equal(STARLING_VERSION, text);
}
