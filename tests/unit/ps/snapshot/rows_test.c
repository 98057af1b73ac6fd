#include "ps/snapshot/rows.h"

#include <stdio.h>
#include <string.h>

#include "core/partition.h"
#include "tests/support/unit.h"

static struct sl_snapshot_rows rows;
static struct sl_snapshot_block *block;
static struct sl_reason reason;
static enum sl_precision stored; /* of sparse tables, values and slots */

static void begin(void)
{
    rows = (struct sl_snapshot_rows){.names = "a,dense"};
    stored = SL_PRECISION_F32;
    assert_int_equal(sl_snapshot_block_create(SL_SNAPSHOT_BLOCK_BYTES, &block), 0);
}

static void end(void)
{
    sl_snapshot_rows_fini(&rows);
    sl_snapshot_block_destroy(&block);
}

static void put_table(uint32_t id, const char *name, enum sl_table_kind kind, uint32_t dim,
                      uint64_t length)
{
    struct sl_snapshot_table table = {
        .spec = {
            .kind = kind,
            .dim = dim,
            .length = length,
            .optimizer = {.kind = kind == SL_TABLE_KV ? SL_OPTIMIZER_SUM : SL_OPTIMIZER_ADAGRAD,
                          .lr = 1,
                          .initial_accumulator = kind == SL_TABLE_KV ? 0 : 1},
            .values = stored,
            .slots = stored == SL_PRECISION_INT8 ? SL_PRECISION_F32 : stored}};
    (void)snprintf(table.spec.name, sizeof table.spec.name, "%s", name);
    sl_snapshot_put_table(block, id, &table);
}

static void take(void)
{
    if (sl_snapshot_rows_take(&rows, block, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
}

/* Adagrad has a slot for each value. */
static void put_row(uint64_t key, float value)
{
    const float floats[] = {value, value + 0.5F, 9, 9};
    const struct sl_snapshot_record record = {.key = key, .floats = floats};
    assert_true(sl_snapshot_put_record(block, &record, 4));
}

#define CASE(name) SL_CASE_WITH(name, begin(), end())

CASE(rows_sort__by_key_without_slots_and_the_last_of_equal_keys)
{
    put_table(3, "a", SL_TABLE_SPARSE, 2, 0);
    take();
    put_table(4, "other", SL_TABLE_SPARSE, 2, 0);
    take();
    sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 4);
    put_row(1, 77);
    take();
    sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 3);
    put_row(UINT64_MAX, 1);
    put_row(7, 2);
    take();
    sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 3);
    put_row(0, 3);
    put_row(7, 4);
    take();
    const struct sl_snapshot_end last = {.shard = 5, .shard_count = 8};
    rows.names = "a";
    sl_snapshot_put_end(block, &last);
    take();
    assert_int_equal(rows.shard, 5);
    assert_int_equal(rows.count, 1);
    struct sl_snapshot_table_rows *table = &rows.tables[0];
    assert_string_equal(table->name, "a");
    assert_int_equal(table->dim, 2);
    assert_int_equal(sl_snapshot_rows_sort(table), 0);
    static const uint64_t keys[] = {0, 7, UINT64_MAX};
    static const float values[] = {3, 3.5F, 4, 4.5F, 1, 1.5F};
    assert_int_equal(table->count, 3);
    assert_memory_equal(table->keys, keys, sizeof keys);
    assert_memory_equal(table->values, values, sizeof values);
}

CASE(rows_take__grows_and_an_empty_table_stays)
{
    put_table(0, "a", SL_TABLE_SPARSE, 2, 0);
    take();
    assert_int_equal(sl_snapshot_rows_sort(&rows.tables[0]), 0);
    assert_int_equal(rows.tables[0].count, 0);
    for (uint64_t key = 0; key < 5000; key++) {
        if (key % 100 == 0) {
            sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 0);
        }
        put_row(4999 - key, (float)key);
        if (key % 100 == 99) {
            take();
        }
    }
    assert_int_equal(sl_snapshot_rows_sort(&rows.tables[0]), 0);
    assert_int_equal(rows.tables[0].count, 5000);
    for (uint64_t key = 0; key < 5000; key++) {
        assert_int_equal(rows.tables[0].keys[key], key);
        assert_true(((const float *)rows.tables[0].values)[2 * key] == (float)(4999 - key));
    }
}

/* Values keep their precision, without what pads a record to words. */
CASE(rows_take__of_narrow_tables)
{
    enum { DIM = 3, KEYS = 5 };
    for (stored = SL_PRECISION_F16; stored <= SL_PRECISION_INT8; stored++) {
        const size_t row_bytes = sl_precision_row_bytes(stored, DIM);
        const size_t words =
            (row_bytes + 3) / 4 + (stored == SL_PRECISION_INT8 ? DIM : (DIM + 1) / 2);
        uint8_t record_bytes[KEYS][64];
        put_table(0, "a", SL_TABLE_SPARSE, DIM, 0);
        take();
        sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 0);
        for (uint32_t key = KEYS; key-- > 0;) {
            memset(record_bytes[key], (int)key + 1, sizeof record_bytes[key]);
            const struct sl_snapshot_record record = {.key = key,
                                                      .floats = (void *)record_bytes[key]};
            assert_true(sl_snapshot_put_record(block, &record, (uint32_t)words));
        }
        take();
        struct sl_snapshot_table_rows *table = &rows.tables[0];
        assert_int_equal(sl_snapshot_rows_sort(table), 0);
        assert_int_equal(table->row_bytes, row_bytes);
        assert_int_equal(table->count, KEYS);
        for (uint32_t key = 0; key < KEYS; key++) {
            assert_memory_equal((const uint8_t *)table->values + key * row_bytes, record_bytes[key],
                                row_bytes);
        }
        sl_snapshot_rows_fini(&rows);
    }
}

CASE(rows_take__blocks_of_a_dense_table)
{
    enum { ELEMENTS = SL_PARTITION_BLOCK_ELEMENTS };
    float floats[2 * ELEMENTS];
    for (uint32_t i = 0; i < 2 * ELEMENTS; i++) {
        floats[i] = 1.0F + (float)i;
    }
    put_table(1, "dense", SL_TABLE_DENSE, 0, ELEMENTS + 3);
    take();
    sl_snapshot_block_begin(block, SL_SNAPSHOT_DENSE, 1);
    struct sl_snapshot_record record = {.key = 1, .floats = floats};
    assert_true(sl_snapshot_put_record(block, &record, 6));
    record.key = 0;
    assert_true(sl_snapshot_put_record(block, &record, 2 * ELEMENTS));
    take();
    struct sl_snapshot_table_rows *table = &rows.tables[0];
    assert_int_equal(sl_snapshot_rows_sort(table), 0);
    assert_int_equal(table->count, 2);
    assert_int_equal(table->dim, ELEMENTS);
    assert_memory_equal(table->values, floats, ELEMENTS * sizeof *floats);
    const float *last = (const float *)table->values + ELEMENTS;
    assert_true(last[2] == 3 && last[3] == 0 && last[ELEMENTS - 1] == 0);
}

CASE(rows__refuse)
{
    put_table(0, "a", SL_TABLE_SPARSE, 2, 0);
    take();
    const struct sl_snapshot_end last = {.shard_count = 1};
    sl_snapshot_put_end(block, &last);
    assert_int_equal(sl_snapshot_rows_take(&rows, block, &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, "dense"));
    sl_snapshot_block_begin(block, SL_SNAPSHOT_ROWS, 0);
    put_row(1, 1);
    block->count = 2;
    assert_int_equal(sl_snapshot_rows_take(&rows, block, &reason), SL_ERR_CORRUPT);
    put_table(1, "dense", SL_TABLE_KV, 4, 0);
    assert_int_equal(sl_snapshot_rows_take(&rows, block, &reason), SL_ERR_UNSUPPORTED);
}
