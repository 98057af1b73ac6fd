/* Migration of connections. A queue pair cannot change its completion queue, so a migrating
 * connection gets a new queue pair:
 * - The old owner sends the peer a ticket (MOVE).
 * - The peer answers MOVED, and sends the listener a new connect request with the ticket.
 * - The old owner passes that request to the new owner, with all packets that arrived meanwhile. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/bytes.h"
#include "core/log.h"
#include "net/rdma/send.h"

struct packet {
    struct packet *next;
    uint32_t bytes;
    uint8_t at[];
};

/* All that migrates with a connection. */
struct sl_rdma_move {
    struct sl_rdma_move *next; /* outgoing migrations */
    uint64_t ticket;
    struct sl_rdma_conn *conn; /* the old owner's, LEAVING */
    bool told, moved;          /* MOVE was sent; MOVED arrived */
    struct rdma_cm_id
        *id; /* the request with the ticket; NULL: none has come, or the connection ends */
    uint32_t reads_peer;
    struct sl_rdma_channel *from; /* event channel of id, while it migrates */
    int end_err;                  /* why the connection ends; id is NULL */
    struct sl_transport *to;
    struct sl_reactor *bound_for; /* may outlive its transport */
    const struct sl_transport_events *events;
    void *ctx, *user;
    char peer[SL_LIMIT_ENDPOINT_BYTES];
    const struct sl_rdma_library *library;
    struct ibv_context *verbs;
    uint32_t limit_theirs, limit_ours, limit_told, window;
    uint32_t counted_sent, counted_received, counted_consumed;
    uint32_t longs_sent, longs_done, reads_done, reads_told;
    struct packet *first, **end;
    uint32_t packets; /* count; each uses credit */
};

static void free_packets(struct sl_rdma_move *move)
{
    while (move->first != NULL) {
        struct packet *packet = move->first;
        move->first = packet->next;
        free(packet);
    }
}

static void destroy(struct sl_rdma_move *move)
{
    if (move->id != NULL) {
        (void)move->library->destroy_id(move->id);
    }
    if (move->from != NULL) {
        sl_rdma_cm_let_go(&move->from);
    }
    free_packets(move);
    free(move);
}

/* The old owner */

static void leave_tickets(struct sl_rdma *rdma, const struct sl_rdma_move *move)
{
    struct sl_rdma_move **at = &rdma->moves;
    while (*at != NULL && *at != move) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = move->next;
    }
}

int sl_rdma_move_migrate(struct sl_conn *base, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_rdma_conn *conn = (struct sl_rdma_conn *)base;
    struct sl_rdma *rdma = conn->rdma;
    sl_assert(conn->phase == SL_RDMA_LIVE);
    struct sl_rdma_move *move = calloc(1, sizeof *move);
    uint64_t ticket = 0;
    if (move == NULL || getrandom(&ticket, sizeof ticket, 0) != sizeof ticket || ticket == 0) {
        free(move);
        sl_rdma_conn_end(conn, SL_ERR_NO_MEMORY);
        return SL_ERR_NO_MEMORY;
    }
    *move = (struct sl_rdma_move){.next = rdma->moves,
                                  .ticket = ticket,
                                  .conn = conn,
                                  .to = to,
                                  .bound_for = to->reactor,
                                  .events = events,
                                  .ctx = ctx,
                                  .user = user,
                                  .library = rdma->library,
                                  .verbs = conn->nic->verbs};
    move->end = &move->first;
    memcpy(move->peer, base->peer, sizeof move->peer);
    rdma->moves = move;
    conn->move = move;
    conn->phase = SL_RDMA_LEAVING;
    conn->accept_pending = true;
    base->state = SL_CONN_CLOSED;
    sl_rdma_conn_set_timer(conn, sl_rdma_patience_ns(rdma));
    sl_rdma_mark_ready(conn);
    return 0;
}

static void end_there(struct sl_rdma_conn *conn, int err)
{
    if (conn->move->end_err == 0) {
        conn->move->end_err = err;
    }
    sl_rdma_mark_ready(conn);
}

bool sl_rdma_move_end(struct sl_rdma_conn *conn, int err)
{
    if (conn->move == NULL || conn->rdma->closing) {
        return false;
    }
    end_there(conn, err);
    return true;
}

void sl_rdma_move_packet(struct sl_rdma_conn *conn, const uint8_t *packet, uint32_t bytes)
{
    struct sl_rdma_move *move = conn->move;
    struct packet *copy = malloc(sizeof *copy + bytes);
    if (copy == NULL) {
        end_there(conn, SL_ERR_NO_MEMORY); /* packets after a gap are useless */
        return;
    }
    copy->next = NULL;
    copy->bytes = bytes;
    memcpy(copy->at, packet, bytes);
    *move->end = copy;
    move->end = &copy->next;
    move->packets++;
    conn->rdma->stats.copied_bytes += bytes;
}

/* Keeps a counted packet, within the peer's credit. */
static void take_counted(struct sl_rdma_conn *conn, const struct sl_rdma_packet *head,
                         const uint8_t *packet, uint32_t bytes)
{
    if (head->kind > SL_RDMA_WRITTEN ||
        conn->counted_received + conn->move->packets == conn->limit_ours) {
        end_there(conn, SL_ERR_PROTOCOL);
        return;
    }
    sl_rdma_move_packet(conn, packet, bytes);
}

void sl_rdma_move_take(struct sl_rdma_conn *conn, const uint8_t *packet, uint32_t bytes)
{
    struct sl_bytes cursor = sl_bytes_over(packet, bytes);
    struct sl_rdma_packet head;
    sl_bytes_copy(&cursor, &head, sizeof head);
    if (conn->move->moved || conn->move->end_err != 0) {
        return; /* nothing follows MOVED; an ending connection ends at its new owner */
    }
    if (cursor.bad || sl_rdma_credit_heard(conn, &head) != 0) {
        end_there(conn, SL_ERR_PROTOCOL);
    } else if (head.kind == SL_RDMA_MOVED) {
        conn->move->moved = true;
        sl_rdma_mark_ready(conn);
    } else if (head.kind == SL_RDMA_FIN) {
        sl_rdma_conn_sent_fin(conn);
    } else if (head.kind != SL_RDMA_CREDIT_UPDATE) {
        take_counted(conn, &head, packet, bytes);
    }
}

static void arrive(void *ctx, uint64_t a, uint64_t b);

/* The new owner's reactor has ended. */
static void drop(void *ctx)
{
    destroy(ctx);
}

static void depart(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    struct sl_rdma_move *move = conn->move;
    struct sl_reactor *from = rdma->base.reactor, *to = move->bound_for;
    leave_tickets(rdma, move);
    move->from = move->id != NULL ? sl_rdma_cm_keep(rdma) : NULL;
    move->conn = NULL;
    move->limit_theirs = conn->limit_theirs;
    move->limit_ours = conn->limit_ours;
    move->limit_told = conn->limit_told;
    move->window = conn->window;
    move->counted_sent = conn->counted_sent;
    move->counted_received = conn->counted_received;
    move->counted_consumed = conn->counted_consumed;
    move->longs_sent = conn->longs_sent;
    move->longs_done = conn->longs_done;
    move->reads_done = conn->reads_done;
    move->reads_told = conn->reads_told;
    conn->move = NULL;
    conn->all_received = conn->all_received || move->moved;
    sl_rdma_conn_end(conn, SL_ERR_CLOSED); /* this side's part only: not reported */
    if (from == to) {
        arrive(move, 0, 0);
    } else {
        sl_reactor_post(from, sl_reactor_index(to),
                        (struct sl_mail){.run = arrive, .ctx = move, .drop = drop});
    }
}

void sl_rdma_move_give_up(struct sl_rdma_conn *conn)
{
    end_there(conn, SL_ERR_DEADLINE);
}

void sl_rdma_move_leave(struct sl_rdma_conn *conn)
{
    struct sl_rdma_move *move = conn->move;
    if (!move->told && move->end_err == 0 && !conn->fin_received && !conn->link.disconnected &&
        !sl_rdma_receive_is_reading(conn)) {
        move->told = sl_rdma_send_uncounted(conn, SL_RDMA_MOVE, 0, move->ticket);
    }
    if (conn->phase != SL_RDMA_LEAVING) {
        return; /* the transport closes */
    }
    if (move->moved && move->id != NULL && move->end_err == 0) {
        depart(conn);
        return;
    }
    bool left = conn->fin_received || (conn->link.disconnected && !move->moved);
    if (left && move->end_err == 0) {
        if (!conn->fin_received && conn->nic->empties == conn->empties) {
            sl_rdma_mark_ready(conn); /* earlier packets may still be in the completion queue */
            return;
        }
        move->end_err = SL_ERR_CLOSED;
    }
    if (move->end_err != 0) {
        if (move->id != NULL) {
            sl_rdma_cm_reject(conn->rdma, move->id, SL_RDMA_NO_TICKET);
            move->id = NULL;
        }
        depart(conn);
    }
}

bool sl_rdma_move_arrived(struct sl_rdma *rdma, struct rdma_cm_id *id,
                          const struct sl_rdma_hello *hello)
{
    struct sl_rdma_move *move = rdma->moves;
    while (move != NULL && move->ticket != hello->ticket) {
        move = move->next;
    }
    if (move == NULL || move->id != NULL || id->verbs != move->verbs) {
        return false;
    }
    move->id = id;
    move->reads_peer = hello->reads;
    sl_rdma_mark_ready(move->conn);
    return true;
}

/* The new owner */

static void take_counts(struct sl_rdma_conn *conn, const struct sl_rdma_move *move)
{
    conn->limit_theirs = move->limit_theirs;
    conn->limit_ours = move->limit_ours;
    conn->limit_told = move->limit_told;
    conn->window = move->window;
    conn->counted_sent = move->counted_sent;
    conn->counted_received = move->counted_received;
    conn->counted_consumed = move->counted_consumed;
    conn->longs_sent = move->longs_sent;
    conn->longs_done = move->longs_done;
    conn->reads_done = move->reads_done;
    conn->reads_told = move->reads_told;
    conn->note_due = true;
}

/* migrate_id returns when all events read by the old reactor are acknowledged; later ones come
 * here. */
static int accept_id(struct sl_rdma_conn *conn, struct sl_rdma_move *move)
{
    struct sl_rdma *rdma = conn->rdma;
    struct rdma_cm_id *id = move->id;
    if (move->from != rdma->channel && rdma->library->migrate_id(id, rdma->cm) != 0) {
        return SL_ERR_IO;
    }
    sl_rdma_cm_let_go(&move->from);
    move->id = NULL;
    conn->link.id = id;
    id->context = conn;
    int err = sl_rdma_conn_make_queue_pair(conn);
    if (err != 0) {
        return err;
    }
    sl_rdma_conn_take_hello(conn, &(struct sl_rdma_hello){.reads = move->reads_peer});
    return sl_rdma_access_accept(conn);
}

/* False: no memory. */
static bool settle(struct sl_rdma *rdma, struct sl_rdma_move *move)
{
    struct sl_rdma_conn *conn = sl_rdma_conn_new(rdma, move->events, move->ctx);
    if (conn == NULL) {
        return false;
    }
    conn->phase = SL_RDMA_ACCEPTING;
    conn->accept_pending = true;
    conn->base.user = move->user;
    memcpy(conn->base.peer, move->peer, sizeof conn->base.peer);
    conn->move = move;
    take_counts(conn, move);
    int err = move->end_err;
    if (move->id != NULL) {
        err = accept_id(conn, move);
    }
    if (err != 0 && conn->link.id != NULL) {
        sl_rdma_cm_refuse(rdma, conn->link.id, sl_rdma_cm_reason(err));
    }
    if (err == 0) {
        sl_rdma_conn_set_timer(conn, sl_rdma_patience_ns(rdma));
    } else {
        sl_rdma_conn_end(conn, err); /* `accepted`, the packets, then `closed` */
    }
    return true;
}

/* On the new owner's thread. The old owner has forgotten the connection, so this waits for
 * memory without a limit. */
static void arrive(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_rdma_move *move = ctx;
    struct sl_rdma *rdma = (struct sl_rdma *)move->to;
    if (!settle(rdma, move)) {
        move->next = rdma->arrivals;
        rdma->arrivals = move;
        sl_rdma_liveness_retry(rdma);
    }
}

void sl_rdma_move_retry(struct sl_rdma *rdma)
{
    struct sl_rdma_move *list = rdma->arrivals;
    rdma->arrivals = NULL;
    while (list != NULL) {
        struct sl_rdma_move *move = list;
        list = move->next;
        arrive(move, 0, 0);
    }
}

void sl_rdma_move_close(struct sl_rdma *rdma)
{
    while (rdma->arrivals != NULL) {
        struct sl_rdma_move *move = rdma->arrivals;
        rdma->arrivals = move->next;
        destroy(move);
    }
}

/* limit, done and flags of the head were handled when the packet arrived. */
static int take_copy(struct sl_rdma_conn *conn, struct packet *packet)
{
    struct sl_rdma_packet head;
    memcpy(&head, packet->at, sizeof head);
    head.limit = conn->limit_theirs;
    head.done = conn->longs_done;
    head.flags = 0;
    memcpy(packet->at, &head, sizeof head);
    return sl_rdma_receive_copy(conn, packet->at, packet->bytes);
}

void sl_rdma_move_deliver(struct sl_rdma_conn *conn)
{
    struct sl_rdma_move *move = conn->move;
    conn->move = NULL;
    for (struct packet *packet = move->first; packet != NULL; packet = packet->next) {
        bool open = conn->phase == SL_RDMA_LIVE || conn->phase == SL_RDMA_DRAINING;
        int err = open ? take_copy(conn, packet) : 0;
        if (err != 0) {
            sl_rdma_conn_refuse(conn, "what it had sent before it was handed over cannot be kept",
                                err);
        }
    }
    destroy(move);
}

void sl_rdma_move_drop(struct sl_rdma_conn *conn)
{
    struct sl_rdma_move *move = conn->move;
    if (move == NULL) {
        return;
    }
    conn->move = NULL;
    leave_tickets(conn->rdma, move);
    destroy(move);
}

/* The queue pair for reading payloads does not exist: drops all packets from the first LONG on. */
static void cut_longs(struct sl_rdma_move *move)
{
    struct packet **at = &move->first;
    while (*at != NULL &&
           (*at)->at[offsetof(struct sl_rdma_packet, kind)] != (uint8_t)SL_RDMA_LONG) {
        at = &(*at)->next;
    }
    struct packet *tail = *at;
    *at = NULL;
    while (tail != NULL) {
        struct packet *packet = tail;
        tail = packet->next;
        free(packet);
    }
}

void sl_rdma_move_announce(struct sl_rdma_conn *conn)
{
    if (conn->phase == SL_RDMA_ACCEPTING && conn->move != NULL) {
        conn->phase = SL_RDMA_LIVE;
        conn->accept_pending = false;
        sl_conn_report_accepted(&conn->base);
    }
}

void sl_rdma_move_bury(struct sl_rdma_conn *conn)
{
    int err = conn->end_err;
    struct sl_rdma_nic *nic;
    if (sl_rdma_nic_get(conn->rdma, conn->move->verbs, &nic) == 0) {
        conn->nic = nic;
        cut_longs(conn->move);
    } else {
        free_packets(conn->move);
    }
    sl_rdma_move_announce(conn);
    sl_rdma_move_deliver(conn);
    sl_rdma_conn_end(conn, err);
}

/* The connecting side */

/* After FIN, wait for the peer's FIN, or for the end. */
void sl_rdma_move_told(struct sl_rdma_conn *conn, uint64_t ticket)
{
    if (conn->base.accepted || ticket == 0) {
        sl_rdma_conn_refuse(conn, "it said MOVE where that cannot be", SL_ERR_PROTOCOL);
        return;
    }
    if ((conn->phase != SL_RDMA_LIVE && conn->phase != SL_RDMA_DRAINING) || conn->fin_sent) {
        return;
    }
    conn->ticket = ticket;
    conn->moved_sent = false;
    if (conn->phase == SL_RDMA_LIVE) { /* disconnect has a timer already */
        sl_rdma_conn_set_timer(conn, sl_rdma_patience_ns(conn->rdma));
    }
    conn->phase = SL_RDMA_MOVING;
    sl_rdma_mark_ready(conn);
}

void sl_rdma_move_again(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_link *link = &conn->link;
    if (link->id == NULL || !link->established) {
        return;
    }
    if (link->disconnected) {
        sl_rdma_conn_end(conn, SL_ERR_CLOSED);
        return;
    }
    if (!conn->moved_sent) {
        conn->moved_sent = sl_rdma_send_uncounted(conn, SL_RDMA_MOVED, 0, 0);
    }
    if (conn->phase == SL_RDMA_MOVING && conn->moved_sent &&
        link->sends_completed == link->sends_posted) {
        sl_rdma_conn_drop_link(conn);
        sl_rdma_connect_begin(conn);
    }
}

void sl_rdma_move_done(struct sl_rdma_conn *conn)
{
    bool leaves = conn->base.state == SL_CONN_CLOSING;
    conn->phase = leaves ? SL_RDMA_DRAINING : SL_RDMA_LIVE;
    conn->send->refused = false; /* not tried on this queue pair */
    if (leaves) {
        sl_rdma_conn_set_timer(conn, SL_CLOCK_NS_PER_S);
    }
    conn->note_due = true;
    sl_rdma_mark_dirty(conn);
    sl_rdma_mark_ready(conn);
}
