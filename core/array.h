/* An array that grows: the items move, so they must be copyable. The caller owns and frees the
 * array. Any thread. */
#ifndef SL_CORE_ARRAY_H
#define SL_CORE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for the item `index` in an array of *capacity items: if it has none, doubles the
 * capacity until it has. array: the address of the pointer to the items, which are NULL if
 * *capacity is 0. Returns false if there is no memory; then nothing has changed. */
bool sl_array_make_room(void *array, uint32_t *capacity, uint32_t index, size_t item_bytes);

/* Moves the variable `first` to the first index up to `count` for which the condition does not
 * hold, by bisection. The condition is on `index`, and holds for all indices below that one. */
#define SL_ARRAY_BISECT(first, count, index, condition)                                            \
    for (__typeof__(first) end_ = (count); (first) < end_;) {                                      \
        const __typeof__(first) index = (first) + (end_ - (first)) / 2;                            \
        if (condition) {                                                                           \
            (first) = index + 1;                                                                   \
        } else {                                                                                   \
            end_ = index;                                                                          \
        }                                                                                          \
    }

#endif
