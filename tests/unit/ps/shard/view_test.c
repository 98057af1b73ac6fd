#include "ps/shard/view.h"

#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"
#include "ps/shard/pull.h"

/* Fills the view slice by slice; returns the number of slices. */
static uint32_t fill(struct sl_shard *shard, struct sl_shard_view *view)
{
    uint32_t slices = 1;
    for (bool is_first = true; !sl_shard_view_fill(shard, view, is_first, false); slices++) {
        is_first = false;
    }
    return slices;
}

static struct sl_shard_view *make(void)
{
    struct sl_shard_view *view = calloc(1, sizeof *view);
    assert_non_null(view);
    return view;
}

CASE(shard_view__shows_tables_as_the_statistics_do)
{
    fixture_push_all(f, 0, ASP, 7, 1);
    (void)fixture_peek(f, ASP, 7);
    struct sl_message stats = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_shard_stats(f->shard, &stats.stats), 0);
    struct sl_shard_view *view = make();
    for (uint32_t round = 0; round < 2; round++) {
        assert_int_equal(fill(f->shard, view), 1);
        assert_int_equal(view->table_count, 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_memory_equal(&view->tables[i].stats, &stats.stats.tables[i],
                                sizeof stats.stats.tables[i]);
        }
    }
    assert_int_equal(view->tables[ASP].stats.rows, 1);
    assert_int_equal(view->tables[ASP].stats.pushed_rows, WORKERS);
    assert_int_equal(view->tables[ASP].stats.pulled_rows, 1);
    sl_message_fini(&stats);
    free(view);
}

CASE(shard_view__shows_the_clocks)
{
    struct sl_shard_view *view = make();
    fixture_tick_all(f, 0);
    assert_int_equal(fixture_tick(f, 1, 1), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 1, 2), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, SL_REQUEST_CLOCK_FINISHED), SL_SHARD_DONE);
    (void)fill(f->shard, view);
    assert_int_equal(view->clock_min, 1);
    assert_int_equal(view->clock_max, 3);
    assert_int_equal(view->worker_count, WORKERS);
    assert_true(view->workers[0].is_active);
    assert_int_equal(view->workers[0].clock, 1);
    assert_int_equal(view->workers[1].clock, 3);
    assert_false(view->workers[2].is_active);
    assert_int_equal(view->workers[2].clock, SL_REQUEST_CLOCK_FINISHED);
    free(view);
}

CASE(shard_view__has_slices_of_tables_and_workers)
{
    struct sl_table_spec spec = {
        .kind = SL_TABLE_SPARSE, .dim = DIM, .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)};
    for (uint32_t id = 4; id < 3 * SL_SHARD_VIEW_TABLES; id += 2) {
        (void)snprintf(spec.name, sizeof spec.name, "table%u", id);
        assert_int_equal(sl_shard_table_open(f->shard, id, &spec, &f->reason), 0);
    }
    struct sl_shard_view *view = make();
    assert_int_equal(fill(f->shard, view), 3);
    assert_int_equal(view->table_count, 4 + (3 * SL_SHARD_VIEW_TABLES - 4) / 2);
    const uint32_t last = 4 * SL_SHARD_VIEW_WORKERS - 1;
    assert_int_equal(sl_shard_worker_join(f->shard, last, 5), 5);
    sl_shard_worker_seen(f->shard, last);
    assert_int_equal(fill(f->shard, view), 4);
    assert_int_equal(view->table_count, 4 + (3 * SL_SHARD_VIEW_TABLES - 4) / 2);
    assert_int_equal(view->worker_count, last + 1);
    assert_int_equal(view->workers[last].clock, 5);
    assert_int_equal(view->clock_max, 5);
    free(view);
}

static void pull_small(struct fixture *f, uint16_t table)
{
    const struct sl_shard_client caller = {0};
    struct sl_shard_small_pull pull;
    const float *rows[SL_SHARD_SMALL_PULL_KEYS];
    assert_true(
        sl_shard_small_pull_parse(f->shard, &caller, f->request.payload, f->request.bytes, &pull));
    assert_true(sl_shard_pull_batch_find(f->shard, table, pull.keys, pull.key_count, rows));
    sl_shard_small_pull_write(f->shard, table, pull.keys, rows, pull.key_count, f->reply);
    sl_shard_small_pulls_end(f->shard, table, pull.keys, pull.key_count);
}

/* Every operation on keys of a sparse table leads to the hot keys. */
CASE(shard_view__shows_hot_keys_of_pulls_and_pushes)
{
    enum { PULL, SMALL_PULL, POOLED, PUSH, PUSH_PULL, WAYS };
    struct sl_shard_view *view = make();
    uint64_t keys[64], sampled = 0;
    float gradients[64 * DIM] = {0};
    const uint32_t bag_end = 64;
    for (uint32_t way = 0; way < WAYS; way++) {
        for (uint32_t i = 0; i < 64; i++) {
            keys[i] = 100 + way;
        }
        for (uint32_t round = 0; round < 50; round++) {
            shard_request_begin(&f->request, 0);
            if (way == POOLED) {
                shard_request_pooled(&f->request, ASP, keys, 64, &bag_end, 1);
            } else if (way == PULL || way == SMALL_PULL) {
                shard_request_pull(&f->request, ASP, keys, 64);
            } else {
                shard_request_push(&f->request,
                                   way == PUSH ? SL_REQUEST_PUSH : SL_REQUEST_PUSH_PULL, ASP, keys,
                                   64, gradients, DIM);
            }
            if (way == SMALL_PULL) {
                pull_small(f, ASP);
            } else {
                assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
            }
        }
        (void)fill(f->shard, view);
        const struct sl_hot_keys_view *hot = &view->tables[ASP].hot;
        assert_int_equal(hot->count, way + 1);
        assert_in_range(hot->sampled - sampled, 25, 125); /* of 50 * 64, or twice as many */
        sampled = hot->sampled;
    }
    assert_int_equal(sl_shard_view_fill(f->shard, view, true, true), true); /* halves */
    (void)fill(f->shard, view);
    assert_int_equal(view->tables[ASP].hot.sampled, sampled / 2);
    assert_int_equal(view->tables[BSP].hot.sampled, 0);
    free(view);
}
