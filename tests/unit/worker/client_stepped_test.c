/* A client and two shards in one thread, on a clock that the test moves: nothing in the client
 * blocks, and nothing depends on threads. */

#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/state.h"
#include "ps/server/server.h"
#include "tests/support/loop_transport.h"
#include "tests/support/unit.h"
#include "worker/client_internal.h"

#define SHARDS          2
#define CLIENT_REACTORS 2
#define TURNS_MAX       70000
#define PS_PEER         1 /* of the coordinator: the ps, which the test speaks for */

/* Sanitizers, whose builds have the slow assertions, take a few of the seeds. */
#ifdef SL_ASSERT_SLOW
enum { DEADLINE_SEED_STEP = 3 };
#else
enum { DEADLINE_SEED_STEP = 1 };
#endif

struct world {
    struct sl_loop_network network;
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_reactor *ps_reactors[SHARDS];
    struct sl_server *servers[SHARDS];
    struct sl_coordinator *coordinator;
    struct sl_reactor *client_reactors[CLIENT_REACTORS];
    struct sl_client *client;
    bool ps_stands_still;
};

static uint64_t world_now(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static const struct sl_transport_ops *loop(enum sl_endpoint_scheme scheme)
{
    return &sl_loop_transport_ops;
}

static void turn(struct world *world)
{
    world->now_ns += SL_CLOCK_NS_PER_MS;
    for (uint32_t i = 0; i < SHARDS && !world->ps_stands_still; i++) {
        sl_reactor_turn(world->ps_reactors[i], world->now_ns);
    }
    for (uint32_t i = 0; i < CLIENT_REACTORS; i++) {
        sl_reactor_turn(world->client_reactors[i], world->now_ns);
    }
}

static void make_reactors(struct world *world, struct sl_reactor **reactors, uint32_t count,
                          const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        struct sl_reactor_options options = {
            .index = i, .core = -1, .stepped = true, .clock = &world->clock, .seed = 7 + i};
        snprintf(options.name, sizeof options.name, "%s.%u", name, i);
        assert_int_equal(sl_reactor_create(&options, &reactors[i]), 0);
    }
    assert_int_equal(sl_reactor_connect(reactors, count), 0);
}

static void send_to_peer(void *ctx, uint64_t peer, const struct sl_message *message)
{
    if (peer != PS_PEER) {
        sl_server_send_to_peer(ctx, peer, message);
    }
}

static void close_peer(void *ctx, uint64_t peer, const char *why)
{
    if (peer != PS_PEER) {
        sl_server_close_peer(ctx, peer, why);
    }
}

static void start_ps(struct world *world, uint64_t seed)
{
    sl_loop_network_init(&world->network, seed);
    make_reactors(world, world->ps_reactors, SHARDS, "ps");
    const struct sl_coordinator_options coordinator = {
        .ps_count = 1, .send = send_to_peer, .close = close_peer};
    assert_int_equal(sl_coordinator_create(&coordinator, &world->coordinator), 0);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_reactor_turn(world->ps_reactors[i], world->now_ns); /* it is this thread's */
        const struct sl_server_options options = {
            .reactor = world->ps_reactors[i],
            .transport = &sl_loop_transport_ops,
            .transport_options.medium = &world->network,
            .local_index = i,
            .servers = world->servers,
            .server_count = SHARDS,
            .coordinator = i == 0 ? world->coordinator : NULL,
            .coordinator_ops = &sl_process_coordinator_ops,
        };
        assert_int_equal(sl_server_create(&options, &world->servers[i]), 0);
    }
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    assert_int_equal(sl_server_listen(world->servers[0], &any, &bound), 0);
    char reason[200];
    const struct sl_message_hello hello = {.role = SL_MESSAGE_ROLE_PS, .client_id = 99};
    assert_int_equal(
        sl_coordinator_hello(world->coordinator, PS_PEER, &hello, 0, reason, sizeof reason), 0);
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = 1};
    sl_endpoint_format(&bound, message.reg.data_endpoint, sizeof message.reg.data_endpoint);
    message.reg.shard_count = SHARDS;
    sl_coordinator_message(world->coordinator, PS_PEER, &message, world->now_ns);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_server_set_lease(world->servers[i], SL_SERVER_LEASE_DEFAULT_NS);
        assert_int_equal(sl_server_set_shard(world->servers[i], i, SHARDS), 0);
    }
    make_reactors(world, world->client_reactors, CLIENT_REACTORS, "client");
    char host[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&bound, host, sizeof host);
    const struct sl_client_options options = {.coordinator = host, .task_index = -1};
    const struct sl_client_setup setup = {.reactors = world->client_reactors,
                                          .reactor_count = CLIENT_REACTORS,
                                          .find_transport = loop,
                                          .medium = &world->network,
                                          .client_id = seed};
    assert_int_equal(sl_start_begin(&options, &setup, &world->client), 0);
}

static void start(struct world *world, uint64_t seed)
{
    *world = (struct world){.now_ns = SL_CLOCK_NS_PER_S};
    world->clock = (struct sl_clock){.now_ns = world_now, .ctx = world};
    start_ps(world, seed);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < TURNS_MAX; turns++) {
        turn(world);
        err = sl_start_poll(world->client);
    }
    assert_int_equal(err, 0);
}

static void stop(struct world *world)
{
    sl_start_close_begin(world->client);
    bool closed = false;
    for (int turns = 0; !closed && turns < TURNS_MAX; turns++) {
        turn(world);
        closed = sl_start_close_poll(world->client);
    }
    assert_true(closed);
    sl_start_free(&world->client);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_server_destroy(&world->servers[i]);
    }
    sl_coordinator_destroy(&world->coordinator);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_reactor_destroy(&world->ps_reactors[i]);
    }
    for (uint32_t i = 0; i < CLIENT_REACTORS; i++) {
        sl_reactor_destroy(&world->client_reactors[i]);
    }
    sl_loop_network_fini(&world->network);
}

static struct sl_table *open_table(struct world *world, const struct sl_table_spec *spec)
{
    struct sl_table_opening opening;
    struct sl_table *table = NULL;
    assert_int_equal(sl_table_opening_begin(&opening, world->client, spec, 10000), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < TURNS_MAX; turns++) {
        turn(world);
        err = sl_table_opening_poll(&opening, &table);
    }
    assert_int_equal(err, 0);
    return table;
}

static int run(struct world *world, struct sl_step *step, uint32_t timeout_ms)
{
    assert_int_equal(sl_step_submit(step, timeout_ms), 0);
    for (int turns = 0; !sl_step_done(step) && turns < TURNS_MAX; turns++) {
        turn(world);
    }
    assert_true(sl_step_done(step));
    return sl_step_wait(step);
}

enum { KEYS = 5000, DIM = 5, LENGTH = 100001 };
static uint64_t keys[KEYS];
static float gradients[KEYS * DIM], rows[KEYS * DIM], dense_gradients[LENGTH], values[LENGTH];

static void train(struct world *world)
{
    struct sl_table_spec spec = {.name = "s", .kind = SL_TABLE_SPARSE, .dim = DIM};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table *sparse = open_table(world, &spec);
    spec = (struct sl_table_spec){.name = "d", .kind = SL_TABLE_DENSE, .length = LENGTH};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table *dense = open_table(world, &spec);
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        gradients[i] = (float)(i % 100);
        keys[i / DIM] = sl_hash_key(i / DIM);
    }
    for (uint32_t i = 0; i < LENGTH; i++) {
        dense_gradients[i] = (float)(i % 1000);
    }
    for (uint32_t round = 1; round <= 3; round++) {
        struct sl_step *step;
        assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
        assert_int_equal(sl_step_push_pull(step, sparse, keys, KEYS, gradients, rows), 0);
        assert_int_equal(sl_step_dense_push(step, dense, 0, LENGTH, dense_gradients), 0);
        assert_int_equal(sl_step_dense_pull(step, dense, 0, LENGTH, values), 0);
        assert_int_equal(run(world, step, 10000), 0);
        sl_step_destroy(&step);
        for (uint32_t i = 0; i < KEYS * DIM; i++) {
            assert_true(rows[i] == (float)round * gradients[i]);
        }
        for (uint32_t i = 0; i < LENGTH; i++) {
            assert_true(values[i] == (float)round * dense_gradients[i]);
        }
    }
}

/* The ps stands still in the middle of a step, then comes back: the step ends at its deadline, the
 * transport gives all memory back, and a client whose links are whole goes on. */
SL_CASE(step_done__ends_at_the_deadline)
{
    for (uint64_t seed = 1; seed <= 30; seed += DEADLINE_SEED_STEP) {
        static struct world world;
        start(&world, seed);
        train(&world);
        struct sl_table *dense = world.client->tables[1], *sparse = world.client->tables[0];
        struct sl_step *step;
        assert_int_equal(sl_step_begin(world.client, 0, &step), 0);
        assert_int_equal(sl_step_pull(step, sparse, keys, KEYS, rows), 0);
        if (seed % 2 == 0) {
            assert_int_equal(
                sl_step_dense_push_pull(step, dense, 0, LENGTH, dense_gradients, values), 0);
        }
        assert_int_equal(sl_step_submit(step, 100), 0);
        for (uint64_t turns = 0; turns < seed / 4; turns++) {
            turn(&world);
        }
        world.ps_stands_still = true;
        for (int turns = 0; !sl_step_done(step) && turns < 3000; turns++) {
            turn(&world);
        }
        assert_true(sl_step_done(step));
        if (sl_step_wait(step) != 0) {
            assert_int_equal(sl_step_wait(step), SL_ERR_DEADLINE);
            assert_non_null(strstr(sl_step_error(step), "deadline of 100 ms passed"));
        }
        sl_step_destroy(&step);
        world.ps_stands_still = false;
        assert_int_equal(sl_step_begin(world.client, 0, &step), 0);
        assert_int_equal(sl_step_pull(step, sparse, keys, KEYS, rows), 0);
        assert_int_equal(run(&world, step, 10000), 0); /* whatever it cost, the link is back */
        sl_step_destroy(&step);
        stop(&world);
    }
}

static void turn_ps(struct world *world, uint32_t count, uint64_t step_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        world->now_ns += step_ns;
        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            sl_reactor_turn(world->ps_reactors[shard], world->now_ns);
        }
    }
}

/* The push is carried out, but its reply is lost; the shard forgets the client; and the welcome
 * that would say so is lost too. On the next connection the shard knows the client, but not the
 * push. */
SL_CASE(step__is_not_carried_out_twice_when_a_welcome_is_lost)
{
    enum { PUSHED = 40 };
    static struct world world;
    uint64_t pushed_keys[PUSHED];
    float ones[PUSHED], pulled[PUSHED];
    for (uint32_t i = 0; i < PUSHED; i++) {
        pushed_keys[i] = sl_hash_key(i);
        ones[i] = 1;
    }
    start(&world, 3);
    struct sl_table_spec spec = {.name = "s", .kind = SL_TABLE_SPARSE, .dim = 1};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table *table = open_table(&world, &spec);
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world.client, 0, &step), 0);
    assert_int_equal(sl_step_push(step, table, pushed_keys, PUSHED, ones), 0);
    assert_int_equal(sl_step_submit(step, 60000), 0);
    for (int turns = 0; turns < 3; turns++) {
        sl_reactor_turn(world.client_reactors[0], world.now_ns);
        sl_reactor_turn(world.client_reactors[1], world.now_ns);
    }
    turn_ps(&world, 100, SL_CLOCK_NS_PER_MS);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        sl_session_reconnect(world.client->conns[shard].session, "the reply is lost");
    }
    while (world.client->conns[0].state != SL_SHARD_CONN_AWAY ||
           world.client->conns[1].state != SL_SHARD_CONN_AWAY) {
        turn(&world);
    }
    turn_ps(&world, 200, SL_SERVER_LEASE_DEFAULT_NS / 100);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct sl_session *session = world.client->conns[shard].session;
        while (strcmp(sl_session_last_error(session), "its welcome has not come yet") != 0) {
            turn(&world);
        }
        turn_ps(&world, 100, SL_CLOCK_NS_PER_MS);
        sl_session_reconnect(session, "the welcome is lost");
    }
    while (!sl_step_done(step)) {
        turn(&world);
    }
    bool acknowledged = sl_step_wait(step) == 0;
    sl_step_destroy(&step);
    assert_int_equal(sl_step_begin(world.client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, table, pushed_keys, PUSHED, pulled), 0);
    assert_int_equal(run(&world, step, 60000), 0);
    sl_step_destroy(&step);
    for (uint32_t i = 0; i < PUSHED; i++) {
        assert_true(pulled[i] == 1 || (pulled[i] == 0 && !acknowledged));
    }
    stop(&world);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
