#include "core/key_index.h"

#include <stdlib.h>

#include "core/hash.h"

/* Returns the slot of the key, or a free slot for it. */
static struct sl_key_index_slot *key_index_seek(const struct sl_key_index *index, uint64_t key)
{
    uint64_t at = sl_hash_key(key);
    for (;; at++) {
        struct sl_key_index_slot *slot = &index->slots[at & (index->capacity - 1)];
        if (slot->serial <= index->base || slot->key == key) {
            return slot;
        }
    }
}

static int grow(struct sl_key_index *index)
{
    struct sl_key_index more = *index;
    more.capacity = index->capacity == 0 ? 1024 : index->capacity * 2;
    more.slots = calloc(more.capacity, sizeof *more.slots);
    if (more.slots == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < index->capacity; i++) {
        if (index->slots[i].serial > index->base) {
            *key_index_seek(&more, index->slots[i].key) = index->slots[i];
        }
    }
    free(index->slots);
    *index = more;
    return 0;
}

int sl_key_index_add(struct sl_key_index *index, uint64_t key, uint64_t *number)
{
    if (index->count >= index->capacity / 4 * 3 && grow(index) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_key_index_slot *slot = key_index_seek(index, key);
    if (slot->serial <= index->base) {
        slot->key = key;
        slot->serial = index->base + ++index->count;
    }
    *number = slot->serial - index->base - 1;
    return 0;
}

bool sl_key_index_find(const struct sl_key_index *index, uint64_t key, uint64_t *number)
{
    if (index->capacity == 0) {
        return false;
    }
    const struct sl_key_index_slot *slot = key_index_seek(index, key);
    *number = slot->serial - index->base - 1;
    return slot->serial > index->base;
}

void sl_key_index_keys(const struct sl_key_index *index, uint64_t *to)
{
    for (uint64_t i = 0; i < index->capacity; i++) {
        const struct sl_key_index_slot *slot = &index->slots[i];
        if (slot->serial > index->base) {
            to[slot->serial - index->base - 1] = slot->key;
        }
    }
}

void sl_key_index_fini(struct sl_key_index *index)
{
    free(index->slots);
    *index = (struct sl_key_index){0};
}
