/* Persistent sessions: what becomes of one, and of its requests, when connections break. */

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

static void setup(struct session_fixture *fixture)
{
    session_fixture_setup_as(fixture, SL_MESSAGE_PURPOSE_CONTROL, true, NULL);
}

#define AGAIN_CASE(name)                                                                           \
    SL_CASE_USING(name, struct session_fixture, fixture, setup, session_fixture_teardown)

static void answer_table_open(struct session_fixture *fixture, uint64_t id)
{
    session_fixture_send_message(
        fixture, &(struct sl_message){.kind = SL_MESSAGE_TABLE_OPENED, .id = id, .table_id = 42});
}

static void register_first(struct session_fixture *fixture)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER};
    sl_session_request(fixture->session, &message, SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
}

static bool has_received_3(void *ctx)
{
    return ((struct session_fixture *)ctx)->received_count >= 3;
}

static bool has_received_or_is_closed(void *ctx)
{
    return session_fixture_has_received(ctx) || session_fixture_is_closed(ctx);
}

static bool has_ended(void *ctx)
{
    return session_fixture_is_lost(ctx) || session_fixture_is_closed(ctx);
}

/* Up to the next hello, or the end. */
static void refuse(struct session_fixture *fixture, int err)
{
    session_fixture_send_error(fixture, 0, err, "never again");
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    fixture->received_count = 0;
    session_fixture_until(fixture, has_received_or_is_closed);
}

/* Without a secret nobody can prove to be the peer: a refusal may come from a stranger. */
SL_CASE(session_lost__outlasts_refusals_shorter_than_the_lease)
{
    static const int final[] = {SL_ERR_VERSION, SL_ERR_PROTOCOL, SL_ERR_REFUSED, SL_ERR_EXISTS,
                                SL_ERR_INVALID};
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++) {
        struct session_fixture fixture;
        setup(&fixture);
        fixture.lease_ms = 5000;
        session_fixture_greet(&fixture);
        session_fixture_lose(&fixture);
        fixture.received_count = 0;
        session_fixture_until(&fixture, session_fixture_has_received);
        const uint64_t before_ns = fixture.pair.now_ns;
        while (fixture.pair.now_ns - before_ns < 4 * SL_CLOCK_NS_PER_S) {
            refuse(&fixture, final[i]);
            assert_non_null(strstr(sl_session_last_error(fixture.session), "never again"));
        }
        assert_int_equal(fixture.closed_count, 0);
        fixture.received_count = 0;
        fixture.welcomed = false;
        session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
        session_fixture_until(&fixture, session_fixture_is_welcomed);
        session_fixture_teardown(&fixture);
    }
}

/* Much longer than the start deadline, with hellos that the peer may not yet take. */
SL_CASE(session_lost__outlasts_a_peer_that_is_starting)
{
    static const int passing[] = {SL_ERR_AGAIN, SL_ERR_CANCELLED, SL_ERR_CLOSED, SL_ERR_NO_MEMORY};
    struct session_fixture fixture;
    setup(&fixture);
    session_fixture_greet(&fixture);
    session_fixture_lose(&fixture);
    for (int i = 0; i < 40; i++) {
        fixture.received_count = 0;
        session_fixture_until(&fixture, session_fixture_has_received);
        session_fixture_send_error(&fixture, 0, passing[i % 4], "a moment");
        session_fixture_until(&fixture, session_fixture_is_acceptor_closed);
        session_fixture_pass(&fixture, 10);
        assert_non_null(strstr(sl_session_last_error(fixture.session), "a moment"));
    }
    assert_int_equal(fixture.closed_count, 0);
    session_fixture_greet_again(&fixture);
    session_fixture_teardown(&fixture);
}

/* As a member that another has replaced. */
SL_CASE(session_lost__ends_when_refused_for_a_lease)
{
    static const int final[] = {SL_ERR_VERSION, SL_ERR_PROTOCOL, SL_ERR_REFUSED, SL_ERR_EXISTS,
                                SL_ERR_INVALID};
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++) {
        struct session_fixture fixture;
        setup(&fixture);
        fixture.lease_ms = 500;
        session_fixture_greet(&fixture);
        session_fixture_ask(&fixture);
        session_fixture_lose(&fixture);
        fixture.received_count = 0;
        session_fixture_until(&fixture, session_fixture_has_received);
        const uint64_t before_ns = fixture.pair.now_ns;
        while (fixture.closed_count == 0) {
            refuse(&fixture, final[i]);
        }
        assert_in_range(fixture.pair.now_ns - before_ns, 500 * SL_CLOCK_NS_PER_MS,
                        SL_CLOCK_NS_PER_S);
        assert_int_equal(fixture.closed_err, final[i]);
        assert_int_equal(fixture.answer_count, 1);
        assert_int_equal(fixture.answer_err, final[i]);
        session_fixture_teardown(&fixture);
    }
}

/* The place that it comes back to after each refusal leads to the one that refuses. */
AGAIN_CASE(session_lost__ends_when_refused_for_a_lease_behind_a_redirect)
{
    fixture->lease_ms = 2000;
    const struct sl_endpoint other = {.scheme = SL_ENDPOINT_TCP, .port = 4001, .host = "127.0.0.1"};
    session_fixture_listen_at(fixture, fixture->pair.b.transport, &other);
    session_fixture_greet(fixture);
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    const uint64_t before_ns = fixture->pair.now_ns;
    while (fixture->closed_count == 0) {
        if (sl_session_endpoint(fixture->session)->port == 4001) {
            refuse(fixture, SL_ERR_EXISTS);
            continue;
        }
        struct sl_message message = {.kind = SL_MESSAGE_ERROR, .error = {.err = SL_ERR_AGAIN}};
        (void)snprintf(message.error.coordinator, sizeof message.error.coordinator,
                       "tcp://127.0.0.1:4001");
        session_fixture_send_message(fixture, &message);
        session_fixture_until(fixture, session_fixture_is_acceptor_closed);
        fixture->received_count = 0;
        session_fixture_until(fixture, has_received_or_is_closed);
    }
    assert_in_range(fixture->pair.now_ns - before_ns, 2 * SL_CLOCK_NS_PER_S, 6 * SL_CLOCK_NS_PER_S);
    assert_int_equal(fixture->closed_err, SL_ERR_EXISTS);
}

AGAIN_CASE(session_lost__has_a_deadline_for_greetings)
{
    session_fixture_greet(fixture);
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    uint64_t before_ns = fixture->pair.now_ns;
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    assert_in_range(fixture->pair.now_ns - before_ns, SL_SESSION_GREETING_NS - SL_CLOCK_NS_PER_S,
                    SL_SESSION_GREETING_NS + SL_CLOCK_NS_PER_S);
    assert_non_null(strstr(sl_session_last_error(fixture->session), "does not welcome"));
    session_fixture_greet_again(fixture);
    assert_int_equal(fixture->closed_count, 0);
}

AGAIN_CASE(session_lost__pauses_grow_when_connections_do_not_last)
{
    session_fixture_greet(fixture);
    uint64_t first_ns = 0, last_ns = 0;
    for (int i = 0; i < 8; i++) {
        session_fixture_lose(fixture);
        uint64_t before_ns = fixture->pair.now_ns;
        session_fixture_greet_again(fixture);
        last_ns = fixture->pair.now_ns - before_ns;
        first_ns = i == 0 ? last_ns : first_ns;
    }
    assert_true(last_ns > 4 * first_ns);
    session_fixture_pass(fixture, 3000);
    session_fixture_lose(fixture);
    uint64_t before_ns = fixture->pair.now_ns;
    session_fixture_greet_again(fixture);
    assert_true(fixture->pair.now_ns - before_ns < last_ns / 2);
}

AGAIN_CASE(session_lost__pauses_stay_below_the_lease)
{
    fixture->lease_ms = 2000;
    session_fixture_greet(fixture);
    for (int i = 0; i < 8; i++) {
        session_fixture_lose(fixture);
        uint64_t before_ns = fixture->pair.now_ns;
        session_fixture_greet_again(fixture);
        assert_true(fixture->pair.now_ns - before_ns < 2000 * SL_CLOCK_NS_PER_MS / 5);
    }
}

/* What a corrupted connection brings is no reason to give the peer up. */
AGAIN_CASE(session_lost__survives_frames_out_of_place)
{
    session_fixture_greet(fixture);
    session_fixture_send_frame(fixture, (struct sl_frame){.type = SL_FRAME_CREDIT}, NULL);
    session_fixture_until(fixture, session_fixture_is_lost);
    assert_int_equal(fixture->lost_err, SL_ERR_PROTOCOL);
    session_fixture_greet_again(fixture);
    fixture->lost_count = 0;
    session_fixture_send_message(fixture, &(struct sl_message){.kind = SL_MESSAGE_GOODBYE});
    session_fixture_until(fixture, session_fixture_is_lost);
    assert_non_null(strstr(fixture->lost_reason, "shutting down"));
    session_fixture_greet_again(fixture);
    fixture->lost_count = 0;
    session_fixture_send_error(fixture, 0, SL_ERR_TOO_LARGE, "too much at a time");
    session_fixture_until(fixture, session_fixture_is_lost);
    assert_int_equal(fixture->lost_err, SL_ERR_TOO_LARGE);
    assert_non_null(strstr(fixture->lost_reason, "too much at a time"));
    session_fixture_greet_again(fixture);
    session_fixture_send_error(fixture, 0, SL_ERR_PROTOCOL, "it broke the protocol");
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_PROTOCOL);
}

/* The lane's memory is in use until the connection has closed: `lost` comes then. */
SL_CASE(session_lost__keeps_a_lane_that_a_welcomed_peer_refuses)
{
    struct session_fixture fixture;
    session_fixture_setup_as(&fixture, SL_MESSAGE_PURPOSE_TRANSFER, true, NULL);
    session_fixture_greet(&fixture);
    session_fixture_send_error(&fixture, 0, SL_ERR_REFUSED, "never again");
    session_fixture_until(&fixture, has_ended);
    assert_int_equal(fixture.closed_count, 0);
    assert_int_equal(fixture.lost_err, SL_ERR_REFUSED);
    assert_true(fixture.acceptor_closed);
    session_fixture_teardown(&fixture);
}

SL_CASE(session_request__is_sent_again_under_its_id)
{
    struct session_fixture fixture;
    setup(&fixture);
    session_fixture_greet(&fixture);
    session_fixture_ask(&fixture);
    session_fixture_until(&fixture, session_fixture_has_received);
    uint64_t first = fixture.last.id;
    session_fixture_lose(&fixture);
    session_fixture_ask(&fixture); /* kept until there is a welcome */
    assert_int_equal(fixture.answer_count, 0);
    fixture.when_welcomed = register_first;
    session_fixture_greet_again(&fixture);
    session_fixture_until(&fixture, has_received_3);
    assert_int_equal(fixture.heard[0].kind, SL_MESSAGE_REGISTER);
    assert_int_equal(fixture.heard[1].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(fixture.heard[1].id, first);
    assert_int_equal(fixture.heard[2].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(fixture.heard[2].id, first + 1);
    answer_table_open(&fixture, first);
    session_fixture_until(&fixture, session_fixture_is_answered);
    assert_int_equal(fixture.answer_err, SL_OK);
    assert_int_equal(fixture.answer_table_id, 42);
    session_fixture_pass(&fixture, 100);
    assert_int_equal(fixture.received_count, 3);
    session_fixture_teardown(&fixture);
    assert_int_equal(fixture.answer_count, 3);
}

/* A connection that takes nothing: what is offered to it fills the outbox. */
static void on_drain_connected(void *ctx, struct sl_conn *conn)
{
}

static void *on_drain_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void on_drain_received(void *ctx, struct sl_conn *conn,
                              const struct sl_transport_message *message)
{
    sl_transport_release(conn, message);
}

static void on_drain_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    fail_msg("it is closed");
}

static void on_drain_closed(void *ctx, struct sl_conn *conn, int err)
{
}

static const struct sl_transport_events drain_events = {
    .connected = on_drain_connected,
    .sink = on_drain_sink,
    .received = on_drain_received,
    .sent = on_drain_sent,
    .writable = on_drain_connected,
    .closed = on_drain_closed,
};

static struct sl_outbox_queue filling;

static void fill_outbox(struct session_fixture *fixture)
{
    struct sl_endpoint nowhere = {.scheme = SL_ENDPOINT_TCP, .port = 9, .host = "127.0.0.1"};
    struct sl_conn *conn;
    assert_int_equal(sl_transport_connect(fixture->pair.a.transport, &nowhere, 0, &drain_events,
                                          NULL, NULL, &conn),
                     SL_OK);
    sl_transport_disconnect(conn);
    for (uint32_t bytes = 1U << 17; bytes > 0; bytes /= 2) {
        while (sl_outbox_reserve(&fixture->outbox, bytes) != NULL) {
            struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = bytes};
            sl_outbox_commit(&fixture->outbox, conn, &filling, &frame, NULL, 0, NULL, NULL);
        }
    }
}

/* Without room in the outbox it waits, and is lost neither then nor later. */
AGAIN_CASE(session_request__is_sent_again_when_there_is_room)
{
    session_fixture_greet(fixture);
    session_fixture_lose(fixture);
    struct sl_message message = {.kind = SL_MESSAGE_STATS_GET};
    sl_session_request(fixture->session, &message, 60 * SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    fixture->when_welcomed = fill_outbox;
    session_fixture_greet_again(fixture);
    assert_null(sl_outbox_reserve(&fixture->outbox, 64));
    session_fixture_pass(fixture, 200);
    assert_int_equal(fixture->received_count, 0);
    sl_outbox_closed(&fixture->outbox, sl_session_conn(fixture->session), &filling);
    session_fixture_pass(fixture, 200);
    assert_int_equal(fixture->received_count, 1);
    assert_int_equal(fixture->last.id, message.id);
    assert_int_equal(fixture->answer_count, 0);
    assert_int_equal(fixture->lost_count, 1);
}

AGAIN_CASE(session_request__does_not_overtake_one_of_its_kind)
{
    struct sl_message first = {.kind = SL_MESSAGE_STATS_GET};
    struct sl_message second = first;
    session_fixture_greet(fixture);
    session_fixture_lose(fixture);
    sl_session_request(fixture->session, &first, 60 * SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    fixture->when_welcomed = fill_outbox;
    session_fixture_greet_again(fixture);
    sl_outbox_closed(&fixture->outbox, sl_session_conn(fixture->session), &filling);
    sl_session_request(fixture->session, &second, 60 * SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    session_fixture_pass(fixture, 200);
    assert_int_equal(fixture->received_count, 2);
    assert_int_equal(fixture->heard[0].id, first.id);
    assert_int_equal(fixture->heard[1].id, second.id);
}

AGAIN_CASE(session_request__deadline_goes_on_without_a_connection)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    uint64_t before_ns = fixture->pair.now_ns;
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    session_fixture_send_error(fixture, 0, SL_ERR_AGAIN, "worker/7 may be lost soon");
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_in_range(fixture->pair.now_ns - before_ns, SL_CLOCK_NS_PER_S - SL_CLOCK_NS_PER_MS,
                    SL_CLOCK_NS_PER_S + 10 * SL_CLOCK_NS_PER_MS);
    assert_int_equal(fixture->answer_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->answer_reason, "ps/1 shard 1"));
    assert_non_null(strstr(fixture->answer_reason, "not connected"));
    /* Given up: not sent any more. */
    session_fixture_greet_again(fixture);
    session_fixture_pass(fixture, 100);
    assert_int_equal(fixture->received_count, 0);
}

/* The peer must not count for longer on who asked than it said at first. */
AGAIN_CASE(session_request__barrier_tells_the_time_that_is_left)
{
    session_fixture_greet(fixture);
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER,
                                 .barrier = {.name = "b", .timeout_ms = 5000}};
    sl_session_request(fixture->session, &message, 6 * SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->heard[0].timeout_ms, 5000);
    session_fixture_pass(fixture, 2000);
    session_fixture_lose(fixture);
    session_fixture_greet_again(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->heard[0].id, message.id);
    assert_in_range(fixture->heard[0].timeout_ms, 1500, 3000);
}

AGAIN_CASE(session_reconnect__breaks_the_connection)
{
    sl_session_reconnect(fixture->session, "there is none yet");
    session_fixture_greet(fixture);
    sl_session_reconnect(fixture->session, "its answers make no sense");
    sl_session_reconnect(fixture->session, "a second time");
    assert_int_equal(fixture->lost_count, 0);
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_is_lost);
    assert_non_null(strstr(fixture->lost_reason, "its answers make no sense"));
    session_fixture_greet_again(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(fixture->lost_count, 1);
}

AGAIN_CASE(session_set_endpoint__leads_the_next_attempts)
{
    session_fixture_greet(fixture);
    struct sl_endpoint elsewhere = {.scheme = SL_ENDPOINT_TCP, .port = 4001, .host = "127.0.0.1"};
    sl_session_set_endpoint(fixture->session, &elsewhere);
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_pass(fixture, 5000); /* no process listens there */
    assert_int_equal(fixture->received_count, 0);
    assert_non_null(strstr(sl_session_last_error(fixture->session), "refused"));
    assert_null(strstr(sl_session_last_error(fixture->session), "TLS"));
    fixture->pair.a.transport->secure = true; /* which says no more of a handshake that failed */
    session_fixture_pass(fixture, 5000);
    assert_non_null(strstr(sl_session_last_error(fixture->session), "or TLS failed"));
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_non_null(strstr(fixture->answer_reason, "(tcp://127.0.0.1:4001)"));
    assert_non_null(strstr(fixture->answer_reason, "no process listens"));
    elsewhere.port = 4000;
    sl_session_set_endpoint(fixture->session, &elsewhere);
    session_fixture_pass(fixture, 120); /* the pause does not have to pass */
    assert_int_equal(fixture->received_count, 1);
}

static struct sl_endpoint endpoint_at(uint16_t port)
{
    return (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .port = port, .host = "127.0.0.1"};
}

/* Between two attempts, and during one. */
SL_CASE(session_set_endpoint__comes_before_other_candidates)
{
    for (int is_attempting = 0; is_attempting < 2; is_attempting++) {
        struct session_fixture fixture;
        setup(&fixture);
        const struct sl_endpoint set = endpoint_at(4001);
        const struct sl_endpoint others[] = {endpoint_at(4002), endpoint_at(4003)};
        session_fixture_listen_at(&fixture, fixture.pair.b.transport, &set);
        session_fixture_listen_at(&fixture, fixture.pair.b.transport, &others[0]);
        session_fixture_listen_at(&fixture, fixture.pair.b.transport, &others[1]);
        session_fixture_listen_now(&fixture);
        session_fixture_reopen_with(&fixture, others, 2);
        fixture.received_count = 0;
        session_fixture_until(&fixture, session_fixture_has_received);
        assert_int_equal(sl_session_endpoint(fixture.session)->port, 4000);
        if (is_attempting) {
            sl_session_set_endpoint(fixture.session, &set);
        }
        fixture.received_count = 0;
        sl_transport_disconnect(fixture.accepted);
        session_fixture_until(&fixture, session_fixture_is_acceptor_closed);
        session_fixture_pass(&fixture, 2); /* the session knows, and waits for its next attempt */
        if (!is_attempting) {
            sl_session_set_endpoint(fixture.session, &set);
        }
        session_fixture_until(&fixture, session_fixture_has_received);
        assert_int_equal(sl_session_endpoint(fixture.session)->port, 4001);
        session_fixture_teardown(&fixture);
    }
}

SL_CASE(session_close__may_be_called_when_lost_or_told)
{
    for (int when = 0; when < 3; when++) {
        struct session_fixture fixture;
        setup(&fixture);
        session_fixture_greet(&fixture);
        session_fixture_ask(&fixture);
        if (when == 2) {
            session_fixture_lose(&fixture);
        }
        fixture.close_when_told = true;
        if (when == 0) {
            session_fixture_lose(&fixture);
        } else if (when == 1) {
            session_fixture_send_message(
                &fixture, &(struct sl_message){.kind = SL_MESSAGE_EXPIRED,
                                               .expired = {.role = SL_MESSAGE_ROLE_PS}});
            session_fixture_until(&fixture, session_fixture_is_told);
        } else {
            session_fixture_greet_again(&fixture); /* `welcomed`, with a request to send behind */
        }
        assert_null(fixture.session);
        assert_int_equal(fixture.answer_err, SL_ERR_CANCELLED);
        assert_int_equal(fixture.answer_count, 1);
        session_fixture_teardown(&fixture);
        assert_int_equal(fixture.closed_count, 0);
    }
}

/* The transport closes under it: another attempt would be one on freed memory. */
AGAIN_CASE(session_lost__ends_with_its_transport)
{
    session_fixture_greet(fixture);
    sl_session_reconnect(fixture->session, "in the middle of it");
    fixture->close_when_told = true;
    sl_transport_close(&fixture->pair.a.transport);
    assert_int_equal(fixture->closed_count, 1);
    assert_int_equal(fixture->closed_err, SL_ERR_CANCELLED);
    assert_int_equal(fixture->lost_count, 0);
    assert_null(fixture->session);
    /* The teardown closes one there, too. */
    struct sl_transport_options options = {.medium = &fixture->network};
    assert_int_equal(sl_transport_open(&sl_loop_transport_ops, fixture->pair.a.reactor, &options,
                                       &fixture->pair.a.transport),
                     SL_OK);
}
