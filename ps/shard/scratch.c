#include "ps/shard/scratch.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

/* Returns log2 of the slots for a section: at least twice the keys, at least 16. */
static uint32_t slot_bits(uint32_t key_count)
{
    uint32_t bits = 4;
    while ((1ULL << bits) < 2ULL * key_count) {
        bits++;
    }
    return bits;
}

int sl_shard_scratch_init(struct sl_shard_scratch *scratch, uint32_t key_max, size_t float_max)
{
    *scratch = (struct sl_shard_scratch){
        .slots = calloc((size_t)1 << slot_bits(key_max), sizeof *scratch->slots),
        .records = calloc(key_max, sizeof *scratch->records),
        .created = calloc(key_max, sizeof *scratch->created),
        .gradients = calloc(float_max, sizeof *scratch->gradients),
        .key_max = key_max,
    };
    if (scratch->slots == NULL || scratch->records == NULL || scratch->created == NULL ||
        scratch->gradients == NULL) {
        sl_shard_scratch_fini(scratch);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

void sl_shard_scratch_fini(struct sl_shard_scratch *scratch)
{
    free(scratch->slots);
    free(scratch->records);
    free(scratch->created);
    free(scratch->gradients);
    *scratch = (struct sl_shard_scratch){0};
}

void sl_shard_scratch_begin(struct sl_shard_scratch *scratch, uint32_t key_count)
{
    sl_assert(key_count <= scratch->key_max);
    scratch->shift = 32 - slot_bits(key_count);
    scratch->generation++;
    if (scratch->generation == 0) {
        /* The generation wrapped after 2^32 sections; old slots would look valid. */
        memset(scratch->slots, 0, sizeof *scratch->slots << slot_bits(scratch->key_max));
        scratch->generation = 1;
    }
}
