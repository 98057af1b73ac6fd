#include "core/rlimit.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

SL_CASE(rlimit_raise__raises_the_soft_limit_to_the_hard_one)
{
    struct rlimit before, after;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit low = {.rlim_cur = 16, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    sl_rlimit_raise(RLIMIT_NOFILE);
    sl_rlimit_raise(RLIMIT_NOFILE); /* there is nothing left to raise */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_true(after.rlim_cur == before.rlim_max);
    assert_true(after.rlim_max == before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}
