#include "worker/train/keyset.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

#define FIRST_SLOTS 1024

int sl_keyset_init(struct sl_keyset *set)
{
    set->slots = calloc(FIRST_SLOTS, sizeof *set->slots);
    if (set->slots == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    set->mask = FIRST_SLOTS - 1;
    set->count = 0;
    set->generation = 1;
    return 0;
}

void sl_keyset_fini(struct sl_keyset *set)
{
    free(set->slots);
    set->slots = NULL;
}

void sl_keyset_clear(struct sl_keyset *set)
{
    set->count = 0;
    if (++set->generation == 0) { /* wrapped around: old slots would become valid */
        memset(set->slots, 0, ((size_t)set->mask + 1) * sizeof *set->slots);
        set->generation = 1;
    }
}

/* Returns the slot of the key, or the free slot for it. */
static struct sl_keyset_slot *find_slot(const struct sl_keyset *set, uint64_t key)
{
    uint32_t at = (uint32_t)sl_hash_key(key) & set->mask;
    while (set->slots[at].generation == set->generation && set->slots[at].key != key) {
        at = (at + 1) & set->mask;
    }
    return &set->slots[at];
}

static int grow(struct sl_keyset *set)
{
    struct sl_keyset old = *set;
    size_t slot_count = ((size_t)old.mask + 1) * 2;
    set->slots = calloc(slot_count, sizeof *set->slots);
    if (set->slots == NULL) {
        *set = old;
        return SL_ERR_NO_MEMORY;
    }
    set->mask = (uint32_t)(slot_count - 1);
    for (size_t i = 0; i <= old.mask; i++) {
        if (old.slots[i].generation == old.generation) {
            *find_slot(set, old.slots[i].key) = old.slots[i];
        }
    }
    free(old.slots);
    return 0;
}

int sl_keyset_add(struct sl_keyset *set, uint64_t key, uint32_t *index)
{
    struct sl_keyset_slot *slot = find_slot(set, key);
    if (slot->generation != set->generation) {
        if (set->count > set->mask / 2) {
            int err = grow(set);
            if (err != 0) {
                return err;
            }
            slot = find_slot(set, key);
        }
        *slot = (struct sl_keyset_slot){
            .key = key, .index = set->count++, .generation = set->generation};
    }
    *index = slot->index;
    return 0;
}
