#include "core/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void sl_assert_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
