/* The distinct keys of one batch, each with its number in the order of first sight. Open addressing
 * with linear probing, at most half full; memory is reused, and emptying it costs nothing: a slot
 * counts only while it carries the current generation. Owned by one thread. */
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

/* The key's number, count - 1 after if it was not there before. Errors: NO_MEMORY. */
int sl_keyset_add(struct sl_keyset *set, uint64_t key, uint32_t *index);

#endif
