/* A client whose ps is near: when it takes the way through shared memory, or over RDMA, and when it
 * does not. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/worker/client_peer.h"
#include "worker/wire_memory.h"

#define KEYS 5000 /* their rows are longer than the transport's own buffers take */
static uint64_t keys[KEYS + 1];
static float rows[KEYS + 4]; /* the last ones are not lent */
#define LENT_BYTES (KEYS * sizeof *rows)

static void pull(struct peer_world *world)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(step, 60000), 0);
    peer_expect(world, step, 0, "");
}

static void set_hosts(struct peer_world *world, const char *ps, const char *client)
{
    snprintf(world->near.host, sizeof world->near.host, "%s", ps);
    snprintf(world->near.client_host, sizeof world->near.client_host, "%s", client);
}

/* The connection that a pull goes over is of this kind, and the link's name says so. */
static void expect_way(struct peer_world *world, bool near)
{
    pull(world);
    assert_non_null(world->data);
    assert_ptr_equal(world->data->transport, near ? world->near.transport : world->transport);
    const char *name = !near                                   ? "ps/0 shard 0 (tcp://127.0.0.1:"
                       : world->near.scheme == SL_ENDPOINT_SHM ? "ps/0 shard 0 (shm://127.0.0.1:"
                                                               : "ps/0 shard 0 (rdma://127.0.0.1:";
    peer_assert_contains(world->client->links[0].name, name);
}

static void start__takes_the_near_way_to_a_ps_on_its_host(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_near(world);
    peer_start_with_table(world, -1);
    expect_way(world, true);
    peer_hang_up(world);
    peer_assert_contains(world->client->links[0].reason, "the connection ended: closed");
    expect_way(world, true);
    assert_int_equal(world->data_connections, 2);
}

static void start__takes_no_near_way(void **state)
{
    static const struct {
        const char *ps, *client;
        bool wants_none, is_missing;
    } cases[] = {
        {"boot-1/net-1", "boot-1/net-2", false, false},
        {"boot-1/net-1", "", false, false},
        {"", "boot-1/net-1", false, false},
        {"", "", false, false},
        {"boot-1/net-1", "boot-1/net-1", true, false},
        {"boot-1/net-1", "boot-1/net-1", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i > 0) {
            assert_int_equal(peer_setup(state), 0);
        }
        struct peer_world *world = *state;
        set_hosts(world, cases[i].ps, cases[i].client);
        world->near.client_wants_none = cases[i].wants_none;
        world->near.is_missing = cases[i].is_missing;
        peer_listen_near(world);
        peer_start_with_table(world, -1);
        expect_way(world, false);
        if (i + 1 < sizeof cases / sizeof *cases) {
            assert_int_equal(peer_teardown(state), 0);
        }
    }
}

static void start__goes_on_by_the_endpoint_where_nobody_is_near(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    expect_way(world, false);
    peer_listen_near(world);
    peer_hang_up(world);
    expect_way(world, false); /* it has just been refused there */
}

static void tell_cluster(struct peer_world *world, const char *endpoint)
{
    struct sl_message_ps ps = {.shard_count = 1};
    snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", endpoint);
    peer_fill_near(world, &ps);
    peer_tell(world, &(struct sl_message){.kind = SL_MESSAGE_CLUSTER,
                                          .cluster = {.ps = &ps, .ps_count = 1}});
    peer_turns(world, 100);
}

/* A ps that comes back listens where it did not before. */
static void link_move__tries_the_near_way_again(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    expect_way(world, false);
    peer_listen_near(world);
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    expect_way(world, true);
}

static void link_move__leaves_the_near_way_of_a_ps_that_has_left_the_host(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_near(world);
    peer_start_with_table(world, -1);
    expect_way(world, true);
    set_hosts(world, "boot-2/net-1", "");
    tell_cluster(world, world->endpoint);
    expect_way(world, true); /* the connection goes on */
    peer_hang_up(world);
    expect_way(world, false);
    set_hosts(world, "boot-1/net-1", "");
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    expect_way(world, true);
}

/* Killed: both ways are refused, and nothing is wrong with the near one. */
static void link__comes_back_to_a_ps_that_is_started_again(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_near(world);
    peer_start_with_table(world, -1);
    expect_way(world, true);
    world->is_deaf = true;
    peer_ignore_near(world);
    peer_turns(world, 3000);
    peer_assert_contains(sl_link_obstacle(&world->client->links[0]),
                         "it closes the connection before its welcome");
    peer_listen_near(world);
    world->is_deaf = false;
    expect_way(world, true);
}

/* ---- What is shared */

static bool is_registered(const struct peer_world *world, const void *base)
{
    for (uint32_t i = 0; i < world->near.registered_count; i++) {
        if (world->near.registered[i].base == base) {
            return true;
        }
    }
    return false;
}

/* sl_client_buffer_create and its counterpart wait for the client's reactors, which the test steps:
 * their calls are posted here, and answered in turns. */
static bool is_memory_plain; /* no other process can map it */

static void call_hub(struct peer_world *world, void (*run)(struct sl_call *call), void *memory,
                     size_t bytes)
{
    struct sl_port *port;
    assert_int_equal(sl_port_here(world->client->ports, &port), 0);
    struct sl_call call = {.hub = &world->client->hubs[0],
                           .run = run,
                           .memory = memory,
                           .memory_bytes = bytes,
                           .memory_is_shared = !is_memory_plain};
    sl_port_call(port, &call);
    for (int turns = 0; !call.done && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        sl_port_drain(port);
    }
    assert_true(call.done);
}

static void start_near(struct peer_world *world)
{
    is_memory_plain = false;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_near(world);
    peer_start_with_table(world, -1);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
}

static void hub_lend__tells_the_transport_that_shares(void **state)
{
    struct peer_world *world = *state;
    start_near(world);
    const struct sl_hub *hub = &world->client->hubs[0];
    assert_int_equal(world->near.registered_count, 2); /* the outbox, and what steps send */
    assert_true(is_registered(world, hub->shared_outbox.base));
    assert_ptr_equal(world->client->links[0].outbox, &hub->shared_outbox);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    assert_true(is_registered(world, rows));
    assert_true(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows, LENT_BYTES));
    assert_true(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows + KEYS - 1, sizeof *rows));
    assert_false(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows + 1, LENT_BYTES));
    assert_false(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows + KEYS, 0));
    const void *before = (const void *)((uintptr_t)rows - sizeof *rows);
    assert_false(sl_hub_lends(hub, SL_ENDPOINT_SHM, before, sizeof *rows));
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
    assert_false(is_registered(world, rows));
    assert_false(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows, sizeof *rows));
}

/* A ps that comes to this host later is lent what there is. */
static void hub_lend__tells_a_transport_that_is_opened_later(void **state)
{
    struct peer_world *world = *state;
    set_hosts(world, "boot-2/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    assert_int_equal(world->near.registered_count, 0);
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_near(world);
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    expect_way(world, true);
    assert_true(is_registered(world, rows));
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

static struct sl_step *submit_pull(struct peer_world *world, float *to, uint32_t key_count)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, key_count, to), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}

static void link__asks_for_the_answer_in_a_buffer_that_is_lent(void **state)
{
    struct peer_world *world = *state;
    static float elsewhere[KEYS];
    start_near(world);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    peer_expect(world, submit_pull(world, rows, 1000), 0, "");
    assert_ptr_equal(world->near.landing, rows);
    assert_int_equal(world->near.landing_bytes, 1000 * sizeof *rows);
    peer_expect(world, submit_pull(world, elsewhere, 1000), 0, "");
    assert_null(world->near.landing);
    peer_expect(world, submit_pull(world, rows + KEYS - 996, 1000), 0, ""); /* not wholly in it */
    assert_null(world->near.landing);
    peer_expect(world, submit_pull(world, rows, 10), 0, ""); /* not worth the trouble */
    assert_null(world->near.landing);
    memset(rows, 1, LENT_BYTES);
    peer_expect(world, submit_pull(world, rows, KEYS), 0, "");
    assert_int_equal(world->near.landing_bytes, LENT_BYTES);
    assert_true(rows[0] == 0 && rows[KEYS - 1] == 0); /* an answer that came elsewhere is moved */
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

/* The peer may write there as long as the connection stands: it ends before the step does. */
static void part__ends_the_connection_before_it_gives_up_a_buffer(void **state)
{
    struct peer_world *world = *state;
    start_near(world);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    world->manner = PEER_SILENT;
    struct sl_step *step = submit_pull(world, rows, KEYS);
    for (int turns = 0; !sl_step_done(step) && turns < PEER_TURNS_MAX; turns++) {
        assert_int_equal(world->data_connections, 1);
        peer_turn(world);
    }
    assert_null(sl_session_conn(world->client->links[0].session));
    peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    world->manner = PEER_CORRECT;
    peer_expect(world, submit_pull(world, rows, 10), 0, "");
    assert_int_equal(world->data_connections, 2);
    /* Not for what lies elsewhere. */
    static float elsewhere[KEYS];
    world->manner = PEER_SILENT;
    peer_expect(world, submit_pull(world, elsewhere, 10), SL_ERR_DEADLINE, "deadline of 500 ms");
    peer_turns(world, 100);
    assert_int_equal(world->data_connections, 2);
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

/* A shard that keeps the deadline says so soon after: no connection need end for that. */
static void part__waits_a_little_for_the_shard_to_keep_the_deadline(void **state)
{
    struct peer_world *world = *state;
    start_near(world);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    world->manner = PEER_SILENT;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t begun_ns = world->now_ns;
        struct sl_step *step = submit_pull(world, rows, KEYS);
        while (world->now_ns < begun_ns + 510 * SL_CLOCK_NS_PER_MS) {
            peer_turn(world);
            assert_false(sl_step_done(step));
        }
        peer_refuse(world, SL_ERR_DEADLINE);
        peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 500 ms passed");
        peer_turns(world, 100);
    }
    assert_int_equal(world->data_connections, 1);
    assert_int_equal(world->client->hubs[0].stats.failures, 6); /* the deadline's and the shard's */
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

static void link__asks_again_for_a_buffer_on_the_next_connection(void **state)
{
    struct peer_world *world = *state;
    start_near(world);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    world->manner = PEER_SILENT;
    struct sl_step *step = submit_pull(world, rows, KEYS);
    peer_turns(world, 50);
    world->near.landing = NULL;
    peer_hang_up(world);
    assert_false(sl_step_done(step));
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
    assert_ptr_equal(world->near.landing, rows);
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

/* ---- Over RDMA */

static void set_rdma(struct peer_world *world)
{
    is_memory_plain = true;
    world->near.scheme = SL_ENDPOINT_RDMA;
    for (uint32_t i = 0; i <= KEYS; i++) {
        keys[i] = i;
    }
}

static void start_rdma(struct peer_world *world)
{
    set_rdma(world);
    peer_listen_near(world);
    peer_start_with_table(world, -1);
}

static void link_find_place__takes_the_nearest(void **state)
{
    (void)state;
    static const struct sl_transport_tls tls;
    static const struct {
        const char *data, *fast, *ps_host;
        bool no_rdma, tls;
        const char *near; /* NULL: none */
    } cases[] = {
        {"tcp://10.0.0.1:5", "", "", false, false, NULL},
        {"tcp://10.0.0.1:5", "rdma://fast.example:6", "", false, false, "rdma://fast.example:6"},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", false, false, "rdma://10.1.0.1:6"},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "here", false, false, "shm://10.0.0.1:5"},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "here", true, true, "shm://10.0.0.1:5"},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", true, false, NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", false, true, NULL},
        {"tcp://10.0.0.1:5", "tcp://10.1.0.1:6", "", false, false, NULL},
        {"tcp://10.0.0.1:5", "dpdk://10.1.0.1:6", "", false, false, NULL},
        {"tcp://10.0.0.1:5", "later://10.1.0.1:6", "", false, false, NULL},
        {"rdma://10.1.0.1:6", "", "here", true, false, NULL},
        {"rdma://10.1.0.1:6", "rdma://10.1.0.1:7", "here", false, false, NULL},
        {"shm://10.0.0.1:5", "rdma://10.1.0.1:6", "here", false, false, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_hub_options options = {.host = "here", .no_rdma = cases[i].no_rdma};
        options.transport.tls = cases[i].tls ? &tls : NULL;
        struct sl_message_ps ps = {.shard_count = 1};
        snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", cases[i].data);
        snprintf(ps.fast_endpoint, sizeof ps.fast_endpoint, "%s", cases[i].fast);
        snprintf(ps.host, sizeof ps.host, "%s", cases[i].ps_host);
        struct sl_link_place place;
        char reason[160], text[SL_LIMIT_ENDPOINT_BYTES];
        assert_int_equal(sl_link_find_place(&options, &ps, &place, reason, sizeof reason), 0);
        sl_endpoint_format(&place.endpoint, text, sizeof text);
        assert_string_equal(text, cases[i].data);
        assert_int_equal(place.has_near, cases[i].near != NULL);
        sl_endpoint_format(&place.near, text, sizeof text);
        assert_string_equal(place.has_near ? text : "", place.has_near ? cases[i].near : "");
    }
}

static void link_find_place__refuses_rdma_alone_with_tls(void **state)
{
    (void)state;
    static const struct sl_transport_tls tls;
    const struct sl_hub_options options = {.transport = {.tls = &tls}};
    const struct sl_message_ps ps = {.shard_count = 1, .data_endpoint = "rdma://10.1.0.1:6"};
    struct sl_link_place place;
    char reason[160];
    assert_int_equal(sl_link_find_place(&options, &ps, &place, reason, sizeof reason),
                     SL_ERR_INVALID);
    assert_string_equal(
        reason, "rdma://10.1.0.1:6: there is no TLS over RDMA: give the ps a TCP endpoint too");
}

static void start__takes_rdma_to_a_ps_that_has_it(void **state)
{
    struct peer_world *world = *state;
    world->near.device = "mlx5_0,mlx5_1";
    world->near.gid = 4;
    start_rdma(world);
    expect_way(world, true);
    assert_string_equal(world->near.options.rdma_device, "mlx5_0,mlx5_1");
    assert_int_equal(world->near.options.rdma_gid, 4);
    peer_hang_up(world);
    expect_way(world, true);
    assert_int_equal(world->data_connections, 2);
}

static void client_create__refuses_device_names_that_are_too_long(void **state)
{
    (void)state;
    char names[257];
    memset(names, 'm', sizeof names - 1);
    names[sizeof names - 1] = '\0';
    const struct sl_client_options options = {
        .coordinator = "127.0.0.1:1", .task_index = -1, .rdma_device = names};
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), SL_ERR_INVALID);
    assert_null(client);
}

static void start__takes_no_rdma(void **state)
{
    for (int i = 0; i < 3; i++) {
        if (i > 0) {
            assert_int_equal(peer_setup(state), 0);
        }
        struct peer_world *world = *state;
        world->near.client_wants_none = i == 0;
        world->near.client_wants_tls = i == 1;
        world->near.is_missing = i == 2;
        start_rdma(world);
        expect_way(world, false);
        if (i < 2) {
            assert_int_equal(peer_teardown(state), 0);
        }
    }
}

static void start__takes_rdma_where_there_is_nothing_else(void **state)
{
    struct peer_world *world = *state;
    world->near.is_only = true;
    world->near.client_wants_none = true; /* beside TCP */
    start_rdma(world);
    expect_way(world, true);
}

static void start__says_why_there_is_no_rdma(void **state)
{
    struct peer_world *world = *state;
    world->near.is_only = true;
    world->near.is_missing = true;
    set_rdma(world);
    assert_int_equal(peer_start_client(world, -1), SL_ERR_UNSUPPORTED);
    const char *missing = sl_transport_missing(SL_ENDPOINT_RDMA);
    char text[256];
    snprintf(text, sizeof text, "ps/0 shard 0 (rdma://127.0.0.1:%u): cannot connect: %s",
             world->near.endpoint.port, missing != NULL ? missing : "unsupported");
    peer_assert_contains(world->client->calls[0].text, text);
}

static void link__goes_over_tcp_when_rdma_fails_and_back(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    expect_way(world, true);
    peer_ignore_near(world); /* and all its connections */
    expect_way(world, false);
    peer_listen_near(world);
    peer_hang_up(world);
    expect_way(world, false); /* it has just been refused there */
    /* By and by it is found to be there again, whatever is under way. */
    peer_turns(world, 50000);
    world->manner = PEER_SILENT;
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(step, 60000), 0);
    peer_turns(world, 10000);
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
    expect_way(world, true);
}

static void hub_share__registers_all_that_is_sent_and_received(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    const struct sl_hub *hub = &world->client->hubs[0];
    assert_true(is_registered(world, hub->outbox.base));
    assert_true(is_registered(world, hub->buffers.base));
    assert_true(is_registered(world, sl_wire_memory_shared(hub->options->wire)->base));
    assert_int_equal(world->near.registered_count, 3);
    assert_ptr_equal(world->client->links[0].outbox, &hub->outbox);
    /* The caller's, which no other process can map, too. */
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    assert_true(is_registered(world, rows));
    assert_true(sl_hub_lends(hub, SL_ENDPOINT_RDMA, rows, LENT_BYTES));
    assert_false(sl_hub_lends(hub, SL_ENDPOINT_SHM, rows, LENT_BYTES));
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
    assert_false(is_registered(world, rows));
}

static void hub_lend__tells_nobody_who_shares_of_what_cannot_be_mapped(void **state)
{
    struct peer_world *world = *state;
    start_near(world);
    is_memory_plain = true;
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    assert_false(is_registered(world, rows));
    assert_false(sl_hub_lends(&world->client->hubs[0], SL_ENDPOINT_SHM, rows, LENT_BYTES));
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

static void link__asks_for_long_answers_in_any_memory(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    peer_expect(world, submit_pull(world, rows, KEYS), 0, "");
    assert_ptr_equal(world->near.landing, rows);
    assert_int_equal(world->near.landing_bytes, KEYS * sizeof *rows);
    peer_expect(world, submit_pull(world, rows, 1000), 0, ""); /* not worth a registration */
    assert_null(world->near.landing);
    call_hub(world, sl_hub_lend, rows, LENT_BYTES);
    peer_expect(world, submit_pull(world, rows, 1000), 0, "");
    assert_ptr_equal(world->near.landing, rows);
    peer_expect(world, submit_pull(world, rows, 10), 0, "");
    assert_null(world->near.landing);
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
}

/* The device may write there as long as the connection stands. */
static void part__ends_the_connection_before_it_gives_up_any_memory(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    world->manner = PEER_SILENT;
    struct sl_step *step = submit_pull(world, rows, KEYS);
    for (int turns = 0; !sl_step_done(step) && turns < PEER_TURNS_MAX; turns++) {
        assert_int_equal(world->data_connections, 1);
        peer_turn(world);
    }
    assert_null(sl_session_conn(world->client->links[0].session));
    peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    world->manner = PEER_CORRECT;
    peer_expect(world, submit_pull(world, rows, KEYS), 0, "");
    assert_int_equal(world->data_connections, 2);
}

/* What does not end where its place does is moved there: nothing is written behind it. */
#define STAGED_KEYS (KEYS + 1)

static bool is_in_buffers(const struct sl_hub *hub, const void *at)
{
    const struct sl_pool *buffers = &hub->buffers;
    return (const uint8_t *)at >= buffers->base &&
           (const uint8_t *)at < buffers->base + buffers->block_count * buffers->block_bytes;
}

static void link__lets_long_answers_land_before_they_are_scattered(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    const struct sl_hub *hub = &world->client->hubs[0];
    assert_int_equal(hub->buffers.free_count, 2);
    memset(rows, 1, sizeof rows);
    struct sl_step *step = submit_pull(world, rows, STAGED_KEYS);
    peer_turns(world, 3);
    peer_expect(world, step, 0, "");
    assert_true(is_in_buffers(hub, world->near.landing));
    assert_int_equal(world->near.landing_bytes, (STAGED_KEYS + 1) * sizeof *rows);
    assert_int_equal(world->near.network.landed_count, 1);
    assert_true(rows[0] == 0 && rows[KEYS] == 0);
    assert_true(rows[KEYS + 1] != 0);
    assert_int_equal(hub->buffers.free_count, 2);
    /* One buffer is left for what comes without having been asked for there. */
    step = submit_pull(world, rows, STAGED_KEYS);
    struct sl_step *other = submit_pull(world, rows, STAGED_KEYS);
    peer_expect(world, step, 0, "");
    peer_expect(world, other, 0, "");
    assert_null(world->near.landing);
    assert_int_equal(world->near.network.landed_count, 2);
    assert_int_equal(hub->buffers.free_count, 2);
    world->manner = PEER_ERROR_WITH_LONG_TEXT;
    peer_expect(world, submit_pull(world, rows, STAGED_KEYS), SL_ERR_NOT_FOUND, "no?table");
    assert_int_equal(hub->buffers.free_count, 2);
}

/* Nobody waits for the answer any more, but the shard may still write it: to no caller's memory. */
static void link_forget__leaves_the_buffer_to_the_shard(void **state)
{
    struct peer_world *world = *state;
    start_rdma(world);
    const struct sl_hub *hub = &world->client->hubs[0];
    world->manner = PEER_SILENT;
    peer_expect(world, submit_pull(world, rows, STAGED_KEYS), SL_ERR_DEADLINE, "500 ms passed");
    assert_int_equal(hub->buffers.free_count, 1);
    assert_int_equal(world->data_connections, 1);
    peer_refuse(world, SL_ERR_DEADLINE);
    peer_turns(world, 100);
    assert_int_equal(hub->buffers.free_count, 2);
    assert_int_equal(world->data_connections, 1);
    /* It may not when its connection has ended. */
    peer_expect(world, submit_pull(world, rows, STAGED_KEYS), SL_ERR_DEADLINE, "500 ms passed");
    struct sl_step *step = submit_pull(world, rows, KEYS);
    peer_turns(world, 50);
    peer_hang_up(world);
    assert_int_equal(hub->buffers.free_count, 2);
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, peer_setup, peer_teardown)

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "test");
    const struct CMUnitTest tests[] = {
        CASE(start__takes_the_near_way_to_a_ps_on_its_host),
        CASE(start__takes_no_near_way),
        CASE(start__goes_on_by_the_endpoint_where_nobody_is_near),
        CASE(link_move__tries_the_near_way_again),
        CASE(link_move__leaves_the_near_way_of_a_ps_that_has_left_the_host),
        CASE(link__comes_back_to_a_ps_that_is_started_again),
        CASE(hub_lend__tells_the_transport_that_shares),
        CASE(hub_lend__tells_a_transport_that_is_opened_later),
        CASE(link__asks_for_the_answer_in_a_buffer_that_is_lent),
        CASE(part__ends_the_connection_before_it_gives_up_a_buffer),
        CASE(part__waits_a_little_for_the_shard_to_keep_the_deadline),
        CASE(link__asks_again_for_a_buffer_on_the_next_connection),
        cmocka_unit_test(link_find_place__takes_the_nearest),
        cmocka_unit_test(link_find_place__refuses_rdma_alone_with_tls),
        CASE(start__takes_rdma_to_a_ps_that_has_it),
        cmocka_unit_test(client_create__refuses_device_names_that_are_too_long),
        CASE(start__takes_no_rdma),
        CASE(start__takes_rdma_where_there_is_nothing_else),
        CASE(start__says_why_there_is_no_rdma),
        CASE(link__goes_over_tcp_when_rdma_fails_and_back),
        CASE(hub_share__registers_all_that_is_sent_and_received),
        CASE(hub_lend__tells_nobody_who_shares_of_what_cannot_be_mapped),
        CASE(link__asks_for_long_answers_in_any_memory),
        CASE(part__ends_the_connection_before_it_gives_up_any_memory),
        CASE(link__lets_long_answers_land_before_they_are_scattered),
        CASE(link_forget__leaves_the_buffer_to_the_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
