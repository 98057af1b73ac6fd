/* Finds, scans and evictions of a client against real servers, over both protocols, one and several
 * shards, one and several reactors. */
#include <starling_rows.h>

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"
#include "worker/client/operation.h"

static const struct shape shapes[] = {
    {1, 1, 1, SL_PROTOCOL_PER_TABLE},
    {1, 3, 2, SL_PROTOCOL_BATCHED},
    {2, 2, 1, SL_PROTOCOL_PER_TABLE},
};
#define SHAPE_COUNT (sizeof shapes / sizeof *shapes)

/* One fixture a shape, used by all tests: each has tables of its own. */
static struct fixture fixtures[SHAPE_COUNT];

static int start_all(void **state)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        fixtures[i] = fixture_start(&shapes[i]);
    }
    return 0;
}

static int stop_all(void **state)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        fixture_stop(&fixtures[i]);
    }
    return 0;
}

static void on_every_shape(void (*check)(struct sl_client *client))
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        check(fixtures[i].client);
    }
}

static struct sl_table *sparse_table(struct sl_client *client, const char *name, uint32_t dim)
{
    const struct sl_table_spec spec = fixture_sparse(name, dim);
    return fixture_table(client, &spec);
}

/* Keys with and without a row, some of them twice, more than one message holds. */
static void check_find(struct sl_client *client)
{
    enum { KEYS = 60000, DIM = 33, PUSHED = 1000 };
    struct sl_table *table = sparse_table(client, "found", DIM);
    uint64_t *keys = malloc(KEYS * sizeof *keys);
    float *rows = malloc((size_t)KEYS * DIM * sizeof *rows);
    float *found_rows = malloc((size_t)KEYS * DIM * sizeof *rows);
    uint8_t *found = malloc(KEYS);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i / 2);
    }
    for (uint32_t i = 0; i < PUSHED * DIM; i++) {
        rows[i] = (float)i;
    }
    assert_int_equal(sl_client_push(client, table, keys + 7, PUSHED, rows, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_find(step, table, keys, KEYS, found_rows, found), 0);
    assert_int_equal(sl_step_find(step, table, NULL, 0, NULL, NULL), 0);
    fixture_run(step);
    assert_memory_equal(found_rows, rows, (size_t)KEYS * DIM * sizeof *rows);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(found[i], i >= 6 && i < 7 + PUSHED + 1);
    }
    struct sl_table_stats stats;
    assert_int_equal(sl_client_table_stats(client, table, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.rows, PUSHED / 2 + 1);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_find(step, table, keys, 1, rows, NULL), SL_ERR_INVALID);
    sl_step_destroy(&step);
    free(keys);
    free(rows);
    free(found_rows);
    free(found);
}

SL_CASE(step_find__tells_which_keys_have_a_row)
{
    on_every_shape(check_find);
}

/* Every row once, over several messages and ranges of records. */
static void check_scan(struct sl_client *client)
{
    enum { KEYS = 100000, DIM = 5 };
    struct sl_table_spec spec = fixture_sparse("scanned", DIM);
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD);
    struct sl_table *table = fixture_table(client, &spec);
    uint64_t *keys = malloc(KEYS * sizeof *keys);
    float *rows = malloc((size_t)KEYS * DIM * sizeof *rows);
    uint32_t *seen = calloc(KEYS, sizeof *seen);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        for (uint32_t column = 0; column < DIM; column++) {
            rows[i * DIM + column] = (float)i;
        }
    }
    struct sl_scan *scan;
    struct sl_scan_batch batch;
    assert_int_equal(sl_scan_open(client, table, NULL, &scan), 0);
    assert_int_equal(sl_scan_next(scan, &batch), 0);
    assert_int_equal(batch.row_count, 0);
    sl_scan_close(&scan);
    assert_null(scan);
    assert_int_equal(sl_client_push(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    struct sl_scan_options options = SL_SCAN_OPTIONS_INIT;
    for (uint32_t round = 0; round < 2; round++) {
        options.slots = round == 1;
        uint32_t batches = 0, count = 0;
        assert_int_equal(sl_scan_open(client, table, &options, &scan), 0);
        while (assert_int_equal(sl_scan_next(scan, &batch), 0), batch.row_count > 0) {
            assert_int_equal(batch.width, options.slots ? 2 * DIM : DIM);
            for (uint32_t i = 0; i < batch.row_count; i++) {
                const uint64_t key = batch.keys[i];
                assert_true(key < KEYS);
                seen[key]++;
                assert_memory_equal(batch.values + (size_t)i * batch.width, rows + key * DIM,
                                    DIM * sizeof *rows);
                assert_int_equal(batch.marks[i].count, 1);
            }
            count += batch.row_count;
            batches++;
        }
        assert_int_equal(count, KEYS);
        assert_true(batches >= KEYS / 4096);
        sl_scan_close(&scan);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(seen[i], 2);
    }
    options.count_min = 2;
    assert_int_equal(sl_client_push(client, table, keys, 3, rows, TIMEOUT_MS), 0);
    assert_int_equal(sl_scan_open(client, table, &options, &scan), 0);
    uint32_t count = 0;
    while (assert_int_equal(sl_scan_next(scan, &batch), 0), batch.row_count > 0) {
        count += batch.row_count;
    }
    assert_int_equal(count, 3);
    sl_scan_close(&scan);
    free(keys);
    free(rows);
    free(seen);
}

SL_CASE(scan_next__returns_every_row_once)
{
    on_every_shape(check_scan);
}

SL_CASE(scan_open__of_a_dense_table_is_refused)
{
    struct sl_client *client = fixtures[0].client;
    const struct sl_table_spec spec = {.struct_size = sizeof spec,
                                       .name = "not-scanned",
                                       .kind = SL_TABLE_DENSE,
                                       .length = 10,
                                       .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)};
    struct sl_scan_options options = SL_SCAN_OPTIONS_INIT;
    struct sl_scan *scan = NULL;
    struct sl_table *table = fixture_table(client, &spec);
    assert_int_equal(sl_scan_open(client, table, NULL, &scan), SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "the call accepts sparse tables"));
    options.timeout_ms = UINT32_MAX;
    table = sparse_table(client, "scanned-2", 2);
    assert_int_equal(sl_scan_open(client, table, &options, &scan), SL_ERR_INVALID);
    options.struct_size = 0;
    assert_int_equal(sl_scan_open(client, table, &options, &scan), SL_ERR_INVALID);
    assert_null(scan);
}

static void check_evict(struct sl_client *client)
{
    enum { KEYS = 5000 };
    struct sl_table *table = sparse_table(client, "evicted", 2);
    struct sl_evict_options options = SL_EVICT_OPTIONS_INIT;
    static uint64_t keys[KEYS];
    static float gradients[2 * KEYS];
    uint64_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i);
    }
    assert_int_equal(sl_client_push(client, table, keys, KEYS, gradients, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_push(client, table, keys, 1000, gradients, TIMEOUT_MS), 0);
    options.count_below = 2;
    assert_int_equal(sl_client_table_evict(client, table, &options, &count), 0);
    assert_int_equal(count, KEYS - 1000);
    assert_int_equal(sl_client_table_evict(client, table, &options, &count), 0);
    assert_int_equal(count, 0);
}

SL_CASE(client_table_evict__returns_the_sum_of_all_shards)
{
    on_every_shape(check_evict);
}

static void expect_refused(int err, int expected, const char *text)
{
    assert_int_equal(err, expected);
    if (strstr(sl_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", sl_last_error(), text);
    }
}

SL_CASE(client_table_evict__names_what_it_refuses)
{
    struct sl_client *client = fixtures[0].client;
    const struct sl_table_spec spec = {.struct_size = sizeof spec,
                                       .name = "not-evicted",
                                       .kind = SL_TABLE_DENSE,
                                       .length = 10,
                                       .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)};
    struct sl_table *dense = fixture_table(client, &spec);
    struct sl_table *table = sparse_table(client, "not-evicted-2", 2);
    const struct sl_evict_options good = {.struct_size = sizeof good, .ttl_steps = 1};
    struct sl_evict_options bad = good;
    uint64_t count = 77;
    expect_refused(sl_client_table_evict(client, dense, &good, &count), SL_ERR_INVALID,
                   "the call accepts sparse tables");
    expect_refused(sl_client_table_evict(client, table, NULL, &count), SL_ERR_INVALID,
                   "the table's policy has no threshold of age, count or norm");
    bad.ttl_steps = (1U << 31) + 1;
    expect_refused(sl_client_table_evict(client, table, &bad, &count), SL_ERR_INVALID,
                   "ttl_steps is 2147483649; accepted is 0 to 2147483648");
    bad = good;
    bad.l2_below = -1;
    expect_refused(sl_client_table_evict(client, table, &bad, &count), SL_ERR_INVALID,
                   "l2_below is -1; accepted is a finite number >= 0");
    bad = good;
    bad.timeout_ms = UINT32_MAX;
    expect_refused(sl_client_table_evict(client, table, &bad, &count), SL_ERR_INVALID, "4294967");
    bad = good;
    bad.struct_size = 0;
    expect_refused(sl_client_table_evict(client, table, &bad, &count), SL_ERR_INVALID,
                   "SL_EVICT_OPTIONS_INIT");
    const uint32_t knows = table->knows;
    table->knows = 3;
    expect_refused(sl_client_table_evict(client, table, &good, &count), SL_ERR_VERSION,
                   "evict needs servers that know version 5 of tables, and one knows version 3");
    table->knows = knows;
    assert_int_equal(count, 77);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}

SL_UNIT_WAYS(fixture_way);

SL_UNIT_GROUP(start_all, stop_all);
