/* A key set numbers the distinct keys of one batch in order of first occurrence. Open addressing
 * with linear probing, at most half full. Memory is reused; clearing is free, because a slot counts
 * only while it has the current generation. Owned by one thread. */
#ifndef SL_WORKER_TRAIN_KEYSET_H
#define SL_WORKER_TRAIN_KEYSET_H

#include <stdint.h>

#include "core/err.h"

struct sl_keyset_slot {
    uint64_t key;
    uint32_t index;
    uint32_t generation;
};

struct sl_keyset {
    struct sl_keyset_slot *slots;
    uint32_t mask; /* slots - 1 */
    uint32_t count;
    uint32_t generation;
};

/* Errors: NO_MEMORY. */
int sl_keyset_init(struct sl_keyset *set);
void sl_keyset_fini(struct sl_keyset *set);

void sl_keyset_clear(struct sl_keyset *set);

/* Writes the key's index; a new key gets index count - 1. Errors: NO_MEMORY. */
int sl_keyset_add(struct sl_keyset *set, uint64_t key, uint32_t *index);

#endif
