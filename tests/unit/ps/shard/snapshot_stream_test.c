/* What a cut's image holds, what it adds to another, and how a shard goes on that is made of it. */

#include <string.h>

#include "ps/snapshot/builder.h"
#include "snapshot_fixture.h"
#include "tests/support/shard_image.h"
#include "tests/support/unit.h"

/* A second request beside the fixture's. */
static struct fixture other;

/* ---- What it holds --------------------------------------------------------------------------- */

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

/* Adds hold what has come or changed, and no more. */
CASE(adds__hold_what_is_new)
{
    struct sl_shard_snapshot_base *base;
    struct sl_shard_snapshot_base *next;
    open_more(f);
    struct snapshot_stream *full = snapshot_stream_of(f->shard, NULL, &base);
    struct snapshot_stream *adds = snapshot_stream_of(f->shard, base, &next);
    assert_int_equal(adds->count, 0);
    snapshot_stream_free(adds);
    sl_shard_snapshot_base_destroy(&next);

    snapshot_push_wide(f, 3, 50, 256);
    (void)fixture_peek(f, ASP, 77); /* creates a row */
    push_block(f, 1024 * 3 + 5, 1);
    push_kv(f, 2, 100, 1, 40000);
    push_kv(f, 9, 0, 4, 4);
    adds = snapshot_stream_of(f->shard, base, &next);
    assert_int_equal(adds->count, 3 + 1 + 1 + 2);
    assert_non_null(snapshot_stream_find(adds, SL_SNAPSHOT_ROWS, WIDE, 52));
    assert_non_null(snapshot_stream_find(adds, SL_SNAPSHOT_ROWS, ASP, 77));
    assert_non_null(snapshot_stream_find(adds, SL_SNAPSHOT_DENSE, BLOCK, 3));
    assert_non_null(snapshot_stream_find(adds, SL_SNAPSHOT_KV, KV, 2));
    assert_non_null(snapshot_stream_find(adds, SL_SNAPSHOT_KV, KV, 9));
    struct snapshot_stream *still = snapshot_stream_still(f->shard);
    snapshot_stream_overlay(full, adds);
    snapshot_stream_same(still, full);
    sl_shard_snapshot_base_destroy(&base);
    sl_shard_snapshot_base_destroy(&next);
    snapshot_stream_free(still);
    snapshot_stream_free(adds);
    snapshot_stream_free(full);
}

/* What was old at the cut is not in it, though it changes before the walk has come to it. */
CASE(adds__what_changes_behind_them_is_not_in_them)
{
    struct sl_shard_snapshot_base *base;
    open_more(f);
    snapshot_stream_free(snapshot_stream_of(f->shard, NULL, &base));
    snapshot_push_wide(f, 3, 50, 256);
    push_block(f, 1024, 1);
    push_kv(f, 2, 0, 1, 40000);
    const struct sl_shard_snapshot_options options = {.base = base};
    struct snapshot_stream *still = snapshot_stream_of(f->shard, base, NULL);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    snapshot_push_wide(f, 200, 0, 256);
    push_block(f, 0, 20000);
    push_kv(f, 1, 0, 10, 10);
    push_kv(f, 2, 20000, 10, 40000);
    push_kv(f, 3, 0, 10, 40000);
    push_kv(f, 3, 20000, 10, 40000);
    struct snapshot_stream *adds = snapshot_finish(f, NULL);
    snapshot_stream_same(still, adds);
    assert_int_equal(snapshot_stream_count(adds, SL_SNAPSHOT_KV, KV), 1);
    snapshot_stream_free(adds);
    snapshot_stream_free(still);
    sl_shard_snapshot_base_destroy(&base);
}

/* A long array is in the image as it was, with how much of it was written, whether a push or the
 * walk comes first, and piece by piece. */
CASE(kv__a_long_array_changes_while_it_is_copied)
{
    for (uint32_t steps = 0; steps < 8; steps++) {
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        snapshot_open_table(f, KV, SL_TABLE_KV, 4, 0);
        push_kv(f, 1, 0, 100, 100000);
        struct snapshot_stream *still = snapshot_stream_still(f->shard);
        assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
        for (uint32_t i = 0; i < steps; i++) {
            (void)sl_shard_snapshot_run(f->shard, i == 0 ? 100 : 1);
        }
        push_kv(f, 1, 100, 50000, 100000);
        (void)sl_shard_snapshot_run(f->shard, 1);
        push_kv(f, 1, 90000, 10, 100000);
        push_kv(f, 1, 0, 100000, 100000);
        struct snapshot_stream *stream = snapshot_finish(f, NULL);
        snapshot_stream_same(still, stream);
        snapshot_stream_free(stream);
        snapshot_stream_free(still);
    }
}

CASE(table__opened_behind_the_snapshot_is_not_in_it)
{
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    open_more(f);
    struct snapshot_stream *stream = snapshot_finish(f, NULL);
    assert_true(stream->has_table[DENSE]);
    assert_false(stream->has_table[WIDE]);
    assert_false(stream->has_table[KV]);
    snapshot_stream_free(stream);
}

/* ---- Going on from it ------------------------------------------------------------------------ */

static struct sl_shard *load_of(struct sl_shard *from)
{
    struct shard_stream stream = {0};
    const struct sl_shard_options options = {.count = 1};
    struct sl_shard *to;
    char reason[512];
    assert_int_equal(sl_shard_snapshot_begin(from, &snapshot_everything), 0);
    while (sl_shard_snapshot_state(from) == SL_SHARD_SNAPSHOT_RUNNING) {
        (void)sl_shard_snapshot_run(from, 1000);
        struct sl_snapshot_block *block;
        while ((block = sl_shard_snapshot_take(from)) != NULL) {
            struct sl_snapshot_block *copy = shard_stream_append(
                &stream, (enum sl_snapshot_kind)block->kind, block->table_id, block->capacity);
            copy->count = block->count;
            copy->bytes = block->bytes;
            memcpy(copy->payload, block->payload, block->bytes);
            assert_true(block->kind != SL_SNAPSHOT_END || sl_snapshot_take_end(block, &stream.end));
            sl_shard_snapshot_put(from, block);
        }
    }
    sl_shard_snapshot_end(from, NULL);
    assert_int_equal(sl_shard_create(&options, &to), 0);
    if (shard_stream_load(&stream, to, 1000, reason, sizeof reason) != 0) {
        fail_msg("%s", reason);
    }
    shard_stream_fini(&stream);
    return to;
}

/* A request has pushed and ticked, and waits: with what is kept of it, the rest is done by a shard
 * that is made of the image, and nothing twice. */
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
    f->shard = load_of(was); /* a cut begins in spite of it */
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

/* The push of a section is in the image, what it pulls has not all been read. */
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

/* What was loaded is a base like any other. */
CASE(base__of_what_was_loaded)
{
    struct sl_shard_snapshot_base *base;
    open_more(f);
    struct sl_shard *was = f->shard;
    f->shard = load_of(was);
    struct snapshot_stream *full = snapshot_stream_still(f->shard);
    assert_int_equal(sl_shard_snapshot_base_create(f->shard, &base), 0);
    snapshot_push_wide(f, 2, 199, 256);
    push_kv(f, 1, 0, 10, 10);
    struct snapshot_stream *adds = snapshot_stream_of(f->shard, base, NULL);
    assert_int_equal(adds->count, 3);
    struct snapshot_stream *still = snapshot_stream_still(f->shard);
    snapshot_stream_overlay(full, adds);
    snapshot_stream_same(still, full);
    snapshot_stream_free(still);
    snapshot_stream_free(adds);
    snapshot_stream_free(full);
    sl_shard_snapshot_base_destroy(&base);
    sl_shard_destroy(&was);
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
