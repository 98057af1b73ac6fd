/* A batch holds examples in the form that models use: the distinct keys, and each row's features as
 * key indices. Memory is reused from batch to batch. Owned by one thread at a time. */
#ifndef SL_PROGRAMS_MODELS_BATCH_H
#define SL_PROGRAMS_MODELS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/key_index.h"

/* One example. Feature i belongs to field i, its position in the row. */
struct sl_reader_row {
    float label;    /* 0 or 1; NaN: none */
    bool has_query; /* the line has a "qid:N", which is not part of the row */
    uint32_t feature_count;
    uint32_t feature_room;
    uint64_t *keys; /* [feature_count]; owned by the row, grown by sl_reader_row_add */
    float *values;  /* [feature_count]; owned and grown as `keys` are */
};

struct sl_batch {
    uint32_t row_count, row_room;
    uint32_t feature_count, feature_room;
    uint32_t key_count;  /* <= feature_count */
    float *labels;       /* [row_count]: 0 or 1; NaN: none */
    uint32_t *row_ends;  /* [row_count]: row r's features are row_ends[r - 1] .. row_ends[r] */
    uint32_t *features;  /* [feature_count]: index into keys */
    float *values;       /* [feature_count] */
    uint64_t *keys;      /* [key_count], distinct, in order of first occurrence */
    uint32_t epoch;      /* from 0 */
    uint32_t index;      /* of the batch in its epoch, from 0 */
    uint64_t done_bytes; /* of the share, over all epochs, including this batch */
};

/* Allocates for up to row_room rows. Errors: NO_MEMORY. */
int sl_batch_init(struct sl_batch *batch, uint32_t row_room);
void sl_batch_fini(struct sl_batch *batch);

void sl_batch_clear(struct sl_batch *batch, struct sl_key_index *set);

/* Adds a row; there must be room for it. `set` holds exactly the batch's keys. Errors: NO_MEMORY,
 * TOO_LARGE (2^31 features). */
int sl_batch_add(struct sl_batch *batch, struct sl_key_index *set, const struct sl_reader_row *row);

static inline uint32_t sl_batch_row_start(const struct sl_batch *batch, uint32_t row)
{
    return row == 0 ? 0 : batch->row_ends[row - 1];
}

#endif
