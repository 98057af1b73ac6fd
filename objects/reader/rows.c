#include "objects/reader/rows.h"

#include "core/partition.h"

/* Index of the first key that is not below `key`. */
static uint64_t find(const uint64_t *keys, uint64_t count, uint64_t key)
{
    uint64_t first = 0;
    while (count > 0) {
        const uint64_t half = count / 2;
        if (keys[first + half] < key) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

bool sl_objects_rows_take(const struct sl_object_tensor *keys, const struct sl_object_tensor *rows,
                          struct sl_objects_rows_shard *out, uint64_t *dim)
{
    static const uint32_t types[SL_PRECISION_COUNT] = {SL_OBJECT_F32, SL_OBJECT_F16, SL_OBJECT_BF16,
                                                       SL_OBJECT_U8};
    uint32_t precision = 0;
    while (precision < SL_PRECISION_COUNT && types[precision] != rows->type) {
        precision++;
    }
    const uint64_t head = precision == SL_PRECISION_INT8 ? sizeof(float) : 0;
    if (keys->type != SL_OBJECT_U64 || keys->rank != 1 || precision == SL_PRECISION_COUNT ||
        rows->rank != 2 || rows->shape[0] != keys->shape[0] || rows->shape[1] < head ||
        rows->shape[1] > UINT32_MAX) {
        return false;
    }
    *out = (struct sl_objects_rows_shard){.keys = keys->data,
                                          .rows = rows->data,
                                          .count = keys->shape[0],
                                          .precision = (enum sl_precision)precision};
    *dim = rows->shape[1] - head;
    return true;
}

void sl_objects_rows_copy(const struct sl_objects_rows_shard *shards, uint32_t shard_count,
                          uint32_t dim, const uint64_t *keys, uint64_t key_count, float *rows,
                          uint8_t *found)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    for (uint64_t i = 0; i < key_count; i++) {
        const uint32_t owner = sl_partition_owner(keys[i], shard_count);
        found[i] = 0;
        for (uint32_t s = 0; s < shard_count && !found[i]; s++) {
            const struct sl_objects_rows_shard *shard = &shards[(owner + s) % shard_count];
            const uint64_t at = find(shard->keys, shard->count, keys[i]);
            found[i] = at < shard->count && shard->keys[at] == keys[i];
            if (found[i]) {
                kernels->widen(shard->precision,
                               (const uint8_t *)shard->rows +
                                   at * sl_precision_row_bytes(shard->precision, dim),
                               dim, rows + i * dim);
            }
        }
    }
}
