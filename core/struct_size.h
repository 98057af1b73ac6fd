/* A struct of the public API that begins with `size_t struct_size` may grow: the size says which
 * members the caller's header has. Any thread; no allocation. */
#ifndef SL_CORE_STRUCT_SIZE_H
#define SL_CORE_STRUCT_SIZE_H

#include <stddef.h>

#include "core/reason.h"

#define SL_STRUCT_SIZE_MAX 4096 /* a larger size was never initialized */

/* Copies the caller's struct to `to`, which has `bytes`. Members beyond the caller's size are 0,
 * their default. A caller of a later header may set no member that this library lacks. macro: the
 * initializer, for the reason. Errors: INVALID. */
int sl_struct_size_read(const void *from, void *to, size_t bytes, const char *macro,
                        struct sl_reason *reason);

/* Copies the members that the caller's struct has back to it, once it was read. */
void sl_struct_size_write(const void *from, void *to, size_t bytes);

#endif
