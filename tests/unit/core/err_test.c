#include <errno.h>

#include "core/err.h"
#include "tests/support/unit.h"

SL_CASE(err_name__every_code_has_one_of_its_own)
{
    for (int err = SL_ERR_CANCELLED; err <= SL_OK; err++) {
        assert_string_not_equal(sl_err_name(err), "unknown error");
        for (int other = err + 1; other <= SL_OK; other++) {
            assert_string_not_equal(sl_err_name(err), sl_err_name(other));
        }
    }
    assert_string_equal(sl_err_name(SL_ERR_DEADLINE), "deadline");
}

SL_CASE(err_from_errno__maps_what_callers_rely_on)
{
    static const struct {
        int system_errno, err;
    } cases[] = {
        {ECONNREFUSED, SL_ERR_REFUSED}, {EADDRINUSE, SL_ERR_IN_USE},   {ENOENT, SL_ERR_NOT_FOUND},
        {ENOMEM, SL_ERR_NO_MEMORY},     {EAGAIN, SL_ERR_AGAIN},        {EPIPE, SL_ERR_CLOSED},
        {ECONNRESET, SL_ERR_CLOSED},    {ETIMEDOUT, SL_ERR_DEADLINE},  {EINVAL, SL_ERR_INVALID},
        {ENOSYS, SL_ERR_UNSUPPORTED},   {ECANCELED, SL_ERR_CANCELLED}, {EEXIST, SL_ERR_EXISTS},
        {EMSGSIZE, SL_ERR_TOO_LARGE},   {EPROTO, SL_ERR_PROTOCOL},     {EIO, SL_ERR_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sl_err_from_errno(cases[i].system_errno), cases[i].err);
    }
}

SL_CASE(err_from_errno__never_turns_a_failure_into_success)
{
    for (int system_errno = 1; system_errno < 4096; system_errno++) {
        const int err = sl_err_from_errno(system_errno);
        assert_true(err < 0);
        assert_string_not_equal(sl_err_name(err), "unknown error");
    }
}
