#include "net/transfer/error.h"

#include <starling_transfer.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[SL_TRANSFER_REASON_BYTES];

int sl_transfer_fail(int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
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
