#include "objects/node/error.h"

#include <starling_objects.h>
#include <stdarg.h>

int sl_objects_fail(int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sl_reason_vset(sl_reason_last(), format, args);
    va_end(args);
    return err;
}

int sl_objects_succeed(void)
{
    sl_reason_last()->text[0] = '\0';
    return 0;
}

const char *sl_objects_last_error(void)
{
    return sl_reason_last()->text;
}

struct sl_reason sl_objects_error_save(void)
{
    return *sl_reason_last();
}

void sl_objects_error_restore(const struct sl_reason *saved)
{
    *sl_reason_last() = *saved;
}
