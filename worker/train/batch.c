#include "worker/train/batch.h"

#include <stdlib.h>

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

void sl_batch_clear(struct sl_batch *batch, struct sl_keyset *set)
{
    batch->row_count = 0;
    batch->feature_count = 0;
    batch->key_count = 0;
    sl_keyset_clear(set);
}

static int grow(void **array, size_t count, size_t item_bytes)
{
    void *grown = realloc(*array, count * item_bytes);
    if (grown == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *array = grown;
    return 0;
}

static int make_room(struct sl_batch *batch, uint32_t more)
{
    if (more > FEATURES_MAX - batch->feature_count) {
        return SL_ERR_TOO_LARGE;
    }
    uint32_t wanted = batch->feature_count + more;
    if (wanted <= batch->feature_room) {
        return 0;
    }
    uint32_t room = batch->feature_room == 0 ? 4096 : batch->feature_room;
    while (room < wanted) {
        room *= 2;
    }
    int err = grow((void **)&batch->features, room, sizeof *batch->features);
    if (err == 0) {
        err = grow((void **)&batch->values, room, sizeof *batch->values);
    }
    if (err == 0) {
        err = grow((void **)&batch->keys, room, sizeof *batch->keys);
    }
    if (err == 0) {
        batch->feature_room = room;
    }
    return err;
}

int sl_batch_add(struct sl_batch *batch, struct sl_keyset *set, const struct sl_reader_row *row)
{
    sl_assert(batch->row_count < batch->row_room);
    int err = make_room(batch, row->feature_count);
    if (err != 0) {
        return err;
    }
    uint32_t at = batch->feature_count;
    for (uint32_t i = 0; i < row->feature_count; i++) {
        uint32_t index;
        err = sl_keyset_add(set, row->keys[i], &index);
        if (err != 0) {
            return err;
        }
        batch->keys[index] = row->keys[i];
        batch->features[at + i] = index;
        batch->values[at + i] = row->values[i];
    }
    batch->feature_count += row->feature_count;
    batch->key_count = set->count;
    batch->labels[batch->row_count] = row->label;
    batch->row_ends[batch->row_count++] = batch->feature_count;
    return 0;
}
