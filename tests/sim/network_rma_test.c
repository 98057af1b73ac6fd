/* One-sided operations of the simulated network are as hostile as the contract allows, and no more:
 * over many seeds, what may happen happens, and what may not never does. */
#include <string.h>

#include "core/assert.h"
#include "net/transport_rma.h"
#include "tests/sim/process.h"
#include "tests/support/unit.h"

#define BYTES   8192U
#define KEY     77U
#define SEEDS   200
#define TURN_NS 1000U
#define OLD     0x11
#define NEW     0x22
#define OPS_MAX 8

struct side {
    struct sl_sim_process process;
    struct sl_transport *transport;
    struct sl_conn *conn; /* NULL: closed */
    int close_err;
    struct sl_transport_rma_token token;
    uint32_t added, removed, completed;
    int added_err, errs[OPS_MAX];
    uint8_t memory[BYTES];
};

/* 0 is the target. */
struct world {
    struct sl_sim_network *network;
    struct side sides[2];
    uint32_t breaches;
};

static struct world world;
static uint32_t region_fail_permille; /* of worlds that are opened */

static void watch_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    sl_sim_process_wake(&world.sides[host].process, at_ns);
}

static void watch_breach(void *ctx, const char *what)
{
    world.breaches++;
}

static void opened(void *ctx, struct sl_conn *conn)
{
    ((struct side *)ctx)->conn = conn;
}

static void *no_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
}

static void ignore_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void ignore(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct side *side = ctx;
    side->conn = NULL;
    side->close_err = err;
}

static const struct sl_transport_events events = {.accepted = opened,
                                                  .connected = opened,
                                                  .sink = no_sink,
                                                  .received = on_received,
                                                  .sent = ignore_sent,
                                                  .writable = ignore,
                                                  .closed = on_closed};

static void on_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token, int err)
{
    struct side *side = ctx;
    side->token = err == 0 ? *token : side->token;
    side->added_err = err;
    side->added++;
}

static void on_removed(void *ctx, uint64_t key, int err)
{
    ((struct side *)ctx)->removed++;
}

static void on_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    struct side *side = ctx;
    sl_assert(cookie == &side->errs[side->completed]); /* in the order of posting */
    side->errs[side->completed++] = err;
}

static const struct sl_transport_rma_events rma_events = {
    .region_added = on_added, .region_removed = on_removed, .completed = on_completed};

/* To the next moment at which something happens, or 10 ms on. */
static void step(void)
{
    const uint64_t now_ns = sl_sim_network_now(world.network);
    uint64_t next_ns = now_ns + 10 * SL_CLOCK_NS_PER_MS;
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t due_ns = sl_sim_process_due(&world.sides[i].process);
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    sl_sim_network_advance(world.network, next_ns > now_ns ? next_ns : now_ns + 1);
    for (uint32_t i = 0; i < 2; i++) {
        (void)sl_sim_process_step(&world.sides[i].process);
    }
}

#define STEP_UNTIL(condition)                                                                      \
    for (uint32_t steps_ = 0; !(condition); steps_++) {                                            \
        sl_assert(steps_ < 100000);                                                                \
        step();                                                                                    \
    }

static void side_open(struct side *side, uint32_t host)
{
    memset(side->memory, host == 0 ? OLD : NEW, BYTES);
    sl_sim_process_init(&side->process, world.network, host, "p", 1, host + 1, 0, TURN_NS);
    const struct sl_transport_options options = {.medium =
                                                     sl_sim_network_medium(world.network, host, 0)};
    sl_assert(sl_transport_open(&sl_sim_device_ops, side->process.reactors[0], &options,
                                &side->transport) == 0);
    sl_assert(sl_transport_rma_open(side->transport, &rma_events, side) == 0);
    sl_assert(sl_transport_rma_region_add(side->transport, KEY, side->memory, BYTES,
                                          host == 0 ? SL_TRANSPORT_RMA_PEERS_READ |
                                                          SL_TRANSPORT_RMA_PEERS_WRITE
                                                    : SL_TRANSPORT_RMA_LOCAL) == 0);
    sl_sim_process_look(&side->process);
}

static void world_open(uint64_t seed)
{
    const struct sl_sim_network_options options = {.seed = seed,
                                                   .is_one_sided = true,
                                                   .delay_us_max = 200,
                                                   .bytes_per_us = 100,
                                                   .window_bytes = 1U << 20,
                                                   .host_count = 2,
                                                   .region_fail_permille = region_fail_permille,
                                                   .place_us_max = 20000};
    const struct sl_sim_watch watch = {.wake = watch_wake, .breach = watch_breach};
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_RDMA, .port = SL_SIM_PORT_BASE}, bound;
    memset(&world, 0, sizeof world);
    world.network = sl_sim_network_create(&options, &watch);
    for (uint32_t i = 0; i < 2; i++) {
        side_open(&world.sides[i], i);
    }
    sl_sim_network_address(0, endpoint.host, sizeof endpoint.host);
    sl_assert(sl_transport_listen(world.sides[0].transport, &endpoint, &events, &world.sides[0],
                                  &bound) == 0);
    struct sl_conn *conn;
    sl_assert(sl_transport_connect(world.sides[1].transport, &bound, 0, &events, &world.sides[1],
                                   NULL, &conn) == 0);
    sl_sim_process_look(&world.sides[1].process);
    STEP_UNTIL(world.sides[0].conn != NULL && world.sides[1].conn != NULL &&
               world.sides[0].added >= 1 && world.sides[1].added >= 1);
    sl_assert(sl_transport_rma_admit(world.sides[0].conn) == 0);
}

static void world_close(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        sl_transport_close(&world.sides[i].transport);
        sl_sim_process_fini(&world.sides[i].process);
    }
    sl_sim_network_destroy(&world.network);
    assert_int_equal(world.breaches, 0);
}

/* Posts operations over all of the memory. */
static void post(const enum sl_transport_rma_kind *kinds, uint32_t count)
{
    struct side *side = &world.sides[1];
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_transport_rma_op op = {.kind = kinds[i],
                                               .bytes = BYTES,
                                               .local = side->memory,
                                               .token = &world.sides[0].token,
                                               .cookie = &side->errs[i]};
        sl_assert(sl_transport_rma_post(side->conn, &op, 1) == 1);
    }
    sl_sim_process_look(&side->process);
}

static bool is_all(const uint8_t *memory, uint8_t byte)
{
    return memory[0] == byte && memcmp(memory, memory + 1, BYTES - 1) == 0;
}

SL_CASE(a_write_is_visible_when_it_is_flushed)
{
    static const enum sl_transport_rma_kind kinds[] = {SL_TRANSPORT_RMA_WRITE,
                                                       SL_TRANSPORT_RMA_FLUSH};
    uint32_t invisible = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_open(seed);
        post(kinds, 2);
        STEP_UNTIL(world.sides[1].completed >= 1);
        invisible += !is_all(world.sides[0].memory, NEW);
        STEP_UNTIL(world.sides[1].completed == 2);
        assert_int_equal(world.sides[1].errs[0], 0);
        assert_int_equal(world.sides[1].errs[1], 0);
        assert_true(is_all(world.sides[0].memory, NEW));
        world_close();
    }
    assert_true(invisible > 0);
}

SL_CASE(a_read_sees_earlier_writes)
{
    static const enum sl_transport_rma_kind write[] = {SL_TRANSPORT_RMA_WRITE};
    static const enum sl_transport_rma_kind read[] = {SL_TRANSPORT_RMA_READ};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_open(seed);
        post(write, 1);
        STEP_UNTIL(world.sides[1].completed == 1);
        memset(world.sides[1].memory, OLD, BYTES);
        world.sides[1].completed = 0;
        post(read, 1);
        STEP_UNTIL(world.sides[1].completed == 1);
        assert_true(is_all(world.sides[1].memory, NEW));
        world_close();
    }
}

/* The target's side ends later than the initiator's: that is what fences are for. */
SL_CASE(a_write_comes_late_but_not_after_the_close_of_the_target)
{
    static const enum sl_transport_rma_kind kinds[] = {SL_TRANSPORT_RMA_WRITE};
    uint32_t late = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_open(seed);
        post(kinds, 1);
        step();
        (void)sl_sim_network_break(world.network, 1, true, 3000);
        for (uint32_t i = 0; i < 2; i++) {
            sl_sim_process_look(&world.sides[i].process);
        }
        STEP_UNTIL(world.sides[1].conn == NULL);
        const bool was_there = is_all(world.sides[0].memory, NEW);
        STEP_UNTIL(world.sides[0].conn == NULL);
        late += !was_there && is_all(world.sides[0].memory, NEW);
        memset(world.sides[0].memory, OLD, BYTES);
        for (uint32_t i = 0; i < 20; i++) {
            step();
        }
        assert_true(is_all(world.sides[0].memory, OLD));
        world_close();
    }
    assert_true(late > 0);
}

SL_CASE(nothing_reaches_a_removed_region)
{
    static const enum sl_transport_rma_kind kinds[] = {SL_TRANSPORT_RMA_WRITE,
                                                       SL_TRANSPORT_RMA_WRITE};
    uint32_t applied = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_open(seed);
        post(kinds, 2);
        sl_transport_rma_region_remove(world.sides[0].transport, KEY);
        sl_sim_process_look(&world.sides[0].process);
        STEP_UNTIL(world.sides[0].removed == 1);
        applied += is_all(world.sides[0].memory, NEW); /* until then it may be reached */
        memset(world.sides[0].memory, OLD, BYTES);
        for (uint32_t i = 0; i < 20; i++) {
            step();
        }
        assert_true(is_all(world.sides[0].memory, OLD));
        assert_true(world.sides[1].completed == 2 || world.sides[1].close_err == SL_ERR_PROTOCOL);
        world_close();
    }
    assert_true(applied > 0);
    assert_true(applied < SEEDS);
}

/* The device tries again, and says so once it has it. */
SL_CASE(a_region_that_has_failed_is_added_later_or_removed)
{
    static const enum sl_transport_rma_kind kinds[] = {SL_TRANSPORT_RMA_WRITE,
                                                       SL_TRANSPORT_RMA_FLUSH};
    uint32_t later = 0, never = 0;
    region_fail_permille = 500;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_open(seed);
        struct side *target = &world.sides[0], *initiator = &world.sides[1];
        if (seed % 2 == 0) {
            never += target->added_err != 0;
            sl_transport_rma_region_remove(target->transport, KEY);
            sl_sim_process_look(&target->process);
            STEP_UNTIL(target->removed == 1);
        } else {
            STEP_UNTIL(target->added_err == 0 && initiator->added_err == 0);
            later += target->added == 2;
            post(kinds, 2);
            STEP_UNTIL(initiator->completed == 2);
            assert_int_equal(initiator->errs[0], 0);
            assert_true(is_all(target->memory, NEW));
        }
        world_close();
    }
    region_fail_permille = 0;
    assert_true(later > 0);
    assert_true(never > 0);
}

SL_CASE(a_peer_that_is_not_admitted_is_refused)
{
    static const enum sl_transport_rma_kind kinds[] = {SL_TRANSPORT_RMA_WRITE};
    world_open(1);
    struct side *target = &world.sides[0], *initiator = &world.sides[1];
    sl_transport_disconnect(initiator->conn);
    sl_sim_process_look(&initiator->process);
    STEP_UNTIL(initiator->conn == NULL && target->conn == NULL);
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_RDMA, .port = SL_SIM_PORT_BASE};
    struct sl_conn *conn;
    sl_sim_network_address(0, endpoint.host, sizeof endpoint.host);
    sl_assert(sl_transport_connect(initiator->transport, &endpoint, 0, &events, initiator, NULL,
                                   &conn) == 0);
    sl_sim_process_look(&initiator->process);
    STEP_UNTIL(initiator->conn != NULL && target->conn != NULL);
    post(kinds, 1);
    STEP_UNTIL(initiator->conn == NULL);
    assert_int_equal(initiator->close_err, SL_ERR_PROTOCOL);
    assert_int_equal(initiator->completed, 0);
    assert_true(is_all(target->memory, OLD));
    world_close();
}

int main(void)
{
    return sl_unit_run("sim_network_rma", __FILE__);
}
