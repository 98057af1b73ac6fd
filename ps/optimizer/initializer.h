/* First values of rows: a pure function of (seed, key, column), with the same bits on every machine
 * and with every compiler: nothing but integer arithmetic and IEEE additions, multiplications,
 * divisions and square roots goes into them. Any thread. */
#ifndef SL_PS_OPTIMIZER_INITIALIZER_H
#define SL_PS_OPTIMIZER_INITIALIZER_H

#include <stdint.h>

#include "core/err.h"

/* Of a specification that sl_message_check_spec accepts: writes columns [first_column, first_column
 * + count) of the row of `key` to out[count]. */
void sl_initializer_fill(const struct sl_initializer_spec *spec, uint64_t key,
                         uint32_t first_column, uint32_t count, float *out);

#endif
