#include "tools/ckpt/row_index.h"

#include <stdlib.h>

#include "core/hash.h"

/* Returns the slot of the key, or a free slot for it. */
static struct sl_row_index_place *seek(const struct sl_row_index *rows, uint64_t key)
{
    uint64_t at = sl_hash_key(key);
    for (;; at++) {
        struct sl_row_index_place *place = &rows->places[at & (rows->capacity - 1)];
        if (place->number == 0 || place->key == key) {
            return place;
        }
    }
}

static int grow(struct sl_row_index *rows)
{
    struct sl_row_index more = {.capacity = rows->capacity == 0 ? 1024 : rows->capacity * 2,
                                .count = rows->count};
    more.places = calloc(more.capacity, sizeof *more.places);
    if (more.places == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < rows->capacity; i++) {
        if (rows->places[i].number != 0) {
            *seek(&more, rows->places[i].key) = rows->places[i];
        }
    }
    free(rows->places);
    *rows = more;
    return 0;
}

int sl_row_index_add(struct sl_row_index *rows, uint64_t key, uint64_t *number, bool *fresh)
{
    if (rows->count >= rows->capacity / 4 * 3 && grow(rows) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_row_index_place *place = seek(rows, key);
    *fresh = place->number == 0;
    if (*fresh) {
        place->key = key;
        place->number = ++rows->count;
    }
    *number = place->number - 1;
    return 0;
}

bool sl_row_index_find(const struct sl_row_index *rows, uint64_t key, uint64_t *number)
{
    if (rows->capacity == 0) {
        return false;
    }
    const struct sl_row_index_place *place = seek(rows, key);
    *number = place->number - 1;
    return place->number != 0;
}

void sl_row_index_fini(struct sl_row_index *rows)
{
    free(rows->places);
    *rows = (struct sl_row_index){0};
}
