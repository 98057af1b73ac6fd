#include "core/array.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 2

bool sl_array_make_room(void *array, uint32_t *capacity, uint32_t index, size_t item_bytes)
{
    if (index < *capacity) {
        return true;
    }
    uint64_t more = *capacity == 0 ? CAPACITY_FIRST : *capacity;
    while (more <= index) {
        more *= 2;
    }
    size_t bytes;
    if (more > UINT32_MAX || __builtin_mul_overflow(more, item_bytes, &bytes)) {
        return false;
    }
    void *items;
    memcpy(&items, array, sizeof items);
    items = realloc(items, bytes);
    if (items == NULL) {
        return false;
    }
    memcpy(array, &items, sizeof items);
    *capacity = (uint32_t)more;
    return true;
}
