#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

#define PORT 4000

static void acceptor_accepted(void *ctx, struct sl_conn *conn)
{
    struct session_fixture *fixture = ctx;
    fixture->accepted = conn;
    fixture->accepted_count++;
    fixture->acceptor_closed = false;
}

static void *acceptor_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    fail_msg("the session sends nothing long");
    return NULL;
}

static void acceptor_received(void *ctx, struct sl_conn *conn,
                              const struct sl_transport_message *message)
{
    struct session_fixture *fixture = ctx;
    assert_int_equal(
        sl_message_decode(message->payload, message->header.payload_bytes, &fixture->last), SL_OK);
    sl_transport_release(conn, message);
    if (fixture->received_count < SESSION_FIXTURE_HEARD) {
        struct session_fixture_heard *heard = &fixture->heard[fixture->received_count];
        heard->kind = fixture->last.kind;
        heard->id = fixture->last.id;
        if (heard->kind == SL_MESSAGE_HELLO) {
            heard->hello = fixture->last.hello;
        } else if (heard->kind == SL_MESSAGE_BARRIER) {
            heard->timeout_ms = fixture->last.barrier.timeout_ms;
        }
    }
    fixture->received_count++;
}

static void acceptor_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    if (cookie != NULL) { /* a case's own frame has none */
        sl_outbox_sent(&((struct session_fixture *)ctx)->acceptor_outbox, cookie);
    }
}

static void acceptor_writable(void *ctx, struct sl_conn *conn)
{
    struct session_fixture *fixture = ctx;
    sl_outbox_writable(&fixture->acceptor_outbox, conn, &fixture->acceptor_queue);
}

static void acceptor_gone(void *ctx, struct sl_conn *conn, int err)
{
    struct session_fixture *fixture = ctx;
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

void session_fixture_listen_at(struct session_fixture *fixture, struct sl_transport *transport,
                               const struct sl_endpoint *endpoint)
{
    struct sl_endpoint bound;
    assert_int_equal(sl_transport_listen(transport, endpoint, &acceptor_events, fixture, &bound),
                     SL_OK);
}

void session_fixture_listen_now(struct session_fixture *fixture)
{
    struct sl_endpoint endpoint = endpoint_at(PORT);
    session_fixture_listen_at(fixture, fixture->pair.b.transport, &endpoint);
}

void session_fixture_send_frame(struct session_fixture *fixture, struct sl_frame frame,
                                const void *payload)
{
    uint8_t *room = sl_outbox_reserve(&fixture->acceptor_outbox, frame.payload_bytes);
    assert_non_null(room);
    if (frame.payload_bytes != 0) {
        memcpy(room + SL_FRAME_HEADER_BYTES, payload, frame.payload_bytes);
    }
    sl_outbox_commit(&fixture->acceptor_outbox, fixture->accepted, &fixture->acceptor_queue, &frame,
                     NULL, 0, NULL, NULL);
}

void session_fixture_send_message(struct session_fixture *fixture, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    uint8_t *encoded = malloc(bytes);
    sl_message_encode(message, encoded);
    struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    session_fixture_send_frame(fixture, frame, encoded);
    free(encoded);
}

void session_fixture_send_error(struct session_fixture *fixture, uint64_t id, int err,
                                const char *text)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error = {.err = err}};
    snprintf(message.error.text, sizeof message.error.text, "%s", text);
    session_fixture_send_message(fixture, &message);
}

void session_fixture_send_welcome(struct session_fixture *fixture, uint32_t version)
{
    struct sl_message message = {.kind = SL_MESSAGE_WELCOME,
                                 .welcome = {.protocol_version = version,
                                             .credit_bytes = 1000,
                                             .credit_requests = 10,
                                             .shard = 3,
                                             .shard_count = 4,
                                             .lease_ms = fixture->lease_ms,
                                             .software = "test 1"}};
    session_fixture_send_message(fixture, &message);
}

static void on_welcomed(void *ctx, struct sl_session *session,
                        const struct sl_message_welcome *welcome)
{
    struct session_fixture *fixture = ctx;
    assert_ptr_equal(session, fixture->session);
    assert_non_null(sl_session_conn(session));
    fixture->welcomed = true;
    fixture->welcomed_count++;
    fixture->welcome = *welcome;
    assert_string_equal(sl_session_last_error(session), "");
    if (fixture->when_welcomed != NULL) {
        fixture->when_welcomed(fixture);
    }
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static void on_received(void *ctx, struct sl_session *session,
                        const struct sl_transport_message *message)
{
    struct session_fixture *fixture = ctx;
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
    struct session_fixture *fixture = ctx;
    fixture->sink_memory = malloc(header->payload_bytes);
    return fixture->sink_memory;
}

static void on_told(void *ctx, struct sl_session *session, const struct sl_message *message)
{
    struct session_fixture *fixture = ctx;
    assert_ptr_equal(session, fixture->session);
    fixture->told_count++;
    fixture->told = *message;
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static void on_lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct session_fixture *fixture = ctx;
    assert_null(sl_session_conn(session));
    fixture->lost_count++;
    fixture->lost_err = err;
    snprintf(fixture->lost_reason, sizeof fixture->lost_reason, "%s", reason);
    if (fixture->close_when_told) {
        sl_session_close(&fixture->session);
    }
}

static void on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct session_fixture *fixture = ctx;
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
    .notified = on_told,
    .lost = on_lost,
    .closed = on_closed,
};

void session_fixture_answer(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct session_fixture *fixture = ctx;
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

void session_fixture_setup(struct session_fixture *fixture, enum sl_message_purpose purpose)
{
    session_fixture_setup_as(fixture, purpose, false, NULL);
}

static void open_session(struct session_fixture *fixture, enum sl_message_purpose purpose,
                         bool persistent, const struct sl_secret *secret,
                         const struct sl_endpoint *others, uint32_t other_count)
{
    const bool is_lane = purpose == SL_MESSAGE_PURPOSE_TRANSFER;
    struct sl_session_options options = {
        .transport = fixture->pair.a.transport,
        .outbox = &fixture->outbox,
        .endpoint = endpoint_at(PORT),
        .others = others,
        .other_count = other_count,
        .hello = {.purpose = purpose,
                  .role = is_lane ? SL_MESSAGE_ROLE_CLIENT : SL_MESSAGE_ROLE_WORKER,
                  .task_index = is_lane ? 0 : 7,
                  .shard = 1,
                  .lane = is_lane,
                  .lane_epoch = is_lane},
        .events = &session_events,
        .ctx = fixture,
        .target = 1,
        .peer_name = "ps/1 shard 1",
        .start_timeout_ns = START_TIMEOUT_NS,
        .persistent = persistent,
        .follows = purpose == SL_MESSAGE_PURPOSE_CONTROL,
        .secret = secret,
    };
    assert_int_equal(sl_session_open(&options, &fixture->session), SL_OK);
}

void session_fixture_setup_as(struct session_fixture *fixture, enum sl_message_purpose purpose,
                              bool persistent, const struct sl_secret *secret)
{
    sl_log_setup(SL_LOG_OFF, "test");
    *fixture = (struct session_fixture){0};
    sl_loop_network_init(&fixture->network, 11);
    sl_stepped_pair_init(&fixture->pair, &sl_loop_transport_ops, &fixture->network,
                         &fixture->network);
    assert_int_equal(sl_outbox_init(&fixture->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), SL_OK);
    assert_int_equal(sl_outbox_init(&fixture->acceptor_outbox, SL_OUTBOX_MEMORY_BYTES_MIN, true),
                     SL_OK);
    open_session(fixture, purpose, persistent, secret, NULL, 0);
}

void session_fixture_reopen_with(struct session_fixture *fixture, const struct sl_endpoint *others,
                                 uint32_t other_count)
{
    sl_session_close(&fixture->session);
    open_session(fixture, SL_MESSAGE_PURPOSE_CONTROL, true, NULL, others, other_count);
}

void session_fixture_teardown(struct session_fixture *fixture)
{
    sl_session_close(&fixture->session);
    sl_stepped_pair_fini(&fixture->pair);
    sl_loop_network_fini(&fixture->network);
    sl_outbox_fini(&fixture->outbox);
    sl_outbox_fini(&fixture->acceptor_outbox);
    free(fixture->sink_memory);
}

bool session_fixture_has_received(void *ctx)
{
    return ((struct session_fixture *)ctx)->received_count > 0;
}

bool session_fixture_is_welcomed(void *ctx)
{
    return ((struct session_fixture *)ctx)->welcomed;
}

bool session_fixture_is_lost(void *ctx)
{
    return ((struct session_fixture *)ctx)->lost_count > 0;
}

bool session_fixture_is_told(void *ctx)
{
    return ((struct session_fixture *)ctx)->told_count > 0;
}

bool session_fixture_is_closed(void *ctx)
{
    return ((struct session_fixture *)ctx)->closed_count > 0;
}

bool session_fixture_is_answered(void *ctx)
{
    return ((struct session_fixture *)ctx)->answer_count > 0;
}

bool session_fixture_is_acceptor_closed(void *ctx)
{
    return ((struct session_fixture *)ctx)->acceptor_closed;
}

void session_fixture_until(struct session_fixture *fixture, bool (*done)(void *ctx))
{
    assert_true(sl_stepped_pair_until(&fixture->pair, 30000, done, fixture));
}

/* Up to the welcome. */
void session_fixture_greet(struct session_fixture *fixture)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_HELLO);
    fixture->received_count = 0;
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(fixture, session_fixture_is_welcomed);
}

void session_fixture_pass(struct session_fixture *fixture, uint32_t ms)
{
    uint32_t turn_ms = ms > 1000 ? 10 : 1;
    for (uint32_t passed = 0; passed < ms; passed += turn_ms) {
        sl_stepped_pair_turn(&fixture->pair, turn_ms * SL_CLOCK_NS_PER_MS);
    }
}

void session_fixture_lose(struct session_fixture *fixture)
{
    fixture->lost_count = 0;
    sl_transport_disconnect(fixture->accepted);
    session_fixture_until(fixture, session_fixture_is_lost);
    assert_int_equal(fixture->lost_count, 1);
}

void session_fixture_greet_again(struct session_fixture *fixture)
{
    fixture->received_count = 0;
    fixture->welcomed = false;
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_HELLO);
    fixture->received_count = 0;
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(fixture, session_fixture_is_welcomed);
}

void session_fixture_ask(struct session_fixture *fixture)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = {.name = "t", .kind = SL_TABLE_SPARSE, .dim = 1}}};
    sl_session_request(fixture->session, &message, SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    assert_true(message.id > 0);
}
