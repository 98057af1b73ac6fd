#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/control/session.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"

#define START_TIMEOUT_NS (10 * SL_CLOCK_NS_PER_S)
#define PORT             4000

/* Side a has the session; side b accepts, keeps what it receives, and sends what the case says. */
struct fixture {
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_outbox outbox, acceptor_outbox;
    struct sl_outbox_queue acceptor_queue;
    struct sl_session *session;

    struct sl_conn *accepted;
    uint32_t accepted_count;
    struct sl_message last; /* received by the acceptor; without memory of its own */
    uint32_t received_count;
    bool acceptor_closed;

    bool welcomed;
    struct sl_message_welcome welcome;
    uint32_t closed_count;
    int closed_err;
    char closed_reason[2048];
    uint32_t data_count;
    struct sl_frame data;
    uint8_t *sink_memory;
    bool close_when_told;

    uint32_t answer_count;
    int answer_err;
    uint32_t answer_table_id;
    char answer_reason[1024];
};

/* ---- The acceptor ---------------------------------------------------------------------------- */

static void acceptor_accepted(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    fixture->accepted = conn;
    fixture->accepted_count++;
    fixture->acceptor_closed = false;
}

static void *acceptor_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    (void)conn;
    (void)header;
    fail_msg("the session sends nothing long");
    return NULL;
}

static void acceptor_received(void *ctx, struct sl_conn *conn,
                              const struct sl_transport_message *message)
{
    struct fixture *fixture = ctx;
    fixture->received_count++;
    assert_int_equal(
        sl_message_decode(message->payload, message->header.payload_bytes, &fixture->last), SL_OK);
    sl_transport_release(conn, message);
}

static void acceptor_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)conn;
    sl_outbox_sent(&((struct fixture *)ctx)->acceptor_outbox, cookie);
}

static void acceptor_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    sl_outbox_writable(&fixture->acceptor_outbox, conn, &fixture->acceptor_queue);
}

static void acceptor_gone(void *ctx, struct sl_conn *conn, int err)
{
    (void)err;
    struct fixture *fixture = ctx;
    sl_outbox_closed(&fixture->acceptor_outbox, conn, &fixture->acceptor_queue);
    fixture->acceptor_closed = true;
    fixture->accepted = NULL;
}

static const struct sl_transport_events acceptor_events = {
    .accepted = acceptor_accepted,
    .sink = acceptor_sink,
    .received = acceptor_received,
    .sent = acceptor_sent,
    .writable = acceptor_writable,
    .closed = acceptor_gone,
};

static struct sl_endpoint endpoint_at(uint16_t port)
{
    return (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .port = port, .host = "127.0.0.1"};
}

static void listen_now(struct fixture *fixture)
{
    struct sl_endpoint endpoint = endpoint_at(PORT);
    assert_int_equal(sl_transport_listen(fixture->pair.b.transport, &endpoint, &acceptor_events,
                                         fixture, &endpoint),
                     SL_OK);
}

static void send_frame(struct fixture *fixture, struct sl_frame frame, const void *payload)
{
    uint8_t *room = sl_outbox_reserve(&fixture->acceptor_outbox, frame.payload_bytes);
    assert_non_null(room);
    if (frame.payload_bytes != 0) {
        memcpy(room + SL_FRAME_HEADER_BYTES, payload, frame.payload_bytes);
    }
    sl_outbox_commit(&fixture->acceptor_outbox, fixture->accepted, &fixture->acceptor_queue, &frame,
                     NULL, 0, NULL, NULL);
}

static void send_message(struct fixture *fixture, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    uint8_t *encoded = malloc(bytes);
    sl_message_encode(message, encoded);
    struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    send_frame(fixture, frame, encoded);
    free(encoded);
}

static void send_error(struct fixture *fixture, uint64_t id, int err, const char *text)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error = {.err = err}};
    snprintf(message.error.text, sizeof message.error.text, "%s", text);
    send_message(fixture, &message);
}

static void send_welcome(struct fixture *fixture, uint32_t version)
{
    struct sl_message message = {.kind = SL_MESSAGE_WELCOME,
                                 .welcome = {.protocol_version = version,
                                             .credit_bytes = 1000,
                                             .credit_requests = 10,
                                             .shard = 3,
                                             .shard_count = 4,
                                             .software = "test 1"}};
    send_message(fixture, &message);
}

/* ---- The session's owner --------------------------------------------------------------------- */

static void on_welcomed(void *ctx, struct sl_session *session,
                        const struct sl_message_welcome *welcome)
{
    struct fixture *fixture = ctx;
    assert_ptr_equal(session, fixture->session);
    assert_non_null(sl_session_conn(session));
    fixture->welcomed = true;
    fixture->welcome = *welcome;
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static void on_received(void *ctx, struct sl_session *session,
                        const struct sl_transport_message *message)
{
    struct fixture *fixture = ctx;
    fixture->data_count++;
    fixture->data = message->header;
    if (message->header.payload_bytes != 0) {
        assert_int_equal(message->payload[message->header.payload_bytes - 1], 'x');
    }
    sl_transport_release(sl_session_conn(session), message);
    free(fixture->sink_memory);
    fixture->sink_memory = NULL;
}

static void *on_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    (void)session;
    struct fixture *fixture = ctx;
    fixture->sink_memory = malloc(header->payload_bytes);
    return fixture->sink_memory;
}

static void on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct fixture *fixture = ctx;
    fixture->closed_count++;
    fixture->closed_err = err;
    snprintf(fixture->closed_reason, sizeof fixture->closed_reason, "%s", reason);
    assert_null(sl_session_conn(session));
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static const struct sl_session_events session_events = {
    .welcomed = on_welcomed,
    .received = on_received,
    .sink = on_sink,
    .closed = on_closed,
};

static void on_answer(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct fixture *fixture = ctx;
    assert_int_equal(answer != NULL, err == SL_OK);
    fixture->answer_count++;
    fixture->answer_err = err;
    snprintf(fixture->answer_reason, sizeof fixture->answer_reason, "%s", reason);
    if (answer != NULL && answer->kind == SL_MESSAGE_TABLE_OPENED) {
        fixture->answer_table_id = answer->table_id;
    }
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static void setup(struct fixture *fixture, enum sl_message_purpose purpose)
{
    sl_log_setup(SL_LOG_OFF, "test");
    *fixture = (struct fixture){0};
    sl_loop_network_init(&fixture->network, 11);
    sl_stepped_pair_init(&fixture->pair, &sl_loop_transport_ops, &fixture->network,
                         &fixture->network);
    assert_int_equal(sl_outbox_init(&fixture->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), SL_OK);
    assert_int_equal(sl_outbox_init(&fixture->acceptor_outbox, SL_OUTBOX_MEMORY_BYTES_MIN, true),
                     SL_OK);
    struct sl_session_options options = {
        .transport = fixture->pair.a.transport,
        .outbox = &fixture->outbox,
        .endpoint = endpoint_at(PORT),
        .hello = {.purpose = purpose, .role = SL_MESSAGE_ROLE_WORKER, .task_index = 7, .shard = 1},
        .events = &session_events,
        .ctx = fixture,
        .peer_name = "ps/1 shard 1",
        .start_timeout_ns = START_TIMEOUT_NS,
    };
    assert_int_equal(sl_session_open(&options, &fixture->session), SL_OK);
}

static void teardown(struct fixture *fixture)
{
    sl_session_close(&fixture->session);
    sl_stepped_pair_fini(&fixture->pair);
    sl_loop_network_fini(&fixture->network);
    sl_outbox_fini(&fixture->outbox);
    sl_outbox_fini(&fixture->acceptor_outbox);
    free(fixture->sink_memory);
}

static bool has_received(void *ctx)
{
    return ((struct fixture *)ctx)->received_count > 0;
}

static bool is_welcomed(void *ctx)
{
    return ((struct fixture *)ctx)->welcomed;
}

static bool is_closed(void *ctx)
{
    return ((struct fixture *)ctx)->closed_count > 0;
}

static bool is_answered(void *ctx)
{
    return ((struct fixture *)ctx)->answer_count > 0;
}

static bool is_data_received(void *ctx)
{
    return ((struct fixture *)ctx)->data_count > 0;
}

static bool is_acceptor_closed(void *ctx)
{
    return ((struct fixture *)ctx)->acceptor_closed;
}

static void until(struct fixture *fixture, bool (*done)(void *ctx))
{
    assert_true(sl_stepped_pair_until(&fixture->pair, 30000, done, fixture));
}

/* Up to the welcome. */
static void greet(struct fixture *fixture)
{
    listen_now(fixture);
    until(fixture, has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_HELLO);
    fixture->received_count = 0;
    send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    until(fixture, is_welcomed);
}

static void ask(struct fixture *fixture)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = {.name = "t", .kind = SL_TABLE_SPARSE, .dim = 1}}};
    sl_session_request(fixture->session, &message, SL_CLOCK_NS_PER_S, on_answer, fixture);
    assert_true(message.id > 0);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void session_open__greets_and_is_welcomed(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_DATA);
    assert_null(sl_session_conn(fixture.session));
    greet(&fixture);
    assert_int_equal(fixture.last.hello.protocol_version, SL_FRAME_PROTOCOL_VERSION);
    assert_int_equal(fixture.last.hello.task_index, 7);
    assert_int_equal(fixture.last.hello.shard, 1);
    assert_non_null(strstr(fixture.last.hello.software, "starling"));
    assert_int_equal(fixture.welcome.shard, 3);
    assert_int_equal(fixture.welcome.credit_bytes, 1000);
    assert_string_equal(sl_session_peer_name(fixture.session), "ps/1 shard 1");
    teardown(&fixture);
}

static void session_open__tries_again_until_somebody_listens(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    for (int i = 0; i < 5000; i++) {
        sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture.closed_count, 0);
    greet(&fixture);
    teardown(&fixture);
}

static void session_open__tries_again_when_closed_before_the_welcome(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    listen_now(&fixture);
    until(&fixture, has_received);
    sl_transport_disconnect(fixture.accepted);
    fixture.received_count = 0;
    until(&fixture, is_acceptor_closed);
    until(&fixture, has_received);
    assert_int_equal(fixture.accepted_count, 2);
    send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    until(&fixture, is_welcomed);
    teardown(&fixture);
}

static void session_open__ends_at_the_start_deadline(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    uint64_t before_ns = fixture.pair.now_ns;
    until(&fixture, is_closed);
    assert_true(fixture.pair.now_ns - before_ns >= START_TIMEOUT_NS);
    assert_int_equal(fixture.closed_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture.closed_reason, "ps/1 shard 1"));
    assert_non_null(strstr(fixture.closed_reason, "tcp://127.0.0.1:4000"));
    assert_non_null(strstr(fixture.closed_reason, "refused"));
    teardown(&fixture);
}

static void session_open__ends_when_no_welcome_comes(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    listen_now(&fixture);
    until(&fixture, is_closed);
    assert_int_equal(fixture.closed_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture.closed_reason, "was not welcomed by ps/1 shard 1"));
    until(&fixture, is_acceptor_closed);
    teardown(&fixture);
}

static void session_open__says_why_it_was_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    listen_now(&fixture);
    until(&fixture, has_received);
    send_error(&fixture, 0, SL_ERR_EXISTS, "worker/7 is there already");
    until(&fixture, is_closed);
    assert_int_equal(fixture.closed_err, SL_ERR_EXISTS);
    assert_non_null(strstr(fixture.closed_reason, "worker/7 is there already"));
    for (int i = 0; i < 3000; i++) {
        sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture.accepted_count, 1);
    assert_int_equal(fixture.closed_count, 1);
    teardown(&fixture);
}

static void session_open__names_both_versions(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    listen_now(&fixture);
    until(&fixture, has_received);
    send_welcome(&fixture, 9);
    until(&fixture, is_closed);
    assert_int_equal(fixture.closed_err, SL_ERR_VERSION);
    assert_non_null(strstr(fixture.closed_reason, "version 9 (test 1)"));
    assert_non_null(strstr(fixture.closed_reason, "version 1"));
    teardown(&fixture);
}

static void session_open__ends_on_frames_out_of_place(void **state)
{
    (void)state;
    static const struct {
        struct sl_frame frame;
        const char *payload;
    } cases[] = {
        {{.type = SL_FRAME_CREDIT}, NULL},
        {{.type = SL_FRAME_REQUEST, .request_id = 1}, NULL},
        {{.type = SL_FRAME_CONTROL, .payload_bytes = 3}, "abc"},
        {{.type = SL_FRAME_CONTROL}, NULL},
        {{.type = SL_FRAME_CONTROL, .payload_bytes = 2}, "\x72"}, /* Goodbye */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        listen_now(&fixture);
        until(&fixture, has_received);
        send_frame(&fixture, cases[i].frame, cases[i].payload);
        until(&fixture, is_closed);
        assert_int_equal(fixture.closed_err, SL_ERR_PROTOCOL);
        teardown(&fixture);
    }
}

static void session_request__is_answered(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_DATA);
    greet(&fixture);
    ask(&fixture);
    until(&fixture, has_received);
    assert_int_equal(fixture.last.kind, SL_MESSAGE_TABLE_OPEN);
    /* Neither is an answer to it. */
    struct sl_message waiting = {.kind = SL_MESSAGE_WAITING,
                                 .id = fixture.last.id,
                                 .waiting = {.missing = {"ps/1", "worker/3"}, .missing_count = 2}};
    send_message(&fixture, &waiting);
    struct sl_message opened = {
        .kind = SL_MESSAGE_TABLE_OPENED, .id = fixture.last.id + 5, .table_id = 1};
    send_message(&fixture, &opened);
    opened.id = fixture.last.id;
    opened.table_id = 42;
    send_message(&fixture, &opened);
    until(&fixture, is_answered);
    assert_int_equal(fixture.answer_err, SL_OK);
    assert_int_equal(fixture.answer_table_id, 42);
    teardown(&fixture);
    assert_int_equal(fixture.answer_count, 1);
}

static void session_request__passes_the_peers_error_on(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    ask(&fixture);
    until(&fixture, has_received);
    send_error(&fixture, fixture.last.id, SL_ERR_EXISTS, "table t exists with dim 2");
    until(&fixture, is_answered);
    assert_int_equal(fixture.answer_err, SL_ERR_EXISTS);
    assert_string_equal(fixture.answer_reason, "table t exists with dim 2");
    assert_int_equal(fixture.closed_count, 0);
    teardown(&fixture);
}

static void session_request__refuses_an_answer_of_another_kind(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    ask(&fixture);
    until(&fixture, has_received);
    send_message(&fixture,
                 &(struct sl_message){.kind = SL_MESSAGE_BARRIER_DONE, .id = fixture.last.id});
    until(&fixture, is_answered);
    assert_int_equal(fixture.answer_err, SL_ERR_PROTOCOL);
    teardown(&fixture);
}

static void session_request__has_a_deadline(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    ask(&fixture);
    until(&fixture, is_answered);
    assert_int_equal(fixture.answer_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture.answer_reason, "ps/1 shard 1"));
    /* The answer that comes too late hurts nobody. */
    send_message(&fixture,
                 &(struct sl_message){.kind = SL_MESSAGE_TABLE_OPENED, .id = fixture.last.id});
    for (int i = 0; i < 100; i++) {
        sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture.answer_count, 1);
    assert_int_equal(fixture.closed_count, 0);
    teardown(&fixture);
}

static void session_request__is_answered_when_the_connection_ends(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    ask(&fixture);
    ask(&fixture);
    until(&fixture, has_received);
    sl_transport_disconnect(fixture.accepted);
    until(&fixture, is_closed);
    assert_int_equal(fixture.answer_count, 2);
    assert_int_equal(fixture.answer_err, SL_ERR_CLOSED);
    assert_int_equal(fixture.closed_err, SL_ERR_CLOSED);
    assert_null(sl_session_conn(fixture.session));
    teardown(&fixture);
}

static void session_close__may_be_called_from_every_event(void **state)
{
    (void)state;
    for (int when = 0; when < 4; when++) {
        struct fixture fixture;
        setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        if (when == 0) {
            fixture.close_when_told = true;
            greet(&fixture);
        } else if (when == 1) {
            fixture.close_when_told = true;
            until(&fixture, is_closed);
        } else {
            greet(&fixture);
            ask(&fixture);
            ask(&fixture);
            until(&fixture, has_received);
            fixture.close_when_told = true;
            if (when == 2) {
                until(&fixture, is_answered); /* the deadline */
            } else {
                sl_transport_disconnect(fixture.accepted);
                until(&fixture, is_answered);
            }
            assert_int_equal(fixture.answer_count, 2);
            assert_int_equal(fixture.closed_count, 0);
        }
        assert_null(fixture.session);
        teardown(&fixture);
    }
}

static void session_close__says_goodbye(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    ask(&fixture);
    sl_session_close(&fixture.session);
    assert_null(fixture.session);
    assert_int_equal(fixture.answer_err, SL_ERR_CANCELLED);
    until(&fixture, is_acceptor_closed);
    assert_int_equal(fixture.last.kind, SL_MESSAGE_GOODBYE);
    assert_int_equal(fixture.closed_count, 0);
    teardown(&fixture);
}

static void session_close__works_at_any_moment(void **state)
{
    (void)state;
    for (int turns = 0; turns < 40; turns++) {
        struct fixture fixture;
        setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        listen_now(&fixture);
        for (int i = 0; i < turns; i++) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
        sl_session_close(&fixture.session);
        if (turns % 2 == 0) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
        teardown(&fixture);
        assert_int_equal(fixture.closed_count, 0);
    }
}

static void session_received__passes_data_frames_on(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_DATA);
    greet(&fixture);
    static char payload[40000];
    memset(payload, 'x', sizeof payload);
    const struct sl_frame frames[] = {
        {.type = SL_FRAME_CREDIT, .credit_requests = 3},
        {.type = SL_FRAME_REPLY, .request_id = 5, .payload_bytes = 24},
        {.type = SL_FRAME_REPLY, .request_id = 6, .payload_bytes = sizeof payload},
    };
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        fixture.data_count = 0;
        send_frame(&fixture, frames[i], payload);
        until(&fixture, is_data_received);
        assert_int_equal(fixture.data.type, frames[i].type);
        assert_int_equal(fixture.data.request_id, frames[i].request_id);
        assert_int_equal(fixture.data.credit_requests, frames[i].credit_requests);
    }
    teardown(&fixture);
}

static void session_received__takes_long_control_messages(void **state)
{
    (void)state;
    struct fixture fixture;
    setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
    greet(&fixture);
    struct sl_message request = {.kind = SL_MESSAGE_STATS_GET};
    sl_session_request(fixture.session, &request, SL_CLOCK_NS_PER_S, on_answer, &fixture);
    until(&fixture, has_received);
    struct sl_message stats = {.kind = SL_MESSAGE_STATS, .id = fixture.last.id};
    stats.stats.table_count = 1000;
    stats.stats.tables = calloc(1000, sizeof *stats.stats.tables);
    for (int i = 0; i < 1000; i++) {
        snprintf(stats.stats.tables[i].name, SL_TABLE_NAME_BYTES, "a table with a name of %d", i);
    }
    assert_true(sl_message_encoded_bytes(&stats) > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    send_message(&fixture, &stats);
    sl_message_fini(&stats);
    until(&fixture, is_answered);
    assert_int_equal(fixture.answer_err, SL_OK);
    teardown(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_open__greets_and_is_welcomed),
        cmocka_unit_test(session_open__tries_again_until_somebody_listens),
        cmocka_unit_test(session_open__tries_again_when_closed_before_the_welcome),
        cmocka_unit_test(session_open__ends_at_the_start_deadline),
        cmocka_unit_test(session_open__ends_when_no_welcome_comes),
        cmocka_unit_test(session_open__says_why_it_was_refused),
        cmocka_unit_test(session_open__names_both_versions),
        cmocka_unit_test(session_open__ends_on_frames_out_of_place),
        cmocka_unit_test(session_request__is_answered),
        cmocka_unit_test(session_request__passes_the_peers_error_on),
        cmocka_unit_test(session_request__refuses_an_answer_of_another_kind),
        cmocka_unit_test(session_request__has_a_deadline),
        cmocka_unit_test(session_request__is_answered_when_the_connection_ends),
        cmocka_unit_test(session_close__may_be_called_from_every_event),
        cmocka_unit_test(session_close__says_goodbye),
        cmocka_unit_test(session_close__works_at_any_moment),
        cmocka_unit_test(session_received__passes_data_frames_on),
        cmocka_unit_test(session_received__takes_long_control_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
