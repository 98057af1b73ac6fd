/* Sizes with a unit: 0, 500M, 64G. Pure. */
#ifndef SL_CONFIG_SIZE_H
#define SL_CONFIG_SIZE_H

#include <stddef.h>

#include "core/err.h"

/* "64G" -> bytes (powers of 1024). name: "--memory-limit", for the reason. Errors: INVALID. */
int sl_size_parse(const char *name, const char *text, size_t *out, char *reason,
                  size_t reason_bytes);

#endif
