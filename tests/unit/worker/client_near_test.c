/* A client whose ps is near: when it takes the way through shared memory, and when it does not. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/worker/client_peer.h"

#define KEYS 5000 /* their rows are longer than the transport's own buffers take */
static uint64_t keys[KEYS];
static float rows[KEYS];

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
