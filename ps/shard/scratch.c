#include "ps/shard/scratch.h"

#include <string.h>
#include <sys/mman.h>

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
    const size_t slot_bytes = sizeof *scratch->slots << slot_bits(key_max);
    const size_t bytes = slot_bytes + key_max * 2 * sizeof(uint32_t) + float_max * sizeof(float);
    /* A mapping, since calloc writes zeros where the heap has had the memory before. */
    char *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *scratch = (struct sl_shard_scratch){.key_max = key_max};
    if (mapping == MAP_FAILED) {
        return SL_ERR_NO_MEMORY;
    }
    scratch->bytes = bytes;
    scratch->slots = (void *)mapping;
    scratch->records = (void *)(mapping + slot_bytes);
    scratch->created = scratch->records + key_max;
    scratch->gradients = (void *)(scratch->created + key_max);
    return 0;
}

void sl_shard_scratch_fini(struct sl_shard_scratch *scratch)
{
    if (scratch->slots != NULL) {
        (void)munmap(scratch->slots, scratch->bytes);
    }
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
