/* Erases: rows are gone at once in every mode, whatever other requests and snapshots hold. */
#include <string.h>

#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define FEW 3

static struct fixture other; /* a second request beside the fixture's */

static int erase(struct fixture *f, uint16_t table, const uint64_t *keys, uint32_t count)
{
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, table, keys, count);
    return fixture_run(f, NOBODY);
}

static uint64_t rows_of(const struct fixture *f, uint16_t table)
{
    return sl_sparse_table_row_count(f->shard->tables[table]->sparse);
}

static bool has_row(const struct fixture *f, uint16_t table, uint64_t key)
{
    uint32_t record;
    return sl_sparse_table_find(f->shard->tables[table]->sparse, &key, 1, &record);
}

CASE(erase__removes_rows)
{
    const uint64_t keys[FEW] = {1, 99, 3}; /* 99 is missing */
    for (uint64_t key = 1; key <= 4; key++) {
        assert_int_equal(fixture_push(f, NOBODY, 0, ASP, key, 5.0F), SL_SHARD_DONE);
    }
    const uint64_t step = f->shard->tables[ASP]->step;
    assert_int_equal(erase(f, ASP, keys, FEW), SL_SHARD_DONE);
    assert_int_equal(rows_of(f, ASP), 2);
    assert_int_equal(f->shard->tables[ASP]->step, step);
    assert_true(f->shard->large.owner == NULL);
    assert_int_equal(erase(f, ASP, keys, 0), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, 1) == 0.0F);
    assert_true(fixture_peek(f, ASP, 2) == 5.0F);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 3, 7.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, 3) == 7.0F);
}

CASE(erase__of_other_tables_is_refused)
{
    const uint64_t key = 1;
    const struct sl_shard_client caller = {.has_clock = false};
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, DENSE, &key, 1);
    assert_int_equal(sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "operation 15 on a dense table"));
}

/* A key of another shard: no row is removed. */
SL_CASE(shard_erase__checks_all_keys_first)
{
    static struct fixture f;
    const struct sl_shard_options options = {.index = 0, .count = 2};
    const struct sl_table_spec spec = {.name = "rows",
                                       .kind = SL_TABLE_SPARSE,
                                       .dim = DIM,
                                       .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)};
    const uint64_t own = 0, strange = 2; /* docs/protocol.md: shards 0 and 1 of 2 */
    uint64_t keys[LARGE];
    assert_int_equal(sl_shard_create(&options, &f.shard), 0);
    assert_int_equal(sl_shard_table_open(f.shard, ASP, &spec, &f.reason), 0);
    assert_int_equal(fixture_push(&f, NOBODY, 0, ASP, own, 1.0F), SL_SHARD_DONE);
    for (uint32_t i = 0; i < LARGE; i++) {
        keys[i] = i + 1 == LARGE ? strange : own;
    }
    assert_int_equal(erase(&f, ASP, keys, LARGE), SL_ERR_WRONG_SHARD);
    assert_int_equal(rows_of(&f, ASP), 1);
    assert_true(f.shard->large.owner == NULL);
    sl_shard_destroy(&f.shard);
}

/* Begins an erase of LARGE keys that takes several slices, with the first slice done. */
static void begin_long(struct fixture *f, uint16_t table)
{
    snapshot_fill(LARGE, 0, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, table, snapshot_keys, LARGE);
    fixture_begin(f, NOBODY);
    while (sl_shard_written(&f->work) == 0 && f->shard->snapshots.pushes_in_part == 0) {
        (void)snapshot_slice(f, 200, SL_SHARD_AGAIN);
    }
}

static void push_large(struct fixture *f, uint16_t table)
{
    snapshot_fill(LARGE, 0, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, table, snapshot_keys, LARGE,
                       snapshot_gradients, DIM);
}

/* No long push runs between the slices of an erase, and no erase between those of a push: each of
 * them holds records. A snapshot begins behind both. */
CASE(erase__and_long_pushes_wait_for_each_other)
{
    push_large(f, ASP);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    begin_long(f, ASP);
    assert_true(rows_of(f, ASP) < LARGE && rows_of(f, ASP) > 0);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    sl_shard_snapshot_end(f->shard, NULL);
    other.shard = f->shard;
    push_large(&other, ASP);
    fixture_begin(&other, NOBODY);
    uint32_t spent = snapshot_slice(&other, 100000, SL_SHARD_AGAIN);
    assert_true(spent <= 1);
    snapshot_run_to_end(f);
    assert_int_equal(rows_of(f, ASP), 0);

    (void)snapshot_slice(&other, 300, SL_SHARD_AGAIN); /* now it goes on */
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, ASP, snapshot_keys, FEW);
    fixture_begin(f, NOBODY);
    assert_true(snapshot_slice(f, 100000, SL_SHARD_AGAIN) <= 1);
    snapshot_run_to_end(&other);
    assert_int_equal(rows_of(f, ASP), LARGE);
    snapshot_run_to_end(f);
    assert_int_equal(rows_of(f, ASP), LARGE - FEW);
}

/* Its client is gone in the middle: what is left is not erased, and nothing is held. */
CASE(erase__is_abandoned)
{
    push_large(f, ASP);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    begin_long(f, ASP);
    sl_shard_abandon(f->shard, &f->work);
    assert_true(f->shard->large.owner == NULL);
    assert_int_equal(f->shard->snapshots.pushes_in_part, 0);
    assert_true(rows_of(f, ASP) > 0);
}

/* A repeated request does not erase again. */
CASE(erase__happens_once)
{
    const uint64_t key = 7;
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, ASP, &key, 1);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    other.shard = f->shard;
    assert_int_equal(fixture_push(&other, NOBODY, 0, ASP, key, 1.0F), SL_SHARD_DONE);
    fixture_begin(f, NOBODY);
    assert_true(sl_flags_has(f->work.flags, SL_SHARD_WRITES));
    sl_shard_skip_writes(&f->work);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(has_row(f, ASP, key));
}

/* A buffered push follows an erase: it creates the row again. Until then no new row uses the
 * record, whose key the push needs. */
CASE(erase__buffered_pushes_follow)
{
    const uint64_t keys[] = {1, 2};
    assert_int_equal(fixture_push(f, 0, 0, BSP, 1, 4.0F), SL_SHARD_DONE);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 4.0F);

    assert_int_equal(fixture_push(f, 0, 1, BSP, 1, 10.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, 1, 1, BSP, 1, 100.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, 1, 1, BSP, 2, 1000.0F), SL_SHARD_DONE);
    assert_int_equal(erase(f, BSP, keys, 2), SL_SHARD_DONE);
    assert_false(has_row(f, BSP, 1));
    assert_int_equal(fixture_push(f, NOBODY, 0, BSP, 3, 5.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, BSP, 4, 6.0F), SL_SHARD_DONE);
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        assert_int_equal(fixture_tick(f, worker, 1), SL_SHARD_DONE);
    }
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 110.0F);
    assert_true(fixture_peek(f, BSP, 2) == 1000.0F);
    assert_true(fixture_peek(f, BSP, 3) == 5.0F);
    assert_true(fixture_peek(f, BSP, 4) == 6.0F);
    assert_false(f->shard->tables[BSP]->buffered_count > 0);

    /* Now the records are free. */
    const uint32_t records = sl_sparse_table_record_count(f->shard->tables[BSP]->sparse);
    assert_int_equal(fixture_push(f, NOBODY, 0, BSP, 5, 5.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, BSP, 6, 6.0F), SL_SHARD_DONE);
    assert_int_equal(sl_sparse_table_record_count(f->shard->tables[BSP]->sparse), records);
}

/* Snapshots */

static uint32_t count_kind(const struct shard_stream *stream, enum sl_snapshot_kind kind)
{
    uint32_t count = 0;
    for (const struct sl_snapshot_block *block = stream->first; block != NULL;
         block = block->next) {
        count += block->kind == kind ? block->count : 0;
    }
    return count;
}

/* Full; then rows are erased, and some created again; then the changes. */
CASE(erase__is_in_an_incremental_snapshot)
{
    struct sl_shard_snapshot_base *base;
    struct sl_shard *made = NULL;
    push_large(f, ASP);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    struct shard_stream full = snapshot_of(f->shard, NULL, &base);
    assert_int_equal(count_kind(&full, SL_SNAPSHOT_ERASED), 0);

    assert_int_equal(erase(f, ASP, snapshot_keys, 100), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, snapshot_keys[3], 9.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 1000000, 9.0F), SL_SHARD_DONE);
    assert_int_equal(rows_of(f, ASP), LARGE - 100 + 2);
    struct sl_shard *still = snapshot_copy(f->shard);
    struct sl_shard_snapshot_base *next;
    struct shard_stream adds = snapshot_of(f->shard, base, &next);
    assert_int_equal(count_kind(&adds, SL_SNAPSHOT_ERASED), 100);
    assert_int_equal(adds.end.records[SL_SNAPSHOT_ROWS], 2);
    snapshot_load(&full, &made);
    snapshot_load(&adds, &made);
    shard_stream_fini(&adds);
    snapshot_same(still, made);
    sl_shard_destroy(&still);

    /* The next one lists only what was erased since. */
    assert_int_equal(erase(f, ASP, snapshot_keys + 100, 5), SL_SHARD_DONE);
    still = snapshot_copy(f->shard);
    adds = snapshot_of(f->shard, next, NULL);
    assert_int_equal(count_kind(&adds, SL_SNAPSHOT_ERASED), 5);
    snapshot_load(&adds, &made);
    snapshot_same(still, made);
    sl_shard_destroy(&still);
    sl_shard_destroy(&made);
    sl_shard_snapshot_base_destroy(&base);
    sl_shard_snapshot_base_destroy(&next);
    shard_stream_fini(&adds);
    shard_stream_fini(&full);
}

/* All rows are erased, and others created, while a snapshot runs: it shows none of that. */
CASE(erase__during_a_snapshot)
{
    push_large(f, ASP);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    assert_true(sl_shard_snapshot_is_full(f->shard));
    (void)sl_shard_snapshot_run(f->shard, 400);
    assert_int_equal(erase(f, ASP, snapshot_keys, LARGE), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 5000000, 9.0F), SL_SHARD_DONE);
    assert_int_equal(rows_of(f, ASP), 1);
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    snapshot_check(still, &stream);
}

static uint32_t record_count(const struct fixture *f)
{
    return sl_sparse_table_record_count(f->shard->tables[WIDE]->sparse);
}

static void erase_wide(struct fixture *f, uint64_t first, uint32_t count)
{
    snapshot_fill(count, first, 0);
    assert_int_equal(erase(f, WIDE, snapshot_keys, count), SL_SHARD_DONE);
}

#define WIDE_DIM  256
#define WIDE_ROWS 4000 /* several chunks of memory */

static void push_wide(struct fixture *f)
{
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, WIDE_DIM, 0);
    for (uint64_t first = 0; first < WIDE_ROWS; first += 1000) {
        snapshot_push_wide(f, 1000, first, WIDE_DIM);
    }
    assert_int_equal(record_count(f), WIDE_ROWS);
}

/* The last rows move to free records as the others are erased, and memory goes. */
CASE(erase__memory_returns)
{
    push_wide(f);
    const size_t full = f->shard->memory_bytes;
    for (uint64_t first = 0; first < 3800; first += 200) {
        erase_wide(f, first, 200);
        assert_int_equal(f->shard->tables[WIDE]->counted.memory,
                         sl_sparse_table_memory_bytes(f->shard->tables[WIDE]->sparse));
    }
    assert_int_equal(rows_of(f, WIDE), 200);
    assert_true(record_count(f) < 600);
    assert_true(f->shard->memory_bytes < full / 3);
    struct sl_shard *still = snapshot_copy(f->shard);
    struct shard_stream stream = snapshot_of(f->shard, NULL, NULL);
    snapshot_check(still, &stream);
    snapshot_push_wide(f, 1000, 3500, WIDE_DIM);
    assert_int_equal(rows_of(f, WIDE), 1000); /* with the 200 */
    still = snapshot_copy(f->shard);
    stream = snapshot_of(f->shard, NULL, NULL);
    snapshot_check(still, &stream);
}

/* A snapshot walks over records: they stay until it is over. */
CASE(erase__memory_returns_after_a_snapshot)
{
    push_wide(f);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    (void)sl_shard_snapshot_run(f->shard, 400);
    for (uint64_t first = 0; first < 3900; first += 100) {
        erase_wide(f, first, 100);
    }
    assert_int_equal(record_count(f), WIDE_ROWS);
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    snapshot_check(still, &stream);
    for (uint32_t i = 0; i < 20; i++) {
        snapshot_push_wide(f, 1, 3950, WIDE_DIM);
    }
    assert_true(record_count(f) < 600);
    still = snapshot_copy(f->shard);
    stream = snapshot_of(f->shard, NULL, NULL);
    snapshot_check(still, &stream);
}

/* Rows move to records that the base has known with other rows, and rows come where others were. */
CASE(erase__rows_that_moved_are_in_an_incremental_snapshot)
{
    struct sl_shard_snapshot_base *base;
    struct sl_shard *made = NULL;
    push_wide(f);
    struct shard_stream full = snapshot_of(f->shard, NULL, &base);
    snapshot_load(&full, &made);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint64_t first = round * 100; first < 2400; first += 100) {
            erase_wide(f, first, 100);
        }
        assert_true(record_count(f) < 2700);
        snapshot_push_wide(f, 30, 3990, WIDE_DIM);
        snapshot_push_wide(f, 500 * round, 0, WIDE_DIM);
        struct sl_shard *still = snapshot_copy(f->shard);
        struct sl_shard_snapshot_base *next;
        struct shard_stream adds = snapshot_of(f->shard, base, &next);
        assert_true(adds.end.records[SL_SNAPSHOT_ROWS] <= 30 + 500 * round);
        snapshot_load(&adds, &made);
        snapshot_same(still, made);
        sl_shard_destroy(&still);
        shard_stream_fini(&adds);
        sl_shard_snapshot_base_destroy(&base);
        base = next;
    }
    sl_shard_snapshot_base_destroy(&base);
    sl_shard_destroy(&made);
    shard_stream_fini(&full);
}

/* Keys were forgotten: a snapshot with that base is full. */
CASE(erase__of_too_many_makes_a_snapshot_full)
{
    struct sl_shard_snapshot_base *base;
    const uint64_t keys[] = {1, 2};
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 1, 9.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 2, 9.0F), SL_SHARD_DONE);
    struct shard_stream stream = snapshot_of(f->shard, NULL, &base);
    shard_stream_fini(&stream);
    assert_int_equal(erase(f, ASP, keys, 1), SL_SHARD_DONE);
    const struct sl_shard_snapshot_options options = {.base = base};
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    assert_false(sl_shard_snapshot_is_full(f->shard));
    snapshot_end(f);

    struct sl_erased_log *log = sl_sparse_table_erased_log(f->shard->tables[ASP]->sparse);
    sl_erased_log_forget(log, log->end);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    assert_true(sl_shard_snapshot_is_full(f->shard));
    stream = snapshot_finish(f->shard, NULL);
    assert_int_equal(count_kind(&stream, SL_SNAPSHOT_ERASED), 0);
    snapshot_check(still, &stream);
    sl_shard_snapshot_base_destroy(&base);
}

/* A snapshot still has to copy a push that was buffered when it began, and applied since. The
 * record of its key waits for that, too. */
CASE(erase__a_snapshot_keeps_the_keys_of_buffered_pushes)
{
    const uint64_t key = 1;
    struct shard_stream stream = {0};
    assert_int_equal(fixture_push(f, 0, 0, BSP, key, 5.0F), SL_SHARD_DONE);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_int_equal(erase(f, BSP, &key, 1), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, NOBODY, 0, BSP, 50, 7.0F), SL_SHARD_DONE);
    while (shard_stream_snapshot(f->shard, 1, &stream)) {
    }
    sl_shard_snapshot_end(f->shard, NULL);
    snapshot_clean(f->shard);
    snapshot_check(still, &stream);
}
