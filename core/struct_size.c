#include "core/struct_size.h"

#include <string.h>

static size_t size_of(const void *caller)
{
    size_t given;
    memcpy(&given, caller, sizeof given);
    return given;
}

int sl_struct_size_read(const void *from, void *to, size_t bytes, const char *macro,
                        struct sl_reason *reason)
{
    const size_t given = size_of(from);
    if (given < sizeof given || given > SL_STRUCT_SIZE_MAX) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "struct_size is %zu: initialize the struct with %s", given, macro);
    }
    for (size_t i = bytes; i < given; i++) {
        if (((const char *)from)[i] != 0) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "struct_size is %zu, but the struct of this library (%s) has %zu "
                                  "bytes, and a member beyond them is set: use a later library",
                                  given, SL_VERSION, bytes);
        }
    }
    memset(to, 0, bytes);
    memcpy(to, from, given < bytes ? given : bytes);
    memcpy(to, &bytes, sizeof bytes);
    return 0;
}

void sl_struct_size_write(const void *from, void *to, size_t bytes)
{
    const size_t given = size_of(to);
    memcpy((char *)to + sizeof given, (const char *)from + sizeof given,
           (given < bytes ? given : bytes) - sizeof given);
}
