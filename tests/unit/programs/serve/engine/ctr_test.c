/* The engine of click-through models, beside sl_model_score with the same parameters. */
#include "programs/serve/engine/ctr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/partition.h"
#include "core/precision.h"
#include "programs/models/model_note.h"
#include "ps/optimizer/initializer.h"
#include "tests/support/unit.h"

/* The hidden layers make tower1 of more than one block. */
enum { ROWS = 5, FIELDS = 5, KEYS = 40, SHARDS = 2, TENSORS_MAX = 2 * SHARDS * SL_MODEL_TABLES };

static const struct sl_model_shape SHAPE = {
    .factors = 8, .fields = FIELDS, .hidden = {64, 9}, .seed = 3};

struct fixture {
    const struct sl_model *model;
    char note[SL_MODEL_NOTE_BYTES];
    struct sl_table_spec specs[SL_MODEL_TABLES];
    uint32_t table_count;
    char names[TENSORS_MAX][SL_TABLE_NAME_BYTES + 16];
    struct sl_object_tensor tensors[TENSORS_MAX];
    uint64_t offsets[TENSORS_MAX];
    struct sl_engine_image image;
    struct sl_reason reason;
};

static float draw(uint64_t *seed)
{
    return (float)((double)(sl_hash_random(seed) >> 11) * 0x1p-53 - 0.5);
}

/* Every third key is in no table. */
static bool is_stored(const struct sl_table_spec *spec, uint64_t key)
{
    return spec->kind == SL_TABLE_DENSE || key % 3 != 0;
}

/* Writes the row as the table stores it to stored[sl_precision_row_bytes]. */
static void store_row(const struct sl_table_spec *spec, uint32_t dim, const float *row,
                      uint8_t *stored)
{
    sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)->narrow(spec->values, row, dim, stored);
}

/* The parameters of a row, as the servers have them. */
static void make_row(const struct sl_table_spec *spec, uint64_t key, uint32_t dim, float *row)
{
    uint64_t seed = sl_hash_key(key + 7 * strlen(spec->name));
    for (uint32_t i = 0; i < dim; i++) {
        row[i] = draw(&seed);
    }
    if (!is_stored(spec, key)) {
        sl_initializer_fill(&spec->initializer, key, 0, dim, row);
    }
    uint8_t stored[SL_PARTITION_BLOCK_ELEMENTS * sizeof(float)];
    store_row(spec, dim, row, stored);
    sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)->widen(spec->values, stored, dim, row);
}

static void add_tensor(struct fixture *f, const char *table, const char *kind, uint32_t shard,
                       struct sl_object_tensor tensor)
{
    const uint32_t i = f->image.count++;
    (void)snprintf(f->names[i], sizeof f->names[i], "%s/%s.%u", table, kind, shard);
    tensor.name = f->names[i];
    f->tensors[i] = tensor;
    f->offsets[i] = f->image.bytes;
    f->image.bytes += tensor.bytes;
}

static void add_table(struct fixture *f, const struct sl_table_spec *spec, uint32_t shard)
{
    static const uint32_t types[] = {SL_OBJECT_F32, SL_OBJECT_F16, SL_OBJECT_BF16, SL_OBJECT_U8};
    const bool is_dense = spec->kind == SL_TABLE_DENSE;
    const uint32_t dim = is_dense ? SL_PARTITION_BLOCK_ELEMENTS : spec->dim;
    const uint64_t all = is_dense ? (spec->length + dim - 1) / dim : KEYS;
    uint64_t *keys = malloc(all * sizeof *keys), count = 0;
    const size_t row_bytes = sl_precision_row_bytes(spec->values, dim);
    uint8_t *rows = malloc(all * row_bytes);
    float row[SL_PARTITION_BLOCK_ELEMENTS];
    for (uint64_t key = 0; key < all; key++) {
        const uint32_t owner = is_dense ? (uint32_t)key % SHARDS : sl_partition_owner(key, SHARDS);
        if (owner == shard && is_stored(spec, key)) {
            make_row(spec, key, dim, row);
            store_row(spec, dim, row, rows + count * row_bytes);
            keys[count++] = key;
        }
    }
    add_tensor(
        f, spec->name, "keys", shard,
        (struct sl_object_tensor){
            .type = SL_OBJECT_U64, .rank = 1, .shape = {count}, .data = keys, .bytes = 8 * count});
    add_tensor(f, spec->name, "rows", shard,
               (struct sl_object_tensor){
                   .type = types[spec->values],
                   .rank = 2,
                   .shape = {count, dim + (spec->values == SL_PRECISION_INT8 ? 4 : 0)},
                   .data = rows,
                   .bytes = count * row_bytes});
}

static void set_up(struct fixture *f, const struct sl_model *model, enum sl_precision values)
{
    *f = (struct fixture){.model = model};
    sl_model_note_write(model, &SHAPE, f->note);
    f->table_count = model->tables(&SHAPE, f->specs);
    f->image.tensors = f->tensors;
    f->image.offsets = f->offsets;
    f->image.note = f->note;
    for (uint32_t t = 0; t < f->table_count; t++) {
        f->specs[t].values = f->specs[t].kind == SL_TABLE_SPARSE ? values : SL_PRECISION_F32;
    }
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint32_t t = 0; t < f->table_count; t++) {
            add_table(f, &f->specs[t], shard);
        }
    }
}

static void tear_down(struct fixture *f)
{
    for (uint32_t i = 0; i < f->image.count; i++) {
        free((void *)f->tensors[i].data);
    }
}

/* Example r has r % FIELDS + 1 features; the last one has a key that no table has. */
static uint32_t make_example(uint32_t r, uint64_t *keys, float *values)
{
    uint64_t seed = r;
    const uint32_t count = r % FIELDS + 1;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = i + 1 < count ? sl_hash_random(&seed) % KEYS : UINT64_MAX - 3 * r;
        values[i] = 1 + draw(&seed);
    }
    return count;
}

/* The logits of the trainer. */
static void score(const struct fixture *f, float logits[ROWS])
{
    struct sl_batch batch;
    struct sl_key_index set = {0};
    struct sl_model_pass pass = {.shape = &SHAPE};
    uint64_t keys[FIELDS];
    float values[FIELDS];
    assert_int_equal(sl_batch_init(&batch, ROWS), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        const struct sl_reader_row row = {
            .feature_count = make_example(r, keys, values), .keys = keys, .values = values};
        assert_int_equal(sl_batch_add(&batch, &set, &row), 0);
    }
    for (uint32_t t = 0; t < f->table_count; t++) {
        const struct sl_table_spec *spec = &f->specs[t];
        const bool is_dense = spec->kind == SL_TABLE_DENSE;
        const uint32_t dim = is_dense ? SL_PARTITION_BLOCK_ELEMENTS : spec->dim;
        const uint64_t count = is_dense ? (spec->length + dim - 1) / dim : batch.key_count;
        float *rows = malloc(count * dim * sizeof *rows);
        for (uint64_t i = 0; i < count; i++) {
            make_row(spec, is_dense ? i : batch.keys[i], dim, rows + i * dim);
        }
        pass.params[t] = rows;
    }
    pass.scratch = calloc(f->model->scratch_floats(&SHAPE) + 1, sizeof(float));
    sl_model_score(f->model, &pass, &batch, logits);
    for (uint32_t t = 0; t < f->table_count; t++) {
        free((void *)pass.params[t]);
    }
    free(pass.scratch);
    sl_batch_fini(&batch);
    sl_key_index_fini(&set);
}

/* Writes the examples, with fields of value 0 for missing features. */
static uint8_t *make_scratch(const struct sl_engine_info *info)
{
    void *scratch = aligned_alloc(64, info->scratch_bytes);
    assert_non_null(scratch);
    memset(scratch, 0xff, info->scratch_bytes);
    uint64_t *keys = (void *)((uint8_t *)scratch + info->inputs[0].scratch_offset);
    float *values = (void *)((uint8_t *)scratch + info->inputs[1].scratch_offset);
    memset(keys, 0, ROWS * info->inputs[0].row_bytes);
    memset(values, 0, ROWS * info->inputs[1].row_bytes);
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint64_t fields = info->inputs[0].shape[1];
        (void)make_example(r, keys + r * fields, values + r * fields);
    }
    return scratch;
}

static void check_model(const struct sl_model *model, enum sl_precision values)
{
    struct fixture f;
    float logits[ROWS];
    void *opened;
    set_up(&f, model, values);
    score(&f, logits);
    assert_int_equal(sl_engine_ctr.open(&f.image, ROWS, &f.reason, &opened), 0);
    const struct sl_engine_info *info = sl_engine_ctr.info(opened);
    assert_int_equal(info->layer_count, 1);
    assert_int_equal(info->layers[0].image_end, f.image.bytes);
    assert_int_equal(info->inputs[0].shape[1], FIELDS);
    uint8_t *scratch = make_scratch(info);
    const float *output = (const void *)(scratch + info->outputs[0].scratch_offset);
    for (uint32_t again = 0; again < 2; again++) {
        assert_int_equal(sl_engine_ctr.run(opened, scratch, 0, ROWS, &f.reason), 0);
        for (uint32_t r = 0; r < ROWS; r++) {
            assert_true(output[r] == 1 / (1 + expf(-logits[r]))); /* bit for bit */
            assert_true(r == 0 || output[r] != output[0]);
        }
    }
    free(scratch);
    sl_engine_ctr.close(&opened);
    assert_null(opened);
    tear_down(&f);
}

SL_CASE(run__is_the_trainers_score)
{
    for (uint32_t values = 0; values < SL_PRECISION_COUNT; values++) {
        check_model(&sl_model_lr, (enum sl_precision)values);
        check_model(&sl_model_fm, (enum sl_precision)values);
        check_model(&sl_model_deepfm, (enum sl_precision)values);
    }
}

SL_CASE(run__refuses_values_that_are_not_finite)
{
    struct fixture f;
    void *opened;
    set_up(&f, &sl_model_lr, SL_PRECISION_F32);
    assert_int_equal(sl_engine_ctr.open(&f.image, ROWS, &f.reason, &opened), 0);
    const struct sl_engine_info *info = sl_engine_ctr.info(opened);
    uint8_t *scratch = make_scratch(info);
    float *values = (void *)(scratch + info->inputs[1].scratch_offset);
    values[FIELDS + 2] = NAN;
    assert_int_equal(sl_engine_ctr.run(opened, scratch, 0, ROWS, &f.reason), SL_ERR_INVALID);
    assert_non_null(strstr(f.reason.text, "values[1, 2]"));
    assert_int_equal(sl_engine_ctr.run(opened, scratch, 0, 1, &f.reason), 0);
    free(scratch);
    sl_engine_ctr.close(&opened);
    tear_down(&f);
}

static void assert_refused(struct fixture *f, const char *note, int err, const char *text)
{
    void *opened = f;
    f->image.note = note;
    assert_int_equal(sl_engine_ctr.open(&f->image, ROWS, &f->reason, &opened), err);
    assert_non_null(strstr(f->reason.text, text));
    assert_ptr_equal(opened, f);
}

SL_CASE(open__refuses_notes)
{
    struct fixture f;
    set_up(&f, &sl_model_fm, SL_PRECISION_F32);
    assert_refused(&f, "", SL_ERR_UNSUPPORTED, "model=lr");
    assert_refused(&f, "model=gbdt fields=5 factors=8 hidden=6,5 seed=1", SL_ERR_UNSUPPORTED,
                   "gbdt");
    assert_refused(&f, "model=fm", SL_ERR_UNSUPPORTED, "model=fm");
    assert_refused(&f, "model=fm fields=5", SL_ERR_INVALID, "factors=N");
    assert_refused(&f, "model=fm fields=5 factors=0 hidden=6,5 seed=1", SL_ERR_INVALID, "1024");
    assert_refused(&f, "model=fm fields=5 factors=1025 hidden=6,5 seed=1", SL_ERR_INVALID, "1024");
    assert_refused(&f, "model=fm fields=5 factors=8 hidden=6,5 seed=1 ", SL_ERR_INVALID, "seed");
    assert_refused(&f, "model=deepfm fields=0 factors=8 hidden=6,5 seed=1", SL_ERR_INVALID, "4096");
    assert_refused(&f, "model=fm fields=5 factors=9 hidden=6,5 seed=1", SL_ERR_CORRUPT,
                   "fm/factors/rows.0 of f32 [n, 9]");
    assert_refused(&f, "model=lr fields=5 factors=8 hidden=6,5 seed=1", SL_ERR_CORRUPT,
                   "has no table lr/weights");
    tear_down(&f);
}

SL_CASE(open__refuses_dense_tables_of_another_length)
{
    struct fixture f;
    set_up(&f, &sl_model_deepfm, SL_PRECISION_F32);
    assert_refused(&f, "model=deepfm fields=400 factors=8 hidden=64,9 seed=3", SL_ERR_CORRUPT,
                   "deepfm/tower1");
    tear_down(&f);
}

SL_CASE(open__has_a_width_for_rows_of_any_length)
{
    struct fixture f;
    void *opened;
    set_up(&f, &sl_model_lr, SL_PRECISION_F32);
    f.image.note = "model=lr fields=0 factors=8 hidden=6,5 seed=1";
    assert_int_equal(sl_engine_ctr.open(&f.image, 1, &f.reason, &opened), 0);
    assert_int_equal(sl_engine_ctr.info(opened)->inputs[0].shape[1], SL_CTR_FIELDS);
    sl_engine_ctr.close(&opened);
    assert_int_equal(sl_engine_ctr.open(&f.image, 1U << 24, &f.reason, &opened), SL_ERR_TOO_LARGE);
    tear_down(&f);
}
