#include <stdlib.h>
#include <string.h>

#include "net/transport.h"
#include "tests/support/unit.h"

/* Notes what was called, and that the facade was told of an upcall while it ran. */
struct notes {
    struct sl_transport transport;
    const char *last;
    bool in_upcall;
    int err;
    void *cookie;
    void *sink;
};

static void note(void *ctx, const char *name)
{
    struct notes *notes = ctx;
    notes->last = name;
    notes->in_upcall = notes->transport.polling;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    assert_int_equal(conn->state, SL_CONN_OPEN);
    note(ctx, "accepted");
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    assert_int_equal(conn->state, SL_CONN_OPEN);
    note(ctx, "connected");
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    note(ctx, "sink");
    return ((struct notes *)ctx)->sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    note(ctx, "received");
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    note(ctx, "sent");
    ((struct notes *)ctx)->cookie = cookie;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    note(ctx, "writable");
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    assert_int_equal(conn->state, SL_CONN_CLOSED);
    note(ctx, "closed");
    ((struct notes *)ctx)->err = err;
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static void expect_note(struct notes *notes, const char *name)
{
    assert_string_equal(notes->last, name);
    assert_true(notes->in_upcall);
    assert_false(notes->transport.polling);
}

SL_CASE(conn_init__is_connecting)
{
    struct notes notes = {0};
    struct sl_conn conn;
    memset(&conn, 0xff, sizeof conn);
    sl_conn_init(&conn, &notes.transport, &events, &notes);
    assert_int_equal(conn.state, SL_CONN_CONNECTING);
    assert_ptr_equal(conn.transport, &notes.transport);
    assert_ptr_equal(conn.events, &events);
    assert_ptr_equal(conn.ctx, &notes);
    assert_null(conn.user);
    assert_false(conn.accepted);
    assert_string_equal(conn.peer, "");
}

SL_CASE(conn_report__moves_the_state_on)
{
    struct notes notes = {0};
    struct sl_conn conn;
    sl_conn_init(&conn, &notes.transport, &events, &notes);
    sl_conn_report_accepted(&conn);
    expect_note(&notes, "accepted");
    assert_true(conn.accepted);
    sl_conn_report_closed(&conn, SL_ERR_CLOSED);
    expect_note(&notes, "closed");
    assert_int_equal(notes.err, SL_ERR_CLOSED);

    sl_conn_init(&conn, &notes.transport, &events, &notes);
    sl_conn_report_connected(&conn);
    expect_note(&notes, "connected");
    assert_false(conn.accepted);

    sl_conn_init(&conn, &notes.transport, &events, &notes);
    sl_conn_report_closed(&conn, SL_ERR_REFUSED);
    assert_int_equal(notes.err, SL_ERR_REFUSED);
}

SL_CASE(conn_report__passes_on)
{
    struct notes notes = {0};
    struct sl_conn conn;
    _Alignas(8) uint8_t memory[64];
    sl_conn_init(&conn, &notes.transport, &events, &notes);
    sl_conn_report_accepted(&conn);
    struct sl_transport_message message = {.payload = memory};
    sl_conn_report_received(&conn, &message);
    expect_note(&notes, "received");
    sl_conn_report_writable(&conn);
    expect_note(&notes, "writable");
    sl_conn_report_sent(&conn, memory);
    expect_note(&notes, "sent");
    assert_ptr_equal(notes.cookie, memory);
    notes.sink = memory;
    assert_ptr_equal(sl_conn_ask_sink(&conn, &message.header), memory);
    expect_note(&notes, "sink");
    notes.sink = NULL;
    assert_null(sl_conn_ask_sink(&conn, &message.header));
}

/* Closing a transport makes upcalls from inside upcalls of others. */
SL_CASE(conn_report__nests)
{
    struct notes notes = {0};
    struct sl_conn conn;
    sl_conn_init(&conn, &notes.transport, &events, &notes);
    notes.transport.polling = true;
    sl_conn_report_accepted(&conn);
    assert_true(notes.transport.polling);
}

SL_CASE(conn_state_name__names_each)
{
    assert_string_equal(sl_conn_state_name(SL_CONN_CONNECTING), "connecting");
    assert_string_equal(sl_conn_state_name(SL_CONN_OPEN), "open");
    assert_string_equal(sl_conn_state_name(SL_CONN_CLOSING), "closing");
    assert_string_equal(sl_conn_state_name(SL_CONN_CLOSED), "closed");
    assert_string_equal(sl_conn_state_name((enum sl_conn_state)77), "unknown");
}

SL_CASE(conn_fail__the_first_failure_counts)
{
    struct sl_conn conn = {.state = SL_CONN_OPEN};
    assert_false(sl_conn_fail(&conn, SL_ERR_PROTOCOL, "it sent no frame"));
    assert_int_equal(conn.state, SL_CONN_CLOSING);
    assert_false(sl_conn_fail(&conn, SL_ERR_DEADLINE, NULL));
    assert_int_equal(conn.failure, SL_ERR_PROTOCOL);
    assert_string_equal(conn.failure_text, "it sent no frame");
}
