#include "programs/serve/engine/ctr.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "programs/models/model_note.h"
#include "programs/serve/engine/published.h"
#include "ps/optimizer/narrow.h"

#define BLOCK SL_PARTITION_BLOCK_ELEMENTS

/* A table of the model. Its rows are those of the keys of a run, or, if it is dense, its blocks. */
struct table {
    struct sl_table_spec spec;
    struct sl_published_table published;
    uint32_t row_floats;
    uint64_t block_count;    /* 0: it is sparse */
    uint64_t scratch_offset; /* of the rows */
};

struct ctr {
    const struct sl_model *model;
    struct sl_model_shape shape;
    struct table tables[SL_MODEL_TABLES];
    uint32_t table_count, fields;
    /* In the scratch, for rows_max rows: sl_model_pass, objects/reader/rows.h,
     * programs/models/batch.h. */
    uint64_t pass_offset, found_offset, features_offset, row_ends_offset;
    struct sl_engine_tensor inputs[2], output; /* keys, values */
    struct sl_engine_layer layer;
    struct sl_engine_info info;
};

/* Open */

static int find_rows(struct table *table, const struct sl_engine_image *image,
                     struct sl_reason *reason)
{
    const int err = sl_published_table_find(image, table->spec.name, table->row_floats,
                                            &table->published, reason);
    return err != 0 || table->block_count == 0 || table->published.row_count == table->block_count
               ? err
               : sl_reason_fail(reason, SL_ERR_CORRUPT,
                                "dense table %s has %" PRIu64 " blocks: its model needs %" PRIu64,
                                table->spec.name, table->published.row_count, table->block_count);
}

/* Returns the offset of so many bytes in the scratch. */
static uint64_t place(struct ctr *ctr, uint64_t bytes)
{
    const uint64_t at = ctr->info.scratch_bytes;
    ctr->info.scratch_bytes += (bytes + 63) / 64 * 64;
    return at;
}

static void lay_out(struct ctr *ctr, uint32_t rows_max, uint64_t image_end)
{
    const uint64_t fields = ctr->fields, key_count = rows_max * fields;
    ctr->inputs[0] = (struct sl_engine_tensor){.name = "keys",
                                               .type = SL_OBJECT_U64,
                                               .rank = 2,
                                               .shape = {0, fields},
                                               .row_bytes = fields * sizeof(uint64_t),
                                               .scratch_offset = place(ctr, key_count * 8)};
    ctr->inputs[1] = (struct sl_engine_tensor){.name = "values",
                                               .type = SL_OBJECT_F32,
                                               .rank = 2,
                                               .shape = {0, fields},
                                               .row_bytes = fields * sizeof(float),
                                               .scratch_offset = place(ctr, key_count * 4)};
    ctr->output = (struct sl_engine_tensor){.name = "probability",
                                            .type = SL_OBJECT_F32,
                                            .rank = 1,
                                            .row_bytes = sizeof(float),
                                            .scratch_offset = place(ctr, rows_max * 4ULL)};
    ctr->layer.image_end = image_end; /* any row may have any key */
    ctr->pass_offset = place(ctr, ctr->model->scratch_floats(&ctr->shape) * sizeof(float));
    ctr->found_offset = place(ctr, key_count);
    ctr->features_offset = place(ctr, key_count * sizeof(uint32_t));
    ctr->row_ends_offset = place(ctr, rows_max * sizeof(uint32_t));
    for (uint32_t i = 0; i < ctr->table_count; i++) {
        struct table *table = &ctr->tables[i];
        const uint64_t rows = table->block_count > 0 ? table->block_count : key_count;
        table->scratch_offset = place(ctr, rows * table->row_floats * sizeof(float));
        ctr->layer.flops += 4.0 * (double)(fields * table->spec.dim + table->spec.length);
    }
    ctr->info.inputs = ctr->inputs;
    ctr->info.input_count = 2;
    ctr->info.outputs = &ctr->output;
    ctr->info.layers = &ctr->layer;
    ctr->info.output_count = ctr->info.layer_count = 1;
}

static int open_ctr(struct ctr *ctr, const struct sl_engine_image *image, uint32_t rows_max,
                    struct sl_reason *reason)
{
    struct sl_table_spec specs[SL_MODEL_TABLES];
    int err = sl_model_note_read(image->note, &ctr->model, &ctr->shape, reason);
    if (err != 0) {
        return err;
    }
    ctr->fields = ctr->shape.fields > 0 ? ctr->shape.fields : SL_CTR_FIELDS;
    ctr->table_count = ctr->model->tables(&ctr->shape, specs);
    for (uint32_t i = 0; err == 0 && i < ctr->table_count; i++) {
        struct table *table = &ctr->tables[i];
        table->spec = specs[i];
        table->block_count = (specs[i].length + BLOCK - 1) / BLOCK;
        table->row_floats = table->block_count > 0 ? BLOCK : specs[i].dim;
        err = find_rows(table, image, reason);
    }
    if (err != 0) {
        return err;
    }
    lay_out(ctr, rows_max, image->bytes);
    return ctr->info.scratch_bytes <= SL_CTR_SCRATCH_MAX
               ? 0
               : sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                                "the model needs %" PRIu64 " bytes for %u rows: at most %llu",
                                ctr->info.scratch_bytes, rows_max, SL_CTR_SCRATCH_MAX);
}

static int ctr_open_model(const struct sl_engine_image *image, uint32_t rows_max,
                          struct sl_reason *reason, void **out)
{
    struct ctr *ctr = calloc(1, sizeof *ctr);
    int err = ctr == NULL ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the model")
                          : open_ctr(ctr, image, rows_max, reason);
    if (err != 0) {
        free(ctr);
        return err;
    }
    *out = ctr;
    return 0;
}

static const struct sl_engine_info *ctr_info_of(const void *model)
{
    return &((const struct ctr *)model)->info;
}

static void ctr_close_model(void **model)
{
    free(*model);
    *model = NULL;
}

/* Run */

/* The blocks of a dense table: in the view if they are in one shard, else joined. NULL: one is
 * missing. */
static const float *dense_values(const struct table *table, float *to)
{
    uint8_t found = 1;
    for (uint32_t i = 0; i < table->published.shard_count; i++) {
        if (table->published.shards[i].count == table->block_count &&
            table->published.shards[i].precision == SL_PRECISION_F32) {
            return table->published.shards[i].rows;
        }
    }
    for (uint64_t block = 0; block < table->block_count && found; block++) {
        sl_objects_rows_copy(table->published.shards, table->published.shard_count, BLOCK, &block,
                             1, to + block * BLOCK, &found);
    }
    return found ? to : NULL;
}

/* A key that the version does not have has its initial row, as in the answer of a server. */
static const float *sparse_values(const struct table *table, const uint64_t *keys, uint64_t count,
                                  float *to, uint8_t *found)
{
    const uint32_t dim = table->row_floats;
    sl_objects_rows_copy(table->published.shards, table->published.shard_count, dim, keys, count,
                         to, found);
    for (uint64_t i = 0; i < count; i++) {
        if (!found[i]) {
            sl_narrow_first_row(&table->spec.initializer, table->published.shards[0].precision,
                                keys[i], dim, to + i * dim);
        }
    }
    return to;
}

static int ctr_run_layer(void *model, uint8_t *scratch, uint32_t layer, uint32_t rows,
                         struct sl_reason *reason)
{
    const struct ctr *ctr = model;
    const uint32_t fields = ctr->fields, count = rows * fields;
    const uint64_t *keys = (const void *)(scratch + ctr->inputs[0].scratch_offset);
    float *values = (void *)(scratch + ctr->inputs[1].scratch_offset);
    float *output = (void *)(scratch + ctr->output.scratch_offset);
    struct sl_batch batch = {.row_count = rows,
                             .row_ends = (void *)(scratch + ctr->row_ends_offset),
                             .features = (void *)(scratch + ctr->features_offset),
                             .values = values};
    struct sl_model_pass pass = {.shape = &ctr->shape,
                                 .scratch = (void *)(scratch + ctr->pass_offset)};
    sl_assert(layer == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "values[%u, %u] must be finite",
                                  i / fields, i % fields);
        }
        batch.features[i] = i;
        batch.row_ends[i / fields] = i + 1;
    }
    for (uint32_t i = 0; i < ctr->table_count; i++) {
        const struct table *table = &ctr->tables[i];
        float *to = (void *)(scratch + table->scratch_offset);
        pass.params[i] = table->block_count > 0
                             ? dense_values(table, to)
                             : sparse_values(table, keys, count, to, scratch + ctr->found_offset);
        if (pass.params[i] == NULL) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT, "table %s lacks a block",
                                  table->spec.name);
        }
    }
    sl_model_score(ctr->model, &pass, &batch, output);
    for (uint32_t i = 0; i < rows; i++) {
        output[i] = 1 / (1 + expf(-output[i]));
    }
    return 0;
}

const struct sl_engine sl_engine_ctr = {
    .name = "ctr",
    .open = ctr_open_model,
    .info = ctr_info_of,
    .run = ctr_run_layer,
    .close = ctr_close_model,
};
