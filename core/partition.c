#include "core/partition.h"

#include "core/assert.h"

static uint64_t blocks_of(uint64_t length)
{
    return length / SL_PARTITION_BLOCK_ELEMENTS + (length % SL_PARTITION_BLOCK_ELEMENTS != 0);
}

uint64_t sl_partition_range_start(uint64_t length, uint32_t shard_count, uint32_t range)
{
    sl_assert(shard_count > 0);
    sl_assert(range <= shard_count);
    if (range == shard_count) {
        return length;
    }
    const uint64_t blocks = blocks_of(length);
    /* floor(range * blocks / shard_count) in two parts, so that no product overflows. */
    const uint64_t block =
        range * (blocks / shard_count) + (uint64_t)range * (blocks % shard_count) / shard_count;
    return block * SL_PARTITION_BLOCK_ELEMENTS;
}

uint32_t sl_partition_range_of(uint64_t length, uint32_t shard_count, uint64_t element)
{
    sl_assert(element < length);
    /* The last range whose first block, floor(range * blocks / shard_count), is not beyond. */
    const uint64_t beyond = element / SL_PARTITION_BLOCK_ELEMENTS + 1;
    return (uint32_t)(((unsigned __int128)beyond * shard_count - 1) / blocks_of(length));
}
