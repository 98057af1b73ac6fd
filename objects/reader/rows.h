/* Rows of a published table: each shard of the parameter server has its keys, in ascending order,
 * and its rows in the same order. Pure; any thread. */
#ifndef SL_OBJECTS_READER_ROWS_H
#define SL_OBJECTS_READER_ROWS_H

#include <starling_objects.h>
#include <stdbool.h>

#include "core/precision.h"

struct sl_objects_rows_shard {
    const uint64_t *keys; /* [count], ascending */
    const void *rows;     /* [count], each a row of `precision` */
    uint64_t count;
    enum sl_precision precision;
};

/* Takes the tensors of a shard: keys are U64 [n]; rows are F32, F16 or BF16 [n][dim], or, of INT8,
 * U8 [n][4 + dim]. Returns false if they are not. */
bool sl_objects_rows_take(const struct sl_object_tensor *keys, const struct sl_object_tensor *rows,
                          struct sl_objects_rows_shard *out, uint64_t *dim);

/* Copies the rows of keys[key_count], widened, to rows[key_count][dim], and sets found[key_count]
 * to 1 or 0. Looks first in the shard that has the key in a sparse table (core/partition.h), then
 * in the others. */
void sl_objects_rows_copy(const struct sl_objects_rows_shard *shards, uint32_t shard_count,
                          uint32_t dim, const uint64_t *keys, uint64_t key_count, float *rows,
                          uint8_t *found);

#endif
