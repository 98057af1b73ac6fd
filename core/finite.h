/* Looks for values that are NaN or infinite. Any thread. Allocates nothing. */
#ifndef SL_CORE_FINITE_H
#define SL_CORE_FINITE_H

#include <stdint.h>

/* Returns the index of the first value that is not finite; count: all values are. */
uint64_t sl_finite_prefix(const float *values, uint64_t count);

#endif
