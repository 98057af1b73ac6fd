#include "ps/server/metrics.h"

#include "ps/server/state.h"
#include "stepped.h"

#define MS SL_CLOCK_NS_PER_MS

/* The clock that the server reads within a turn: every reading is so much later. */
static uint64_t reading_ns;

static uint64_t now_ns(void *ctx)
{
    return ((const struct sl_stepped_pair *)ctx)->now_ns + reading_ns;
}

static struct sl_server_cells *begin(struct stepped_two *world)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
    stepped_turns(&world->stepped, 2);
    return world->stepped.server->cells.used;
}

static struct sl_cell_copy copy_of(const struct sl_cell_histogram *histogram)
{
    struct sl_cell_copy copy = {0};
    sl_cell_read(histogram, &copy);
    return copy;
}

static void pull(struct stepped_two *world, uint64_t id, uint32_t key_count)
{
    shard_request_begin(&world->stepped.request, 0);
    shard_request_pull(&world->stepped.request, 1, world->stepped.keys, key_count);
    stepped_send(&world->second, id, STEPPED_BUDGET);
}

/* Small pulls are answered together, longer ones alone; both in the turn in which they arrive. */
TWO_CASE(metrics__count_and_time_pulls_of_a_turn)
{
    struct sl_server_cells *cells = begin(world);
    const struct sl_cell_copy before = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    const uint64_t requests = sl_cell_get(&cells->requests[SL_REQUEST_KIND_PULL]);
    stepped_push_done(&world->second, 10, 1, 200);
    world->stepped.pair.clock = (struct sl_clock){.now_ns = now_ns, .ctx = &world->stepped.pair};
    reading_ns = 3 * MS;
    for (uint64_t i = 0; i < 5; i++) {
        pull(world, 11 + i, i < 4 ? 1 : 200);
    }
    for (uint64_t i = 0; i < 5; i++) {
        stepped_expect_ok(&world->second, 11 + i);
    }
    reading_ns = 0;
    struct sl_cell_copy copy = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    sl_cell_copy_since(&copy, &before);
    assert_int_equal(sl_cell_get(&cells->requests[SL_REQUEST_KIND_PULL]), requests + 5);
    assert_int_equal(copy.count, 5);
    assert_int_equal(copy.sum_ns, 15 * MS);
    for (uint32_t i = 0; i < SL_REQUEST_PHASE_WORK; i++) {
        assert_int_equal(copy_of(&cells->wait_time[i]).count, 0);
    }
}

/* worker/0 pulls in iteration 1, and waits for worker/1, which is at iteration 0. */
TWO_CASE(metrics__time_the_wait_for_a_clock)
{
    const struct sl_server_cells *cells = begin(world);
    const struct sl_cell_copy before = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    stepped_pull(&world->first, 2, 1, 0);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(sl_cell_get(&cells->parked), 1);
    assert_int_equal(sl_cell_get(&cells->queued), 1);
    stepped_tick_done(&world->second, 1, 0);
    stepped_expect_ok(&world->first, 2);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S); /* until the reply is sent, too */
    assert_int_equal(sl_cell_get(&cells->parked), 0);
    assert_int_equal(sl_cell_get(&cells->queued), 0);
    const struct sl_cell_copy wait = copy_of(&cells->wait_time[SL_REQUEST_PHASE_CLOCK]);
    assert_int_equal(wait.count, 1);
    assert_in_range(wait.sum_ns, SL_CLOCK_NS_PER_S / 2, 2 * SL_CLOCK_NS_PER_S);
    struct sl_cell_copy time = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    sl_cell_copy_since(&time, &before);
    assert_int_equal(time.count, 1);
    assert_true(time.sum_ns >= wait.sum_ns);
}

TWO_CASE(metrics__count_failures_by_error)
{
    const struct sl_server_cells *cells = begin(world);
    const struct sl_cell_copy before = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    shard_request_begin(&world->stepped.request, 1);
    shard_request_pull(&world->stepped.request, 0, world->stepped.keys, 3);
    stepped_send(&world->first, 2, 100000);
    assert_int_equal(stepped_reply(&world->first, 2)->status, SL_ERR_DEADLINE);
    assert_int_equal(sl_cell_get(&cells->failures[SL_SERVER_FAILURE_DEADLINE]), 1);
    assert_int_equal(sl_cell_get(&cells->failures[SL_SERVER_FAILURE_OTHER]), 0);
    assert_int_equal(copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]).count, before.count);
}

TWO_CASE(metrics__name_every_error)
{
    static struct sl_server_cells cells;
    sl_server_metrics_failed(&cells, SL_ERR_WRONG_SHARD);
    sl_server_metrics_failed(&cells, SL_ERR_FORKED);
    sl_server_metrics_failed(&cells, INT32_MIN);
    sl_server_metrics_failed(&cells, 5);
    assert_int_equal(sl_cell_get(&cells.failures[SL_SERVER_FAILURE_WRONG_SHARD]), 1);
    assert_int_equal(sl_cell_get(&cells.failures[SL_SERVER_FAILURE_OTHER]), 3);
}

/* A long push is sliced, and answered in a later turn. */
TWO_CASE(metrics__count_pushes_ticks_rows_and_memory)
{
    const struct sl_server_cells *cells = begin(world);
    const uint64_t rows = sl_cell_get(&cells->rows_created);
    const uint64_t ticks = sl_cell_get(&cells->requests[SL_REQUEST_KIND_TICK]);
    const uint64_t memory = sl_cell_get(&cells->memory_bytes);
    stepped_push_done(&world->second, 2, 1, STEPPED_KEYS);
    stepped_tick_done(&world->second, 3, 0);
    shard_request_begin(&world->stepped.request, 1);
    shard_request_erase(&world->stepped.request, 1, world->stepped.keys, 70);
    stepped_send(&world->second, 4, STEPPED_BUDGET);
    stepped_expect_ok(&world->second, 4);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(sl_cell_get(&cells->requests[SL_REQUEST_KIND_PUSH]), 1);
    assert_int_equal(sl_cell_get(&cells->requests[SL_REQUEST_KIND_TICK]), ticks + 1);
    assert_int_equal(sl_cell_get(&cells->requests[SL_REQUEST_KIND_ERASE]), 1);
    assert_int_equal(copy_of(&cells->request_time[SL_REQUEST_KIND_PUSH]).count, 1);
    assert_int_equal(sl_cell_get(&cells->rows_created), rows + STEPPED_KEYS);
    assert_int_equal(sl_cell_get(&cells->rows_erased), 70);
    assert_true(sl_cell_get(&cells->memory_bytes) >
                memory + (uint64_t)STEPPED_KEYS * STEPPED_DIM * sizeof(float));
}

/* More late answers in one turn than a turn holds: each is recorded once. */
TWO_CASE(metrics__record_every_late_answer)
{
    enum { PULLS = 50 };
    const struct sl_server_cells *cells = begin(world);
    const struct sl_cell_copy before = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    for (uint64_t i = 0; i < PULLS; i++) {
        stepped_pull(&world->first, 2 + i, 1, 0);
    }
    stepped_turns(&world->stepped, 20);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(sl_cell_get(&cells->parked), PULLS);
    stepped_tick_done(&world->second, 1, 0);
    stepped_expect_ok(&world->first, 1 + PULLS);
    stepped_turns(&world->stepped, 20);
    struct sl_cell_copy time = copy_of(&cells->request_time[SL_REQUEST_KIND_PULL]);
    sl_cell_copy_since(&time, &before);
    assert_int_equal(time.count, PULLS);
    assert_int_equal(copy_of(&cells->wait_time[SL_REQUEST_PHASE_CLOCK]).count, PULLS);
}
