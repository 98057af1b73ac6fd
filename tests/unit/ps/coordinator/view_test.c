#include "ps/coordinator/view.h"

#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

static struct sl_coordinator_view *make(void)
{
    struct sl_coordinator_view *view = calloc(1, sizeof *view);
    assert_non_null(view);
    return view;
}

/* Fills the slices from `slice` on; returns the number of the next one. */
static uint32_t fill(struct fixture *f, struct sl_coordinator_view *view, uint32_t slice)
{
    while (!sl_coordinator_view_fill(&f->coordinator, view, slice)) {
        slice++;
    }
    return slice + 1;
}

CASE(coordinator_view__names_missing_tasks)
{
    struct sl_coordinator_view *view = make();
    fixture_follow(f, 2, 3);
    join_ps(f, 11, 0, 11, 1, 2);
    (void)fill(f, view, 0);
    assert_true(view->is_here);
    assert_int_equal(view->stage, SL_COORDINATOR_WAITING_FOR_MEMBERS);
    assert_int_equal(view->missing.missing_count, 4);
    assert_string_equal(view->missing.missing[0], "ps/1");
    assert_string_equal(view->missing.missing[1], "worker/0");
    assert_int_equal(view->servers[0].member.state, SL_COORDINATOR_VIEW_STARTING);
    assert_int_equal(view->servers[1].member.state, SL_COORDINATOR_VIEW_UNKNOWN);
    assert_int_equal(view->servers[0].shard_count, 2);
    assert_string_equal(view->servers[0].data_endpoint, "tcp://host11:1");
    f->sent_count = 0;
    free(view);
}

/* The mode of the job is that of its strictest table. */
CASE(coordinator_view__shows_the_strictest_consistency)
{
    static const struct {
        struct sl_consistency_spec table, job;
    } tables[] = {
        {{SL_CONSISTENCY_ASP, 0, 0}, {SL_CONSISTENCY_ASP, 0, 0}},
        {{SL_CONSISTENCY_SSP, 4, 3}, {SL_CONSISTENCY_SSP, 4, 3}},
        {{SL_CONSISTENCY_SSP, 2, 3}, {SL_CONSISTENCY_SSP, 2, 3}},
        {{SL_CONSISTENCY_SSP, 5, 3}, {SL_CONSISTENCY_SSP, 2, 3}},
        {{SL_CONSISTENCY_BSP, 0, 3}, {SL_CONSISTENCY_BSP, 0, 3}},
        {{SL_CONSISTENCY_SSP, 0, 3}, {SL_CONSISTENCY_BSP, 0, 3}},
        {{SL_CONSISTENCY_ASP, 0, 0}, {SL_CONSISTENCY_BSP, 0, 3}},
    };
    struct sl_coordinator_view *view = make();
    cluster_start(f);
    (void)fill(f, view, 0);
    assert_false(view->has_tables);
    for (uint32_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct sl_message open = {.kind = SL_MESSAGE_TABLE_OPEN, .id = 9};
        struct sl_table_spec *spec = &open.table_open.spec;
        (void)snprintf(spec->name, sizeof spec->name, "t%u", i);
        spec->kind = SL_TABLE_SPARSE;
        spec->dim = 1;
        spec->optimizer = (struct sl_optimizer_spec){.kind = SL_OPTIMIZER_SGD, .lr = 1};
        spec->consistency = tables[i].table;
        say(f, 11, open);
        expect_part(f, "11#9 opened");
        (void)fill(f, view, 0);
        assert_true(view->has_tables);
        assert_int_equal(view->consistency.mode, tables[i].job.mode);
        assert_int_equal(view->consistency.staleness, tables[i].job.staleness);
    }
    free(view);
}

CASE(coordinator_view__shows_how_members_end)
{
    const sl_coordinator_peer alive[] = {11, 2, 3, 0};
    struct sl_coordinator_view *view = make();
    cluster_start(f);
    workers_join(f);
    for (sl_coordinator_peer peer = 1; peer <= 3; peer++) {
        register_worker(f, peer, 1);
    }
    disconnect(f, 1);
    goodbye(f, 2);
    (void)fill(f, view, 0);
    assert_int_equal(view->stage, SL_COORDINATOR_RUNNING);
    assert_int_equal(view->missing.missing_count, 0);
    assert_int_equal(view->worker_end, 3);
    assert_int_equal(view->servers[1].member.state, SL_COORDINATOR_VIEW_RUNNING);
    assert_int_equal(view->workers[0].state, SL_COORDINATOR_VIEW_DISCONNECTED);
    assert_int_equal(view->workers[1].state, SL_COORDINATOR_VIEW_LEFT);
    assert_int_equal(view->workers[2].state, SL_COORDINATOR_VIEW_RUNNING);
    pass(f, 11 * SECOND, alive);
    goodbye(f, 11);
    (void)fill(f, view, 0);
    assert_int_equal(view->workers[0].state, SL_COORDINATOR_VIEW_EXPIRED);
    assert_int_equal(view->workers[2].state, SL_COORDINATOR_VIEW_RUNNING);
    assert_int_equal(view->workers[2].last_seen_ns, f->now_ns);
    assert_int_equal(view->servers[0].member.state, SL_COORDINATOR_VIEW_LEFT);
    assert_int_equal(view->servers[1].member.state, SL_COORDINATOR_VIEW_EXPIRED);
    assert_string_equal(view->missing.missing[0], "ps/0");
    f->sent_count = 0;
    free(view);
}

/* A member that takes the place of one that leaves in the middle of a view is in it. */
CASE(coordinator_view__is_whole_though_a_member_leaves_between_slices)
{
    const uint32_t count = SL_COORDINATOR_VIEW_SLICE + 5;
    struct sl_coordinator_view *view = make();
    fixture_remake(f, 1, count);
    for (uint32_t task = 0; task < count; task++) {
        assert_int_equal(hello(f, 1 + task, SL_MESSAGE_ROLE_WORKER, task), 0);
    }
    uint32_t slice = 0;
    assert_false(sl_coordinator_view_fill(&f->coordinator, view, slice++));
    goodbye(f, 2);
    while (view->next_member == 0) {
        assert_false(sl_coordinator_view_fill(&f->coordinator, view, slice++));
    }
    goodbye(f, 1);
    (void)fill(f, view, slice);
    assert_int_equal(view->worker_end, count);
    assert_int_equal(view->workers[0].state, SL_COORDINATOR_VIEW_LEFT);
    assert_int_equal(view->workers[1].state, SL_COORDINATOR_VIEW_LEFT);
    for (uint32_t task = 2; task < count; task++) {
        assert_int_equal(view->workers[task].state, SL_COORDINATOR_VIEW_STARTING);
    }
    free(view);
}

/* Two slices: of the tasks that the job has had so far, and of the members. */
CASE(coordinator_view__walks_no_tasks_that_nobody_has_had)
{
    struct sl_coordinator_view *view = make();
    fixture_remake(f, 1, 0);
    assert_int_equal(fill(f, view, 0), 2);
    assert_int_equal(view->worker_end, 0);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 8), 0);
    assert_int_equal(fill(f, view, 0), 2);
    assert_int_equal(view->workers[8].state, SL_COORDINATOR_VIEW_STARTING);
    goodbye(f, 1);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, SL_LIMIT_WORKERS - 1), 0);
    assert_int_equal(fill(f, view, 0), SL_LIMIT_WORKERS / SL_COORDINATOR_VIEW_SLICE + 1);
    assert_int_equal(view->worker_end, SL_LIMIT_WORKERS);
    assert_int_equal(view->workers[7].state, SL_COORDINATOR_VIEW_UNKNOWN);
    assert_int_equal(view->workers[8].state, SL_COORDINATOR_VIEW_LEFT);
    free(view);
}

CASE(coordinator_view__is_empty_where_no_coordinator_is)
{
    struct sl_coordinator *none = NULL;
    struct sl_coordinator_view *view = make();
    (void)fill(f, view, 0);
    assert_true(view->is_here);
    assert_true(sl_coordinator_view_fill(&none, view, 0));
    assert_false(view->is_here);
    free(view);
}
