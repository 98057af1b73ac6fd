#include "core/partition.h"

#include "core/assert.h"

uint64_t sl_partition_range_start(uint64_t length, uint32_t shard_count, uint32_t range)
{
    sl_assert(shard_count > 0);
    sl_assert(range <= shard_count);
    if (range == shard_count) {
        return length;
    }
    const uint64_t blocks =
        length / SL_PARTITION_BLOCK_ELEMENTS + (length % SL_PARTITION_BLOCK_ELEMENTS != 0);
    /* floor(range * blocks / shard_count) in two parts, so that no product overflows. */
    const uint64_t block =
        range * (blocks / shard_count) + (uint64_t)range * (blocks % shard_count) / shard_count;
    return block * SL_PARTITION_BLOCK_ELEMENTS;
}
