/* Who gets memory when it is short, and who is closed because he holds it and does not get on.
 *
 * Looks are a second apart, and count what they see instead of reading a clock: a server that was
 * itself held up has not looked meanwhile. */
#include "core/assert.h"
#include "core/log.h"
#include "ps/server_internal.h"

#define LOOK_NS         SL_CLOCK_NS_PER_S
#define LOOK_CONNS      4096 /* in one turn */
#define LOOKS_MAX       10
#define LOOKS_MAX_SHORT 2 /* while others wait for the memory that stopped readers hold */

/* What waits behind a reply that is not complete holds memory too. */
static bool has_unsent(const struct sl_server_conn *conn)
{
    return conn->out.count > 0;
}

/* ---- Looks ----------------------------------------------------------------------------------- */

static void look_at_output(struct sl_server_conn *conn, uint32_t looks_max)
{
    if (!has_unsent(conn) || conn->progressed) {
        conn->unsent_looks = 0;
    } else if (++conn->unsent_looks >= looks_max) {
        conn->unsent_looks = 0;
        sl_server_drop(conn, SL_ERR_DEADLINE,
                       "it does not read: nothing of %u frames was sent for %u s", conn->out.count,
                       looks_max);
    }
    conn->progressed = false;
}

static void look_at_sink(struct sl_server_conn *conn)
{
    if (conn->sink != NULL && ++conn->sink_looks >= LOOKS_MAX) {
        conn->sink_looks = 0;
        sl_server_drop(conn, SL_ERR_DEADLINE, "its frame is not complete after %u s", LOOKS_MAX);
    }
}

void sl_server_watch_look(struct sl_server *server)
{
    uint32_t looks_max = server->is_short ? LOOKS_MAX_SHORT : LOOKS_MAX;
    struct sl_server_conn *conn = server->watch_next == NULL ? server->conns : server->watch_next;
    for (uint32_t i = 0; i < LOOK_CONNS && conn != NULL; i++) {
        struct sl_server_conn *next = conn->next;
        if (conn->conn->state == SL_CONN_OPEN) {
            look_at_output(conn, looks_max);
            look_at_sink(conn);
        }
        conn = next;
    }
    server->watch_next = conn;
    server->is_short = server->is_short && conn != NULL; /* one round, one limit */
}

static void look_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server =
        (struct sl_server *)(void *)((uint8_t *)timer - offsetof(struct sl_server, watch_timer));
    sl_server_watch_look(server);
    if (server->conns != NULL) {
        /* A round that is not at its end goes on in the next turn. */
        uint64_t wait_ns = server->watch_next == NULL ? LOOK_NS : 0;
        sl_timer_arm(sl_reactor_timers(server->options.reactor), timer, now_ns + wait_ns);
    }
}

void sl_server_watch(struct sl_server *server)
{
    if (!sl_timer_armed(&server->watch_timer)) {
        server->watch_timer.run = look_again;
        sl_timer_arm(sl_reactor_timers(server->options.reactor), &server->watch_timer,
                     sl_reactor_now_ns(server->options.reactor) + LOOK_NS);
    }
}

/* ---- Long payloads --------------------------------------------------------------------------- */

static void sink_wait(struct sl_server_conn *conn)
{
    struct sl_server_line *line = &conn->server->sink_waiters;
    if (conn->waits_for_sink) {
        return;
    }
    conn->waits_for_sink = true;
    conn->sink_prev = line->last;
    conn->sink_next = NULL;
    if (line->last == NULL) {
        line->first = conn;
    } else {
        line->last->sink_next = conn;
    }
    line->last = conn;
}

static void sink_wait_no_more(struct sl_server_conn *conn)
{
    struct sl_server_line *line = &conn->server->sink_waiters;
    if (!conn->waits_for_sink) {
        return;
    }
    conn->waits_for_sink = false;
    if (conn->sink_prev == NULL) {
        line->first = conn->sink_next;
    } else {
        conn->sink_prev->sink_next = conn->sink_next;
    }
    if (conn->sink_next == NULL) {
        line->last = conn->sink_prev;
    } else {
        conn->sink_next->sink_prev = conn->sink_prev;
    }
}

/* Who is next to get room. One that is being closed, perhaps because its client has come back, asks
 * no more. */
static const struct sl_server_conn *sink_first(struct sl_server *server)
{
    struct sl_server_line *line = &server->sink_waiters;
    while (line->first != NULL && line->first->conn->state != SL_CONN_OPEN) {
        sink_wait_no_more(line->first);
    }
    return line->first;
}

uint8_t *sl_server_watch_sink(struct sl_server_conn *conn, uint32_t bytes)
{
    struct sl_server *server = conn->server;
    struct sl_server_buffers *buffers = &server->buffers;
    const struct sl_server_conn *first = sink_first(server);
    /* Replies in the making must always find room, or nothing would get on: a quarter. */
    bool has_none = conn->long_requests == 0;
    size_t used_bytes_max = has_none ? buffers->bytes / 4 * 3 : buffers->bytes / 2;
    uint8_t *sink = first == NULL || first == conn
                        ? sl_server_buffers_get(buffers, bytes, used_bytes_max)
                        : NULL;
    if (sink != NULL) {
        sink_wait_no_more(conn);
        conn->sink_looks = 0;
    } else if (has_none) {
        sink_wait(conn);
        server->is_short = true;
    }
    return sink;
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* Who has unsent replies already leaves half of the outbox to others. */
static bool may_reserve(const struct sl_server_conn *conn)
{
    return !has_unsent(conn) || !sl_outbox_is_half_full(conn->outbox);
}

static uint8_t *reserved(struct sl_server_conn *conn, uint8_t *room)
{
    if (room == NULL && !has_unsent(conn)) {
        conn->server->is_short = true;
    }
    return room;
}

uint8_t *sl_server_watch_reserve(struct sl_server_conn *conn, uint32_t bytes)
{
    return may_reserve(conn) ? reserved(conn, sl_outbox_reserve(conn->outbox, bytes)) : NULL;
}

uint8_t *sl_server_watch_reserve_run(struct sl_server_conn *conn, uint32_t run_bytes,
                                     uint32_t frame_count)
{
    return may_reserve(conn)
               ? reserved(conn, sl_outbox_reserve_run(conn->outbox, run_bytes, frame_count))
               : NULL;
}

uint8_t *sl_server_watch_reserve_part(struct sl_server_conn *conn, uint32_t bytes)
{
    if (conn->out.first != NULL) {
        return sl_server_watch_reserve_run(conn, bytes, 1);
    }
    uint8_t *room = sl_outbox_reserve_run(conn->outbox, bytes, 1);
    conn->server->is_short = conn->server->is_short || room == NULL;
    return room;
}

/* Requests wait in the one kind of buffers too; in the other there are only replies. */
static bool has_spare_room(const struct sl_server *server, const struct sl_server_buffers *buffers,
                           size_t bytes)
{
    return buffers == &server->buffers ? server->reply_bytes + bytes <= buffers->bytes / 8
                                       : buffers->used_bytes + bytes <= buffers->bytes / 2;
}

bool sl_server_watch_reply(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    struct sl_server_buffers *buffers = sl_server_local_buffers(server, request->conn);
    size_t bytes = request->work.reply_bytes;
    bool has_landing = request->landing != NULL && !sl_server_request_writes(&request->work);
    if (request->reply != NULL || bytes == 0 || has_landing) {
        return true;
    }
    bool may_wait = request->conn == NULL || has_unsent(request->conn);
    if (may_wait && !has_spare_room(server, buffers, bytes)) {
        return false;
    }
    request->reply = sl_server_buffers_get(buffers, bytes, buffers->bytes);
    if (request->reply == NULL) {
        server->is_short = server->is_short || !may_wait;
        return false;
    }
    server->reply_bytes +=
        buffers == &server->buffers ? sl_server_buffers_size(buffers, request->reply) : 0;
    return true;
}

void sl_server_watch_put_reply(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->reply != NULL) {
        struct sl_server_buffers *buffers = sl_server_local_owner(server, request->reply);
        server->reply_bytes -=
            buffers == &server->buffers ? sl_server_buffers_size(buffers, request->reply) : 0;
        sl_server_buffers_put(buffers, request->reply);
        request->reply = NULL;
        sl_server_unblock(server);
    }
}

void sl_server_watch_forget(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    sink_wait_no_more(conn);
    if (server->watch_next == conn) {
        server->watch_next = conn->next;
    }
}
