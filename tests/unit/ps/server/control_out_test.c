/* Control messages to many members at once, more than the outbox holds. */

#include <stdio.h>

#include "ps/coordinator/coordinator.h"
#include "ps/process/state.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define MEMBERS 60

struct world {
    struct stepped stepped;
    struct sl_coordinator *coordinator;
    struct stepped_peer members[MEMBERS];
    struct sl_message_ps ps[SL_LIMIT_PS];
};

static void setup(struct world *world)
{
    const struct sl_coordinator_options options = {
        .ps_count = 1,
        .send = sl_server_send_to_peer,
        .close = sl_server_close_peer,
    };
    assert_int_equal(sl_coordinator_create(&options, &world->coordinator), 0);
    world->stepped.options.coordinator = world->coordinator;
    world->stepped.options.coordinator_ops = &sl_process_coordinator_ops;
    stepped_start(&world->stepped, 5);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct stepped_peer *member = &world->members[i];
        member->world = &world->stepped;
        member->hello = (struct sl_message_hello){
            .protocol_version = SL_FRAME_PROTOCOL_VERSION,
            .purpose = SL_MESSAGE_PURPOSE_CONTROL,
            .role = SL_MESSAGE_ROLE_WORKER,
            .task_index = i,
            .client_id = 100 + i,
        };
        assert_int_equal(stepped_again(member)->kind, SL_MESSAGE_WELCOME);
        assert_true(member->answer.welcome.lease_ms > 0);
        member->answer_count = 0;
    }
}

static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
    sl_coordinator_destroy(&world->coordinator);
}

static void tell_all(struct world *world, const struct sl_message *message)
{
    struct sl_server *server = world->stepped.server;
    SL_LIST_FOREACH (link, &server->host->conns) {
        struct sl_server_conn *conn = sl_server_conn_of(link);
        sl_server_send_to_peer(NULL, (uintptr_t)conn, message);
    }
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

/* The largest cluster there can be: 9 MB for all, where the outbox has room for 4. */
CASE(server_send__tells_everyone_what_finds_no_room_at_once)
{
    for (uint32_t i = 0; i < SL_LIMIT_PS; i++) {
        world->ps[i] = (struct sl_message_ps){.task_index = i};
        (void)snprintf(world->ps[i].data_endpoint, sizeof world->ps[i].data_endpoint,
                       "tcp://h%058u.h%058u:5000", i, i);
    }
    struct sl_message message = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.ps = world->ps,
                    .ps_count = SL_LIMIT_PS,
                    .placements = &(struct sl_message_placement){.epoch = 1},
                    .shard_count = 1,
                    .worker_count = MEMBERS},
    };
    tell_all(world, &message);
    struct sl_server *server = world->stepped.server;
    assert_false(sl_list_empty(&server->host->pending.control));
    assert_true(server->host->pending.bytes < (size_t)1 << 20);  /* equal messages lie there once */
    message = (struct sl_message){.kind = SL_MESSAGE_HEARTBEAT}; /* behind it, for order */
    tell_all(world, &message);
    stepped_turns(&world->stepped, 500);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(world->members[i].answer_count, 2);
        assert_int_equal(world->members[i].answer.kind, SL_MESSAGE_HEARTBEAT);
    }
    assert_true(sl_list_empty(&server->host->pending.control));
    assert_int_equal(server->host->conn_count, MEMBERS);
}

/* Nobody asked for these: their number does not make who gets them one that floods. */
CASE(server_send__of_many_losses_closes_nobody)
{
    struct sl_message message = {.kind = SL_MESSAGE_EXPIRED,
                                 .expired = {.role = SL_MESSAGE_ROLE_WORKER, .why = "its lease"}};
    for (uint32_t i = 0; i < 1500; i++) {
        message.expired.task_index = i;
        message.expired.client_id = i;
        tell_all(world, &message);
    }
    stepped_turns(&world->stepped, 2000);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(world->members[i].answer_count, 1500);
        assert_int_equal(world->members[i].answer.expired.task_index, 1499);
    }
    assert_int_equal(world->stepped.server->host->conn_count, MEMBERS);
}

/* What waits for a member that is gone is forgotten. */
CASE(server_send__forgets_who_has_gone)
{
    struct sl_message message = {.kind = SL_MESSAGE_EXPIRED,
                                 .expired = {.role = SL_MESSAGE_ROLE_WORKER, .why = "its lease"}};
    for (uint32_t i = 0; i < 3000; i++) {
        message.expired.client_id = i;
        tell_all(world, &message);
    }
    assert_false(sl_list_empty(&world->stepped.server->host->pending.control));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        sl_transport_disconnect(world->members[i].link->conn);
    }
    stepped_turns(&world->stepped, 100);
    assert_int_equal(world->stepped.server->host->conn_count, 0);
    assert_true(sl_list_empty(&world->stepped.server->host->pending.control));
}

CASE(server_close_peer__closes_it)
{
    struct sl_server_conn *conn = sl_server_conn_of(world->stepped.server->host->conns.head.next);
    sl_server_close_peer(NULL, (uintptr_t)conn, "another has taken its place");
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->stepped.server->host->conn_count, MEMBERS - 1);
    assert_null(world->members[MEMBERS - 1].link);
}
