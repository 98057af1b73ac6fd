/* The coordinator: what its cells count. */
#include "ps/coordinator/metrics.h"

#include "ps/coordinator/state.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/checkpoints.h"

static struct sl_coordinator_cells cells;

static void count(struct fixture *f)
{
    cells = (struct sl_coordinator_cells){0};
    f->coordinator->options.cells = &cells;
}

static void expect_gauge(enum sl_coordinator_gauge gauge, uint64_t value)
{
    assert_int_equal(sl_cell_get(&cells.gauges[gauge]), value);
}

CASE(coordinator_metrics__count_members_by_state)
{
    const sl_coordinator_peer alive[] = {11, 2, 3, 0};
    cluster_start(f);
    count(f);
    workers_join(f);
    for (sl_coordinator_peer peer = 1; peer <= 3; peer++) {
        register_worker(f, peer, 1);
    }
    assert_int_equal(hello(f, 21, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    disconnect(f, 1);
    goodbye(f, 2);
    tick_at(f, f->now_ns);
    assert_int_equal(sl_cell_get(&cells.is_active), 1);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_RUNNING, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_DISCONNECTED, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_LEFT, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_EXPIRED, 0);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_SERVING, 2);
    expect_gauge(SL_COORDINATOR_GAUGE_CLIENTS, 1);
    pass(f, 11 * SECOND, alive);
    goodbye(f, 11);
    tick_at(f, f->now_ns);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_RUNNING, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_DISCONNECTED, 0);
    expect_gauge(SL_COORDINATOR_GAUGE_WORKERS_EXPIRED, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_SERVING, 0);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_LEFT, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_EXPIRED, 1);
    f->sent_count = 0;
    fixture_remake(f, 2, 3);
    assert_int_equal(sl_cell_get(&cells.is_active), 0);
}

CASE(coordinator_metrics__count_servers_that_never_came)
{
    fixture_remake(f, 2, 3);
    count(f);
    join_ps(f, 11, 0, 11, 1, 2);
    tick_at(f, f->now_ns);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_SERVING, 1);
    expect_gauge(SL_COORDINATOR_GAUGE_SERVERS_MISSING, 1);
    f->sent_count = 0;
}

CASE(coordinator_metrics__count_failed_checkpoints_by_reason)
{
    start_with(f, 0, 0);
    count(f);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    part_fails(f, 12, 1, SL_ERR_IO, "no space");
    ask(f, 21, 2, 0);
    goodbye(f, 12);
    assert_int_equal(sl_cell_get(&cells.failures[SL_COORDINATOR_FAILURE_IO]), 1);
    assert_int_equal(sl_cell_get(&cells.failures[SL_COORDINATOR_FAILURE_CLOSED]), 1);
    assert_int_equal(sl_cell_get(&cells.failures[SL_COORDINATOR_FAILURE_OTHER]), 0);
    f->sent_count = 0;
}
