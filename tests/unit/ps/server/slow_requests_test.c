#include "ps/server/slow_requests.h"

#include "ps/server/state.h"
#include "stepped.h"

#define MS SL_CLOCK_NS_PER_MS

/* The clock that the server reads within a turn: every reading is so much later. */
static uint64_t reading_ns;

static uint64_t now_ns(void *ctx)
{
    return ((const struct sl_stepped_pair *)ctx)->now_ns + reading_ns;
}

static struct sl_server_slow_requests *begin(struct stepped_two *world, uint64_t threshold_ns)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
    world->stepped.server->options.slow_request_ns = threshold_ns;
    assert_int_equal(world->stepped.server->slow.count, 0);
    return &world->stepped.server->slow;
}

static void assert_sum(const struct sl_server_slow_request *request)
{
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < SL_REQUEST_PHASES; i++) {
        sum_ns += request->ns[i];
    }
    assert_int_equal(sum_ns, request->total_ns);
}

/* worker/0 pulls in iteration 1, and waits for worker/1, which is at iteration 0. */
TWO_CASE(slow__shows_that_a_pull_waited_for_a_clock)
{
    const struct sl_server_slow_requests *slow = begin(world, 10 * MS);
    stepped_pull(&world->first, 2, 1, 0);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(slow->count, 0);
    const uint64_t now = world->stepped.pair.now_ns;
    stepped_tick_done(&world->second, 1, 0);
    (void)stepped_reply(&world->first, 2);
    stepped_turns(&world->stepped, 20);
    assert_int_equal(slow->count, 1);
    const struct sl_server_slow_request *request = &slow->requests[0];
    assert_true(request->client.has_clock);
    assert_int_equal(request->client.worker, 0);
    assert_int_equal(request->section.op, SL_REQUEST_PULL);
    assert_string_equal(request->table, "t0");
    assert_in_range(request->ns[SL_REQUEST_PHASE_CLOCK], SL_CLOCK_NS_PER_S / 2,
                    2 * SL_CLOCK_NS_PER_S);
    assert_true(request->ns[SL_REQUEST_PHASE_CLOCK] >= request->total_ns * 9 / 10);
    assert_true(request->ended_ns >= now);
    assert_sum(request);
}

TWO_CASE(slow__shows_a_request_that_fails_by_its_deadline)
{
    const struct sl_server_slow_requests *slow = begin(world, 10 * MS);
    shard_request_begin(&world->stepped.request, 1);
    shard_request_pull(&world->stepped.request, 0, world->stepped.keys, 3);
    stepped_send(&world->first, 2, 100000);
    assert_int_equal(stepped_reply(&world->first, 2)->status, SL_ERR_DEADLINE);
    assert_int_equal(slow->count, 1);
    assert_int_equal(slow->requests[0].section.key_count, 3);
    assert_sum(&slow->requests[0]);
}

/* A long push works in slices. */
TWO_CASE(slow__shows_the_work_of_a_long_request)
{
    const struct sl_server_slow_requests *slow = begin(world, 1);
    stepped_push_done(&world->first, 2, 1, STEPPED_KEYS);
    assert_int_equal(slow->count, 1);
    const struct sl_server_slow_request *request = &slow->requests[0];
    assert_int_equal(request->section.op, SL_REQUEST_PUSH);
    assert_int_equal(request->section.key_count, STEPPED_KEYS);
    assert_string_equal(request->table, "t1");
    assert_true(request->ns[SL_REQUEST_PHASE_WORK] > request->total_ns / 2);
    assert_sum(request);
}

TWO_CASE(slow__shows_a_request_of_a_long_turn)
{
    struct stepped *stepped = &world->stepped;
    const struct sl_server_slow_requests *slow = begin(world, 10 * MS);
    stepped->pair.clock = (struct sl_clock){.now_ns = now_ns, .ctx = &stepped->pair};
    for (uint64_t round = 0; round < 2; round++) {
        reading_ns = round == 0 ? 9 * MS : 11 * MS;
        shard_request_begin(&stepped->request, 0);
        shard_request_pull(&stepped->request, 1, stepped->keys, 60);
        stepped_send(&world->second, 10 + round, STEPPED_BUDGET);
        (void)stepped_reply(&world->second, 10 + round);
        assert_int_equal(slow->count, round);
    }
    reading_ns = 0;
    assert_int_equal(slow->requests[0].client.worker, 1);
    assert_int_equal(slow->requests[0].section.key_count, 60);
    assert_int_equal(slow->requests[0].total_ns, 11 * MS);
    assert_int_equal(slow->requests[0].ns[SL_REQUEST_PHASE_ITERATION], 11 * MS);
}

TWO_CASE(slow__names_the_most_expensive_request_of_a_turn)
{
    struct sl_server *server = world->stepped.server;
    struct sl_server_slow_requests *slow = begin(world, 10 * MS);
    world->stepped.pair.clock = (struct sl_clock){.now_ns = now_ns, .ctx = &world->stepped.pair};
    reading_ns = 20 * MS;
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_shard_client client = {.has_clock = true, .worker = i};
        const struct sl_shard_main_section section = {
            .cost = i == 1 ? 9 : i + 1, .op = SL_REQUEST_TICK, .table_id = UINT16_MAX};
        sl_server_slow_requests_see(slow, client, section);
    }
    const uint64_t now = now_ns(&world->stepped.pair);
    sl_server_slow_requests_end_turn(server, now);
    sl_server_slow_requests_end_turn(server, now);
    reading_ns = 0;
    assert_int_equal(slow->count, 1);
    assert_int_equal(slow->requests[0].client.worker, 1);
    assert_string_equal(slow->requests[0].table, "");
}

TWO_CASE(slow__keeps_the_last_ones)
{
    const struct sl_server_slow_requests *slow = begin(world, 1);
    const uint64_t count = SL_SERVER_SLOW_REQUESTS + 3;
    for (uint64_t i = 0; i < count; i++) {
        stepped_push_done(&world->first, 2 + i, 1, 3000 + (uint32_t)i);
    }
    assert_int_equal(slow->count, count);
    for (uint64_t i = count - SL_SERVER_SLOW_REQUESTS; i < count; i++) {
        assert_int_equal(slow->requests[i % SL_SERVER_SLOW_REQUESTS].section.key_count, 3000 + i);
    }
}

TWO_CASE(slow__is_off_at_0)
{
    const struct sl_server_slow_requests *slow = begin(world, 0);
    stepped_push_done(&world->first, 2, 1, STEPPED_KEYS);
    stepped_pass(&world->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(slow->count, 0);
}
