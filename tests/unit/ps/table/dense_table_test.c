#include <stdlib.h>

#include "core/hash.h"
#include "core/partition.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/update.h"
#include "ps/table/dense_table.h"
#include "tests/support/unit.h"

#define BLOCK SL_PARTITION_BLOCK_ELEMENTS

static struct sl_table_spec spec_of(enum sl_optimizer_kind kind, uint64_t length)
{
    return (struct sl_table_spec){
        .name = "dense",
        .kind = SL_TABLE_DENSE,
        .length = length,
        .optimizer = sl_optimizer_defaults(kind),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1.0F, .high = 1.0F, .seed = 3},
    };
}

static float *random_floats(uint64_t count, uint64_t seed)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < count; i++) {
        values[i] = (float)(sl_hash_random(&seed) >> 40) * 0x1p-23F - 1.0F;
    }
    return values;
}

/* The first values are the same however the array is cut. */
SL_CASE(dense_table_create__values_whatever_the_shards)
{
    const uint64_t length = 7 * BLOCK + 77;
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAM, length);
    for (uint32_t shards = 1; shards <= 7; shards++) {
        for (uint32_t range = 0; range < shards; range++) {
            const uint64_t start = sl_partition_range_start(length, shards, range);
            const uint64_t end = sl_partition_range_start(length, shards, range + 1);
            struct sl_dense_table *table = NULL;
            float *values = malloc((end - start + 1) * sizeof *values);
            assert_int_equal(sl_dense_table_create(&spec, start, end - start, 0, &table), 0);
            assert_int_equal(sl_dense_table_start(table), start);
            assert_int_equal(sl_dense_table_element_count(table), end - start);
            sl_dense_table_read(table, start, end - start, SL_PRECISION_F32, values);
            for (uint64_t i = start; i < end; i++) {
                float expected;
                sl_initializer_fill(&spec.initializer, i, 0, 1, &expected);
                assert_true(values[i - start] == expected);
            }
            free(values);
            sl_dense_table_destroy(&table);
            assert_null(table);
        }
    }
}

SL_CASE(dense_table_create__zeros_and_constants)
{
    const uint64_t length = 2 * BLOCK + 5;
    struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAGRAD, length);
    float *values = malloc(length * sizeof *values);
    for (int kind = SL_INITIALIZER_ZEROS; kind <= SL_INITIALIZER_CONSTANT; kind++) {
        struct sl_dense_table *table = NULL;
        spec.initializer =
            (struct sl_initializer_spec){.kind = (enum sl_initializer_kind)kind, .value = 0.25F};
        assert_int_equal(sl_dense_table_create(&spec, 0, length, 0, &table), 0);
        sl_dense_table_read(table, 0, length, SL_PRECISION_F32, values);
        for (uint64_t i = 0; i < length; i++) {
            assert_true(values[i] == (kind == SL_INITIALIZER_ZEROS ? 0.0F : 0.25F));
        }
        sl_dense_table_destroy(&table);
    }
    free(values);
}

SL_CASE(dense_table_create__empty_range)
{
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAM, 5 * BLOCK);
    struct sl_dense_table *table = NULL;
    float nothing;
    assert_int_equal(sl_dense_table_create(&spec, 5 * BLOCK, 0, 0, &table), 0);
    sl_dense_table_read(table, 5 * BLOCK, 0, SL_PRECISION_F32, &nothing);
    sl_dense_table_destroy(&table);
}

SL_CASE(dense_table_create__memory_limit)
{
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAM, 100 * BLOCK);
    struct sl_dense_table *table = NULL;
    assert_int_equal(sl_dense_table_create(&spec, 0, 100 * BLOCK, 1 << 20, &table),
                     SL_ERR_NO_MEMORY);
    assert_int_equal(sl_dense_table_create(&spec, 0, 100 * BLOCK, 1, &table), SL_ERR_NO_MEMORY);
    assert_null(table);
    assert_int_equal(sl_dense_table_create(&spec, 0, 100 * BLOCK, 4 << 20, &table), 0);
    assert_true(sl_dense_table_memory_bytes(table) <= 4 << 20);
    assert_true(sl_dense_table_memory_bytes(table) >= 100 * BLOCK * 3 * sizeof(float));
    sl_dense_table_destroy(&table);
}

/* Blocks as rows of a kernel, kept by the test: random ranges, each optimizer. */
struct mirror {
    const struct sl_optimizer *optimizer;
    struct sl_update_spec update;
    uint64_t length;
    float *w;     /* [length] */
    float *slots; /* slot k of element i: slots[k * length + i] */
    float *own;   /* slots_per_row of each block */
    uint32_t *count;
};

static void mirror_init(struct mirror *mirror, const struct sl_table_spec *spec)
{
    const uint64_t length = spec->length;
    const uint64_t blocks = (length + BLOCK - 1) / BLOCK;
    mirror->optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    mirror->update = spec->update;
    mirror->length = length;
    mirror->w = malloc(length * sizeof(float));
    mirror->slots = calloc(length, (mirror->optimizer->slots_per_value + 1) * sizeof(float));
    mirror->own = calloc(blocks, sizeof(float));
    mirror->count = calloc(blocks, sizeof(uint32_t));
    for (uint64_t i = 0; i < length; i++) {
        sl_initializer_fill(&spec->initializer, i, 0, 1, &mirror->w[i]);
    }
    if (mirror->optimizer->init != NULL) {
        mirror->optimizer->init(&spec->optimizer, (uint32_t)length, mirror->slots);
    }
    for (uint64_t i = 0; i < blocks && mirror->optimizer->init_row != NULL; i++) {
        mirror->optimizer->init_row(&spec->optimizer, &mirror->own[i]);
    }
}

static void mirror_fini(struct mirror *mirror)
{
    free(mirror->w);
    free(mirror->slots);
    free(mirror->own);
    free(mirror->count);
}

static void mirror_apply(struct mirror *mirror, const struct sl_optimizer_spec *spec,
                         const struct sl_optimizer_push *push, uint64_t start, uint64_t count,
                         const float *g)
{
    for (uint64_t i = start; i < start + count;) {
        const uint64_t block = i / BLOCK;
        const uint64_t end =
            (block + 1) * BLOCK < start + count ? (block + 1) * BLOCK : start + count;
        const struct sl_optimizer_visit visit = {
            .spec = spec,
            .state = &push->state,
            .lr = spec->lr * push->rate,
            .dim = (uint32_t)(end - i),
            .slot_stride = (uint32_t)mirror->length,
            .count = mirror->count[block]++,
            .step = push->step,
        };
        float *w = mirror->w + i, *slots = mirror->slots + i, *own = mirror->own + block;
        if (sl_update_is_asked(&mirror->update)) {
            sl_update_apply(&mirror->update, mirror->optimizer, &visit, w, slots, own,
                            g + (i - start));
        } else {
            mirror->optimizer->apply(&visit, w, slots, own, g + (i - start));
        }
        i = end;
    }
}

SL_CASE(dense_table_find__what_read_copies)
{
    const uint64_t length = 5 * BLOCK + 100;
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAM, length + BLOCK);
    struct sl_dense_table *table = NULL;
    float *values = malloc(length * sizeof *values);
    uint64_t seed = 5;
    assert_int_equal(sl_dense_table_create(&spec, BLOCK, length, 0, &table), 0);
    for (int i = 0; i < 200; i++) {
        const uint64_t start = sl_hash_random(&seed) % length;
        const uint64_t count = sl_hash_random(&seed) % (length - start + 1);
        struct iovec parts[7] = {{0}};
        const uint32_t parts_max = 1 + (uint32_t)(sl_hash_random(&seed) % 6);
        const uint32_t found = sl_dense_table_find(table, BLOCK + start, count, parts, parts_max);
        const uint64_t needed = count == 0 ? 0 : (start % BLOCK + count - 1) / BLOCK + 1;
        assert_int_equal(found, needed < parts_max ? needed : parts_max);
        assert_null(parts[found].iov_base);
        sl_dense_table_read(table, BLOCK + start, count, SL_PRECISION_F32, values);
        const float *at = values;
        for (uint32_t n = 0; n < found; n++) {
            assert_memory_equal(parts[n].iov_base, at, parts[n].iov_len);
            at += parts[n].iov_len / sizeof *at;
        }
        assert_true(needed > parts_max || at == values + count);
    }
    free(values);
    sl_dense_table_destroy(&table);
}

SL_CASE(dense_table_apply__random_ranges)
{
    const uint64_t length = 5 * BLOCK + 100;
    float *g = random_floats(length, 9);
    float *values = malloc(length * sizeof *values);
    for (int kind = 0; kind < 2 * SL_OPTIMIZER_KIND_COUNT; kind++) {
        struct sl_table_spec spec =
            spec_of((enum sl_optimizer_kind)(kind % SL_OPTIMIZER_KIND_COUNT), length);
        spec.update.clip_norm = kind < SL_OPTIMIZER_KIND_COUNT ? 0 : 5;
        spec.update.value_bound = kind < SL_OPTIMIZER_KIND_COUNT ? 0 : 0.9F;
        struct sl_dense_table *table = NULL;
        struct sl_optimizer_push push = {.rate = 1};
        struct mirror mirror;
        uint64_t seed = (uint64_t)kind;
        spec.optimizer.decay_steps = 5;
        assert_int_equal(sl_dense_table_create(&spec, 0, length, 0, &table), 0);
        sl_optimizer_state_init(&spec.optimizer, &push.state);
        mirror_init(&mirror, &spec);
        for (; push.step < 40; push.step++) {
            push.rate = push.step % 3 == 0 ? 0.5F : 1;
            const uint64_t start = sl_hash_random(&seed) % length;
            const uint64_t count = sl_hash_random(&seed) % (length - start + 1);
            sl_dense_table_apply(table, start, count, g, &push);
            mirror_apply(&mirror, &spec.optimizer, &push, start, count, g);
        }
        sl_dense_table_read(table, 0, length, SL_PRECISION_F32, values);
        assert_memory_equal(values, mirror.w, length * sizeof *values);
        sl_dense_table_read(table, BLOCK - 3, BLOCK + 9, SL_PRECISION_F32, values);
        assert_memory_equal(values, mirror.w + BLOCK - 3, (BLOCK + 9) * sizeof *values);
        mirror_fini(&mirror);
        sl_dense_table_destroy(&table);
    }
    free(values);
    free(g);
}
