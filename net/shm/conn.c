#include "net/shm/conn.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fork.h"
#include "net/shm/handshake.h"
#include "net/shm/imported_memory.h"
#include "net/shm/receive.h"
#include "net/shm/region.h"
#include "net/shm/reply_buffer.h"
#include "net/shm/rma.h"
#include "net/shm/send.h"
#include "net/shm/socket.h"

#define DRAIN_NS SL_CLOCK_NS_PER_S
#define CLOSE_NS (100 * SL_CLOCK_NS_PER_MS) /* for a peer that may write into our memory */
#define RETRY_NS (2 * SL_CLOCK_NS_PER_MS)   /* while the listener's queue is full */

/* Creation and end */

static void shm_conn_end(struct sl_shm_conn *conn, int err);

static void try_connect(struct sl_shm_conn *conn)
{
    int err = sl_shm_handshake_connect(conn);
    conn->phase = err == SL_ERR_AGAIN ? SL_SHM_RETRYING : SL_SHM_HANDSHAKE;
    if (err == SL_ERR_AGAIN) {
        sl_reactor_arm(conn->shm->base.reactor, &conn->timer, RETRY_NS);
    } else if (err != 0) {
        shm_conn_end(conn, err);
    }
}

static void shm_conn_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_shm_conn *conn = SL_CONTAINER_OF(timer, struct sl_shm_conn, timer);
    if (conn->phase == SL_SHM_RETRYING) {
        try_connect(conn);
    } else {
        shm_conn_end(conn, SL_ERR_CLOSED);
    }
}

/* The queue is not cleared, so that unused memory is never touched. */
static void reset(struct sl_shm_conn *conn)
{
    memset(conn, 0, offsetof(struct sl_shm_conn, send));
    memset(&conn->send, 0, offsetof(struct sl_shm_send, arena_ends));
    conn->timer.run = shm_conn_on_timer;
    for (uint32_t i = 0; i < SL_SHM_SLOTS; i++) {
        conn->receive.claims[i] =
            (struct sl_shm_loan){.token.kind = SL_SHM_TOKEN_LOAN, .conn = conn};
    }
}

static struct sl_shm_conn *shm_conn_allocate(struct sl_shm *shm)
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

static void shm_conn_put_spare(struct sl_shm *shm, struct sl_shm_conn *conn)
{
    conn->spare_next = shm->spare;
    shm->spare = conn;
}

static void shm_conn_link_to(struct sl_shm *shm, struct sl_shm_conn *conn)
{
    conn->shm = shm;
    sl_silence_restart(&conn->watch.silence, sl_reactor_now_ns(shm->base.reactor));
    sl_liveness_add(&shm->liveness, &conn->alive);
    sl_cell_add(&shm->base.cells->connections, 1);
}

static void unlink_from(struct sl_shm_conn *conn)
{
    struct sl_shm *shm = conn->shm;
    shm->next = shm->next == &conn->alive ? conn->alive.next : shm->next;
    sl_liveness_remove(&shm->liveness, &conn->alive);
    sl_list_remove(&conn->dirty);
    sl_cell_subtract(&shm->base.cells->connections, 1);
}

struct sl_shm_conn *sl_shm_conn_create(struct sl_shm *shm, int fd, uint32_t side,
                                       const struct sl_transport_events *events, void *ctx)
{
    struct sl_shm_conn *conn = shm_conn_allocate(shm);
    if (conn == NULL) {
        return NULL;
    }
    sl_conn_init(&conn->base, &shm->base, events, ctx);
    conn->phase = SL_SHM_HANDSHAKE;
    conn->link = (struct sl_shm_link){.fd = fd, .side = side, .memory.fd = -1};
    shm_conn_link_to(shm, conn);
    if (side == 1 && sl_shm_socket_watch(shm, fd, conn, false) != 0) {
        unlink_from(conn);
        shm_conn_put_spare(shm, conn);
        return NULL;
    }
    return conn;
}

int sl_shm_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    int fd;
    int err = sl_unix_socket_open(&fd);
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
    sl_fork_register(fd);
    try_connect(conn);
    *out = &conn->base;
    return 0;
}

static void shm_conn_unmap(struct sl_shm_link *link)
{
    sl_shm_imported_memory_drop(&link->imported);
    if (link->side == 0) {
        sl_shared_destroy(&link->memory);
    } else {
        sl_shared_detach(&link->memory);
    }
    link->segment = NULL;
}

/* `closed` follows from a poll. The first error counts; after disconnect it is OK. */
static void shm_conn_end(struct sl_shm_conn *conn, int err)
{
    if (conn->phase == SL_SHM_ENDED) {
        return;
    }
    sl_reactor_disarm(conn->shm->base.reactor, &conn->timer);
    conn->end.err = conn->phase == SL_SHM_DRAINING ? SL_OK : err;
    conn->base.state = SL_CONN_CLOSING;
    conn->phase = SL_SHM_ENDED;
    conn->busy = conn->ready = true;
}

/* Ends the connection if lower code has stored a failure. */
static void check(struct sl_shm_conn *conn)
{
    if (conn->base.failure != 0 && conn->phase != SL_SHM_LEAVING) {
        sl_conn_log_failure(&conn->base);
        shm_conn_end(conn, conn->base.failure);
    }
}

/* Makes the `closed` upcall and frees the connection's resources. */
static void shm_conn_finish(struct sl_shm_conn *conn)
{
    struct sl_shm *shm = conn->shm;
    sl_assert(conn->phase == SL_SHM_ENDED);
    unlink_from(conn);
    if (conn->link.segment != NULL) {
        sl_shm_side_leave(sl_shm_our_side(conn)); /* exported memory returns to its owner */
    }
    sl_shm_reply_buffer_close(conn);
    sl_shm_rma_close(conn);
    if (!conn->accept_pending) {
        sl_conn_report_closed(&conn->base, conn->end.err);
    }
    sl_fork_close(conn->link.fd); /* the upper layer no longer uses the peer's memory */
    if (conn->receive.claims_open > 0) {
        sl_list_append(&shm->kept, &conn->alive);
    } else {
        shm_conn_unmap(&conn->link);
        shm_conn_put_spare(shm, conn);
    }
}

void sl_shm_conn_cancel(struct sl_shm_conn *conn)
{
    shm_conn_end(conn, SL_ERR_CANCELLED);
    conn->end.err = SL_ERR_CANCELLED;
    shm_conn_finish(conn);
}

/* After `closed`: the last message in the peer's memory was released. */
static void free_kept(struct sl_shm_conn *conn)
{
    sl_list_remove(&conn->alive);
    shm_conn_unmap(&conn->link);
    shm_conn_put_spare(conn->shm, conn);
}

void sl_shm_conn_release(struct sl_conn *base, const struct sl_transport_message *message)
{
    struct sl_shm_conn *conn =
        sl_shm_receive_release((struct sl_shm *)base->transport, message->token);
    if (conn != NULL && sl_list_linked(&conn->alive)) { /* else this is its `closed` */
        free_kept(conn);
    }
}

void sl_shm_conn_free_all(struct sl_shm *shm)
{
    SL_LIST_EACH (struct sl_shm_conn, conn, alive, &shm->kept) {
        free_kept(conn);
    }
    while (shm->spare != NULL) {
        struct sl_shm_conn *conn = shm->spare;
        shm->spare = conn->spare_next;
        free(conn);
    }
}

/* Disconnect */

void sl_shm_conn_disconnect(struct sl_conn *base)
{
    struct sl_shm_conn *conn = (struct sl_shm_conn *)base;
    conn->busy = conn->ready = true; /* it may be abrupt only now */
    if (base->state == SL_CONN_CLOSING) {
        return;
    }
    if (base->state == SL_CONN_CONNECTING) {
        shm_conn_end(conn, SL_OK);
        return;
    }
    base->state = SL_CONN_CLOSING;
    conn->phase = SL_SHM_DRAINING;
    sl_reactor_arm(conn->shm->base.reactor, &conn->timer, DRAIN_NS);
}

/* A peer that closes its end writes no more. A stopped process does not close it: then its access
 * to our memory is revoked. */
static void await_close(struct sl_shm_conn *conn)
{
    conn->end.has_shut = true;
    (void)shutdown(conn->link.fd, SHUT_WR);
    sl_reactor_arm(conn->shm->base.reactor, &conn->timer, CLOSE_NS);
}

static void drain(struct sl_shm_conn *conn)
{
    const struct sl_shm_send *send = &conn->send;
    sl_shm_receive_drop(conn);
    if (conn->base.failure != 0) {
        return;
    }
    const bool is_sent =
        conn->base.is_abrupt || (send->head == send->tail && send->consumed == send->number);
    const bool is_written = sl_shm_reply_buffer_is_exported(conn) || sl_shm_rma_is_mapped(conn);
    if (conn->end.eof || (is_sent && !is_written)) {
        shm_conn_end(conn, SL_OK);
    } else if (is_sent && !conn->end.has_shut) {
        await_close(conn);
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
    sl_assert(conn->rma == NULL);
    struct sl_shm_conn *moved = shm_conn_allocate(NULL);
    if (moved == NULL) {
        shm_conn_end(conn, SL_ERR_NO_MEMORY);
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
    struct sl_shm_conn *conn = shm_conn_allocate(shm);
    conn->base = moved->base;
    conn->link = moved->link;
    free(moved);
    return conn;
}

static void shm_conn_drop(void *ctx)
{
    struct sl_shm_conn *moved = ctx;
    sl_fork_close(moved->link.fd);
    shm_conn_unmap(&moved->link);
    free(moved);
}

/* Runs on the target reactor. */
static void shm_conn_arrive(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_shm_conn *moved = ctx;
    struct sl_shm *shm = (struct sl_shm *)moved->base.transport;
    struct sl_shm_conn *conn = settle(shm, moved);
    shm_conn_link_to(shm, conn);
    sl_shm_handshake_attach(conn);
    if (sl_shm_socket_watch(shm, conn->link.fd, conn, false) != 0) {
        conn->end.eof = true;
        conn->end.eof_head = conn->receive.head;
    }
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
    if (!conn->end.eof) {
        sl_shm_socket_unwatch(shm, conn->link.fd);
    }
    conn->link.sent = conn->send.number;
    conn->link.acknowledged = conn->send.consumed;
    conn->link.received = conn->receive.head;
    moved->link = conn->link;
    sl_shm_reply_buffer_close(conn);
    unlink_from(conn);
    shm_conn_put_spare(shm, conn);
    if (from == to) {
        shm_conn_arrive(moved, 0, 0);
    } else {
        sl_reactor_post(
            from, sl_reactor_index(to),
            (struct sl_mail){.run = shm_conn_arrive, .ctx = moved, .drop = shm_conn_drop});
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
    if (conn->phase == SL_SHM_LEAVING || conn->base.failure != 0) {
        return work;
    }
    work += sl_shm_send_run(conn);
    if (sl_shm_rma_has_copied(conn)) {
        sl_shm_imported_memory_read(conn);
    }
    work += sl_shm_rma_run(conn);
    /* Frames sent before the end are delivered; frames written to the ring after it are not. */
    bool over = conn->receive.phase == SL_SHM_PHASE_HELD || !sl_shm_receive_pending(conn) ||
                conn->receive.head - conn->end.eof_head >= SL_SHM_SLOTS;
    if (conn->end.eof && conn->phase == SL_SHM_LIVE && over) {
        shm_conn_end(conn, SL_ERR_CLOSED);
    }
    return work;
}

uint32_t sl_shm_conn_visit(struct sl_shm_conn *conn, uint32_t budget)
{
    uint32_t work = 0;
    conn->ready = false;
    check(conn);
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
    check(conn);
    if (conn->phase == SL_SHM_ENDED) {
        shm_conn_finish(conn);
        return work + 1;
    }
    conn->busy = conn->ready || conn->end.eof || conn->receive.phase != SL_SHM_PHASE_NEXT ||
                 sl_shm_send_waits(conn) || conn->phase == SL_SHM_DRAINING;
    conn->ready = conn->ready || conn->receive.phase == SL_SHM_PHASE_COPY;
    return work;
}
