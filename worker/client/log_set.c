#include <starling.h>

#include "core/log.h"

void sl_log_set(enum sl_log_level level, sl_log_fn *callback, void *ctx)
{
    sl_log_redirect(level, callback, ctx);
}
