#include "core/err.h"

#include <errno.h>

#include "core/assert.h"

static const char *const names[] = {
    [-SL_OK] = "ok",
    [-SL_ERR_INVALID] = "invalid",
    [-SL_ERR_NO_MEMORY] = "no memory",
    [-SL_ERR_DEADLINE] = "deadline",
    [-SL_ERR_CLOSED] = "closed",
    [-SL_ERR_REFUSED] = "refused",
    [-SL_ERR_PROTOCOL] = "protocol",
    [-SL_ERR_VERSION] = "version",
    [-SL_ERR_NOT_FOUND] = "not found",
    [-SL_ERR_EXISTS] = "exists",
    [-SL_ERR_WRONG_SHARD] = "wrong shard",
    [-SL_ERR_AGAIN] = "again",
    [-SL_ERR_IO] = "i/o",
    [-SL_ERR_IN_USE] = "in use",
    [-SL_ERR_UNSUPPORTED] = "unsupported",
    [-SL_ERR_TOO_LARGE] = "too large",
    [-SL_ERR_CORRUPT] = "corrupt",
    [-SL_ERR_CANCELLED] = "cancelled",
    [-SL_ERR_FORKED] = "forked",
};

const char *sl_err_name(int err)
{
    const int count = (int)(sizeof names / sizeof names[0]);
    /* Compares before negating: INT_MIN from the wire would overflow. */
    if (err > 0 || err <= -count) {
        return "unknown error";
    }
    return names[-err];
}

int sl_err_from_errno(int system_errno)
{
    sl_assert(system_errno > 0);
    switch (system_errno) {
    case EINVAL:
    case EDOM:
    case ENAMETOOLONG:
        return SL_ERR_INVALID;
    case ENOMEM:
    case ENOBUFS:
        return SL_ERR_NO_MEMORY;
    case ETIMEDOUT:
        return SL_ERR_DEADLINE;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
        return SL_ERR_CLOSED;
    case ECONNREFUSED:
        return SL_ERR_REFUSED;
    case EPROTO:
    case EBADMSG:
        return SL_ERR_PROTOCOL;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ENOTDIR:
        return SL_ERR_NOT_FOUND;
    case EEXIST:
        return SL_ERR_EXISTS;
    case EAGAIN:
    case EBUSY:
    case EINTR:
        return SL_ERR_AGAIN;
    case EADDRINUSE:
        return SL_ERR_IN_USE;
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
        return SL_ERR_UNSUPPORTED;
    case E2BIG:
    case EFBIG:
    case EMSGSIZE:
    case EOVERFLOW:
        return SL_ERR_TOO_LARGE;
    case ECANCELED:
        return SL_ERR_CANCELLED;
    default:
        return SL_ERR_IO;
    }
}
