#include "objects/node/error.h"

#include <starling_objects.h>
#include <stdarg.h>

static _Thread_local struct sl_reason last_error;

int sl_objects_fail(int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sl_reason_vset(&last_error, format, args);
    va_end(args);
    return err;
}

int sl_objects_succeed(void)
{
    last_error.text[0] = '\0';
    return 0;
}

const char *sl_objects_last_error(void)
{
    return last_error.text;
}

struct sl_reason sl_objects_error_save(void)
{
    return last_error;
}

void sl_objects_error_restore(const struct sl_reason *saved)
{
    last_error = *saved;
}
