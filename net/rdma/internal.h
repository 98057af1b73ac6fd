/* What the files of this folder share: the transport's and the connection's state, and what each
 * file does for the others. Owner reactor throughout, but for what is said of the library and of
 * moving connections.
 *
 *   rdma.c      the ops table, open and close, the turn: poll, flush, arm
 *   rail.c      one device: protection domain, completion queue, shared receive queue; abilities.c
 *               what it can, device.c its events
 *   pool.c      its receive buffers, staging blocks and send slots
 *   memory.c    registered memory: keys for addresses
 *   cm.c        rdma_cm's events; listen.c, connect.c, move.c what they mean; address.c from where
 *   access.c    access of peers to memory, once they are welcome
 *   conn.c      a connection's life, from the first event to `closed`
 *   send.c      frames to packets, packets to work requests, completions to `sent`
 *   receive.c   packets to frames, reads of long payloads, `sink` and `received`
 *   sweep.c     peers that say nothing, devices that go, waits that are tried again
 */
#ifndef SL_NET_RDMA_INTERNAL_H
#define SL_NET_RDMA_INTERNAL_H

#include "core/assert.h"
#include "net/rdma/library.h"
#include "net/rdma/nic.h"
#include "net/rdma/packet.h"
#include "net/rdma/rdma.h"
#include "net/transport.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

#define SL_RDMA_QUEUE           512U /* frames of one connection taken and not reported; 2^n */
#define SL_RDMA_SENDS           128U /* work requests of a queue pair's send queue */
#define SL_RDMA_SIGNAL_EVERY    32U /* of them; also the last of a burst that something waits for */
#define SL_RDMA_WINDOW_MIN      8U  /* counted packets that a new connection may have outstanding */
#define SL_RDMA_WINDOW_MAX      64U /* and one that keeps asking for more (SL_RDMA_STALLED) */
#define SL_RDMA_LIMIT_AHEAD_MAX 65536U /* no peer has so many receive buffers for us */
#define SL_RDMA_SPARE           4U     /* receive buffers of a connection for uncounted packets */
#define SL_RDMA_READS           16U    /* RDMA reads outstanding on a queue pair, at most */
#define SL_RDMA_LONG_BYTES      6144U /* an answer's payload from here on is written to its landing */
#define SL_RDMA_REPLY_BUFFERS   512U /* requests of one connection whose landing is remembered */
#define SL_RDMA_CHUNK_BYTES     (4U << 20) /* of registered memory: one memory region each */
#define SL_RDMA_PEER_TIMEOUT_MS 10000U
#define SL_RDMA_BUFFERS         4096U /* of each kind on a rail, at most, where no option says so */

/* ---- The transport ----------------------------------------------------------------------------
 */

/* Memory that the layers above registered. */
struct sl_rdma_region {
    uint8_t *base;
    size_t bytes;
    bool peers_write; /* it was shared for writing (core/shared.h) */
    bool lands;       /* landings may be in it: peers write, or it is this process's alone */
    uint64_t serial;  /* of this registration: chunks of an older one do not serve it */
};
#define SL_RDMA_REGIONS 512U
#define SL_RDMA_BUCKETS 1024U /* 2^n */

struct sl_rdma_listener;
struct sl_rdma_channel; /* cm.c */

struct sl_rdma {
    struct sl_transport base;
    const struct sl_rdma_library *library;
    struct sl_ring *ring;
    struct sl_ring_op op; /* watches: */
    int epoll_fd;         /* the event channel, each rail's completion channel and its device */
    bool watching, closing;
    bool cm_ready; /* the event channel may have something */
    bool awake;    /* a connection was marked ready since the last poll looked */
    struct rdma_event_channel *cm;
    struct sl_rdma_channel *channel; /* that it is of */
    struct sl_rdma_nic *nics;
    struct sl_rdma_nic *lost; /* whose device is gone: nothing open, but messages may lie there */
    struct sl_rdma_conn **conns; /* [conn_capacity], by index; NULL: free */
    uint32_t conn_count, conn_capacity;
    struct sl_rdma_conn *dirty; /* to be looked at by the next flush */
    struct sl_rdma_conn *ready; /* to be looked at by the next poll: retries, ends */
    struct sl_rdma_conn *by_queue_pair[SL_RDMA_BUCKETS];
    struct sl_rdma_move *moves;    /* tickets given out */
    struct sl_rdma_move *arrivals; /* handed over to here; there was no memory for them */
    struct sl_rdma_conn *spare;   /* closed connections, to be used again: messages may name them */
    uint32_t generations;         /* queue pairs made; runs over */
    struct sl_rdma_block *copies; /* receive.c */
    struct sl_rdma_listener *listeners;
    struct sl_rdma_region regions[SL_RDMA_REGIONS];
    uint32_t region_end;
    uint64_t region_serial, conn_serial;
    char devices[256]; /* the option, or "" */
    uint32_t gid;      /* the option */
    uint32_t next_nic; /* for who connects next */
    uint32_t connections_max, peer_timeout_ms, buffers_max;
    struct sl_timer sweep, retry;
    uint32_t sweep_rounds;
    uint32_t retry_rounds; /* what was refused in an older one is tried again; runs over */
    uint64_t log_next_ns;
    uint32_t log_dropped;
    struct sl_transport_stats stats;
};

/* ---- Connections ------------------------------------------------------------------------------
 */

enum sl_rdma_life {
    SL_RDMA_RESOLVING, /* connect: address and route; or the request was sent */
    SL_RDMA_ACCEPTING, /* accept was said, ESTABLISHED has not come */
    SL_RDMA_LIVE,
    SL_RDMA_MOVING, /* who connected: was told to, and connects once more; the upper layer sees OPEN
                     */
    SL_RDMA_LEAVING,  /* who accepted: handed over; its upper layer has forgotten it */
    SL_RDMA_DRAINING, /* disconnect: what is queued is sent, what arrives is dropped */
    SL_RDMA_ENDED     /* the queue pair is made quiet; then `closed` */
};

/* A queue pair and what belongs to it. A connection that moves gets another one: none of the first
 * one's work requests is outstanding then. The queue pair's qp_context is its link. */
struct sl_rdma_link {
    struct rdma_cm_id *id; /* ->qp; NULL: none */
    uint32_t generation;   /* part of wr_id: completions of an older queue pair are recognized */
    uint32_t sends_posted, sends_completed; /* work requests, reads included; run over, and go on
                                             * from one queue pair to the next */
    bool established, disconnected;
    bool is_shut;  /* the peer has no access to memory: access.c */
    bool last_wqe; /* in the error state the device has given back all receive buffers */
};

struct sl_rdma_send;    /* send.c */
struct sl_rdma_receive; /* receive.c */

struct sl_rdma_conn {
    struct sl_conn base;
    struct sl_rdma *rdma;
    struct sl_rdma_nic *nic; /* NULL until it is known */
    uint32_t reserved;       /* pool.c: receive buffers that it may count on */
    enum sl_rdma_life phase;
    uint32_t index; /* in conns: part of wr_id */
    uint64_t serial;
    struct sl_rdma_link link;
    int end_err;
    bool is_suspected; /* LIVE: it ends with PROTOCOL unless the peer turns out to be gone */
    bool dirty, ready;
    bool accept_pending; /* the layer above has not heard of it, and does not hear of its end */
    bool fin_sent;
    bool qp_draining;  /* ENDED: the queue pair is in the error state */
    bool quiet_waited; /* and as long as the device may take to give back receive buffers */
    bool qp_drained;   /* it has given them back, maybe by completions not looked at */
    uint32_t empties;  /* of the rail, when the end was seen: what came before is delivered first;
                        * then when it was quiet */
    struct sl_rdma_conn *dirty_next, *ready_next, *queue_pair_next;
    struct sl_timer timer;       /* patience; LIVE: a suspicion */
    struct sl_endpoint endpoint; /* who connected: for the second time, from the same address */
    struct sockaddr_storage local;
    /* Credit and counts, which outlast a move. */
    uint32_t limit_theirs; /* counted packets that we may send in all */
    uint32_t limit_ours;   /* that the peer may send: told, or to be told */
    uint32_t limit_told;   /* the last that was */
    uint32_t window;       /* limit_ours is so much ahead of what was consumed */
    uint32_t counted_sent, counted_received, counted_consumed;
    uint32_t longs_sent, longs_done; /* LONG packets of ours, and how many were read */
    uint32_t reads_done, reads_told; /* LONG packets of the peer that were read; told */
    uint32_t reads_peer;             /* RDMA reads that the peer serves at a time */
    bool note_due; /* the peer must hear of limits or counts though we have nothing to send */
    bool fin_received;
    bool all_received;     /* BYE or MOVED: nothing follows on the queue pair */
    bool heard;            /* a packet came, since the last sweep */
    uint32_t quiet_rounds; /* of the sweep, without */
    uint32_t pings;        /* sent since it was heard */
    uint64_t quiet_since_ns;
    uint32_t attempts; /* RESOLVING, MOVING: requests that a busy listener did not take */
    struct sl_rdma_send *send;
    struct sl_rdma_receive *receive;
    struct sl_rdma_move *move; /* LEAVING: what goes along; ACCEPTING: what came along */
    uint64_t ticket;           /* MOVING */
    bool moved_sent;
};

/* ---- rdma.c -----------------------------------------------------------------------------------
 */

bool sl_rdma_may_log(struct sl_rdma *rdma); /* one line in a second about peers' misdeeds */

/* Adds a descriptor to what wakes the reactor; `what` comes back: a rail, or NULL for rdma_cm. */
int sl_rdma_watch(struct sl_rdma *rdma, int fd, struct sl_rdma_nic *what);
void sl_rdma_unwatch(struct sl_rdma *rdma, int fd);

static inline void sl_rdma_mark_dirty(struct sl_rdma_conn *conn)
{
    if (!conn->dirty) {
        conn->dirty = true;
        conn->dirty_next = conn->rdma->dirty;
        conn->rdma->dirty = conn;
    }
}

/* For what the next poll may ask again, without keeping the reactor awake for it: `sink` said NULL,
 * or a pool is empty. */
static inline void sl_rdma_mark_waiting(struct sl_rdma_conn *conn)
{
    if (!conn->ready) {
        conn->ready = true;
        conn->ready_next = conn->rdma->ready;
        conn->rdma->ready = conn;
    }
}

/* For what the next poll can do. */
static inline void sl_rdma_mark_ready(struct sl_rdma_conn *conn)
{
    sl_rdma_mark_waiting(conn);
    conn->rdma->awake = true;
}

/* wr_id: bit 0 set, a receive block's address; else generation (24 bits), kind (2: SEND or WRITE
 * from send.c 0, READ from receive.c 1), number (20), index of the connection (17), zero (1). */
#define SL_RDMA_WR_SEND 0
#define SL_RDMA_WR_READ 1
static inline uint64_t sl_rdma_wr_id(const struct sl_rdma_conn *conn, uint32_t kind,
                                     uint32_t number)
{
    return (uint64_t)(conn->link.generation & 0xffffff) << 40 | (uint64_t)kind << 38 |
           (uint64_t)(number & 0xfffff) << 18 | (uint64_t)conn->index << 1;
}

/* ---- cm.c, listen.c, connect.c, address.c -----------------------------------------------------
 */

int sl_rdma_cm_open(struct sl_rdma *rdma);
void sl_rdma_cm_close(struct sl_rdma *rdma);

/* What an identifier on its way to another reactor needs, even when this transport is closed before
 * it gets there. Let go on any thread. */
struct sl_rdma_channel *sl_rdma_cm_keep(struct sl_rdma *rdma);
void sl_rdma_cm_let_go(struct sl_rdma_channel **channel);

/* Handles events, cm_ready says that there may be some; returns how many. */
uint32_t sl_rdma_cm_poll(struct sl_rdma *rdma);

/* An event of rdma_cm's, acknowledged: its id may be destroyed. */
struct sl_rdma_cm_event {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    bool has_hello; /* the peer's, of our magic; its version may be another */
    struct sl_rdma_hello hello;
};

/* A connection's identifier or a listener's says whose it is. */
static inline void *sl_rdma_cm_listener_tag(struct sl_rdma_listener *listener)
{
    return (void *)((uintptr_t)listener | 1);
}

/* A connect request. Takes the id. */
void sl_rdma_listen_request(struct sl_rdma_listener *listener,
                            const struct sl_rdma_cm_event *event);

/* The device that it listens on is gone. */
void sl_rdma_listen_lost(struct sl_rdma_listener *listener);

/* For what sl_rdma_conn_make_queue_pair says. */
enum sl_rdma_reason sl_rdma_cm_reason(int err);

/* Turns away who asks to connect; the second destroys the id too. */
void sl_rdma_cm_refuse(struct sl_rdma *rdma, struct rdma_cm_id *id, enum sl_rdma_reason reason);
void sl_rdma_cm_reject(struct sl_rdma *rdma, struct rdma_cm_id *id, enum sl_rdma_reason reason);

int sl_rdma_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_rdma_listen_close(struct sl_rdma *rdma);
int sl_rdma_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    const struct sl_transport_events *events, void *ctx, struct sl_conn **out);

/* Asks rdma_cm for the way to conn->endpoint, from conn->local unless that is AF_UNSPEC; RESOLVING,
 * or MOVING once more. Ends the connection where that fails. */
void sl_rdma_connect_begin(struct sl_rdma_conn *conn);
/* On either side: the queue pair of link.id is connected. */
void sl_rdma_connect_done(struct sl_rdma_conn *conn);
void sl_rdma_connect_event(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event);

/* access.c: accepts the connect request of link.id, which has its queue pair, without access of the
 * peer to memory. Errors: IO. */
int sl_rdma_access_accept(struct sl_rdma_conn *conn);

/* Gives the peer access. False: the device refuses, and the connection ends. */
bool sl_rdma_access_open(struct sl_rdma_conn *conn);

/* Credit is not looked at for a connection that moves. */
static inline bool sl_rdma_hello_is_sane(const struct sl_rdma_hello *hello, bool moves)
{
    return hello->reads > 0 && (moves || hello->limit - 1U < SL_RDMA_LIMIT_AHEAD_MAX);
}

/* How long an answer may take, beyond which the peer counts as gone. */
static inline uint64_t sl_rdma_patience_ns(const struct sl_rdma *rdma)
{
    return rdma->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

/* Where sysfs is; for tests. Before any transport is opened. */
void sl_rdma_address_set_root(const char *root);

/* Whether the option rdma_device names what is there. Errors: INVALID, logged. */
int sl_rdma_address_check(const struct sl_rdma *rdma);

/* Whether it is 0.0.0.0 or ::. */
bool sl_rdma_address_is_any(const struct sockaddr_storage *address);

/* The address to bind to before connecting to or listening on `endpoint`, by the options
 * rdma_device and rdma_gid and the rails near the reactor's NUMA node, each in turn. OK with family
 * AF_UNSPEC: the system decides. Errors: NOT_FOUND, INVALID, logged: no such device, no such GID.
 */
int sl_rdma_address_choose(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                           const struct sockaddr_storage *to, struct sockaddr_storage *from);

/* ---- conn.c, move.c, sweep.c ------------------------------------------------------------------
 */

/* A connection in the table, RESOLVING, with send and receive state; NULL: no memory. */
struct sl_rdma_conn *sl_rdma_conn_new(struct sl_rdma *rdma,
                                      const struct sl_transport_events *events, void *ctx);

/* The queue pair of link.id, on its device's rail; also the window. Errors: as rail_get; CLOSED:
 * who asked to connect has left; TOO_LARGE: the device's queues are full. Logged. */
int sl_rdma_conn_make_queue_pair(struct sl_rdma_conn *conn);

/* For connect and accept: *hello is filled, and what is returned points to it. */
struct rdma_conn_param sl_rdma_conn_param(const struct sl_rdma_conn *conn,
                                          struct sl_rdma_hello *hello);
void sl_rdma_conn_take_hello(struct sl_rdma_conn *conn, const struct sl_rdma_hello *hello);

/* Gives the queue pair and the identifier back: the device touches nothing of theirs any more. */
void sl_rdma_conn_drop_link(struct sl_rdma_conn *conn);

/* ACCEPTING -> LIVE: `accepted`, and the packets that came along. From poll. */
void sl_rdma_conn_established(struct sl_rdma_conn *conn);

void sl_rdma_conn_set_timer(struct sl_rdma_conn *conn, uint64_t after_ns);
void sl_rdma_conn_stop_timer(struct sl_rdma_conn *conn);

/* One line of log, and the end. */
void sl_rdma_conn_refuse(struct sl_rdma_conn *conn, const char *what, int err);

/* The peer's device has refused what it had offered: either that was a lie, or the peer has been
 * killed, and loses its memory first. If so rdma_cm says in a moment that the connection is gone;
 * else it ends with PROTOCOL. */
void sl_rdma_conn_suspect(struct sl_rdma_conn *conn);

/* The peer's end of the queue pair is gone; what has come is delivered first. */
void sl_rdma_conn_disconnected(struct sl_rdma_conn *conn);

/* Says `closed` with this error once the queue pair is quiet; not from here. What has been received
 * before CLOSED is delivered first. Idempotent: the first error stays. */
void sl_rdma_conn_end(struct sl_rdma_conn *conn, int err);

/* Of conns in `ready`, from poll: goes on with an end, a move, a drain. Returns whether work was
 * done. */
bool sl_rdma_conn_visit(struct sl_rdma_conn *conn);
void sl_rdma_conn_disconnect(struct sl_conn *conn);
void sl_rdma_conn_cancel_all(struct sl_rdma *rdma); /* `closed` with CANCELLED, now */
void sl_rdma_conn_free_all(struct sl_rdma *rdma);   /* nobody releases messages any more */

/* From a completion; NULL: of the past. */
struct sl_rdma_conn *sl_rdma_conn_of(struct sl_rdma *rdma, uint64_t wr_id);
struct sl_rdma_conn *sl_rdma_conn_of_queue_pair(const struct sl_rdma_nic *nic, uint32_t number);

/* Packets that have to do with the queue pair and not with frames; receive.c has checked them and
 * taken what their head says. From inside receive_block. */
void sl_rdma_conn_sent_fin(struct sl_rdma_conn *conn);
void sl_rdma_move_told(struct sl_rdma_conn *conn, uint64_t ticket); /* MOVE */

int sl_rdma_move_migrate(struct sl_conn *conn, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user);

/* LEAVING: keeps a copy of a packet for the next owner, who will take it as if it came there: it
 * must not be counted in counted_received here. What comes from the queue pair in this state does
 * not get as far as receive.c. But what receive.c held when `received` returned with the connection
 * LEAVING, it gives to this, in order: the rest of the packet in progress (as a packet of its own),
 * and those behind it; and takes those out of counted_received that it had counted, and never adds
 * them to counted_consumed. So an accepted connection reads no payload ahead of the frame that is
 * being delivered, until one has been delivered and it has stayed. */
void sl_rdma_move_packet(struct sl_rdma_conn *conn, const uint8_t *packet, uint32_t bytes);

/* A connect request with a ticket. Takes the id over; false: unknown, the caller rejects. */
bool sl_rdma_move_arrived(struct sl_rdma *rdma, struct rdma_cm_id *id,
                          const struct sl_rdma_hello *hello);

/* LEAVING: a packet from the queue pair. */
void sl_rdma_move_take(struct sl_rdma_conn *conn, const uint8_t *packet, uint32_t bytes);

/* From visit: LEAVING; MOVING; ACCEPTING, where the peer has left before it came here. */
void sl_rdma_move_leave(struct sl_rdma_conn *conn);
void sl_rdma_move_again(struct sl_rdma_conn *conn);
void sl_rdma_move_bury(struct sl_rdma_conn *conn);

/* MOVING: the second queue pair is there. */
void sl_rdma_move_done(struct sl_rdma_conn *conn);

/* LEAVING: it ends, and where it goes to hears of that. False: this side's part is all there is. */
bool sl_rdma_move_end(struct sl_rdma_conn *conn, int err);

/* ACCEPTING what was handed over: `accepted` now, since its owner must hear of its end. */
void sl_rdma_move_announce(struct sl_rdma_conn *conn);

/* In each round of retries: takes in what was handed over to here when there was no memory for it.
 * Close drops what there still is none for. */
void sl_rdma_move_retry(struct sl_rdma *rdma);
void sl_rdma_move_close(struct sl_rdma *rdma);

/* Patience is at an end, LEAVING. */
void sl_rdma_move_give_up(struct sl_rdma_conn *conn);

/* Delivers the packets that came along, and drops conn->move; or only drops it. */
void sl_rdma_move_deliver(struct sl_rdma_conn *conn);
void sl_rdma_move_drop(struct sl_rdma_conn *conn);

/* For all connections: a few times within the peer's timeout each is looked at, and ended with
 * DEADLINE where its peer has shown no life for that long, though it owes some. */
void sl_rdma_liveness_open(struct sl_rdma *rdma);
void sl_rdma_liveness_close(struct sl_rdma *rdma);
void sl_rdma_liveness_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn);
void sl_rdma_liveness_start(struct sl_rdma *rdma); /* there is a rail, or a connection */

/* Some milliseconds from now, a round of retries: connections that wait for memory are visited. */
void sl_rdma_liveness_retry(struct sl_rdma *rdma);

/* ---- send.c -----------------------------------------------------------------------------------
 */

int sl_rdma_send_open(struct sl_rdma_conn *conn);
void sl_rdma_send_close(struct sl_rdma_conn *conn); /* drops what is held; reports nothing */

uint32_t sl_rdma_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);

/* Makes packets of what is queued, as far as credit and the send queue go, and rings once. */
void sl_rdma_send_flush(struct sl_rdma_conn *conn);

/* An uncounted packet: NOTE, MOVE, MOVED, BYE, behind everything posted before. False: the send
 * queue is full, again later. */
bool sl_rdma_send_uncounted(struct sl_rdma_conn *conn, enum sl_rdma_packet_kind kind, uint8_t flags,
                            uint64_t ticket);

/* Nothing is queued, outstanding at the device, or unread by the peer. */
bool sl_rdma_send_is_done(const struct sl_rdma_conn *conn);
/* Whether something is published that the peer has neither taken nor answered for (sweep). */
bool sl_rdma_send_waits(const struct sl_rdma_conn *conn);
/* All up to it, too. Also of those that failed, once the connection has ended: they only count. */
void sl_rdma_send_completed(struct sl_rdma_conn *conn, uint32_t number);
void sl_rdma_send_report(
    struct sl_rdma_conn *conn); /* `sent`, `writable` as they are due; from poll */

/* Landings of the peer's requests, given back or used up by the frame of their id. */
void sl_rdma_send_remember(struct sl_rdma_conn *conn, uint64_t request_id,
                           const struct sl_rdma_remote_sge *remote_sges, uint32_t count);

/* Whether a request of this id was sent with a landing, and where; NULL: no. */
void *sl_rdma_send_reply_buffer(const struct sl_rdma_conn *conn, uint64_t request_id,
                                uint32_t *bytes);

/* ---- receive.c --------------------------------------------------------------------------------
 */

int sl_rdma_receive_open(struct sl_rdma_conn *conn);
void sl_rdma_receive_close(struct sl_rdma_conn *conn);

/* A packet has come in a block of the rail's, which is receive's from now on. */
void sl_rdma_receive_block(struct sl_rdma_conn *conn, struct sl_rdma_block *block, uint32_t bytes);

/* One that came to another reactor's queue pair before the connection moved here; copied. */
int sl_rdma_receive_copy(struct sl_rdma_conn *conn, const uint8_t *packet, uint32_t bytes);
/* Those of which messages were not released. The transport closes. */
void sl_rdma_receive_free_copies(struct sl_rdma *rdma);

/* One that succeeded. */
void sl_rdma_receive_read_done(struct sl_rdma_conn *conn, uint32_t number);
/* Asks `sink` again, reads and delivers what could not be before; true: something was done. */
bool sl_rdma_receive_visit(struct sl_rdma_conn *conn);
bool sl_rdma_receive_is_done(const struct sl_rdma_conn *conn); /* all that came was delivered */
/* LEAVING: the device still reads what nobody waits for any more. */
bool sl_rdma_receive_is_reading(const struct sl_rdma_conn *conn);
void sl_rdma_receive_release(struct sl_conn *conn, const struct sl_transport_message *message);

#endif
