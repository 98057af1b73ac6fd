/* A client whose ps is near: when it takes the way through shared memory, and when it does not. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client/client_path.h"
#include "worker/client/client_io_memory.h"
#include "worker/client/shard_conn_connect.h"

static void set_hosts(struct peer_world *world, const char *ps, const char *client)
{
    snprintf(world->path.host, sizeof world->path.host, "%s", ps);
    snprintf(world->path.client_host, sizeof world->path.client_host, "%s", client);
}

PEER_CASE(start__takes_the_path_way_to_a_ps_on_its_host)
{
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_path(world);
    peer_start_with_table(world, -1);
    path_expect_way(world, true);
    peer_hang_up(world);
    peer_assert_contains(world->client->conns[0].reason, "the connection ended: closed");
    path_expect_way(world, true);
    assert_int_equal(world->data_connections, 2);
}

PEER_CASE(start__takes_no_path_way)
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
            peer_again(world);
        }
        set_hosts(world, cases[i].ps, cases[i].client);
        world->path.client_wants_none = cases[i].wants_none;
        world->path.is_missing = cases[i].is_missing;
        peer_listen_path(world);
        peer_start_with_table(world, -1);
        path_expect_way(world, false);
    }
}

PEER_CASE(start__goes_on_by_the_endpoint_where_nobody_is_preferred)
{
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    path_expect_way(world, false);
    peer_listen_path(world);
    peer_hang_up(world);
    path_expect_way(world, false); /* it has just been refused there */
}

static void tell_cluster(struct peer_world *world, const char *endpoint)
{
    struct sl_message_ps ps = {.shard_count = 1};
    struct sl_message_placement placement = {.epoch = 1};
    snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", endpoint);
    peer_fill_path(world, &ps);
    peer_tell(
        world,
        &(struct sl_message){
            .kind = SL_MESSAGE_CLUSTER,
            .cluster = {.ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1}});
    peer_turns(world, 100);
}

/* A ps that comes back listens where it did not before. */
PEER_CASE(link_move__tries_the_path_way_again)
{
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    path_expect_way(world, false);
    peer_listen_path(world);
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    path_expect_way(world, true);
}

PEER_CASE(link_move__leaves_the_path_way_of_a_ps_that_has_left_the_host)
{
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_path(world);
    peer_start_with_table(world, -1);
    path_expect_way(world, true);
    set_hosts(world, "boot-2/net-1", "");
    tell_cluster(world, world->endpoint);
    path_expect_way(world, true); /* the connection goes on */
    peer_hang_up(world);
    path_expect_way(world, false);
    set_hosts(world, "boot-1/net-1", "");
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    path_expect_way(world, true);
}

/* Killed: both ways are refused, and nothing is wrong with the near one. */
PEER_CASE(link__comes_back_to_a_ps_that_is_started_again)
{
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_path(world);
    peer_start_with_table(world, -1);
    path_expect_way(world, true);
    world->is_deaf = true;
    peer_ignore_path(world);
    peer_turns(world, 3000);
    peer_assert_contains(sl_shard_conn_last_error(&world->client->conns[0]),
                         "it closes the connection before its welcome");
    peer_listen_path(world);
    world->is_deaf = false;
    path_expect_way(world, true);
}

static void start_path(struct peer_world *world)
{
    path_memory_is_plain = false;
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_path(world);
    peer_start_with_table(world, -1);
    for (uint32_t i = 0; i < NEAR_KEYS; i++) {
        path_keys[i] = i;
    }
}

PEER_CASE(io_lend__tells_the_transport_that_shares)
{
    start_path(world);
    const struct sl_client_io *io = &world->client->ios[0];
    assert_int_equal(world->path.registered_count, 2); /* the outbox, and what steps send */
    assert_true(path_is_registered(world, io->memory.shared_outbox.base));
    assert_ptr_equal(world->client->conns[0].reactor->path.outbox, &io->memory.shared_outbox);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    assert_true(path_is_registered(world, path_rows));
    assert_true(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows, NEAR_LENT_BYTES));
    assert_true(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows + NEAR_KEYS - 1,
                                          sizeof *path_rows));
    assert_false(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows + 1, NEAR_LENT_BYTES));
    assert_false(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows + NEAR_KEYS, 0));
    const void *before = (const void *)((uintptr_t)path_rows - sizeof *path_rows);
    assert_false(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, before, sizeof *path_rows));
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
    assert_false(path_is_registered(world, path_rows));
    assert_false(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows, sizeof *path_rows));
}

/* A ps that comes to this host later is lent what there is. */
PEER_CASE(io_lend__tells_a_transport_that_is_opened_later)
{
    set_hosts(world, "boot-2/net-1", "boot-1/net-1");
    peer_start_with_table(world, -1);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    assert_int_equal(world->path.registered_count, 0);
    set_hosts(world, "boot-1/net-1", "boot-1/net-1");
    peer_listen_path(world);
    tell_cluster(world, world->endpoint);
    peer_hang_up(world);
    path_expect_way(world, true);
    assert_true(path_is_registered(world, path_rows));
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

PEER_CASE(link__asks_for_the_answer_in_a_buffer_that_is_lent)
{
    static float elsewhere[NEAR_KEYS];
    start_path(world);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    peer_expect(world, path_submit_pull(world, path_rows, 1000), 0, "");
    assert_ptr_equal(world->path.reply_buffer, path_rows);
    assert_int_equal(world->path.reply_buffer_bytes, 1000 * sizeof *path_rows);
    peer_expect(world, path_submit_pull(world, elsewhere, 1000), 0, "");
    assert_null(world->path.reply_buffer);
    peer_expect(world, path_submit_pull(world, path_rows + NEAR_KEYS - 996, 1000), 0,
                ""); /* not wholly in it */
    assert_null(world->path.reply_buffer);
    peer_expect(world, path_submit_pull(world, path_rows, 10), 0, ""); /* not worth the trouble */
    assert_null(world->path.reply_buffer);
    memset(path_rows, 1, NEAR_LENT_BYTES);
    peer_expect(world, path_submit_pull(world, path_rows, NEAR_KEYS), 0, "");
    assert_int_equal(world->path.reply_buffer_bytes, NEAR_LENT_BYTES);
    assert_true(path_rows[0] == 0 &&
                path_rows[NEAR_KEYS - 1] == 0); /* an answer that came elsewhere is moved */
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

/* The peer may write there as long as the connection stands: it ends before the step does. */
PEER_CASE(part__ends_the_connection_before_it_gives_up_a_buffer)
{
    start_path(world);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    world->manner = PEER_SILENT;
    struct sl_step *step = path_submit_pull(world, path_rows, NEAR_KEYS);
    for (int turns = 0; !sl_step_done(step) && turns < PEER_TURNS_MAX; turns++) {
        assert_int_equal(world->data_connections, 1);
        peer_turn(world);
    }
    assert_null(sl_session_conn(world->client->conns[0].reactor->session));
    peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    world->manner = PEER_CORRECT;
    peer_expect(world, path_submit_pull(world, path_rows, 10), 0, "");
    assert_int_equal(world->data_connections, 2);
    /* Not for what lies elsewhere. */
    static float elsewhere[NEAR_KEYS];
    world->manner = PEER_SILENT;
    peer_expect(world, path_submit_pull(world, elsewhere, 10), SL_ERR_DEADLINE,
                "deadline of 500 ms");
    peer_turns(world, 100);
    assert_int_equal(world->data_connections, 2);
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

/* A shard that keeps the deadline says so soon after: no connection need end for that. */
PEER_CASE(part__waits_a_little_for_the_shard_to_keep_the_deadline)
{
    start_path(world);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    world->manner = PEER_SILENT;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t begun_ns = world->now_ns;
        struct sl_step *step = path_submit_pull(world, path_rows, NEAR_KEYS);
        while (world->now_ns < begun_ns + 510 * SL_CLOCK_NS_PER_MS) {
            peer_turn(world);
            assert_false(sl_step_done(step));
        }
        peer_refuse(world, SL_ERR_DEADLINE);
        peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 500 ms passed");
        peer_turns(world, 100);
    }
    assert_int_equal(world->data_connections, 1);
    assert_int_equal(sl_cell_get(&world->client->ios[0].cells.failures),
                     6); /* the deadline's and the shard's */
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

PEER_CASE(link__asks_again_for_a_buffer_on_the_next_connection)
{
    start_path(world);
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    world->manner = PEER_SILENT;
    struct sl_step *step = path_submit_pull(world, path_rows, NEAR_KEYS);
    peer_turns(world, 50);
    world->path.reply_buffer = NULL;
    peer_hang_up(world);
    assert_false(sl_step_done(step));
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
    assert_ptr_equal(world->path.reply_buffer, path_rows);
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

PEER_CASE(io_lend__tells_nobody_who_shares_of_what_cannot_be_mapped)
{
    start_path(world);
    path_memory_is_plain = true;
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    assert_false(path_is_registered(world, path_rows));
    assert_false(sl_client_io_has_exported(&world->client->ios[0], SL_ENDPOINT_SHM, path_rows,
                                           NEAR_LENT_BYTES));
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
