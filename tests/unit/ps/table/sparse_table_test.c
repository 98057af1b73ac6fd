/* The sparse table against a plain map, with keys that are hard on a hash table. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/hash.h"
#include "core/partition.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/update.h"
#include "ps/table/sparse_table.h"
#include "tests/support/unit.h"

/* Sanitizers, whose builds have the slow assertions, are ten times slower. */
#ifdef SL_ASSERT_SLOW
#define ROWS_MANY 300000
#else
#define ROWS_MANY 2000000
#endif

static struct sl_table_spec spec_of(enum sl_optimizer_kind kind, uint32_t dim)
{
    return (struct sl_table_spec){
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = dim,
        .optimizer = sl_optimizer_defaults(kind),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1.0F, .high = 1.0F, .seed = 3},
    };
}

static struct sl_sparse_table *table_of(enum sl_optimizer_kind kind, uint32_t dim)
{
    const struct sl_table_spec spec = spec_of(kind, dim);
    struct sl_sparse_table *table = NULL;
    assert_int_equal(sl_sparse_table_create(&spec, 0, &table), 0);
    return table;
}

static uint64_t unshift(uint64_t mixed, int shift)
{
    uint64_t value = mixed;
    for (int i = 0; i < 64; i += shift) {
        value = mixed ^ (value >> shift);
    }
    return value;
}

/* The inverse of an odd number modulo 2^64, by Newton's iteration. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) {
        x *= 2 - odd * x;
    }
    return x;
}

/* The key whose sl_hash_key is `hash`. */
static uint64_t key_of_hash(uint64_t hash)
{
    uint64_t key = unshift(hash, 31) * inverse(0x94d049bb133111ebULL);
    key = unshift(key, 27) * inverse(0xbf58476d1ce4e5b9ULL);
    return unshift(key, 30);
}

struct model_row {
    uint64_t key;
    uint32_t number;
    uint32_t count;
    float row[4];
};

/* Rows in the order of creation, searched from the front: nothing that could be wrong. */
struct model {
    struct model_row *rows;
    uint32_t count;
};

static struct model_row *model_find(struct model *model, uint64_t key)
{
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->rows[i].key == key) {
            return &model->rows[i];
        }
    }
    return NULL;
}

#define MODEL_KEYS 700
#define MODEL_DIM  4
#define MODEL_OPS  600
#define BATCH      64

/* A few hundred keys that collide in every way there is. */
static void hard_keys(uint64_t *keys)
{
    uint64_t seed = 5;
    keys[0] = 0;
    keys[1] = UINT64_MAX;
    for (uint64_t i = 2; i < MODEL_KEYS; i++) {
        switch (i % 4) {
        case 0: /* the same low 48 bits: segment, bucket and tag */
            keys[i] = key_of_hash(i << 48 | 0x123456789abcULL);
            break;
        case 1: /* the same bucket and tag */
            keys[i] = key_of_hash(i << 14 | 0x2a5);
            break;
        case 2:
            keys[i] = i;
            break;
        default:
            keys[i] = sl_hash_random(&seed);
        }
    }
}

static void model_push(struct model *model, struct sl_sparse_table *table, const uint64_t *keys,
                       const uint32_t *records, uint32_t count, const float *g, uint64_t step)
{
    const struct sl_optimizer_push push = {.step = step, .rate = 1};
    sl_sparse_table_apply(table, records, count, g, &push);
    for (uint32_t i = 0; i < count; i++) {
        struct model_row *row = model_find(model, keys[i]);
        for (uint32_t column = 0; column < MODEL_DIM; column++) {
            row->row[column] += g[i * MODEL_DIM + column];
        }
        row->count++;
    }
}

/* What find_or_create must have done. */
static void model_create(struct model *model, const struct sl_table_spec *spec,
                         const uint64_t *keys, const uint32_t *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct model_row *row = model_find(model, keys[i]);
        if (row == NULL) {
            row = &model->rows[model->count];
            *row = (struct model_row){.key = keys[i], .number = model->count};
            sl_initializer_fill(&spec->initializer, keys[i], 0, MODEL_DIM, row->row);
            model->count++;
        }
        assert_int_equal(records[i], row->number);
    }
}

SL_CASE(table_table__as_a_plain_map)
{
    uint64_t keys[MODEL_KEYS];
    uint64_t seed = 11;
    struct model model = {.rows = calloc(MODEL_KEYS, sizeof *model.rows)};
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_SUM, MODEL_DIM);
    hard_keys(keys);
    for (uint64_t op = 0; op < MODEL_OPS; op++) {
        const uint32_t count = (uint32_t)(sl_hash_random(&seed) % BATCH);
        uint64_t asked[BATCH];
        uint32_t records[BATCH];
        float rows[BATCH * MODEL_DIM];
        const float *places[BATCH];
        float g[BATCH * MODEL_DIM];
        for (uint32_t i = 0; i < count; i++) { /* later operations reach more keys; some repeat */
            asked[i] =
                keys[sl_hash_random(&seed) % (MODEL_KEYS * (op + 1) / MODEL_OPS + 1) % MODEL_KEYS];
            for (uint32_t column = 0; column < MODEL_DIM; column++) {
                g[i * MODEL_DIM + column] = (float)(sl_hash_random(&seed) % 17);
            }
        }
        if (op % 3 == 0) {
            const bool found_all = sl_sparse_table_find(table, asked, count, records);
            uint32_t missing = 0;
            for (uint32_t i = 0; i < count; i++) {
                const struct model_row *row = model_find(&model, asked[i]);
                assert_int_equal(records[i], row == NULL ? SL_ROW_NONE : row->number);
                missing += row == NULL;
            }
            assert_int_equal(found_all, missing == 0);
            continue;
        }
        assert_int_equal(sl_sparse_table_find_or_create(table, asked, count, records), 0);
        model_create(&model, sl_sparse_table_spec(table), asked, records, count);
        model_push(&model, table, asked, records, count, g, op);
        sl_sparse_table_gather(table, records, count, SL_PRECISION_F32, rows);
        sl_sparse_table_rows(table, records, count, places);
        for (uint32_t i = 0; i < count; i++) {
            const struct model_row *row = model_find(&model, asked[i]);
            assert_memory_equal(rows + i * MODEL_DIM, row->row, sizeof row->row);
            assert_memory_equal(places[i], row->row, sizeof row->row);
            assert_int_equal(sl_sparse_table_record(table, records[i])->count, row->count);
            assert_int_equal(sl_sparse_table_record(table, records[i])->last_step, op);
        }
    }
    assert_int_equal(sl_sparse_table_row_count(table), model.count);
    assert_true(model.count > MODEL_KEYS / 2);
    sl_sparse_table_destroy(&table);
    assert_null(table);
    free(model.rows);
}

/* Keys that no directory can tell apart take memory and time in proportion, not without end. */
static void collide(uint64_t (*key_at)(uint64_t i), uint32_t count, size_t index_bytes_max)
{
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_SUM, 1);
    uint64_t *keys = malloc(count * sizeof *keys);
    uint32_t *records = malloc(count * sizeof *records);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = key_at(i);
    }
    for (int round = 0; round < 2; round++) {
        assert_int_equal(sl_sparse_table_find_or_create(table, keys, count, records), 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(records[i], i);
        }
    }
    for (uint32_t i = 0; i < count; i++) { /* and others are still absent */
        keys[i] = key_at(count + i);
    }
    assert_false(sl_sparse_table_find(table, keys, count, records));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(records[i], SL_ROW_NONE);
    }
    assert_int_equal(sl_sparse_table_row_count(table), count);
    assert_true(sl_sparse_table_memory_bytes(table) <
                count * sl_sparse_table_record_bytes(table) + index_bytes_max);
    free(keys);
    free(records);
    sl_sparse_table_destroy(&table);
}

static uint64_t same_low_48_bits(uint64_t i)
{
    return key_of_hash(i << 48 | 0x5a5a5a5a5a5aULL);
}

static uint64_t same_directory_bits(uint64_t i)
{
    return key_of_hash((i & 0x3fff) | (i >> 14) << 48 | 0x2aaaaaaaULL << 14);
}

static uint64_t low_directory_bits_zero(uint64_t i)
{
    return key_of_hash((i & 0x3fff) | (i >> 14) << 40);
}

SL_CASE(table_table__keys_of_one_hash)
{
    collide(same_low_48_bits, 3000, 2 << 20);
    collide(same_directory_bits, 30000, 3 << 20);
    collide(low_directory_bits_zero, 30000, 3 << 20);
}

/* What is inserted, with keys that come twice in a group and again later, has the numbers that it
 * would have if it were created, whatever number of rows was expected. */
static void insert_as_create(const uint64_t *keys, uint32_t count, uint64_t expected)
{
    struct sl_sparse_table *created = table_of(SL_OPTIMIZER_SUM, 1);
    struct sl_sparse_table *inserted = table_of(SL_OPTIMIZER_SUM, 1);
    uint32_t *wanted = malloc(count * sizeof *wanted);
    uint32_t *got = malloc(count * sizeof *got);
    sl_sparse_table_reserve(inserted, expected);
    assert_int_equal(sl_sparse_table_find_or_create(created, keys, count, wanted), 0);
    for (uint32_t done = 0; done < count;) {
        const uint32_t some = count - done < 231 ? count - done : 231;
        assert_int_equal(
            sl_sparse_table_find_or_create_uninit(inserted, keys + done, some, got + done), 0);
        done += some;
    }
    assert_memory_equal(got, wanted, count * sizeof *got);
    assert_true(sl_sparse_table_row_count(inserted) == sl_sparse_table_row_count(created));
    memset(got, 0, count * sizeof *got);
    sl_sparse_table_find(inserted, keys, count, got);
    assert_memory_equal(got, wanted, count * sizeof *got);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(sl_sparse_table_record(inserted, got[i])->key == keys[i]);
    }
    /* The index takes eight times its 6 to 12 bytes a row at most while more are expected. */
    assert_true(sl_sparse_table_memory_bytes(inserted) <
                sl_sparse_table_memory_bytes(created) + count * 96UL + (1 << 20));
    free(wanted);
    free(got);
    sl_sparse_table_destroy(&created);
    sl_sparse_table_destroy(&inserted);
}

SL_CASE(table_table_find_or_insert__as_create)
{
    enum { COUNT = 100000 };
    static const uint64_t expected[] = {0, 1, COUNT / 10, COUNT, 1ULL << 40, UINT64_MAX};
    uint64_t *keys = malloc(COUNT * sizeof *keys);
    for (uint32_t e = 0; e < sizeof expected / sizeof expected[0]; e++) {
        hard_keys(keys);
        for (uint32_t i = MODEL_KEYS; i < COUNT; i++) {
            keys[i] = i % 16 == 5 ? keys[i - 3] : i % 16 == 7 ? keys[i / 2] : i * 7ULL;
        }
        insert_as_create(keys, COUNT, expected[e]);
        for (uint32_t i = 0; i < 20000; i++) {
            keys[i] = i % 2 == 0 ? same_low_48_bits(i) : low_directory_bits_zero(i);
        }
        insert_as_create(keys, 20000, expected[e]);
    }
    free(keys);
}

static void check_many(struct sl_sparse_table *table, const uint64_t *keys, uint32_t *records)
{
    assert_true(sl_sparse_table_find(table, keys, ROWS_MANY, records));
    for (uint32_t i = 0; i < ROWS_MANY; i++) {
        if (records[i] != i) {
            fail_msg("key %u is record %u", i, records[i]);
        }
        float expected[2];
        sl_initializer_fill(&sl_sparse_table_spec(table)->initializer, keys[i], 0, 2, expected);
        const struct sl_row *record = sl_sparse_table_record(table, i);
        assert_true(record->key == keys[i]);
        assert_true(record->values[0] == expected[0]);
        assert_true(record->values[1] == expected[1]);
        assert_true(record->values[2] == 0.1F); /* Adagrad's first accumulator */
        assert_true(record->values[3] == 0.1F);
    }
}

SL_CASE(table_table__grows_to_millions)
{
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_ADAGRAD, 2);
    uint64_t *keys = malloc(ROWS_MANY * sizeof *keys);
    uint32_t *records = malloc(ROWS_MANY * sizeof *records);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < ROWS_MANY; i++) {
        keys[i] = i % 2 == 0 ? i : sl_hash_random(&seed);
    }
    assert_int_equal(sl_sparse_table_find_or_create(table, keys, ROWS_MANY, records), 0);
    assert_int_equal(sl_sparse_table_row_count(table), ROWS_MANY);
    check_many(table, keys, records);
    /* 16 of header, 4 values: 32 bytes; an index of 6 to 12; little else. */
    assert_int_equal(sl_sparse_table_record_bytes(table), 32);
    assert_true(sl_sparse_table_memory_bytes(table) < ROWS_MANY * 48UL + (2 << 20));
    for (uint32_t i = 0; i < ROWS_MANY; i++) {
        keys[i] = sl_hash_random(&seed);
    }
    sl_sparse_table_find(table, keys, ROWS_MANY, records);
    for (uint32_t i = 0; i < ROWS_MANY; i++) {
        assert_true(records[i] == SL_ROW_NONE);
    }
    free(keys);
    free(records);
    sl_sparse_table_destroy(&table);
}

/* A table whose keys all belong to one of many shards fills as evenly as any. */
SL_CASE(table_table__keys_of_one_shard)
{
    const uint32_t count = 50000;
    const uint64_t shard = 0x1234ULL << 48;
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_SUM, 1);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t key = key_of_hash(shard | sl_hash_random(&seed) >> 16);
        uint32_t record;
        assert_int_equal(sl_sparse_table_find_or_create(table, &key, 1, &record), 0);
        assert_int_equal(record, i);
    }
    assert_true(sl_sparse_table_memory_bytes(table) < count * (24 + 12) + (2 << 20));
    sl_sparse_table_destroy(&table);
}

SL_CASE(table_table__memory_limit)
{
    const size_t limit = 3 << 20;
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAGRAD, 16);
    struct sl_sparse_table *table = NULL;
    assert_int_equal(sl_sparse_table_create(&spec, 1000, &table), SL_ERR_NO_MEMORY);
    assert_null(table);
    assert_int_equal(sl_sparse_table_create(&spec, limit, &table), 0);
    uint64_t rows = 0;
    int err = 0;
    while (err == 0) {
        uint32_t record;
        err = sl_sparse_table_find_or_create(table, &rows, 1, &record);
        rows += err == 0;
    }
    assert_int_equal(err, SL_ERR_NO_MEMORY);
    assert_int_equal(sl_sparse_table_row_count(table), rows);
    assert_true(sl_sparse_table_memory_bytes(table) <= limit);
    /* Most of the limit has become rows. */
    assert_true(rows * sl_sparse_table_record_bytes(table) > limit / 2);
    for (uint64_t key = 0; key < rows + 10; key++) {
        uint32_t record;
        sl_sparse_table_find(table, &key, 1, &record);
        assert_int_equal(record, key < rows ? key : SL_ROW_NONE);
    }
    /* A batch with old and new keys: the old are found, the first new one fails. */
    const uint64_t mixed[3] = {1, rows, 2};
    uint32_t records[3];
    assert_int_equal(sl_sparse_table_find_or_create(table, mixed, 3, records), SL_ERR_NO_MEMORY);
    assert_int_equal(sl_sparse_table_row_count(table), rows);
    sl_sparse_table_destroy(&table);
}

/* Fills a table up to its limit, resting `naps` times; the rows it holds then. */
static uint64_t fill_up(size_t limit, uint64_t naps, size_t *memory_bytes)
{
    const struct sl_table_spec spec = spec_of(SL_OPTIMIZER_ADAGRAD, 16);
    const uint64_t rows_between = limit / (naps + 1) / 144;
    struct sl_sparse_table *table = NULL;
    assert_int_equal(sl_sparse_table_create(&spec, limit, &table), 0);
    uint32_t record;
    uint64_t rows = 0;
    while (sl_sparse_table_find_or_create(table, &rows, 1, &record) == 0) {
        assert_int_equal(record, rows);
        rows++;
        if (naps > 0 && rows % rows_between == 0) {
            const struct timespec nap = {.tv_nsec = 2000000};
            nanosleep(&nap, NULL);
        }
    }
    *memory_bytes = sl_sparse_table_memory_bytes(table);
    assert_true(*memory_bytes <= limit);
    sl_sparse_table_destroy(&table);
    return rows;
}

/* The row that meets the limit is the same, whether the background thread keeps up or not. */
SL_CASE(table_table__memory_limit_at_any_moment)
{
    size_t hurried_bytes;
    size_t rested_bytes;
    for (size_t limit = 20 << 20; limit <= 32 << 20; limit += 5 << 20) {
        const uint64_t hurried = fill_up(limit, 0, &hurried_bytes);
        const uint64_t rested = fill_up(limit, 60, &rested_bytes);
        assert_int_equal(hurried, rested);
        assert_int_equal(hurried_bytes, rested_bytes);
        assert_true(hurried * 144 > limit / 2);
    }
}

/* What a row begins with does not depend on how many shards there are. */
SL_CASE(table_table__first_values_whatever_the_shards)
{
    enum { KEYS = 500, DIM = 5 };
    float expected[KEYS][DIM];
    for (uint32_t shards = 1; shards <= 7; shards++) {
        struct sl_sparse_table *stores[7];
        for (uint32_t shard = 0; shard < shards; shard++) {
            stores[shard] = table_of(SL_OPTIMIZER_ADAM, DIM);
        }
        for (uint64_t i = 0; i < KEYS; i++) {
            const uint64_t key = shards % 2 == 0 ? i : KEYS - 1 - i;
            struct sl_sparse_table *table = stores[sl_partition_owner(key, shards)];
            uint32_t record;
            float row[DIM];
            assert_int_equal(sl_sparse_table_find_or_create(table, &key, 1, &record), 0);
            sl_sparse_table_gather(table, &record, 1, SL_PRECISION_F32, row);
            if (shards == 1) {
                memcpy(expected[key], row, sizeof row);
            }
            assert_memory_equal(expected[key], row, sizeof row);
        }
        for (uint32_t shard = 0; shard < shards; shard++) {
            sl_sparse_table_destroy(&stores[shard]);
        }
    }
}

/* The store hands the kernel the right slots: one row driven beside it. */
SL_CASE(table_table_apply__as_the_kernel)
{
    static const uint32_t dims[] = {1, 7, 16, 4096};
    static float w[4096];
    static float slots[2 * 4096 + 1];
    static float g[2 * 4096];
    for (size_t i = 0; i < 2 * 4096; i++) {
        g[i] = (float)(i % 23) / 7.0F - 1.0F;
    }
    for (int kind = 0; kind < 2 * SL_OPTIMIZER_KIND_COUNT; kind++) {
        for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
            const uint32_t dim = dims[d];
            struct sl_table_spec asked =
                spec_of((enum sl_optimizer_kind)(kind % SL_OPTIMIZER_KIND_COUNT), dim);
            asked.update.clip_norm = kind < SL_OPTIMIZER_KIND_COUNT ? 0 : 0.5F;
            asked.update.value_bound = kind < SL_OPTIMIZER_KIND_COUNT ? 0 : 0.9F;
            struct sl_sparse_table *table = NULL;
            assert_int_equal(sl_sparse_table_create(&asked, 0, &table), 0);
            const struct sl_optimizer_spec *spec = &sl_sparse_table_spec(table)->optimizer;
            const struct sl_optimizer *optimizer =
                sl_optimizer_find(spec->kind, SL_OPTIMIZER_SIMD_SCALAR);
            const uint64_t keys[2] = {77, 78};
            uint32_t records[2];
            struct sl_optimizer_push push = {.rate = 0.5F};
            sl_optimizer_state_init(spec, &push.state);
            assert_int_equal(sl_sparse_table_find_or_create(table, keys, 2, records), 0);
            sl_sparse_table_gather(table, &records[1], 1, SL_PRECISION_F32, w);
            memset(slots, 0, sizeof slots);
            sl_optimizer_init_slots(optimizer, spec, dim, slots);
            for (uint32_t visit_index = 0; visit_index < 3; visit_index++) {
                push.step = 150000ULL * visit_index;
                const struct sl_optimizer_visit visit = {.spec = spec,
                                                         .state = &push.state,
                                                         .lr = spec->lr * push.rate,
                                                         .dim = dim,
                                                         .slot_stride = dim,
                                                         .count = visit_index,
                                                         .step = push.step};
                sl_sparse_table_apply(table, records, 2, g, &push);
                float *own = slots + optimizer->slots_per_value * dim;
                if (sl_update_is_asked(&asked.update)) {
                    sl_update_apply(&asked.update, optimizer, &visit, w, slots, own, g + dim);
                } else {
                    optimizer->apply(&visit, w, slots, own, g + dim);
                }
            }
            const struct sl_row *record = sl_sparse_table_record(table, records[1]);
            assert_memory_equal(record->values, w, dim * sizeof(float));
            assert_memory_equal(record->values + dim, slots,
                                sl_optimizer_slot_floats(optimizer, dim) * sizeof(float));
            assert_int_equal(record->last_step, 300000);
            sl_sparse_table_destroy(&table);
        }
    }
}

SL_CASE(table_table_pool__sums_bags)
{
    enum { DIM = 3, KEYS = 40, BAGS = 5 };
    static const uint32_t bag_ends[BAGS] = {0, 7, 7, 39, 40};
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_SGD, DIM);
    uint64_t keys[KEYS];
    uint32_t records[KEYS];
    float rows[KEYS * DIM];
    float pooled[BAGS * DIM];
    float expected[BAGS * DIM];
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i % 30;
    }
    assert_int_equal(sl_sparse_table_find_or_create(table, keys, KEYS, records), 0);
    sl_sparse_table_gather(table, records, KEYS, SL_PRECISION_F32, rows);
    for (uint32_t i = 0; i < BAGS * DIM; i++) {
        pooled[i] = expected[i] = (float)i;
    }
    for (uint32_t bag = 0, i = 0; bag < BAGS; bag++) {
        for (; i < bag_ends[bag]; i++) {
            for (uint32_t column = 0; column < DIM; column++) {
                expected[bag * DIM + column] += rows[i * DIM + column];
            }
        }
    }
    sl_sparse_table_pool(table, records, bag_ends, BAGS, pooled);
    assert_memory_equal(pooled, expected, sizeof pooled);
    sl_sparse_table_pool(table, records, bag_ends, 0, pooled);
    sl_sparse_table_destroy(&table);
}

/* Keys in four groups: one segment, bucket and tag for all; buckets at the end of a segment, whose
 * runs go on at its start; ascending; random. */
static uint64_t erasable_key(uint64_t i, uint64_t *seed)
{
    switch (i % 4) {
    case 0:
        return key_of_hash(i << 48 | 0x123456789abcULL);
    case 1:
        return key_of_hash(i << 14 | (60 + i / 4 % 4));
    case 2:
        return i;
    default:
        return sl_hash_random(seed);
    }
}

#define ERASE_KEYS 3000

struct erase_model {
    struct sl_sparse_table *table;
    uint64_t keys[ERASE_KEYS];
    float first[ERASE_KEYS]; /* values of new rows */
    float added[ERASE_KEYS];
    bool there[ERASE_KEYS];
    uint32_t count;
};

static void erase_model_check(struct erase_model *model)
{
    static uint32_t records[ERASE_KEYS];
    const bool all = sl_sparse_table_find(model->table, model->keys, ERASE_KEYS, records);
    assert_int_equal(all, model->count == ERASE_KEYS);
    assert_int_equal(sl_sparse_table_row_count(model->table), model->count);
    for (uint32_t i = 0; i < ERASE_KEYS; i++) {
        assert_int_equal(records[i] != SL_ROW_NONE, model->there[i]);
        if (model->there[i]) {
            const struct sl_row *record = sl_sparse_table_record(model->table, records[i]);
            assert_true(record->key == model->keys[i]);
            assert_true(record->values[0] == model->first[i] + model->added[i]);
            assert_int_equal(record->count, model->added[i]);
        }
    }
}

static void erase_model_push(struct erase_model *model, uint32_t i)
{
    const struct sl_optimizer_push push = {.step = 1, .rate = 1};
    const float one = 1.0F;
    uint32_t record;
    assert_int_equal(sl_sparse_table_find_or_create(model->table, &model->keys[i], 1, &record), 0);
    sl_sparse_table_apply(model->table, &record, 1, &one, &push);
    model->count += !model->there[i];
    model->added[i] = model->there[i] ? model->added[i] + 1.0F : 1.0F;
    model->there[i] = true;
}

static void erase_model_erase(struct erase_model *model, uint32_t i)
{
    sl_sparse_table_erase(model->table, &model->keys[i], 1);
    model->count -= model->there[i];
    model->there[i] = false;
}

/* Random pushes and erases; now most keys are there, now few. */
SL_CASE(sparse_table_erase__as_a_plain_map)
{
    static struct erase_model model;
    uint64_t seed = 17;
    struct sl_table_spec spec = spec_of(SL_OPTIMIZER_SUM, 1);
    spec.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_CONSTANT,
                                                    .value = 0.5F}; /* sums of ones stay exact */
    assert_int_equal(sl_sparse_table_create(&spec, 0, &model.table), 0);
    for (uint32_t i = 0; i < ERASE_KEYS; i++) {
        model.keys[i] = erasable_key(i, &seed);
        model.first[i] = 0.5F;
    }
    for (uint32_t op = 0; op < 60000; op++) {
        const uint32_t i = (uint32_t)(sl_hash_random(&seed) % ERASE_KEYS);
        const bool fills = op / 10000 % 2 == 0;
        if (sl_hash_random(&seed) % 8 < (fills ? 6 : 2)) {
            erase_model_push(&model, i);
        } else {
            erase_model_erase(&model, i);
        }
        if (op % 100 == 0) {
            sl_sparse_table_reuse(model.table, UINT32_MAX);
        }
        if (op % 5000 == 4999) {
            erase_model_check(&model);
        }
    }
    assert_true(sl_sparse_table_record_count(model.table) < ERASE_KEYS + 200);
    for (uint32_t i = 0; i < ERASE_KEYS; i++) {
        erase_model_erase(&model, i);
    }
    erase_model_check(&model);
    sl_sparse_table_destroy(&model.table);
}

/* A whole table is erased and filled again, again and again, in the same memory. */
SL_CASE(sparse_table_erase__memory_does_not_grow)
{
    enum { ROWS = 20000 };
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_ADAGRAD, 3);
    uint64_t *keys = malloc(ROWS * sizeof *keys);
    uint32_t *records = malloc(ROWS * sizeof *records);
    size_t bytes = 0;
    for (uint64_t round = 0; round < 10; round++) {
        for (uint64_t i = 0; i < ROWS; i++) {
            keys[i] = round * ROWS / 2 + i; /* half of them are new */
        }
        assert_int_equal(sl_sparse_table_find_or_create(table, keys, ROWS, records), 0);
        assert_int_equal(sl_sparse_table_row_count(table), ROWS);
        assert_int_equal(sl_sparse_table_record_count(table), ROWS);
        bytes = round == 2 ? sl_sparse_table_memory_bytes(table) : bytes;
        sl_sparse_table_erase(table, keys, ROWS);
        assert_int_equal(sl_sparse_table_row_count(table), 0);
        sl_sparse_table_reuse(table, UINT32_MAX);
    }
    assert_true(sl_sparse_table_memory_bytes(table) <= bytes + bytes / 4);
    free(records);
    free(keys);
    sl_sparse_table_destroy(&table);
}

/* All memory of a table is records, index or the log of erased keys, but for its own structure. */
SL_CASE(sparse_table_memory_parts__make_the_whole)
{
    enum { ROWS = 20000 };
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_ADAGRAD, 3);
    const struct sl_sparse_table_parts none = sl_sparse_table_memory_parts(table);
    const size_t own = sl_sparse_table_memory_bytes(table) - none.index_bytes;
    assert_int_equal(none.record_bytes, 0);
    assert_int_equal(none.erased_log_bytes, 0);
    sl_sparse_table_erased_log(table)->keeps = true;
    for (uint64_t i = 0; i < ROWS; i++) { /* half of them need the overflow index */
        const uint64_t key = i % 2 == 0 ? i : same_low_48_bits(i);
        uint32_t record;
        assert_int_equal(sl_sparse_table_find_or_create(table, &key, 1, &record), 0);
        if (i % 8 == 0) {
            sl_sparse_table_erase(table, &key, 1);
        }
    }
    const struct sl_sparse_table_parts parts = sl_sparse_table_memory_parts(table);
    assert_true(parts.record_bytes >= ROWS * sl_sparse_table_record_bytes(table));
    assert_true(parts.index_bytes >= none.index_bytes + ROWS * 7 / 8 * sizeof(uint32_t));
    assert_true(parts.erased_log_bytes >= ROWS / 8 * sizeof(uint64_t));
    assert_int_equal(parts.record_bytes + parts.index_bytes + parts.erased_log_bytes + own,
                     sl_sparse_table_memory_bytes(table));
    sl_sparse_table_destroy(&table);
}

static uint32_t hooked, hooked_visits;
static struct sl_sparse_table *hooked_table;

static void note_write(struct sl_sparse_table_hook *hook, const uint32_t *records, uint32_t count)
{
    hooked = records[0] + count;
    hooked_visits = sl_sparse_table_record(hooked_table, records[0])->count;
}

/* A record of an erased row keeps its key, and nobody uses it before reuse. A hook sees it before
 * it is erased, and before it is used again. */
SL_CASE(sparse_table_erase__records_wait_for_their_holders)
{
    struct sl_sparse_table_hook hook = {.before_write = note_write};
    struct sl_sparse_table *table = table_of(SL_OPTIMIZER_MOMENTUM, 2);
    const uint64_t keys[] = {10, 11, 12, 13, 14};
    const struct sl_optimizer_push push = {.step = 7, .rate = 1};
    const float gradient[] = {1.0F, 1.0F};
    uint32_t records[5];
    assert_int_equal(sl_sparse_table_find_or_create(table, keys, 3, records), 0);
    sl_sparse_table_apply(table, records, 1, gradient, &push);
    sl_sparse_table_erase(table, keys, 1);
    assert_int_equal(sl_sparse_table_record(table, 0)->count, SL_ROW_ERASED);
    assert_int_equal(sl_sparse_table_record(table, 0)->key, 10);
    assert_int_equal(sl_sparse_table_find_or_create(table, &keys[3], 1, &records[3]), 0);
    assert_int_equal(records[3], 3);

    hooked_table = table;
    sl_sparse_table_set_hook(table, &hook);
    sl_sparse_table_reuse(table, UINT32_MAX);
    sl_sparse_table_erase(table, &keys[1], 1);
    assert_int_equal(hooked, 1 + 1);
    assert_int_equal(hooked_visits, 0);
    assert_int_equal(sl_sparse_table_find_or_create(table, &keys[4], 1, &records[4]), 0);
    assert_int_equal(records[4], 0);
    assert_int_equal(hooked, 0 + 1);
    assert_int_equal(hooked_visits, SL_ROW_ERASED);
    sl_sparse_table_set_hook(table, NULL);

    sl_sparse_table_reuse(table, UINT32_MAX);
    assert_int_equal(sl_sparse_table_find_or_create(table, keys, 2, records), 0);
    assert_int_equal(records[0], 1);
    assert_int_equal(records[1], 4);
    const struct sl_row *again = sl_sparse_table_record(table, records[0]);
    float first[2];
    sl_initializer_fill(&sl_sparse_table_spec(table)->initializer, 10, 0, 2, first);
    assert_memory_equal(again->values, first, sizeof first);
    assert_true(again->values[2] == 0 && again->values[3] == 0);
    assert_true(again->count == 0 && again->last_step == 0);
    sl_sparse_table_destroy(&table);
}
