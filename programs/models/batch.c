#include "programs/models/batch.h"

#include <stdlib.h>

#include "core/array.h"
#include "core/assert.h"

#define FEATURES_MAX (UINT32_C(1) << 31)

int sl_batch_init(struct sl_batch *batch, uint32_t row_room)
{
    *batch = (struct sl_batch){.row_room = row_room};
    batch->labels = malloc(row_room * sizeof *batch->labels);
    batch->row_ends = malloc(row_room * sizeof *batch->row_ends);
    if (batch->labels == NULL || batch->row_ends == NULL) {
        sl_batch_fini(batch);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

void sl_batch_fini(struct sl_batch *batch)
{
    free(batch->labels);
    free(batch->row_ends);
    free(batch->features);
    free(batch->values);
    free(batch->keys);
    *batch = (struct sl_batch){0};
}

void sl_batch_clear(struct sl_batch *batch, struct sl_key_index *set)
{
    batch->row_count = 0;
    batch->feature_count = 0;
    batch->key_count = 0;
    sl_key_index_clear(set);
}

static int make_room(struct sl_batch *batch, uint32_t more)
{
    if (more > FEATURES_MAX - batch->feature_count) {
        return SL_ERR_TOO_LARGE;
    }
    const uint32_t end = batch->feature_count + more;
    uint32_t rooms[] = {batch->feature_room, batch->feature_room};
    return sl_array_make_room(&batch->features, &rooms[0], end, sizeof *batch->features) &&
                   sl_array_make_room(&batch->values, &rooms[1], end, sizeof *batch->values) &&
                   sl_array_make_room(&batch->keys, &batch->feature_room, end, sizeof *batch->keys)
               ? 0
               : SL_ERR_NO_MEMORY;
}

int sl_batch_add(struct sl_batch *batch, struct sl_key_index *set, const struct sl_reader_row *row)
{
    sl_assert(batch->row_count < batch->row_room);
    int err = make_room(batch, row->feature_count);
    if (err != 0) {
        return err;
    }
    uint32_t at = batch->feature_count;
    for (uint32_t i = 0; i < row->feature_count; i++) {
        uint64_t index;
        err = sl_key_index_add(set, row->keys[i], &index);
        if (err != 0) {
            return err;
        }
        batch->keys[index] = row->keys[i];
        batch->features[at + i] = (uint32_t)index;
        batch->values[at + i] = row->values[i];
    }
    batch->feature_count += row->feature_count;
    batch->key_count = (uint32_t)set->count;
    batch->labels[batch->row_count] = row->label;
    batch->row_ends[batch->row_count++] = batch->feature_count;
    return 0;
}
