/* A turn that takes long leaves larger requests to the next. */

#include "ps/server/turn.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define KEYS     600 /* of a pull: its turn is looked at */
#define REQUESTS 8   /* in all fewer keys than a turn has */

/* Each reading of the clock finds that reading_ns have passed since the last one. */
static uint64_t reading_ns;
static uint64_t read_ns;

static uint64_t now_ns(void *ctx)
{
    const struct sl_stepped_pair *pair = ctx;
    read_ns += reading_ns;
    return pair->now_ns + read_ns;
}

static void turn(struct stepped_two *world)
{
    struct sl_stepped_pair *pair = &world->stepped.pair;
    pair->now_ns += 10 * SL_CLOCK_NS_PER_MS;
    read_ns = 0;
    sl_reactor_turn(pair->b.reactor, pair->now_ns);
    read_ns = 0;
    sl_reactor_turn(pair->a.reactor, pair->now_ns);
}

static void begin(struct stepped_two *world)
{
    struct stepped *stepped = &world->stepped;
    stepped_join(&world->first, stepped, UINT32_MAX, 7);
    stepped_join(&world->second, stepped, UINT32_MAX, 8);
    stepped_open_table(&world->first, 0, SL_CONSISTENCY_ASP);
    stepped_push_done(&world->first, 1, 0, KEYS);
    stepped_turns(stepped, 10);
    stepped->pair.clock = (struct sl_clock){.now_ns = now_ns, .ctx = &stepped->pair};
}

/* Pulls of so many keys of both, on their way to the server. */
static void send_pulls(struct stepped_two *world, uint64_t first_id, uint32_t key_count)
{
    struct stepped *stepped = &world->stepped;
    shard_request_begin(&stepped->request, 0);
    shard_request_pull(&stepped->request, 0, stepped->keys, key_count);
    for (uint64_t i = 0; i < REQUESTS / 2; i++) {
        stepped_send(&world->first, first_id + i, STEPPED_BUDGET);
        stepped_send(&world->second, first_id + i, STEPPED_BUDGET);
    }
}

/* In how many turns the server carries them out; at most so many in each of them. */
static uint32_t turns_of_all(struct stepped_two *world, uint64_t most)
{
    const struct sl_server *server = world->stepped.server;
    const uint64_t end = sl_server_metrics_requests(server) + REQUESTS;
    uint32_t turns = 0;
    while (sl_server_metrics_requests(server) < end) {
        const uint64_t before = sl_server_metrics_requests(server);
        turn(world);
        turns++;
        assert_true(sl_server_metrics_requests(server) - before <= most);
        assert_true(turns < 1000);
    }
    return turns;
}

static void expect_answers(struct stepped_two *world, uint64_t last_id)
{
    assert_int_equal(stepped_reply(&world->first, last_id)->status, 0);
    assert_int_equal(stepped_reply(&world->second, last_id)->status, 0);
}

TWO_CASE(server_turn__ends_when_it_has_taken_long)
{
    begin(world);
    reading_ns = 0;
    send_pulls(world, 2, KEYS);
    assert_in_range(turns_of_all(world, REQUESTS), 1, REQUESTS - 1);
    reading_ns = SL_SERVER_TURN_LONG_NS + 1;
    send_pulls(world, 6, KEYS);
    (void)turns_of_all(world, 1);
    reading_ns = 0;
    expect_answers(world, 9);
}

/* They are not worth a look at the clock. */
TWO_CASE(server_turn__small_requests_are_answered_all_the_same)
{
    begin(world);
    reading_ns = SL_SERVER_TURN_LONG_NS + 1;
    send_pulls(world, 2, 10);
    assert_in_range(turns_of_all(world, REQUESTS), 1, REQUESTS - 1);
    reading_ns = 0;
    expect_answers(world, 5);
}
