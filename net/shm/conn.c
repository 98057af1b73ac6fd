#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/list.h"
#include "core/log.h"
#include "net/shm/internal.h"

#define DRAIN_NS     SL_CLOCK_NS_PER_S
#define CLOSE_NS     (100 * SL_CLOCK_NS_PER_MS) /* for a peer that may write into our memory */
#define NOTES_A_TURN 32

/* Creation and end */

int sl_shm_watch(struct sl_shm *shm, int fd, void *what, bool is_listener)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uintptr_t)what | is_listener};
    return epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : SL_ERR_NO_MEMORY;
}

static void stop_watching(struct sl_shm_conn *conn)
{
    (void)epoll_ctl(conn->shm->epoll_fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_shm_conn *conn = SL_CONTAINER_OF(timer, struct sl_shm_conn, timer);
    if (conn->phase == SL_SHM_RETRYING) {
        sl_shm_handshake_connect(conn);
    } else {
        sl_shm_conn_end(conn, SL_ERR_CLOSED);
    }
}

static void stop_timer(struct sl_shm_conn *conn)
{
    if (sl_timer_armed(&conn->timer)) {
        sl_timer_disarm(sl_reactor_timers(conn->shm->base.reactor), &conn->timer);
    }
}

/* The queue is not cleared, so that unused memory is never touched. */
static void reset(struct sl_shm_conn *conn)
{
    memset(conn, 0, offsetof(struct sl_shm_conn, send));
    memset(&conn->send, 0, offsetof(struct sl_shm_send, arena_ends));
    conn->timer.run = on_timer;
    for (uint32_t i = 0; i < SL_SHM_SLOTS; i++) {
        conn->receive.claims[i] =
            (struct sl_shm_loan){.token.kind = SL_SHM_TOKEN_LOAN, .conn = conn};
    }
}

static struct sl_shm_conn *allocate(struct sl_shm *shm)
{
    struct sl_shm_conn *conn = shm != NULL ? shm->spare : NULL;
    if (conn != NULL) {
        shm->spare = conn->spare_next;
    } else {
        conn = aligned_alloc(_Alignof(struct sl_shm_conn), sizeof *conn);
    }
    if (conn != NULL) {
        reset(conn);
    }
    return conn;
}

static void put_spare(struct sl_shm *shm, struct sl_shm_conn *conn)
{
    conn->spare_next = shm->spare;
    shm->spare = conn;
}

static int link_to(struct sl_shm *shm, struct sl_shm_conn *conn)
{
    if (shm->conn_count == shm->conn_capacity) {
        uint32_t capacity = shm->conn_capacity > 0 ? 2 * shm->conn_capacity : 16;
        struct sl_shm_conn **conns = realloc(shm->conns, capacity * sizeof *conns);
        if (conns == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        shm->conns = conns;
        shm->conn_capacity = capacity;
    }
    conn->shm = shm;
    conn->index = shm->conn_count;
    shm->conns[shm->conn_count++] = conn;
    shm->stats.connections++;
    sl_shm_liveness_add(shm, conn);
    return 0;
}

static void unlink_from(struct sl_shm_conn *conn)
{
    struct sl_shm *shm = conn->shm;
    struct sl_shm_conn *last = shm->conns[--shm->conn_count];
    shm->conns[conn->index] = last;
    last->index = conn->index;
    shm->stats.connections--;
    if (conn->dirty) {
        struct sl_shm_conn **at = &shm->dirty;
        while (*at != conn) {
            at = &(*at)->dirty_next;
        }
        *at = conn->dirty_next;
        conn->dirty = false;
    }
}

struct sl_shm_conn *sl_shm_conn_create(struct sl_shm *shm, int fd, uint32_t side,
                                       const struct sl_transport_events *events, void *ctx)
{
    struct sl_shm_conn *conn = allocate(shm);
    if (conn == NULL) {
        return NULL;
    }
    sl_conn_init(&conn->base, &shm->base, events, ctx);
    conn->phase = SL_SHM_HANDSHAKE;
    conn->link = (struct sl_shm_link){.fd = fd, .side = side, .memory.fd = -1};
    if (link_to(shm, conn) != 0) {
        put_spare(shm, conn);
        return NULL;
    }
    if (side == 1 && sl_shm_watch(shm, fd, conn, false) != 0) {
        unlink_from(conn);
        put_spare(shm, conn);
        return NULL;
    }
    return conn;
}

int sl_shm_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    (void)target;
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (shm->closing) {
        return SL_ERR_CLOSED;
    }
    if (shm->stats.connections >= shm->connections_max) {
        return SL_ERR_TOO_LARGE;
    }
    int fd;
    int err = sl_shm_socket_open(&fd);
    if (err != 0) {
        return err;
    }
    struct sl_shm_conn *conn = sl_shm_conn_create(shm, fd, 0, events, ctx);
    if (conn == NULL) {
        close(fd);
        return SL_ERR_NO_MEMORY;
    }
    sl_shm_socket_address(endpoint, &conn->address, &conn->address_bytes);
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    sl_shm_handshake_connect(conn);
    *out = &conn->base;
    return 0;
}

/* After a migration some sent frames may still be unread: until they are consumed, the whole arena
 * counts as used. */
void sl_shm_conn_attach(struct sl_shm_conn *conn)
{
    struct sl_shm_link *link = &conn->link;
    struct sl_shm_receive *receive = &conn->receive;
    struct sl_shm_send *send = &conn->send;
    receive->slots = link->segment->rings[1 - link->side];
    receive->head = receive->consumed = receive->published = link->received;
    send->slots = link->segment->rings[link->side];
    send->arena = link->segment->arenas[link->side];
    send->number = conn->notified = link->sent;
    send->consumed = send->refs_due = link->acknowledged;
    memset(send->arena_ends, 0, sizeof send->arena_ends);
    if (send->consumed != send->number) {
        send->arena_top = SL_SHM_ARENA_BYTES;
        send->arena_ends[(send->number - 1) % SL_SHM_SLOTS] = send->arena_top;
    }
    conn->phase = SL_SHM_LIVE;
    conn->busy = conn->ready = true;
}

static void unmap(struct sl_shm_link *link)
{
    sl_shm_region_drop_imported(&link->imported);
    if (link->side == 0) {
        sl_shared_destroy(&link->memory);
    } else {
        sl_shared_detach(&link->memory);
    }
    link->segment = NULL;
}

void sl_shm_conn_end(struct sl_shm_conn *conn, int err)
{
    if (conn->phase == SL_SHM_ENDED) {
        return;
    }
    stop_timer(conn);
    conn->end_err = conn->phase == SL_SHM_DRAINING ? SL_OK : err;
    conn->base.state = SL_CONN_CLOSING;
    conn->phase = SL_SHM_ENDED;
    conn->busy = conn->ready = true;
}

void sl_shm_conn_refuse(struct sl_shm_conn *conn, const char *what, int err)
{
    if (sl_shm_may_log(conn->shm)) {
        sl_log_warn("%s: closed, since %s: %s", conn->base.peer, what, sl_err_name(err));
    }
    sl_shm_conn_end(conn, err);
}

void sl_shm_conn_finish(struct sl_shm_conn *conn)
{
    struct sl_shm *shm = conn->shm;
    sl_assert(conn->phase == SL_SHM_ENDED);
    unlink_from(conn);
    if (conn->link.segment != NULL) {
        sl_shm_side_leave(sl_shm_our_side(conn)); /* exported memory returns to its owner */
    }
    sl_shm_reply_buffer_close(conn);
    if (!conn->accept_pending) {
        sl_conn_report_closed(&conn->base, conn->end_err);
    }
    close(conn->link.fd); /* the upper layer no longer uses the peer's memory */
    if (conn->receive.claims_open > 0) {
        conn->spare_next = shm->kept;
        shm->kept = conn;
    } else {
        unmap(&conn->link);
        put_spare(shm, conn);
    }
}

void sl_shm_conn_free_kept(struct sl_shm_conn *conn)
{
    struct sl_shm_conn **at = &conn->shm->kept;
    while (*at != NULL && *at != conn) {
        at = &(*at)->spare_next;
    }
    if (*at != NULL) { /* else it is not closed yet */
        *at = conn->spare_next;
        unmap(&conn->link);
        put_spare(conn->shm, conn);
    }
}

void sl_shm_conn_free_all(struct sl_shm *shm)
{
    while (shm->kept != NULL) {
        sl_shm_conn_free_kept(shm->kept);
    }
    while (shm->spare != NULL) {
        struct sl_shm_conn *conn = shm->spare;
        shm->spare = conn->spare_next;
        free(conn);
    }
    free(shm->conns);
}

/* Disconnect */

void sl_shm_conn_disconnect(struct sl_conn *base)
{
    struct sl_shm_conn *conn = (struct sl_shm_conn *)base;
    if (base->state == SL_CONN_CLOSING) {
        return;
    }
    if (base->state == SL_CONN_CONNECTING) {
        sl_shm_conn_end(conn, SL_OK);
        return;
    }
    struct sl_reactor *reactor = conn->shm->base.reactor;
    base->state = SL_CONN_CLOSING;
    conn->phase = SL_SHM_DRAINING;
    conn->busy = conn->ready = true;
    sl_timer_arm(sl_reactor_timers(reactor), &conn->timer, sl_reactor_now_ns(reactor) + DRAIN_NS);
}

/* A peer that closes its end writes no more. A stopped process does not close it: then its access
 * to our memory is revoked. */
static void await_close(struct sl_shm_conn *conn)
{
    struct sl_reactor *reactor = conn->shm->base.reactor;
    conn->has_shut = true;
    (void)shutdown(conn->link.fd, SHUT_WR);
    stop_timer(conn);
    sl_timer_arm(sl_reactor_timers(reactor), &conn->timer, sl_reactor_now_ns(reactor) + CLOSE_NS);
}

static void drain(struct sl_shm_conn *conn)
{
    const struct sl_shm_send *send = &conn->send;
    sl_shm_receive_drop(conn);
    if (conn->phase != SL_SHM_DRAINING) {
        return;
    }
    const bool is_sent = send->head == send->tail && send->consumed == send->number;
    if (conn->eof || (is_sent && !sl_shm_reply_buffer_is_exported(conn))) {
        sl_shm_conn_end(conn, SL_OK);
    } else if (is_sent && !conn->has_shut) {
        await_close(conn);
    }
}

/* Control messages */

static void see_end(struct sl_shm_conn *conn)
{
    if (conn->phase == SL_SHM_HANDSHAKE) {
        sl_shm_conn_end(conn, SL_ERR_REFUSED);
        return;
    }
    conn->eof = conn->busy = conn->ready = true;
    conn->eof_head = conn->receive.head;
    stop_watching(conn); /* else it would stay readable */
}

static void take_msg(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    int err = 0;
    switch (msg->kind) {
    case SL_SHM_CTRL_MSG_REGION:
        err = sl_shm_region_imported(conn, msg, fd);
        break;
    case SL_SHM_CTRL_MSG_WITHDRAW:
        err = sl_shm_region_withdrawn(conn, msg);
        break;
    case SL_SHM_CTRL_MSG_PING:
        (void)sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_PONG},
                                   -1);
        break;
    case SL_SHM_CTRL_MSG_WAKE:
    case SL_SHM_CTRL_MSG_PONG:
        break;
    default:
        if (fd >= 0) {
            close(fd);
        }
        err = SL_ERR_PROTOCOL;
    }
    if (err != 0) {
        sl_shm_conn_refuse(conn, "what it said on its socket cannot be", err);
    }
}

void sl_shm_conn_read(struct sl_shm_conn *conn)
{
    for (uint32_t i = 0; i < NOTES_A_TURN && !conn->eof && conn->phase >= SL_SHM_HANDSHAKE &&
                         conn->phase <= SL_SHM_DRAINING;
         i++) {
        struct sl_shm_ctrl_msg msg;
        int fd;
        int err = sl_shm_ctrl_msg_receive(conn->link.fd, &msg, &fd);
        if (err == SL_ERR_AGAIN) {
            return;
        }
        conn->heard = true;
        conn->shm->stats.receive_calls++;
        if (err == SL_ERR_CLOSED) {
            see_end(conn);
        } else if (err != 0) {
            sl_shm_conn_refuse(conn, "what came on its socket is not ours", err);
        } else if (conn->phase == SL_SHM_HANDSHAKE) {
            sl_shm_handshake_note(conn, &msg, fd);
        } else {
            take_msg(conn, &msg, fd);
        }
    }
}

/* Migration */

int sl_shm_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_shm_conn *conn = (struct sl_shm_conn *)base;
    sl_assert(conn->phase == SL_SHM_LIVE);
    sl_assert(conn->send.head == conn->send.tail);
    sl_assert(conn->receive.claims_open == 0);
    struct sl_shm_conn *moved = allocate(NULL);
    if (moved == NULL) {
        sl_shm_conn_end(conn, SL_ERR_NO_MEMORY);
        return SL_ERR_NO_MEMORY;
    }
    sl_conn_init(&moved->base, to, events, ctx);
    moved->base.user = user;
    memcpy(moved->base.peer, base->peer, sizeof moved->base.peer);
    conn->moved = moved;
    conn->bound_for = to->reactor; /* may outlive its transport */
    conn->phase = SL_SHM_LEAVING;
    base->state = SL_CONN_CLOSED;
    return 0; /* the visit that made the upcall continues */
}

/* Reuses a spare if there is one. */
static struct sl_shm_conn *settle(struct sl_shm *shm, struct sl_shm_conn *moved)
{
    if (shm->spare == NULL) {
        return moved;
    }
    struct sl_shm_conn *conn = allocate(shm);
    conn->base = moved->base;
    conn->link = moved->link;
    free(moved);
    return conn;
}

static void drop(void *ctx)
{
    struct sl_shm_conn *moved = ctx;
    close(moved->link.fd);
    unmap(&moved->link);
    free(moved);
}

/* Runs on the target reactor. */
static void arrive(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_shm_conn *moved = ctx;
    struct sl_shm *shm = (struct sl_shm *)moved->base.transport;
    struct sl_shm_conn *conn = settle(shm, moved);
    if (link_to(shm, conn) != 0) {
        conn->spare_next = shm->lost;
        shm->lost = conn;
        return;
    }
    sl_shm_conn_attach(conn);
    if (sl_shm_watch(shm, conn->link.fd, conn, false) != 0) {
        conn->eof = true;
        conn->eof_head = conn->receive.head;
    }
}

uint32_t sl_shm_conn_close_lost(struct sl_shm *shm, int err)
{
    uint32_t count = 0;
    while (shm->lost != NULL) {
        struct sl_shm_conn *conn = shm->lost;
        shm->lost = conn->spare_next;
        sl_conn_report_closed(&conn->base, err);
        drop(conn);
        count++;
    }
    return count;
}

static void depart(struct sl_shm_conn *conn)
{
    struct sl_shm *shm = conn->shm;
    struct sl_shm_conn *moved = conn->moved;
    struct sl_reactor *from = shm->base.reactor, *to = conn->bound_for;
    if (!sl_shm_region_recall(conn)) {
        (void)shutdown(conn->link.fd, SHUT_RDWR); /* the new owner sees it closed */
    }
    sl_shm_side_consume(sl_shm_our_side(conn), conn->receive.consumed);
    sl_shm_segment_fence();
    sl_shm_conn_wake(conn);
    if (!conn->eof) {
        stop_watching(conn);
    }
    conn->link.sent = conn->send.number;
    conn->link.acknowledged = conn->send.consumed;
    conn->link.received = conn->receive.head;
    moved->link = conn->link;
    sl_shm_reply_buffer_close(conn);
    unlink_from(conn);
    put_spare(shm, conn);
    if (from == to) {
        arrive(moved, 0, 0);
    } else {
        sl_reactor_post(from, sl_reactor_index(to),
                        (struct sl_mail){.run = arrive, .ctx = moved, .drop = drop});
    }
}

/* Poll and flush */

void sl_shm_conn_wake(struct sl_shm_conn *conn)
{
    uint32_t reasons = SL_SHM_SLEEPS_FULL;
    if (conn->notified != conn->send.number) {
        reasons |= SL_SHM_SLEEPS;
        conn->notified = conn->send.number;
    }
    if (sl_shm_side_must_wake(sl_shm_peer_side(conn), reasons)) {
        (void)sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_WAKE},
                                   -1);
    }
}

static uint32_t visit_live(struct sl_shm_conn *conn, uint32_t budget)
{
    if (conn->base.state == SL_CONN_CONNECTING) {
        sl_conn_report_accepted(&conn->base); /* it migrated here */
    }
    uint32_t work = conn->phase == SL_SHM_LIVE ? sl_shm_receive_run(conn, budget) : 0;
    if (conn->phase == SL_SHM_LEAVING) {
        return work;
    }
    work += sl_shm_send_run(conn);
    /* Frames sent before the end are delivered; frames written to the ring after it are not. */
    bool over = conn->receive.phase == SL_SHM_PHASE_HELD || !sl_shm_receive_pending(conn) ||
                conn->receive.head - conn->eof_head >= SL_SHM_SLOTS;
    if (conn->eof && conn->phase == SL_SHM_LIVE && over) {
        sl_shm_conn_end(conn, SL_ERR_CLOSED);
    }
    return work;
}

uint32_t sl_shm_conn_visit(struct sl_shm_conn *conn, uint32_t budget)
{
    uint32_t work = 0;
    conn->ready = false;
    if (conn->phase == SL_SHM_LIVE) {
        work = visit_live(conn, budget);
    }
    if (conn->phase == SL_SHM_LEAVING) {
        depart(conn);
        return work + 1;
    }
    if (conn->phase == SL_SHM_DRAINING) {
        work += sl_shm_send_run(conn);
        drain(conn);
    }
    if (conn->phase == SL_SHM_ENDED) {
        sl_shm_conn_finish(conn);
        return work + 1;
    }
    conn->busy = conn->ready || conn->eof || conn->receive.phase != SL_SHM_PHASE_NEXT ||
                 sl_shm_send_waits(conn) || conn->phase == SL_SHM_DRAINING;
    conn->ready = conn->ready || conn->receive.phase == SL_SHM_PHASE_COPY;
    return work;
}
