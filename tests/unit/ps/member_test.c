/* A ps as a member, against a coordinator that the case plays, over the loop transport. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/outbox.h"
#include "ps/member.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"

#define PORT             4000
#define LEASE_MS         1000
#define START_TIMEOUT_NS (5 * SL_CLOCK_NS_PER_S)
#define INCARNATION      77

/* Side a has the member, side b plays the coordinator. */
struct fixture {
    bool has_fast; /* the member, an endpoint of rdma */
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_outbox outbox;
    struct sl_outbox_queue queue;
    struct sl_conn *conn;
    uint32_t accepted_count;
    struct sl_message_hello hello;
    struct sl_message_register reg;
    uint64_t register_id;
    uint32_t hello_count, register_count, heartbeat_count, goodbye_count;

    struct sl_member *member;
    uint32_t joined_count, first_shard, shard_count;
    uint64_t lease_ns;
    uint32_t failed_count;
    int failed_err;
    uint32_t lost_count, absent_count;
    struct sl_message_lost lost;
};

/* ---- The coordinator's side ------------------------------------------------------------------ */

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct fixture *f = ctx;
    f->conn = conn;
    f->accepted_count++;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    (void)conn;
    (void)header;
    fail_msg("a member sends nothing long");
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *frame)
{
    struct fixture *f = ctx;
    struct sl_message message;
    assert_int_equal(sl_message_decode(frame->payload, frame->header.payload_bytes, &message), 0);
    sl_transport_release(conn, frame);
    switch (message.kind) {
    case SL_MESSAGE_HELLO:
        f->hello = message.hello;
        f->hello_count++;
        break;
    case SL_MESSAGE_REGISTER:
        f->reg = message.reg;
        f->register_id = message.id;
        f->register_count++;
        break;
    case SL_MESSAGE_HEARTBEAT:
        f->heartbeat_count++;
        break;
    case SL_MESSAGE_GOODBYE:
        f->goodbye_count++;
        break;
    default:
        fail_msg("a message of kind %d", (int)message.kind);
    }
    sl_message_fini(&message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)conn;
    sl_outbox_sent(&((struct fixture *)ctx)->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *f = ctx;
    sl_outbox_writable(&f->outbox, conn, &f->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)err;
    struct fixture *f = ctx;
    sl_outbox_closed(&f->outbox, conn, &f->queue);
    f->conn = NULL;
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static void send_message(struct fixture *f, const struct sl_message *message)
{
    uint32_t bytes = (uint32_t)sl_message_encoded_bytes(message);
    uint8_t *room = sl_outbox_reserve(&f->outbox, bytes);
    assert_non_null(room);
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    struct sl_frame header = {.type = SL_FRAME_CONTROL, .payload_bytes = bytes};
    sl_outbox_commit(&f->outbox, f->conn, &f->queue, &header, NULL, 0, NULL, NULL);
}

static void send_error(struct fixture *f, uint64_t id, int err)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    (void)snprintf(message.error.text, sizeof message.error.text, "the case says so");
    send_message(f, &message);
}

/* The ps of the case is task 1, with 2 shards; task 0 has shards_0. */
static void send_cluster(struct fixture *f, uint64_t id, uint32_t shards_0)
{
    struct sl_message_ps ps[] = {
        {.task_index = 0, .shard_count = shards_0, .data_endpoint = "tcp://a:1"},
        {.task_index = 1, .shard_count = 2, .data_endpoint = "tcp://b:1"},
        {.task_index = 2, .shard_count = 4, .data_endpoint = "tcp://c:1"},
    };
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER, .id = id};
    message.cluster = (struct sl_message_cluster){.ps = ps, .ps_count = 3, .worker_count = 5};
    send_message(f, &message);
}

static void send_lost(struct fixture *f, enum sl_message_role role)
{
    struct sl_message message = {.kind = SL_MESSAGE_LOST};
    message.lost = (struct sl_message_lost){
        .role = role, .task_index = 3, .client_id = 1234, .why = "no heartbeat for 10 s"};
    send_message(f, &message);
}

/* ---- The member's side ----------------------------------------------------------------------- */

static void on_joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct fixture *f = ctx;
    f->joined_count++;
    f->first_shard = first_shard;
    f->shard_count = shard_count;
    f->lease_ns = lease_ns;
}

static void on_failed(void *ctx, int err)
{
    struct fixture *f = ctx;
    f->failed_count++;
    f->failed_err = err;
}

static void on_lost(void *ctx, const struct sl_message_lost *lost)
{
    struct fixture *f = ctx;
    f->lost_count++;
    f->lost = *lost;
}

static void on_absent(void *ctx)
{
    ((struct fixture *)ctx)->absent_count++;
}

static struct sl_endpoint endpoint_at(uint16_t port)
{
    return (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .port = port, .host = "127.0.0.1"};
}

static void open_member(struct fixture *f)
{
    const struct sl_member_options options = {
        .reactor = f->pair.a.reactor,
        .transport = &sl_loop_transport_ops,
        .transport_options = {.medium = &f->network},
        .coordinator = endpoint_at(PORT),
        .task_index = 1,
        .shard_count = 2,
        .ps_count = 3,
        .worker_count = 5,
        .data = endpoint_at(5555),
        .fast = {.scheme = SL_ENDPOINT_RDMA, .port = 5556, .host = "127.0.0.1"},
        .has_fast = f->has_fast,
        .host = "boot-4711/net-1",
        .incarnation = INCARNATION,
        .start_timeout_ns = START_TIMEOUT_NS,
        .joined = on_joined,
        .failed = on_failed,
        .lost = on_lost,
        .absent = on_absent,
        .ctx = f,
    };
    assert_int_equal(sl_member_open(&options, &f->member), 0);
}

static void listen_now(struct fixture *f)
{
    struct sl_endpoint endpoint = endpoint_at(PORT);
    assert_int_equal(sl_transport_listen(f->pair.b.transport, &endpoint, &events, f, &endpoint), 0);
}

static int setup(void **state)
{
    sl_log_setup(SL_LOG_OFF, "test");
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    sl_loop_network_init(&f->network, 5);
    sl_stepped_pair_init(&f->pair, &sl_loop_transport_ops, &f->network, &f->network);
    assert_int_equal(sl_outbox_init(&f->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    open_member(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sl_member_close(&f->member);
    assert_null(f->member);
    sl_stepped_pair_fini(&f->pair);
    sl_outbox_fini(&f->outbox);
    sl_loop_network_fini(&f->network);
    free(f);
    return 0;
}

/* Turns of 1 ms until the counter has grown to `least`. */
static void until(struct fixture *f, const uint32_t *counter, uint32_t least)
{
    for (uint32_t turn = 0; *counter < least; turn++) {
        assert_true(turn < 30000);
        sl_stepped_pair_turn(&f->pair, SL_CLOCK_NS_PER_MS);
    }
}

static void pass(struct fixture *f, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        sl_stepped_pair_turn(&f->pair, SL_CLOCK_NS_PER_MS);
    }
}

/* Up to the member's next Register, the hello being welcomed. */
static void greet_with(struct fixture *f, uint32_t lease_ms)
{
    uint32_t registers = f->register_count;
    until(f, &f->hello_count, f->accepted_count == 0 ? 1 : f->hello_count + 1);
    struct sl_message welcome = {.kind = SL_MESSAGE_WELCOME};
    welcome.welcome = (struct sl_message_welcome){
        .protocol_version = SL_FRAME_PROTOCOL_VERSION, .lease_ms = lease_ms, .software = "test"};
    send_message(f, &welcome);
    until(f, &f->register_count, registers + 1);
}

static void greet(struct fixture *f)
{
    greet_with(f, LEASE_MS);
}

static void join(struct fixture *f)
{
    listen_now(f);
    greet(f);
    send_cluster(f, f->register_id, 3);
    until(f, &f->joined_count, 1);
}

static void cut(struct fixture *f)
{
    sl_transport_disconnect(f->conn);
    while (f->conn != NULL) {
        pass(f, 1);
    }
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void member_open__registers_what_it_has_and_learns_its_shards(void **state)
{
    struct fixture *f = *state;
    join(f);
    assert_int_equal(f->hello.purpose, SL_MESSAGE_PURPOSE_CONTROL);
    assert_int_equal(f->hello.role, SL_MESSAGE_ROLE_PS);
    assert_int_equal(f->hello.task_index, 1);
    assert_int_equal(f->hello.client_id, INCARNATION);
    assert_false(f->hello.has_nonce);
    assert_string_equal(f->reg.data_endpoint, "tcp://127.0.0.1:5555");
    assert_string_equal(f->reg.fast_endpoint, "");
    assert_string_equal(f->reg.host, "boot-4711/net-1");
    assert_int_equal(f->reg.shard_count, 2);
    assert_int_equal(f->reg.ps_count, 3);
    assert_int_equal(f->reg.worker_count, 5);
    assert_int_equal(f->first_shard, 3);
    assert_int_equal(f->shard_count, 9);
    assert_int_equal(f->lease_ns, LEASE_MS * SL_CLOCK_NS_PER_MS);
    assert_int_equal(f->failed_count, 0);
}

static void member_open__registers_its_fast_endpoint(void **state)
{
    struct fixture *f = *state;
    sl_member_close(&f->member);
    f->has_fast = true;
    open_member(f);
    join(f);
    assert_string_equal(f->reg.data_endpoint, "tcp://127.0.0.1:5555");
    assert_string_equal(f->reg.fast_endpoint, "rdma://127.0.0.1:5556");
}

static void member_open__fails_when_nobody_listens(void **state)
{
    struct fixture *f = *state;
    until(f, &f->failed_count, 1);
    assert_int_not_equal(f->failed_err, 0);
    assert_int_equal(f->joined_count, 0);
    listen_now(f); /* too late */
    pass(f, 3000);
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->accepted_count, 0);
}

static void member_open__fails_when_the_others_do_not_come(void **state)
{
    struct fixture *f = *state;
    pass(f, START_TIMEOUT_NS / 2 / SL_CLOCK_NS_PER_MS);
    listen_now(f);
    greet(f);
    pass(f, START_TIMEOUT_NS * 2 / 3 / SL_CLOCK_NS_PER_MS); /* it began before the coordinator */
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_DEADLINE);
}

static void member_open__fails_when_refused_or_not_in_the_cluster(void **state)
{
    struct fixture *f = *state;
    listen_now(f);
    greet(f);
    send_error(f, f->register_id, SL_ERR_INVALID);
    until(f, &f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_INVALID);
    pass(f, 2 * LEASE_MS);
    assert_int_equal(f->failed_count, 1);

    sl_member_close(&f->member);
    open_member(f);
    greet(f);
    struct sl_message_ps ps = {.task_index = 1, .shard_count = 3, .data_endpoint = "tcp://b:1"};
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER, .id = f->register_id};
    message.cluster = (struct sl_message_cluster){.ps = &ps, .ps_count = 1};
    send_message(f, &message);
    until(f, &f->failed_count, 2);
    assert_int_equal(f->failed_err, SL_ERR_PROTOCOL);
    assert_int_equal(f->joined_count, 0);
}

static void member_heartbeat__comes_four_times_a_lease(void **state)
{
    struct fixture *f = *state;
    join(f);
    uint32_t before = f->heartbeat_count;
    pass(f, 10 * LEASE_MS);
    assert_in_range(f->heartbeat_count - before, 38, 42);
    assert_int_equal(f->register_count, 1);
}

static void member_heartbeat__does_not_wait_for_the_cluster(void **state)
{
    struct fixture *f = *state;
    listen_now(f);
    greet(f);
    pass(f, LEASE_MS);
    assert_in_range(f->heartbeat_count, 3, 5);
    assert_int_equal(f->register_count, 1);
}

static void member_heartbeat__is_not_sent_where_there_are_no_leases(void **state)
{
    struct fixture *f = *state;
    listen_now(f);
    greet_with(f, 0);
    send_cluster(f, f->register_id, 3);
    until(f, &f->joined_count, 1);
    assert_int_equal(f->lease_ns, 0);
    pass(f, 4000);
    assert_int_equal(f->heartbeat_count, 0);
}

static void member_session__is_taken_up_again_after_every_break(void **state)
{
    struct fixture *f = *state;
    join(f);
    for (uint32_t i = 2; i < 6; i++) {
        cut(f);
        greet(f);
        assert_int_equal(f->hello.client_id, INCARNATION);
        assert_int_equal(f->reg.shard_count, 2);
        assert_int_equal(f->register_count, i);
        send_cluster(f, f->register_id, 3);
        pass(f, LEASE_MS);
    }
    assert_int_equal(f->joined_count, 1);
    assert_int_equal(f->failed_count, 0);
    uint32_t before = f->heartbeat_count;
    pass(f, LEASE_MS);
    assert_in_range(f->heartbeat_count - before, 3, 5);
}

static void member_session__a_register_that_was_lost_goes_again_once(void **state)
{
    struct fixture *f = *state;
    listen_now(f);
    greet(f);
    uint64_t id = f->register_id;
    cut(f);
    greet(f);
    pass(f, 500);
    assert_int_equal(f->register_count, 2);
    assert_int_equal(f->register_id, id);
    send_cluster(f, id, 3);
    until(f, &f->joined_count, 1);
}

static void member_session__waits_for_the_others_without_end_once_it_has_joined(void **state)
{
    struct fixture *f = *state;
    join(f);
    cut(f);
    greet(f);
    uint64_t id = f->register_id;
    /* Another ps is gone: nobody is told the cluster for longer than a start may take. */
    until(f, &f->register_count, 3);
    assert_int_not_equal(f->register_id, id);
    until(f, &f->register_count, 4);
    send_cluster(f, f->register_id, 3);
    pass(f, 3 * LEASE_MS);
    assert_int_equal(f->register_count, 4);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->joined_count, 1);
}

static void member_session__survives_a_long_absence_of_the_coordinator(void **state)
{
    struct fixture *f = *state;
    join(f);
    cut(f);
    /* Connections are accepted, but no hello is answered: it goes on trying, and says so. */
    pass(f, START_TIMEOUT_NS / SL_CLOCK_NS_PER_MS - 500);
    assert_int_equal(f->absent_count, 0);
    pass(f, 1000);
    assert_int_equal(f->absent_count, 1);
    pass(f, 11 * START_TIMEOUT_NS / SL_CLOCK_NS_PER_MS);
    assert_in_range(f->absent_count, 50, 60);
    assert_int_equal(f->failed_count, 0);
    if (f->conn != NULL) {
        cut(f);
    }
    greet(f);
    send_cluster(f, f->register_id, 3);
    uint32_t absent_count = f->absent_count;
    pass(f, 2000);
    assert_int_equal(f->absent_count, absent_count);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->joined_count, 1);
}

static void member_session__ends_when_the_place_is_taken(void **state)
{
    struct fixture *f = *state;
    join(f);
    cut(f);
    until(f, &f->hello_count, 2);
    send_error(f, 0, SL_ERR_EXISTS);
    until(f, &f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_EXISTS);
    pass(f, 3000);
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->hello_count, 2);
}

static void member_session__ends_when_shards_are_numbered_otherwise(void **state)
{
    struct fixture *f = *state;
    join(f);
    cut(f);
    greet(f);
    send_cluster(f, f->register_id, 2);
    until(f, &f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_PROTOCOL);
    assert_int_equal(f->joined_count, 1);
}

static void member_told__passes_lost_workers_on_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    join(f);
    send_cluster(f, 0, 2); /* where others are does not matter to it */
    send_lost(f, SL_MESSAGE_ROLE_PS);
    pass(f, 100);
    assert_int_equal(f->lost_count, 0);
    send_lost(f, SL_MESSAGE_ROLE_WORKER);
    until(f, &f->lost_count, 1);
    assert_int_equal(f->lost.role, SL_MESSAGE_ROLE_WORKER);
    assert_int_equal(f->lost.task_index, 3);
    assert_int_equal(f->lost.client_id, 1234);
    assert_string_equal(f->lost.why, "no heartbeat for 10 s");
    assert_int_equal(f->failed_count, 0);
}

static void member_leave__says_goodbye_and_nothing_more(void **state)
{
    struct fixture *f = *state;
    join(f);
    uint32_t heartbeats = f->heartbeat_count;
    sl_member_leave(f->member);
    until(f, &f->goodbye_count, 1);
    pass(f, 3 * LEASE_MS);
    assert_int_equal(f->heartbeat_count, heartbeats);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->hello_count, 1);
    sl_member_leave(f->member);
}

static void member_leave__while_it_waits_for_the_cluster_is_no_failure(void **state)
{
    struct fixture *f = *state;
    listen_now(f);
    greet(f);
    sl_member_leave(f->member);
    pass(f, 100);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->goodbye_count, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(member_open__registers_what_it_has_and_learns_its_shards),
        CASE(member_open__registers_its_fast_endpoint),
        CASE(member_open__fails_when_nobody_listens),
        CASE(member_open__fails_when_the_others_do_not_come),
        CASE(member_open__fails_when_refused_or_not_in_the_cluster),
        CASE(member_heartbeat__comes_four_times_a_lease),
        CASE(member_heartbeat__does_not_wait_for_the_cluster),
        CASE(member_heartbeat__is_not_sent_where_there_are_no_leases),
        CASE(member_session__is_taken_up_again_after_every_break),
        CASE(member_session__a_register_that_was_lost_goes_again_once),
        CASE(member_session__waits_for_the_others_without_end_once_it_has_joined),
        CASE(member_session__survives_a_long_absence_of_the_coordinator),
        CASE(member_session__ends_when_the_place_is_taken),
        CASE(member_session__ends_when_shards_are_numbered_otherwise),
        CASE(member_told__passes_lost_workers_on_and_nothing_else),
        CASE(member_leave__says_goodbye_and_nothing_more),
        CASE(member_leave__while_it_waits_for_the_cluster_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
