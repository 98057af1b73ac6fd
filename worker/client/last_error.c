#include <starling.h>

#include "core/reason.h"

const char *sl_last_error(void)
{
    return sl_reason_last()->text;
}
