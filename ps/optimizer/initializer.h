/* The initializer computes the first values of rows: a pure function of (seed, key, column). It
 * uses only integer arithmetic and IEEE additions, multiplications, divisions and square roots. So
 * the bits are the same on every machine and with every compiler. Any thread. */
#ifndef SL_PS_OPTIMIZER_INITIALIZER_H
#define SL_PS_OPTIMIZER_INITIALIZER_H

#include <stdint.h>

#include "core/err.h"

/* Writes columns [first_column, first_column + count) of the row of `key` to out[count]. The
 * specification has passed sl_message_check_spec. */
void sl_initializer_fill(const struct sl_initializer_spec *spec, uint64_t key,
                         uint32_t first_column, uint32_t count, float *out);

#endif
