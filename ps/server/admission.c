/* Checks run once a second and count what they find instead of reading a clock: a server that was
 * itself delayed has made no checks meanwhile. */
#include "ps/server/admission.h"

#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

#define CHECK_NS         SL_CLOCK_NS_PER_S
#define CHECKED_CONNS    4096 /* per turn */
#define CHECKS_MAX       10
#define CHECKS_MAX_SHORT 4 /* while others wait for memory of stalled readers */

#define CHECKS_MAX_FRAME ((uint32_t)(SL_SERVER_FRAME_NS / CHECK_NS))

/* Frames that wait behind an incomplete reply hold memory too. */
static bool server_admission_has_unsent(const struct sl_server_conn *conn)
{
    return conn->out.count > 0;
}

/* Checks */

/* A frame may take long on a slow link, but a peer that takes one byte now and then must not hold
 * memory forever. */
static void check_output(struct sl_server_conn *conn, uint32_t checks_max)
{
    const uint64_t taken_bytes = conn->conn->taken_bytes;
    const bool is_done = !server_admission_has_unsent(conn) || conn->output.progressed;
    const bool makes_progress = is_done || taken_bytes != conn->output.taken_bytes;
    conn->output.unsent_checks = makes_progress ? 0 : conn->output.unsent_checks + 1;
    conn->output.frame_checks = is_done ? 0 : conn->output.frame_checks + 1;
    conn->output.progressed = false;
    conn->output.taken_bytes = taken_bytes;
    if (conn->output.unsent_checks >= checks_max) {
        conn->output.unsent_checks = 0;
        sl_server_conn_drop(conn, SL_ERR_DEADLINE,
                            "it does not read: none of %u frames was sent for %u s",
                            conn->out.count, checks_max);
    } else if (conn->output.frame_checks >= CHECKS_MAX_FRAME) {
        conn->output.frame_checks = 0;
        sl_server_conn_drop(conn, SL_ERR_DEADLINE,
                            "it reads too slowly: no frame was sent for %u s", CHECKS_MAX_FRAME);
    }
}

/* The transport closes silent peers: only it knows what the kernel has received. This check limits
 * peers that send one byte now and then. */
static void check_sink(struct sl_server_conn *conn)
{
    if (conn->sink.buffer != NULL && ++conn->sink.checks >= CHECKS_MAX_FRAME) {
        conn->sink.checks = 0;
        sl_server_conn_drop(conn, SL_ERR_DEADLINE, "its frame is not complete after %u s",
                            CHECKS_MAX_FRAME);
    }
}

void sl_server_admission_check(struct sl_server_host *host)
{
    const uint32_t checks_max = host->admission.is_short ? CHECKS_MAX_SHORT : CHECKS_MAX;
    const struct sl_list_link *end = &host->conns.head;
    struct sl_list_link *link =
        host->admission.next == NULL ? host->conns.head.next : host->admission.next;
    for (uint32_t i = 0; i < CHECKED_CONNS && link != end; i++) {
        struct sl_server_conn *conn = sl_server_conn_of(link);
        link = link->next;
        if (conn->conn->state == SL_CONN_OPEN) {
            check_output(conn, checks_max);
            check_sink(conn);
        }
    }
    host->admission.next = link == end ? NULL : link;
    /* One limit per round. */
    host->admission.is_short = host->admission.is_short && link != end;
}

/* Returns memory left by a burst to the system. True: more is left for later checks. */
static bool give_back(struct sl_server_host *host)
{
    bool has_more = sl_outbox_give_back(&host->memory.replies);
    has_more |= sl_outbox_give_back(&host->memory.control);
    has_more |= sl_server_buffers_give_back(&host->memory.buffers);
    for (struct sl_server *server = host->servers; server != NULL; server = server->next_of_host) {
        has_more |= server->options.hooks != NULL && server->options.hooks->give_back(server);
        has_more |= server->shard != NULL && sl_shard_give_back(server->shard);
    }
    return has_more;
}

static void check_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server_host *host = SL_CONTAINER_OF(timer, struct sl_server_host, admission.timer);
    sl_server_admission_check(host);
    const bool has_more = host->admission.next == NULL && give_back(host);
    if (!sl_list_empty(&host->conns) || has_more) {
        /* An unfinished round continues in the next turn. */
        uint64_t wait_ns = host->admission.next == NULL ? CHECK_NS : 0;
        sl_timer_arm(sl_reactor_timers(host->options.reactor), timer, now_ns + wait_ns);
    }
}

void sl_server_admission_init(struct sl_server_host *host)
{
    sl_list_init(&host->admission.sink_waiters);
    host->admission.timer.run = check_again;
}

void sl_server_admission_add(struct sl_server_host *host, struct sl_server_conn *conn)
{
    struct sl_reactor *reactor = host->options.reactor;
    conn->host = host;
    host->conn_count++;
    sl_list_prepend(&host->conns, &conn->link);
    if (!sl_timer_armed(&host->admission.timer)) {
        sl_timer_arm(sl_reactor_timers(reactor), &host->admission.timer,
                     sl_reactor_now_ns(reactor) + CHECK_NS);
    }
}

void sl_server_admission_remove(struct sl_server_conn *conn)
{
    struct sl_server_host *host = conn->host;
    sl_list_remove(&conn->sink.link);
    if (host->admission.next == &conn->link) {
        host->admission.next = conn->link.next == &host->conns.head ? NULL : conn->link.next;
    }
    sl_list_remove(&conn->link);
    host->conn_count--;
}

/* Long payloads */

static struct sl_server_conn *waiter_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_server_conn, sink.link);
}

/* Clients queue at the end, other peers at the front. */
static void sink_wait(struct sl_server_conn *conn)
{
    struct sl_list *waiters = &conn->host->admission.sink_waiters;
    if (sl_list_linked(&conn->sink.link)) {
        return;
    }
    if (conn->kind == SL_SERVER_CONN_DATA) {
        sl_list_append(waiters, &conn->sink.link);
    } else {
        sl_list_prepend(waiters, &conn->sink.link);
    }
}

/* Returns the next connection to get memory. A connection that is being closed, perhaps replaced by
 * its client, no longer waits. */
static const struct sl_server_conn *sink_first(struct sl_server_host *host)
{
    struct sl_list_link *link;
    while ((link = sl_list_first(&host->admission.sink_waiters)) != NULL) {
        const struct sl_server_conn *conn = waiter_of(link);
        if (conn->conn->state == SL_CONN_OPEN) {
            return conn;
        }
        sl_list_remove(link);
    }
    return NULL;
}

/* Limit of all buffers in use after a grant to this connection. */
static size_t used_bytes_max(const struct sl_server_conn *conn)
{
    const size_t bytes = conn->host->memory.buffers.bytes;
    if (conn->kind != SL_SERVER_CONN_DATA) {
        return bytes / 8 * 7;
    }
    /* A quarter is kept for multi-turn replies: without them no request completes. */
    return conn->sink.long_requests == 0 ? bytes / 4 * 3 : bytes / 2;
}

/* Members send heartbeats, and a backup's clients wait for the primary's entries: neither waits
 * behind clients, of which there may be thousands. */
uint8_t *sl_server_admission_sink(struct sl_server_conn *conn, uint32_t bytes)
{
    struct sl_server_host *host = conn->host;
    const bool is_client = conn->kind == SL_SERVER_CONN_DATA;
    const struct sl_server_conn *first = is_client ? sink_first(host) : NULL;
    uint8_t *sink = first == NULL || first == conn
                        ? sl_server_buffers_get(&host->memory.buffers, bytes, used_bytes_max(conn))
                        : NULL;
    if (sink != NULL) {
        sl_list_remove(&conn->sink.link);
        conn->sink.checks = 0;
    } else if (conn->sink.long_requests == 0) {
        sink_wait(conn);
        /* Slow readers get less time only if they hold the memory. */
        host->admission.is_short = host->admission.is_short ||
                                   host->admission.reply_bytes > host->memory.buffers.bytes / 8;
    }
    return sink;
}

/* Replies */

/* A connection with unsent replies leaves half of the outbox to others. */
static bool may_reserve(const struct sl_server_conn *conn)
{
    return !server_admission_has_unsent(conn) || !sl_outbox_is_half_full(conn->outbox);
}

static uint8_t *reserved(struct sl_server_conn *conn, uint8_t *room)
{
    if (room == NULL && !server_admission_has_unsent(conn)) {
        conn->host->admission.is_short = true;
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
    conn->host->admission.is_short = conn->host->admission.is_short || room == NULL;
    return room;
}

/* `buffers` also holds waiting requests; the shared ones hold only replies. */
static bool has_spare_room(const struct sl_server_host *host,
                           const struct sl_server_buffers *buffers, size_t bytes)
{
    return buffers == &host->memory.buffers
               ? host->admission.reply_bytes + bytes <= buffers->bytes / 8
               : buffers->used_bytes + bytes <= buffers->bytes / 2;
}

bool sl_server_admission_reply(struct sl_server_request *request)
{
    struct sl_server_host *host = request->server->host;
    struct sl_server_buffers *buffers = sl_server_shm_buffers(host, request->channel);
    size_t bytes = request->work.reply_bytes;
    bool has_reply_buffer =
        request->reply_buffer != NULL && !sl_server_request_writes(&request->work);
    if (request->reply != NULL || bytes == 0 || has_reply_buffer) {
        return true;
    }
    bool may_wait = request->channel == NULL || server_admission_has_unsent(request->channel->conn);
    if (may_wait && !has_spare_room(host, buffers, bytes)) {
        return false;
    }
    request->reply = sl_server_buffers_get(buffers, bytes, buffers->bytes);
    if (request->reply == NULL) {
        host->admission.is_short = host->admission.is_short || !may_wait;
        return false;
    }
    host->admission.reply_bytes +=
        buffers == &host->memory.buffers ? sl_server_buffers_size(buffers, request->reply) : 0;
    return true;
}

void sl_server_admission_put_reply(struct sl_server_request *request)
{
    struct sl_server_host *host = request->server->host;
    if (request->reply != NULL) {
        struct sl_server_buffers *buffers = sl_server_shm_owner(host, request->reply);
        host->admission.reply_bytes -=
            buffers == &host->memory.buffers ? sl_server_buffers_size(buffers, request->reply) : 0;
        sl_server_buffers_put(buffers, request->reply);
        request->reply = NULL;
        sl_server_host_unblock(host);
    }
}
