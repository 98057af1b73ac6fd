/* First values of rows: a pure function of (seed, key, column), with the same bits on every machine
 * and with every compiler: nothing but integer arithmetic and IEEE additions, multiplications,
 * divisions and square roots goes into them. Any thread. */
#ifndef SL_PS_INITIALIZER_H
#define SL_PS_INITIALIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* Writes columns [first_column, first_column + count) of the row of `key` to out[count]. */
void sl_initializer_fill(const struct sl_initializer_spec *spec, uint64_t key,
                         uint32_t first_column, uint32_t count, float *out);

/* True when the parameters are finite and, for a uniform, a <= b; for a normal, b >= 0; else false
 * and *reason is a sentence of static storage. */
bool sl_initializer_spec_valid(const struct sl_initializer_spec *spec, const char **reason);

#endif
