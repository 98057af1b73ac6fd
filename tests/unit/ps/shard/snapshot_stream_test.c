/* What a snapshot contains, what an incremental one adds, and how a shard goes on that is loaded
 * from it. */

#include "ps/snapshot/builder.h"
#include "snapshot_fixture.h"
#include "tests/support/shard_stream.h"
#include "tests/support/unit.h"

/* A second request beside the fixture's. */
static struct fixture other;

static void push_kv(struct fixture *f, uint64_t key, uint32_t start, uint32_t count,
                    uint32_t length)
{
    snapshot_fill(1, 0, 2.0F);
    const struct sl_request_section section = {
        .op = SL_REQUEST_KV_PUSH,
        .table_id = KV,
        .start = start,
        .count = count,
        .bag_count = count == length ? 0 : length,
    };
    for (uint32_t i = 0; i < count; i++) {
        snapshot_gradients[i] = 2.0F;
    }
    shard_request_begin(&f->request, 0);
    shard_request_kv(&f->request, section, &key, 1, NULL, snapshot_gradients, 4);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static void push_block(struct fixture *f, uint64_t start, uint64_t count)
{
    snapshot_fill(1, 0, 0);
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, BLOCK, start, count,
                        snapshot_gradients);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static void open_more(struct fixture *f)
{
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, 256, 0);
    snapshot_open_table(f, BLOCK, SL_TABLE_DENSE, 0, 20000);
    snapshot_open_table(f, KV, SL_TABLE_KV, 4, 0);
    snapshot_push_wide(f, 200, 0, 256);
    push_block(f, 0, 20000);
    push_kv(f, 1, 0, 10, 10);
    push_kv(f, 2, 0, 50, 40000);
    push_kv(f, 3, 39990, 10, 40000);
}

#define MORE_BLOCKS 3

static uint32_t added;

/* Adds one block of the caller a slice. */
static bool add_block(void *ctx, uint32_t key_budget, uint32_t *spent)
{
    struct fixture *f = ctx;
    struct sl_snapshot_appender stream;
    const struct sl_snapshot_session session = {.client_id = 1 + added};
    sl_snapshot_appender_init(&stream, sl_shard_snapshot_blocks(f->shard), SL_SNAPSHOT_SESSIONS, 0,
                              sizeof session);
    assert_true(sl_snapshot_put_session(sl_snapshot_appender_block(&stream), &session));
    sl_snapshot_appender_close(&stream);
    *spent += key_budget;
    return ++added == MORE_BLOCKS;
}

/* The caller's records are in the stream once, behind the tables' specifications. */
CASE(more__is_in_the_stream_before_its_end)
{
    const struct sl_shard_snapshot_options options = {.more = add_block, .more_ctx = f};
    added = 0;
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    uint32_t count = 0;
    bool has_table = false;
    for (const struct sl_snapshot_block *block = stream.first; block != NULL; block = block->next) {
        has_table = has_table || block->kind == SL_SNAPSHOT_TABLE;
        count += block->kind == SL_SNAPSHOT_SESSIONS;
        assert_true(has_table || block->kind != SL_SNAPSHOT_SESSIONS);
    }
    assert_int_equal(count, MORE_BLOCKS);
    shard_stream_fini(&stream);
}

/* Adds hold what has come or changed, and no more. */
CASE(adds__hold_what_is_new)
{
    struct sl_shard_snapshot_base *base;
    struct sl_shard_snapshot_base *next;
    struct sl_shard *made = NULL;
    open_more(f);
    struct shard_stream full = snapshot_of(f->shard, NULL, &base);
    struct shard_stream adds = snapshot_of(f->shard, base, &next);
    assert_int_equal(snapshot_records(&adds), 0);
    shard_stream_fini(&adds);
    sl_shard_snapshot_base_destroy(&next);

    snapshot_push_wide(f, 3, 50, 256);
    /* Creates a row, which stays without a step until its iteration is applied. */
    assert_int_equal(fixture_push(f, 0, 0, BSP, 77, 1.0F), SL_SHARD_DONE);
    push_block(f, 1024 * 3 + 5, 1);
    push_kv(f, 2, 100, 1, 40000);
    push_kv(f, 9, 0, 4, 4);
    adds = snapshot_of(f->shard, base, NULL);
    assert_int_equal(adds.end.records[SL_SNAPSHOT_ROWS], 3 + 1);
    assert_int_equal(adds.end.records[SL_SNAPSHOT_DENSE], 1);
    assert_true(adds.end.records[SL_SNAPSHOT_KV] < full.end.records[SL_SNAPSHOT_KV]);
    snapshot_load(&full, &made);
    snapshot_load(&adds, &made);
    snapshot_same(f->shard, made);
    sl_shard_destroy(&made);
    sl_shard_snapshot_base_destroy(&base);
    shard_stream_fini(&adds);
    shard_stream_fini(&full);
}

static struct sl_shard *load_of(struct sl_shard *from)
{
    struct sl_shard *to = NULL;
    struct shard_stream stream = snapshot_of(from, NULL, NULL);
    snapshot_load(&stream, &to);
    shard_stream_fini(&stream);
    return to;
}

/* A request has pushed and ticked, and waits: a shard that is loaded from the snapshot and the
 * session's record does the rest, and nothing twice. */
CASE(written__a_request_in_its_middle_is_done_once)
{
    const uint64_t key = 5;
    const float one[DIM] = {1.0F, 1.0F};
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ASP, &key, 1, one, DIM);
    shard_request_tick(&f->request);
    shard_request_pull(&f->request, BSP, &key, 1);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, &key, 1, one, DIM);
    shard_request_tick(&f->request);
    assert_int_equal(fixture_run(f, 0), SL_SHARD_PARKED);
    const uint32_t written = sl_shard_written(&f->work);
    assert_int_equal(written, 2);
    struct sl_shard *was = f->shard;
    f->shard = load_of(was); /* a snapshot begins in spite of it */
    assert_null(shard_stream_differ_at_all(was, f->shard));

    struct fixture *again = &other;
    again->shard = f->shard;
    again->request = f->request;
    for (uint32_t worker = 1; worker < WORKERS; worker++) {
        assert_int_equal(fixture_tick(f, worker, 0), SL_SHARD_DONE);
    }
    fixture_begin(again, 0);
    sl_shard_skip_writes_before(&again->work, written);
    assert_int_equal(sl_shard_written(&again->work), written);
    snapshot_run_to_end(again);
    assert_true(fixture_peek(f, ASP, key) == 2.0F);
    assert_int_equal(sl_shard_worker_find(f->shard, 0).clock, 2);
    sl_shard_destroy(&was);
}

/* The push of a section is in the snapshot; its pull has not read all rows. */
CASE(written__a_push_whose_pull_goes_on)
{
    snapshot_fill(LARGE, 0, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ASP, snapshot_keys, LARGE,
                       snapshot_gradients, DIM);
    fixture_begin(f, NOBODY);
    while (sl_shard_snapshot_begin(f->shard, &snapshot_everything) == SL_ERR_AGAIN ||
           sl_shard_written(&f->work) == 0) {
        sl_shard_snapshot_end(f->shard, NULL);
        (void)snapshot_slice(f, 300, SL_SHARD_AGAIN);
    }
    snapshot_end(f);
    assert_int_equal(sl_shard_written(&f->work), 1);
    snapshot_run_to_end(f);
}

CASE(since__steps_go_round)
{
    const struct sl_snapshot_base base = {.open = true, .step = UINT32_MAX - 1ULL, .count = 10};
    const struct sl_snapshot_delta since = sl_snapshot_delta_base(&base, UINT32_MAX + 2ULL);
    assert_false(since.all);
    assert_false(sl_snapshot_delta_holds(&since, 9, UINT32_MAX - 2));
    assert_false(sl_snapshot_delta_holds(&since, 9, UINT32_MAX - 1));
    assert_true(sl_snapshot_delta_holds(&since, 9, UINT32_MAX));
    assert_true(sl_snapshot_delta_holds(&since, 9, 0));
    assert_true(sl_snapshot_delta_holds(&since, 9, 1));
    assert_false(sl_snapshot_delta_holds(&since, 9, 2));
    assert_true(sl_snapshot_delta_holds(&since, 10, 2)); /* it has come since */
    assert_true(sl_snapshot_delta_base(&base, base.step + UINT32_MAX + 1).all);
    assert_true(sl_snapshot_delta_base(NULL, 7).all);
}
