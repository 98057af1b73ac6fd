/* The scratch is the working memory of a push: the distinct record indexes and, only if keys
 * repeat, their summed gradients. An open-addressing set of record indexes finds repeats. Its slots
 * carry a generation, so it is never cleared. A section uses only as many slots as it needs, to
 * stay in the cache. Owner reactor. Allocates at init (lazily mapped). */
#ifndef SL_PS_SHARD_SCRATCH_H
#define SL_PS_SHARD_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_shard_request;

struct sl_shard_scratch_slot {
    uint32_t generation; /* in use if equal to the scratch's generation */
    uint32_t index;      /* into the distinct record indexes */
};

struct sl_shard_scratch {
    struct sl_shard_scratch_slot *slots;
    uint32_t *records; /* [key_max] distinct record indexes of the section, in order of first
                          occurrence */
    uint32_t *created; /* [key_max] records of the rows that the section has created; at the end
                          those of keys that wait for admission */
    float *gradients;  /* summed gradients, if keys repeat */
    size_t bytes;      /* of the mapping that begins with the slots and has all arrays */
    uint32_t key_max;
    uint32_t shift; /* 32 - log2 of the slots in use */
    uint32_t generation;
    const struct sl_shard_request *owner; /* the push that uses it; NULL: free */
};

/* Errors: NO_MEMORY. */
int sl_shard_scratch_init(struct sl_shard_scratch *scratch, uint32_t key_max, size_t float_max);
void sl_shard_scratch_fini(struct sl_shard_scratch *scratch);

/* Empties the set for a section of key_count keys, at most key_max. */
void sl_shard_scratch_begin(struct sl_shard_scratch *scratch, uint32_t key_count);

/* Returns the position of `record` in records[0 .. distinct), or `distinct` when it is new. A new
 * record is added to the set, and the caller must store it at that position. */
static inline uint32_t sl_shard_scratch_find(struct sl_shard_scratch *scratch,
                                             const uint32_t *records, uint32_t record,
                                             uint32_t distinct)
{
    uint32_t mask = UINT32_MAX >> scratch->shift;
    uint32_t at = (record * 0x9e3779b1U) >> scratch->shift; /* Knuth's multiplicative hash */
    for (;; at = (at + 1) & mask) {
        struct sl_shard_scratch_slot *slot = &scratch->slots[at];
        if (slot->generation != scratch->generation) {
            *slot = (struct sl_shard_scratch_slot){.generation = scratch->generation,
                                                   .index = distinct};
            return distinct;
        }
        if (records[slot->index] == record) {
            return slot->index;
        }
    }
}

#endif
