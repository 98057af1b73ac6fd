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

CASE(coordinator_metrics__have_series_while_there_is_a_coordinator)
{
    const struct sl_coordinator_options options = {
        .ps_count = 1, .send = f->coordinator->options.send, .cells = &cells};
    struct sl_coordinator *coordinator;
    cells = (struct sl_coordinator_cells){0};
    assert_int_equal(sl_coordinator_create(&options, &coordinator), 0);
    assert_int_equal(sl_cell_get(&cells.is_active), 1);
    sl_coordinator_destroy(&coordinator);
    assert_int_equal(sl_cell_get(&cells.is_active), 0);
}
