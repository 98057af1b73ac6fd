/* Two rails between two engines: TCP at two addresses of loopback. */
#include <string.h>
#include <unistd.h>

#include "net/transfer/engine.h"
#include "net/transfer/segment.h"
#include "pair.h"

#define BYTES (16U << 20)

static struct pair pair;

static void setup(void)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.2:0,tcp://127.0.0.3:0"};
    pair_init(&pair, BYTES, &options);
}

#define CASE(name) SL_CASE_WITH(name, setup(), pair_fini(&pair))

static struct sl_transfer_rail rail(uint32_t index)
{
    struct sl_transfer_info info;
    assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    assert_int_equal(info.rail_count, 2);
    return info.rails[index];
}

/* Moves everything there and back, in different bytes each round. */
static void move_all(uint32_t round)
{
    pair_fill(pair.local.base, BYTES, round);
    pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
    pair_expect(pair.remote.base, BYTES, round);
    memset(pair.local.base, 0, BYTES);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    pair_expect(pair.local.base, BYTES, round);
}

static void move_until_both_carry(void)
{
    const uint64_t before[] = {rail(0).bytes_read, rail(1).bytes_read};
    for (uint32_t i = 0; rail(0).bytes_read == before[0] || rail(1).bytes_read == before[1]; i++) {
        move_all(i);
    }
}

CASE(rails__carry_bytes_side_by_side)
{
    move_until_both_carry();
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_transfer_rail one = rail(i);
        assert_string_equal(one.local, i == 0 ? "127.0.0.2" : "127.0.0.3");
        assert_int_equal(strncmp(one.remote, "tcp://", 6), 0);
        assert_non_null(strstr(one.remote, one.local));
        assert_int_equal(one.state, SL_TRANSFER_RAIL_UP);
        assert_int_equal(one.failures, 0);
    }
}

/* Lanes of the second rail, which are lost, and connect to this port from then on. */
struct cut_call {
    struct sl_transfer_call call;
    uint16_t port; /* 0: of the peer */
};

static void cut_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct cut_call *cut = SL_CONTAINER_OF(call, struct cut_call, call);
    const struct sl_transfer_route *route = &pair.segment->routes[io->index];
    const struct sl_transfer_route_rail *second = &route->rails[1];
    for (uint32_t i = 0; i < second->lane_count; i++) {
        struct sl_endpoint endpoint = *sl_session_endpoint(second->lanes[i].session);
        endpoint.port = cut->port != 0 ? cut->port : route->endpoints[second->pair->remote].port;
        sl_session_set_endpoint(second->lanes[i].session, &endpoint);
        sl_transfer_lane_break(&second->lanes[i], "a test");
    }
    sl_transfer_io_answer(call, 0, "cut");
}

static void cut(uint16_t port)
{
    struct cut_call cut = {.call = {.run = cut_here}, .port = port};
    assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &cut.call), 0);
}

CASE(rails__take_over_the_slices_of_one_that_is_lost)
{
    const struct sl_transfer_request one = pair_request(&pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
    move_until_both_carry();
    for (uint32_t round = 0; round < 4; round++) {
        pair_fill(pair.local.base, BYTES, 100 + round);
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
        (void)usleep(round * 700);
        cut(1); /* no process listens there */
        assert_int_equal(sl_transfer_batch_wait(pair.batch), 0);
        pair_expect(pair.remote.base, BYTES, 100 + round);
        assert_int_equal(rail(0).state, SL_TRANSFER_RAIL_UP);
        assert_int_equal(rail(1).state, SL_TRANSFER_RAIL_PAUSED);
        const uint64_t bytes = rail(1).bytes_written;
        move_all(round);
        assert_int_equal(rail(1).bytes_written, bytes);
        cut(0);
        while (rail(1).state != SL_TRANSFER_RAIL_UP) {
            (void)usleep(1000);
        }
        move_until_both_carry();
    }
    assert_true(rail(1).failures > 0);
    assert_int_equal(rail(0).failures, 0);
}

static void prefer_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    pair.segment->routes[io->index].remote->buffers[0].near = 1U << 1;
    sl_transfer_io_answer(call, 0, "preferred");
}

CASE(rails__near_the_memory_come_first)
{
    struct sl_transfer_call call = {.run = prefer_here};
    move_until_both_carry();
    assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &call), 0);
    const uint64_t before[] = {rail(0).bytes_read, rail(1).bytes_read};
    move_all(1);
    assert_int_equal(rail(0).bytes_read, before[0]);
    assert_int_equal(rail(1).bytes_read, before[1] + BYTES);
    cut(1);
    while (rail(1).state == SL_TRANSFER_RAIL_UP) {
        (void)usleep(1000);
    }
    move_all(2);
    assert_int_equal(rail(0).bytes_read, before[0] + BYTES);
}

static void cut_all_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct sl_transfer_route *route = &pair.segment->routes[io->index];
    for (uint32_t i = 0; i < route->lane_count; i++) {
        struct sl_endpoint endpoint = *sl_session_endpoint(route->lanes[i].session);
        endpoint.port = 1;
        sl_session_set_endpoint(route->lanes[i].session, &endpoint);
        sl_transfer_lane_break(&route->lanes[i], "a test");
    }
    sl_transfer_io_answer(call, 0, "cut");
}

CASE(rails__are_all_named_when_none_is_left)
{
    struct sl_transfer_call call = {.run = cut_all_here};
    const struct sl_transfer_request one = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    move_until_both_carry();
    assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &call), 0);
    uint32_t timeout_ms = 75; /* a busy machine may need longer to try both */
    do {
        timeout_ms *= 4;
        assert_true(timeout_ms <= PAIR_TIMEOUT_MS);
        assert_int_equal(pair_run(&pair, &one, 1, timeout_ms), SL_ERR_DEADLINE);
    } while (strstr(sl_transfer_last_error(), "from 127.0.0.2: refused") == NULL ||
             strstr(sl_transfer_last_error(), "from 127.0.0.3: refused") == NULL);
}

/* The slices in flight have one attempt left, and their lanes are lost. */
static void break_all_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_route *route = &pair.segment->routes[io->index];
    for (uint32_t i = 0; i < route->lane_count; i++) {
        for (uint32_t k = 0; route->lanes[i].slices != NULL && k < SL_LIMIT_TRANSFER_SLICES; k++) {
            route->lanes[i].slices[k].attempts = route->rail_count + 1;
        }
        sl_transfer_lane_break(&route->lanes[i], "a test");
    }
    sl_transfer_io_answer(call, 0, "broken");
}

CASE(rails__are_tried_a_limited_number_of_times)
{
    enum { COUNT = 16 };
    struct sl_transfer_request requests[COUNT];
    int err = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        requests[i] = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    }
    while (err == 0) {
        assert_int_equal(sl_transfer_batch_submit(pair.batch, requests, COUNT, 60000, NULL), 0);
        while (!sl_transfer_batch_done(pair.batch)) {
            struct sl_transfer_call call = {.run = break_all_here};
            assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &call), 0);
            (void)usleep(1000);
        }
        err = sl_transfer_batch_wait(pair.batch);
    }
    assert_int_equal(err, SL_ERR_CLOSED);
    assert_non_null(strstr(sl_transfer_last_error(), "lost"));
    assert_non_null(strstr(sl_transfer_last_error(), "a test"));
    assert_non_null(strstr(sl_transfer_last_error(), sl_transfer_name(pair.there)));
}

struct look_call {
    struct sl_transfer_call call;
    uint64_t first_bytes, second_bytes; /* in flight on the lanes of the first rail */
};

static void look_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct look_call *look = SL_CONTAINER_OF(call, struct look_call, call);
    struct sl_transfer_route *route = &pair.segment->routes[io->index];
    assert_int_not_equal(route->small_ns, 0);
    route->small_ns = UINT64_MAX / 2; /* a request is in use for a second */
    look->first_bytes = route->lanes[0].in_flight_bytes;
    look->second_bytes = route->lanes[1].in_flight_bytes;
    sl_transfer_io_answer(call, 0, "looked");
}

CASE(rails__keep_a_lane_for_small_requests)
{
    enum { COUNT = 16 };
    const struct sl_transfer_request small = pair_request(&pair, SL_TRANSFER_READ, 0, 0, 1000);
    const uint64_t slice_bytes = pair.here->settings.slice_bytes;
    struct sl_transfer_request large[COUNT];
    uint64_t most = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        large[i] = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    }
    struct look_call look = {.call = {.run = look_here}};
    move_until_both_carry(); /* all lanes are open */
    assert_int_equal(pair_run(&pair, &small, 1, PAIR_TIMEOUT_MS), 0);
    assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &look.call), 0);
    while (most <= slice_bytes) {
        assert_int_equal(sl_transfer_batch_submit(pair.batch, large, COUNT, PAIR_TIMEOUT_MS, NULL),
                         0);
        while (!sl_transfer_batch_done(pair.batch)) {
            assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &look.call), 0);
            assert_int_equal(look.first_bytes, 0);
            most = look.second_bytes > most ? look.second_bytes : most;
        }
        assert_int_equal(sl_transfer_batch_wait(pair.batch), 0);
    }
}

static uint32_t numbers[64], number_count;

static void list_numbers(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct sl_transfer_route *route = &pair.segment->routes[io->index];
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (route->lanes[i].slices != NULL) {
            numbers[number_count++] = route->lanes[i].number;
        }
    }
    sl_transfer_io_answer(call, 0, "listed");
}

SL_CASE(rails__of_several_reactors_have_lanes_of_different_numbers)
{
    enum { REACTORS = 3 };
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.2:0,tcp://127.0.0.3:0",
                                                .reactor_count = REACTORS};
    struct sl_transfer_batch *batches[REACTORS];
    pair_init(&pair, BYTES, &options);
    pair_fill(pair.remote.base, BYTES, 3);
    for (uint32_t i = 0; i < REACTORS; i++) {
        const size_t at = i * (BYTES / REACTORS);
        const struct sl_transfer_request one =
            pair_request(&pair, SL_TRANSFER_READ, at, at, BYTES / REACTORS);
        assert_int_equal(sl_transfer_batch_create(pair.here, 1, &batches[i]), 0);
        assert_int_equal(sl_transfer_batch_submit(batches[i], &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
    }
    for (uint32_t i = 0; i < REACTORS; i++) {
        assert_int_equal(sl_transfer_batch_wait(batches[i]), 0);
    }
    assert_memory_equal(pair.local.base, pair.remote.base, BYTES / REACTORS * REACTORS);
    assert_int_equal(rail(0).bytes_read + rail(1).bytes_read, BYTES / REACTORS * REACTORS);
    for (uint32_t i = 0; i < REACTORS; i++) {
        struct sl_transfer_call call = {.run = list_numbers};
        assert_int_equal(sl_transfer_io_call(&pair.here->ios[i], &call), 0);
    }
    assert_int_equal(number_count, 2 * REACTORS * pair.here->settings.lanes);
    for (uint32_t i = 0; i < number_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            assert_int_not_equal(numbers[i], numbers[k]);
        }
    }
    pair_fini(&pair);
}

/* The second rail is up again after a loss. */
CASE(rails__that_come_and_go_are_the_last_choice)
{
    move_until_both_carry();
    cut(0);
    while (rail(1).failures == 0 || rail(1).state != SL_TRANSFER_RAIL_UP) {
        (void)usleep(1000);
    }
    struct sl_transfer_route_rail *second = &pair.segment->routes[0].rails[1];
    assert_int_not_equal(second->rest_end_ns, 0);
    second->rest_end_ns = UINT64_MAX; /* no batch runs */
    const uint64_t before = rail(1).bytes_read;
    move_all(1);
    assert_int_equal(rail(1).bytes_read, before);
}
