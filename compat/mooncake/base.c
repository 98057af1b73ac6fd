#include "compat/mooncake/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#define LINE_BYTES 1024

int sl_mooncake_fail(int code, const char *function, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "transfer_engine: %s: %s\n", function, text);
    return code;
}

uint64_t sl_mooncake_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct sl_mooncake_engine *sl_mooncake_engine(transfer_engine_t handle, const char *function)
{
    struct sl_mooncake_engine *engine = handle;
    if (engine != NULL && engine->transfer != NULL) {
        return engine;
    }
    (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "there is no engine");
    return NULL;
}
