#include "net/transfer/error.h"
#include "core/format.h"
#include "core/log.h"

#include <starling_transfer.h>
#include <stdio.h>

static _Thread_local char last_error[SL_TRANSFER_REASON_BYTES];

int sl_transfer_fail(int err, const char *format, ...)
{
    SL_FORMAT(last_error, format);
    return err;
}

int sl_transfer_succeed(void)
{
    last_error[0] = '\0';
    return 0;
}

const char *sl_transfer_last_error(void)
{
    return last_error;
}

void sl_transfer_log_set(enum sl_log_level level, sl_log_fn *callback, void *ctx)
{
    sl_log_redirect(level, callback, ctx);
}
