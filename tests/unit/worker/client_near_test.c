/* A client whose ps is near: when it takes the way through shared memory, and when it does not. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/worker/client_peer.h"

#define KEYS 5000 /* their rows are longer than the transport's own buffers take */
static uint64_t keys[KEYS];
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
    peer_assert_contains(world->client->links[0].name, near ? "ps/0 shard 0 (shm://127.0.0.1:"
                                                            : "ps/0 shard 0 (tcp://127.0.0.1:");
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
    snprintf(ps.host, sizeof ps.host, "%s", world->near.host);
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
static void call_hub(struct peer_world *world, void (*run)(struct sl_call *call), void *memory,
                     size_t bytes)
{
    struct sl_port *port;
    assert_int_equal(sl_port_here(world->client->ports, &port), 0);
    struct sl_call call = {
        .hub = &world->client->hubs[0], .run = run, .memory = memory, .memory_bytes = bytes};
    sl_port_call(port, &call);
    for (int turns = 0; !call.done && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        sl_port_drain(port);
    }
    assert_true(call.done);
}

static void start_near(struct peer_world *world)
{
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
    assert_true(sl_hub_lends(hub, rows, LENT_BYTES));
    assert_true(sl_hub_lends(hub, rows + KEYS - 1, sizeof *rows));
    assert_false(sl_hub_lends(hub, rows + 1, LENT_BYTES));
    assert_false(sl_hub_lends(hub, rows + KEYS, 0));
    const void *before = (const void *)((uintptr_t)rows - sizeof *rows);
    assert_false(sl_hub_lends(hub, before, sizeof *rows));
    call_hub(world, sl_hub_take_back, rows, LENT_BYTES);
    assert_false(is_registered(world, rows));
    assert_false(sl_hub_lends(hub, rows, sizeof *rows));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
