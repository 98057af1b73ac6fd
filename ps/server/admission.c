/* Who gets memory when it is short, and who is closed because he holds it and does not get on.
 *
 * Looks are a second apart, and count what they see instead of reading a clock: a server that was
 * itself held up has not looked meanwhile. */
#include "core/assert.h"
#include "core/log.h"
#include "ps/replication/internal.h"

#define LOOK_NS         SL_CLOCK_NS_PER_S
#define LOOK_CONNS      4096 /* in one turn */
#define LOOKS_MAX       10
#define LOOKS_MAX_SHORT 4 /* while others wait for the memory that stopped readers hold */

#define LOOKS_MAX_FRAME ((uint32_t)(SL_SERVER_FRAME_NS / LOOK_NS))

/* What waits behind a reply that is not complete holds memory too. */
static bool has_unsent(const struct sl_server_conn *conn)
{
    return conn->out.count > 0;
}

/* ---- Looks ----------------------------------------------------------------------------------- */

/* A frame may take long on a slow link; but a peer that takes a byte now and then does not hold the
 * memory for ever. */
static void look_at_output(struct sl_server_conn *conn, uint32_t looks_max)
{
    const uint64_t taken_bytes = conn->conn->taken_bytes;
    const bool is_done = !has_unsent(conn) || conn->progressed;
    const bool gets_on = is_done || taken_bytes != conn->taken_bytes;
    conn->unsent_checks = gets_on ? 0 : conn->unsent_checks + 1;
    conn->frame_looks = is_done ? 0 : conn->frame_looks + 1;
    conn->progressed = false;
    conn->taken_bytes = taken_bytes;
    if (conn->unsent_checks >= looks_max) {
        conn->unsent_checks = 0;
        sl_server_drop(conn, SL_ERR_DEADLINE,
                       "it does not read: none of %u frames was sent for %u s", conn->out.count,
                       looks_max);
    } else if (conn->frame_looks >= LOOKS_MAX_FRAME) {
        conn->frame_looks = 0;
        sl_server_drop(conn, SL_ERR_DEADLINE, "it reads too slowly: no frame was sent for %u s",
                       LOOKS_MAX_FRAME);
    }
}

/* A peer of which nothing comes is the transport's to close: it alone knows what the system has
 * received. This bounds how long a peer that sends a byte now and then holds the memory. */
static void look_at_sink(struct sl_server_conn *conn)
{
    if (conn->sink != NULL && ++conn->sink_checks >= LOOKS_MAX_FRAME) {
        conn->sink_checks = 0;
        sl_server_drop(conn, SL_ERR_DEADLINE, "its frame is not complete after %u s",
                       LOOKS_MAX_FRAME);
    }
}

void sl_server_admission_check(struct sl_server *server)
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

/* Memory that a burst has left behind. True: there is more, for later looks. */
static bool give_back(struct sl_server *server)
{
    bool has_more = sl_outbox_give_back(&server->replies);
    has_more |= sl_outbox_give_back(&server->control);
    has_more |= sl_server_buffers_give_back(&server->buffers);
    has_more |= server->replica != NULL && sl_replication_give_back(server);
    has_more |= server->shard != NULL && sl_shard_give_back(server->shard);
    return has_more;
}

static void look_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server =
        (struct sl_server *)(void *)((uint8_t *)timer - offsetof(struct sl_server, watch_timer));
    sl_server_admission_check(server);
    const bool has_more = server->watch_next == NULL && give_back(server);
    if (server->conns != NULL || has_more) {
        /* A round that is not at its end goes on in the next turn. */
        uint64_t wait_ns = server->watch_next == NULL ? LOOK_NS : 0;
        sl_timer_arm(sl_reactor_timers(server->options.reactor), timer, now_ns + wait_ns);
    }
}

void sl_server_admission(struct sl_server *server)
{
    if (!sl_timer_armed(&server->watch_timer)) {
        server->watch_timer.run = look_again;
        sl_timer_arm(sl_reactor_timers(server->options.reactor), &server->watch_timer,
                     sl_reactor_now_ns(server->options.reactor) + LOOK_NS);
    }
}

/* ---- Long payloads --------------------------------------------------------------------------- */

/* Clients behind all others, and the rest before them. */
static void sink_wait(struct sl_server_conn *conn)
{
    struct sl_server_line *line = &conn->server->sink_waiters;
    if (conn->waits_for_sink) {
        return;
    }
    const bool is_client = conn->kind == SL_SERVER_CONN_DATA;
    conn->waits_for_sink = true;
    conn->sink_prev = is_client ? line->last : NULL;
    conn->sink_next = is_client ? NULL : line->first;
    *(conn->sink_prev == NULL ? &line->first : &conn->sink_prev->sink_next) = conn;
    *(conn->sink_next == NULL ? &line->last : &conn->sink_next->sink_prev) = conn;
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

/* Of all that is in use, so that there is room for this connection. */
static size_t used_bytes_max(const struct sl_server_conn *conn)
{
    const size_t bytes = conn->server->buffers.bytes;
    if (conn->kind != SL_SERVER_CONN_DATA) {
        return bytes / 8 * 7;
    }
    /* Replies in the making must always find room, or nothing would get on: a quarter. */
    return conn->long_requests == 0 ? bytes / 4 * 3 : bytes / 2;
}

/* Heartbeats come on a member's connection, and a backup's clients wait for what the primary sends:
 * neither waits for clients, of which there may be thousands. */
uint8_t *sl_server_admission_sink(struct sl_server_conn *conn, uint32_t bytes)
{
    struct sl_server *server = conn->server;
    const bool is_client = conn->kind == SL_SERVER_CONN_DATA;
    const struct sl_server_conn *first = is_client ? sink_first(server) : NULL;
    uint8_t *sink = first == NULL || first == conn
                        ? sl_server_buffers_get(&server->buffers, bytes, used_bytes_max(conn))
                        : NULL;
    if (sink != NULL) {
        sink_wait_no_more(conn);
        conn->sink_checks = 0;
    } else if (conn->long_requests == 0) {
        sink_wait(conn);
        /* Readers are hurried only where it is them who hold the memory. */
        server->is_short = server->is_short || server->reply_bytes > server->buffers.bytes / 8;
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

uint8_t *sl_server_admission_reserve(struct sl_server_conn *conn, uint32_t bytes)
{
    return may_reserve(conn) ? reserved(conn, sl_outbox_reserve(conn->outbox, bytes)) : NULL;
}

uint8_t *sl_server_admission_reserve_run(struct sl_server_conn *conn, uint32_t run_bytes,
                                         uint32_t frame_count)
{
    return may_reserve(conn)
               ? reserved(conn, sl_outbox_reserve_run(conn->outbox, run_bytes, frame_count))
               : NULL;
}

uint8_t *sl_server_admission_reserve_part(struct sl_server_conn *conn, uint32_t bytes)
{
    if (conn->out.first != NULL) {
        return sl_server_admission_reserve_run(conn, bytes, 1);
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

bool sl_server_admission_reply(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    struct sl_server_buffers *buffers = sl_server_shm_buffers(server, request->conn);
    size_t bytes = request->work.reply_bytes;
    bool has_reply_buffer =
        request->reply_buffer != NULL && !sl_server_request_writes(&request->work);
    if (request->reply != NULL || bytes == 0 || has_reply_buffer) {
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

void sl_server_admission_put_reply(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->reply != NULL) {
        struct sl_server_buffers *buffers = sl_server_shm_owner(server, request->reply);
        server->reply_bytes -=
            buffers == &server->buffers ? sl_server_buffers_size(buffers, request->reply) : 0;
        sl_server_buffers_put(buffers, request->reply);
        request->reply = NULL;
        sl_server_unblock(server);
    }
}

void sl_server_admission_forget(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    sink_wait_no_more(conn);
    if (server->watch_next == conn) {
        server->watch_next = conn->next;
    }
}
