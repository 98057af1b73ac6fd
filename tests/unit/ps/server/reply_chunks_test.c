/* Long pulls of a dense array, whose replies are made as they are sent. */

#include <stdio.h>
#include <string.h>

#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define TABLE     3
#define BSP_TABLE 4
#define ELEMENTS  300000U /* 1.2 MB */

struct world {
    struct stepped stepped;
    struct stepped_peer peer, other;
    struct stepped_peer workers[2]; /* that have joined where they matter */
    float gradients[ELEMENTS];
    enum sl_precision returned; /* F32 unless a case sets it */
};

static void push_all(struct world *world, struct stepped_peer *peer, uint64_t id)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, 0);
    shard_request_dense(request, SL_REQUEST_DENSE_PUSH, TABLE, 0, ELEMENTS, world->gradients);
    stepped_send(peer, id, STEPPED_BUDGET);
}

static void pull(struct world *world, struct stepped_peer *peer, uint64_t id, uint32_t start,
                 uint32_t count)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, 0);
    request->returned = world->returned;
    shard_request_dense(request, SL_REQUEST_DENSE_PULL, TABLE, start, count, NULL);
    stepped_send(peer, id, STEPPED_BUDGET);
}

static void open_table(struct world *world, uint32_t id, struct sl_consistency_spec consistency)
{
    struct sl_table_spec spec = {
        .kind = SL_TABLE_DENSE, .length = ELEMENTS, .consistency = consistency};
    (void)snprintf(spec.name, sizeof spec.name, "dense%u", id);
    stepped_open_spec(&world->peer, id, spec);
}

/* Element i has the value i, once request 1 is answered. */
static void setup(struct world *world)
{
    stepped_start(&world->stepped, 11);
    stepped_join(&world->peer, &world->stepped, UINT32_MAX, 21);
    stepped_join(&world->other, &world->stepped, UINT32_MAX, 22);
    open_table(world, TABLE, (struct sl_consistency_spec){0});
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        world->gradients[i] = (float)i;
    }
    push_all(world, &world->peer, 1);
    assert_int_equal(stepped_reply(&world->peer, 1)->status, 0);
}

static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
}

static void expect_range(struct world *world, uint64_t id, uint32_t start, uint32_t count)
{
    static uint8_t expected[ELEMENTS * sizeof(float) + 8];
    const struct stepped_reply *reply = stepped_reply(&world->peer, id);
    const size_t bytes = sl_precision_row_bytes(world->returned, count);
    sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)
        ->narrow(world->returned, world->gradients + start, count, expected);
    memset(expected + bytes, 0, 8);
    assert_int_equal(reply->status, 0);
    assert_int_equal(reply->bytes, sl_bytes_pad8(bytes));
    assert_memory_equal(world->peer.sink, expected, reply->bytes);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

/* Lengths about those of the parts, odd ones too, and beginnings within a block. */
static void pull_ranges(struct world *world)
{
    static const struct {
        uint32_t start, count;
    } ranges[] = {{0, ELEMENTS}, {1, ELEMENTS - 1}, {777, 32768}, {1024, 32767},
                  {3, 46071},    {5, 46072},        {7, 46073},   {9, 46080}};
    for (uint32_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        pull(world, &world->peer, 2 + i, ranges[i].start, ranges[i].count);
        expect_range(world, 2 + i, ranges[i].start, ranges[i].count);
    }
}

CASE(server_stream__brings_every_element)
{
    pull_ranges(world);
}

/* With TLS nothing is sent at once: the parts are copied. */
static void send_copies(struct world *world)
{
    world->stepped.server->host->transports.first->secure = true;
}

CASE(server_stream__brings_every_element_in_copies)
{
    send_copies(world);
    pull_ranges(world);
}

/* Values in another precision are not those of the table: parts are made of them. */
CASE(server_stream__rounds_every_element)
{
    world->returned = SL_PRECISION_BF16;
    pull_ranges(world);
}

CASE(server_stream__rounds_every_element_in_copies)
{
    world->returned = SL_PRECISION_F16;
    send_copies(world);
    pull_ranges(world);
}

/* What is asked and told meanwhile is answered, and does not get between the parts. */
CASE(server_stream__is_not_interrupted)
{
    const struct sl_message stats = {.kind = SL_MESSAGE_STATS_GET, .id = 9};
    const uint32_t answers = world->peer.answer_count;
    pull(world, &world->peer, 2, 0, ELEMENTS);
    pull(world, &world->peer, 3, 100, 10);
    for (uint32_t i = 0; i < 8; i++) {
        stepped_tell(&world->peer, &stats);
        stepped_turns(&world->stepped, 1);
    }
    expect_range(world, 2, 0, ELEMENTS);
    const struct stepped_reply *small = stepped_reply(&world->peer, 3);
    assert_int_equal(small->bytes, 10 * sizeof(float));
    assert_true(small->value == 100);
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->peer.answer_count, answers + 8);
    sl_message_fini(&world->peer.answer);
}

/* Others push meanwhile: each element is as it was before one of the pushes, or as it is after the
 * last. */
static void pull_beside_pushes(struct world *world)
{
    for (uint32_t pushes = 1; pushes <= 10; pushes++) {
        pull(world, &world->peer, 1 + pushes, 0, ELEMENTS);
        stepped_turns(&world->stepped, pushes % 3);
        push_all(world, &world->other, pushes);
        assert_int_equal(stepped_reply(&world->peer, 1 + pushes)->status, 0);
        const float *values = (const float *)(const void *)world->peer.sink;
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            assert_true(values[i] == (float)pushes * (float)i ||
                        values[i] == (float)(pushes + 1) * (float)i);
        }
        assert_int_equal(stepped_reply(&world->other, pushes)->status, 0);
    }
}

CASE(server_stream__is_never_torn_within_an_element)
{
    pull_beside_pushes(world);
}

CASE(server_stream__is_never_torn_within_an_element_in_copies)
{
    send_copies(world);
    pull_beside_pushes(world);
}

static void join_workers(struct world *world)
{
    stepped_join(&world->workers[0], &world->stepped, 0, 23);
    stepped_join(&world->workers[1], &world->stepped, 1, 24);
    open_table(world, BSP_TABLE,
               (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = 2});
}

/* Worker 0 adds i to element i in each iteration. */
static void push_and_tick(struct world *world, uint64_t id, uint32_t clock)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, clock);
    shard_request_dense(request, SL_REQUEST_DENSE_PUSH, BSP_TABLE, 0, ELEMENTS, world->gradients);
    shard_request_tick(request);
    stepped_send(&world->workers[0], id, STEPPED_BUDGET);
}

static void pull_bsp(struct world *world, struct stepped_peer *peer, uint64_t id, uint32_t clock)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, clock);
    shard_request_dense(request, SL_REQUEST_DENSE_PULL, BSP_TABLE, 0, ELEMENTS, NULL);
    stepped_send(peer, id, STEPPED_BUDGET);
}

/* As they are after so many iterations. */
static void expect_iterations(struct stepped_peer *peer, uint64_t id, float count)
{
    assert_int_equal(stepped_reply(peer, id)->status, 0);
    const float *values = (const float *)(const void *)peer->sink;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        assert_true(values[i] == count * (float)i);
    }
}

/* Who has no clock holds nobody up, and sees the iterations that end meanwhile whole. */
CASE(server_stream__sees_whole_iterations)
{
    join_workers(world);
    for (uint32_t clock = 0; clock < 20; clock++) {
        push_and_tick(world, 1 + clock, clock);
        assert_int_equal(stepped_reply(&world->workers[0], 1 + clock)->status, 0);
        pull_bsp(world, &world->peer, 2 + clock, 0);
        stepped_turns(&world->stepped, clock % 3);
        stepped_tick_done(&world->workers[1], 1 + clock, clock);
        assert_int_equal(stepped_reply(&world->peer, 2 + clock)->status, 0);
        const float *values = (const float *)(const void *)world->peer.sink;
        expect_iterations(&world->peer, 2 + clock, values[1]);
    }
}

/* A pull that has waited for clocks is passed by later writes, but not while it is answered. */
CASE(server_stream__sees_nothing_of_later_iterations)
{
    join_workers(world);
    push_and_tick(world, 1, 0);
    for (uint32_t clock = 1; clock < 12; clock += 2) {
        const uint64_t id = 2 + 3 * clock;
        pull_bsp(world, &world->workers[0], id, clock);
        stepped_turns(&world->stepped, 40);
        stepped_tick(&world->workers[1], clock, clock - 1);
        stepped_turns(&world->stepped, clock);
        push_and_tick(world, id + 1, clock);
        stepped_tick(&world->workers[1], clock + 1, clock);
        expect_iterations(&world->workers[0], id, (float)clock);
        push_and_tick(world, id + 2, clock + 1);
        assert_int_equal(stepped_reply(&world->workers[0], id + 2)->status, 0);
    }
}

/* One that has waited for clocks comes to its turn while another, which passed it, is answered. */
CASE(server_stream__is_one_at_a_time)
{
    struct stepped_peer *worker = &world->workers[0];
    join_workers(world);
    for (uint32_t clock = 1; clock < 12; clock++) {
        const uint64_t id = 3 * clock;
        push_and_tick(world, id, clock - 1);
        pull_bsp(world, worker, id + 1, clock);
        stepped_turns(&world->stepped, 40);
        pull(world, worker, id + 2, 0, ELEMENTS);
        stepped_turns(&world->stepped, clock);
        stepped_tick(&world->workers[1], clock, clock - 1);
        assert_int_equal(stepped_reply(worker, id + 2)->status, 0);
        assert_int_equal(stepped_reply(worker, id + 1)->status, 0);
        assert_int_equal(stepped_reply(worker, id + 1)->bytes, ELEMENTS * sizeof(float));
        assert_int_equal(stepped_reply(worker, id + 2)->bytes, ELEMENTS * sizeof(float));
    }
}

/* A connection that breaks in the middle of a reply leaves nothing behind: see stepped_stop, which
 * asserts it. Its client, come again, gets the reply. */
CASE(server_stream__ends_with_its_connection)
{
    for (uint32_t turns = 0; turns < 12; turns++) {
        pull(world, &world->peer, 2 + turns, 0, ELEMENTS);
        stepped_turns(&world->stepped, turns);
        stepped_break(&world->peer);
        assert_int_equal(stepped_again(&world->peer)->kind, SL_MESSAGE_WELCOME);
    }
    pull(world, &world->peer, 50, 0, ELEMENTS);
    expect_range(world, 50, 0, ELEMENTS);
}
