#include "core/reason.h"

#include <stdio.h>

static _Thread_local struct sl_reason last;

struct sl_reason *sl_reason_last(void)
{
    return &last;
}

void sl_reason_vset(struct sl_reason *reason, const char *format, va_list arguments)
{
    if (reason != NULL) {
        (void)vsnprintf(reason->text, sizeof reason->text, format, arguments);
    }
}

void sl_reason_set(struct sl_reason *reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sl_reason_vset(reason, format, arguments);
    va_end(arguments);
}
