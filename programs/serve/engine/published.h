/* A table of a job in a published version: where its rows lie. Pure; any thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_PUBLISHED_H
#define SL_PROGRAMS_SERVE_ENGINE_PUBLISHED_H

#include "objects/reader/rows.h"
#include "programs/serve/engine/engine.h"

struct sl_published_table {
    struct sl_objects_rows_shard shards[SL_OBJECTS_PARTS_MAX];
    uint32_t shard_count;
    uint64_t row_count;
};

/* Finds the tensors NAME/keys.S and NAME/rows.S of all shards S, from 0; a row has `dim` values.
 * The table points into the image. Errors: CORRUPT, with a reason that names table and shard. */
int sl_published_table_find(const struct sl_engine_image *image, const char *name, uint32_t dim,
                            struct sl_published_table *out, struct sl_reason *reason);

#endif
