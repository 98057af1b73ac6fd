/* Numbers distinct keys in order of first appearance. Any u64 is a key. A hash table with linear
 * probing and 16 bytes per slot, at most three quarters full: 22 to 43 bytes per key, 50 % more
 * while growing. Clearing it costs nothing and keeps its memory. One thread. */
#ifndef SL_CORE_KEY_INDEX_H
#define SL_CORE_KEY_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct sl_key_index_slot {
    uint64_t key;
    uint64_t serial; /* base + number + 1 when the key was added; free: at most the base */
};

/* Zero-initialized: empty. */
struct sl_key_index {
    struct sl_key_index_slot *slots;
    uint64_t capacity; /* a power of two, or 0 */
    uint64_t count;
    uint64_t base; /* keys of all earlier uses */
};

/* Returns the key's number; a new key gets the number `count`. Errors: NO_MEMORY. */
int sl_key_index_add(struct sl_key_index *index, uint64_t key, uint64_t *number);

/* False: unknown key. */
bool sl_key_index_find(const struct sl_key_index *index, uint64_t key, uint64_t *number);

/* Writes the keys by their numbers. to[count] */
void sl_key_index_keys(const struct sl_key_index *index, uint64_t *to);

static inline void sl_key_index_clear(struct sl_key_index *index)
{
    index->base += index->count;
    index->count = 0;
}

void sl_key_index_fini(struct sl_key_index *index);

#endif
