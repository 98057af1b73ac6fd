/* Private to net/rdma: the state of a transport and of its connections, and the functions that the
 * files offer to each other. Owner reactor, except where another thread is named. README.md
 * lists the files. */
#ifndef SL_NET_RDMA_INTERNAL_H
#define SL_NET_RDMA_INTERNAL_H

#include "core/assert.h"
#include "net/base/liveness.h"
#include "net/rdma/library.h"
#include "net/rdma/nic.h"
#include "net/rdma/packet.h"
#include "net/rdma/rdma.h"
#include "net/transport.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

#define SL_RDMA_QUEUE           512U   /* frames of one connection, not reported yet; 2^n */
#define SL_RDMA_SENDS           128U   /* work requests of a queue pair's send queue */
#define SL_RDMA_SIGNAL_EVERY    32U    /* of 32 requests one is signalled */
#define SL_RDMA_WINDOW_MIN      8U     /* counted packets in flight of a new connection */
#define SL_RDMA_WINDOW_MAX      64U    /* the same, after repeated SL_RDMA_STALLED */
#define SL_RDMA_LIMIT_AHEAD_MAX 65536U /* a peer that grants more is malicious */
#define SL_RDMA_SPARE           4U     /* receive buffers of a connection for uncounted packets */
#define SL_RDMA_READS           16U    /* RDMA reads outstanding on a queue pair, at most */
#define SL_RDMA_LONG_BYTES      6144U  /* shorter replies do not use reply buffers */
#define SL_RDMA_REPLY_BUFFERS   512U   /* requests of one connection with a reply buffer */
#define SL_RDMA_CHUNK_BYTES     (4U << 20) /* unit of registration with the device */
#define SL_RDMA_PEER_TIMEOUT_MS 10000U
#define SL_RDMA_BUFFERS         4096U /* blocks of each kind on a NIC; default of the option */

/* The transport */

/* Memory that the layers above registered. */
struct sl_rdma_region {
    uint8_t *base;
    size_t bytes;
    bool peers_write; /* the memory was shared for writing (core/shared.h) */
    bool lands; /* may hold reply buffers: peers may write it, or it is private to this process */
    uint64_t serial; /* number of this registration: chunks of an earlier one are stale */
};
#define SL_RDMA_REGIONS 512U
#define SL_RDMA_BUCKETS 1024U /* a power of two */

struct sl_rdma_listener;
struct sl_rdma_channel; /* cm.c */

struct sl_rdma {
    struct sl_transport base;
    const struct sl_rdma_library *library;
    struct sl_ring *ring;
    struct sl_ring_watch watch; /* of epoll_fd */
    int epoll_fd; /* the event channel; the completion channel and the device of each NIC */
    bool closing;
    bool cm_ready; /* the event channel may hold an event */
    bool awake;    /* a connection was marked ready since the last poll */
    struct rdma_event_channel *cm;
    struct sl_rdma_channel *channel; /* owner of cm */
    struct sl_rdma_nic *nics;
    struct sl_rdma_nic
        *lost; /* NICs of removed devices: closed, but messages may lie in their blocks */
    struct sl_rdma_conn **conns; /* [conn_capacity], by index; NULL: free */
    uint32_t conn_count, conn_capacity;
    struct sl_list dirty; /* connections that the next flush visits */
    struct sl_list ready; /* connections that the next poll visits */
    struct sl_rdma_conn *by_queue_pair[SL_RDMA_BUCKETS];
    struct sl_rdma_conn
        *spare;           /* closed connections for reuse: unreleased messages may name them */
    uint32_t generations; /* queue pairs created; wraps */
    struct sl_rdma_listener *listeners;
    struct sl_rdma_region regions[SL_RDMA_REGIONS];
    uint32_t region_end;
    uint64_t region_serial, conn_serial;
    char devices[256]; /* option rdma_device, or "" */
    bool has_gid_index;
    uint32_t gid_index;
    uint32_t number;   /* peers name it in `target` */
    uint32_t next_nic; /* round robin over NICs for outgoing connections */
    uint32_t connections_max, peer_timeout_ms, buffers_max;
    struct sl_timer sweep, retry;
    uint32_t sweep_rounds;
    uint32_t retry_rounds; /* a refused registration is retried in the next round; wraps */
    struct sl_transport_stats stats;
};

/* Connections */

enum sl_rdma_life {
    SL_RDMA_RESOLVING, /* connecting: resolves address and route, or has sent the request */
    SL_RDMA_ACCEPTING, /* accepted; ESTABLISHED is pending */
    SL_RDMA_LIVE,
    SL_RDMA_DRAINING, /* disconnect: sends its queue, drops what arrives */
    SL_RDMA_ENDED     /* drains the queue pair, then reports `closed` */
};

/* A queue pair and its state. A connect request that is repeated gets another one. qp_context of
 * the queue pair points here. */
struct sl_rdma_link {
    struct rdma_cm_id *id; /* owns the queue pair; NULL: none */
    uint32_t generation;   /* part of wr_id: tells completions of an older queue pair apart */
    uint32_t sends_posted, sends_completed; /* work requests, reads included; wrap */
    bool established, disconnected;
    bool is_shut;  /* peers have no remote access yet (access.c) */
    bool last_wqe; /* error state: the device has returned all receive buffers */
};

struct sl_rdma_send;    /* send.c */
struct sl_rdma_receive; /* receive.c */

struct sl_rdma_conn {
    struct sl_conn base;
    struct sl_rdma *rdma;
    struct sl_rdma_nic *nic; /* NULL until the device is known */
    uint32_t reserved;       /* receive buffers granted by pool.c */
    enum sl_rdma_life phase;
    uint32_t index; /* in conns; part of wr_id */
    uint64_t serial;
    struct sl_rdma_link link;
    int end_err;
    bool is_suspected;   /* LIVE: ends with PROTOCOL unless rdma_cm reports that the peer is gone */
    bool accept_pending; /* the upper layer has not seen `accepted`, and does not see `closed` */
    bool fin_sent;
    bool qp_draining;  /* ENDED: the queue pair is in the error state */
    bool quiet_waited; /* ENDED: the time limit for returning buffers has passed */
    bool qp_drained;   /* ENDED: all buffers are returned; completions may be unread */
    uint32_t empties; /* of the NIC, when the end was noticed, then when the queue pair was drained:
                         earlier completions are handled first */
    struct sl_list_link dirty, ready;
    struct sl_rdma_conn *spare_next, *queue_pair_next;
    struct sl_timer timer;         /* deadline of the phase; LIVE: is_suspected */
    struct sl_endpoint endpoint;   /* connecting side */
    struct sockaddr_storage local; /* connecting side */
    uint32_t target;               /* connecting side */
    /* Credit and counts. All of them wrap. */
    uint32_t limit_theirs; /* counted packets that this side may send in all */
    uint32_t limit_ours;   /* counted packets that the peer may send in all */
    uint32_t limit_told;   /* limit_ours as last sent */
    uint32_t window;       /* limit_ours = counted_consumed + window */
    uint32_t counted_sent, counted_received, counted_consumed;
    uint32_t longs_sent, longs_done; /* LONG packets of this side: sent; read by the peer */
    uint32_t reads_done, reads_told; /* LONG packets of the peer: read; count as last sent */
    uint32_t reads_peer;             /* RDMA reads that the peer serves at a time */
    bool note_due;                   /* the peer needs a packet although nothing is queued */
    bool fin_received;
    bool heard;     /* a packet arrived since the last liveness round */
    uint32_t pings; /* sent since the last packet arrived */
    struct sl_silence silence;
    uint32_t attempts; /* RESOLVING: requests rejected by a busy listener */
    struct sl_rdma_send *send;
    struct sl_rdma_receive *receive;
};

static inline void sl_rdma_mark_dirty(struct sl_rdma_conn *conn)
{
    if (!sl_list_linked(&conn->dirty)) {
        sl_list_append(&conn->rdma->dirty, &conn->dirty);
    }
}

/* The next poll visits the connection, but the reactor may sleep: `sink` returned NULL, or a
 * pool is empty. */
static inline void sl_rdma_mark_waiting(struct sl_rdma_conn *conn)
{
    if (!sl_list_linked(&conn->ready)) {
        sl_list_append(&conn->rdma->ready, &conn->ready);
    }
}

/* The next poll visits the connection, soon. */
static inline void sl_rdma_mark_ready(struct sl_rdma_conn *conn)
{
    sl_rdma_mark_waiting(conn);
    conn->rdma->awake = true;
}

/* wr_id of a receive: address of the block, with bit 0 set. Else, from the top: generation (24
 * bits), kind (2: SL_RDMA_WR_*), number (20), index of the connection (17), zero (1). */
#define SL_RDMA_WR_SEND 0
#define SL_RDMA_WR_READ 1
static inline uint64_t sl_rdma_wr_id(const struct sl_rdma_conn *conn, uint32_t kind,
                                     uint32_t number)
{
    return (uint64_t)(conn->link.generation & 0xffffff) << 40 | (uint64_t)kind << 38 |
           (uint64_t)(number & 0xfffff) << 18 | (uint64_t)conn->index << 1;
}

/* cm.c, listen.c, connect.c, access.c, address.c */

int sl_rdma_cm_open(struct sl_rdma *rdma);
void sl_rdma_cm_close(struct sl_rdma *rdma);

/* Keeps the event channel open, even beyond the close of the transport, while a connect request
 * goes to another reactor. Release on any thread. */
struct sl_rdma_channel *sl_rdma_cm_keep(struct sl_rdma *rdma);
void sl_rdma_cm_let_go(struct sl_rdma_channel **channel);

/* Handles pending events of rdma_cm. Returns their count. */
uint32_t sl_rdma_cm_poll(struct sl_rdma *rdma);

/* A copy of an rdma_cm event, which is already acknowledged: its id may be destroyed. */
struct sl_rdma_cm_event {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    bool has_hello; /* `hello` has our magic; its version may differ */
    struct sl_rdma_hello hello;
};

/* Context of a listener's id: bit 0 tells it from a connection. */
static inline void *sl_rdma_cm_listener_tag(struct sl_rdma_listener *listener)
{
    return (void *)((uintptr_t)listener | 1);
}

/* Handles a connect request. Takes the id. */
void sl_rdma_listen_request(struct sl_rdma_listener *listener,
                            const struct sl_rdma_cm_event *event);

/* The listener's device was removed. */
void sl_rdma_listen_lost(struct sl_rdma_listener *listener);

/* The reason for an error of sl_rdma_conn_make_queue_pair. */
enum sl_rdma_reason sl_rdma_cm_reason(int err);

/* Rejects a connect request. The second function also destroys the id. */
void sl_rdma_cm_refuse(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason);
void sl_rdma_cm_reject(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason);

int sl_rdma_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_rdma_listen_close(struct sl_rdma *rdma);
int sl_rdma_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out);

/* Resolves conn->endpoint, from conn->local unless that is AF_UNSPEC. RESOLVING. Ends the
 * connection on an error. */
void sl_rdma_connect_begin(struct sl_rdma_conn *conn);
/* Either side: the queue pair of link.id is connected. */
void sl_rdma_connect_done(struct sl_rdma_conn *conn);
void sl_rdma_connect_event(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event);

/* access.c: accepts the connect request of link.id, which has its queue pair. The peer gets no
 * remote access yet. Errors: IO. */
int sl_rdma_access_accept(struct sl_rdma_conn *conn);

/* Gives the peer remote access. False: the device refuses, and the connection has ended. */
bool sl_rdma_access_open(struct sl_rdma_conn *conn);

static inline bool sl_rdma_hello_is_sane(const struct sl_rdma_hello *hello)
{
    return hello->reads > 0 && hello->limit - 1U < SL_RDMA_LIMIT_AHEAD_MAX;
}

/* A peer that does not answer for so long is gone. */
static inline uint64_t sl_rdma_patience_ns(const struct sl_rdma *rdma)
{
    return rdma->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

/* Root of sysfs, for tests. Before any transport is opened. */
void sl_rdma_address_set_root(const char *root);

/* Checks the names of option rdma_device. Errors, logged: INVALID (no such device), UNSUPPORTED
 * (iWARP). */
int sl_rdma_address_check(const struct sl_rdma *rdma);

/* 0.0.0.0 or :: */
bool sl_rdma_address_is_any(const struct sockaddr_storage *address);

/* Chooses the local address for connecting to or listening on `endpoint`: by the options
 * rdma_device and rdma_gid_index; among several NICs those near the reactor's NUMA node, in turn.
 * AF_UNSPEC: the system decides. Errors, logged: NOT_FOUND (no such device), INVALID (no such
 * GID). */
int sl_rdma_address_choose(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                           const struct sockaddr_storage *to, struct sockaddr_storage *from);

/* hello.c */

/* Parameters for connect and accept. Fills *hello; the result points to it. */
struct rdma_conn_param sl_rdma_conn_param(const struct sl_rdma_conn *conn,
                                          struct sl_rdma_hello *hello);
void sl_rdma_conn_take_hello(struct sl_rdma_conn *conn, const struct sl_rdma_hello *hello);

/* end.c: any file may call these, from inside any call of the transport */

void sl_rdma_conn_set_timer(struct sl_rdma_conn *conn, uint64_t after_ns);
void sl_rdma_conn_stop_timer(struct sl_rdma_conn *conn);

/* Logs one line and ends the connection. */
void sl_rdma_conn_refuse(struct sl_rdma_conn *conn, const char *what, int err);

/* The peer's device has refused memory that the peer offered. Either the offer was false, or the
 * peer was killed and its memory went first; then rdma_cm reports the end within SUSPECT_NS.
 * Otherwise the connection ends with PROTOCOL. */
void sl_rdma_conn_suspect(struct sl_rdma_conn *conn);

/* The peer's end of the queue pair is gone. Packets that have arrived are delivered first. */
void sl_rdma_conn_disconnected(struct sl_rdma_conn *conn);

/* Ends the connection: `closed` with this error follows from poll, once the queue pair is
 * drained. Before CLOSED all received frames are delivered. Idempotent: the first error wins. */
void sl_rdma_conn_end(struct sl_rdma_conn *conn, int err);
void sl_rdma_conn_disconnect(struct sl_conn *conn);

/* The peer's FIN has arrived. From inside sl_rdma_receive_block. */
void sl_rdma_conn_sent_fin(struct sl_rdma_conn *conn);

/* conn.c, liveness.c */

/* A connection in the table, RESOLVING, with send and receive state. NULL: no memory. */
struct sl_rdma_conn *sl_rdma_conn_new(struct sl_rdma *rdma,
                                      const struct sl_transport_events *events, void *ctx);

/* Creates the queue pair of link.id on the NIC of its device, and reserves the window. Errors,
 * logged: as sl_rdma_nic_get; CLOSED: the requester has left; TOO_LARGE: the queues of the
 * device are full. */
int sl_rdma_conn_make_queue_pair(struct sl_rdma_conn *conn);

/* Destroys the queue pair and the id: the device no longer uses their memory. */
void sl_rdma_conn_drop_link(struct sl_rdma_conn *conn);

/* ACCEPTING -> LIVE: reports `accepted`. From poll. */
void sl_rdma_conn_established(struct sl_rdma_conn *conn);

/* From poll, for connections in `ready`: continues an end or a drain. Returns whether
 * work was done. */
bool sl_rdma_conn_visit(struct sl_rdma_conn *conn);
void sl_rdma_conn_cancel_all(struct sl_rdma *rdma); /* `closed` with CANCELLED, immediately */
void sl_rdma_conn_free_all(struct sl_rdma *rdma);   /* all messages are released */

/* From a completion; NULL: of an earlier queue pair. */
struct sl_rdma_conn *sl_rdma_conn_of(struct sl_rdma *rdma, uint64_t wr_id);
struct sl_rdma_conn *sl_rdma_conn_of_queue_pair(const struct sl_rdma_nic *nic, uint32_t number);

/* Several times per peer timeout, visits all connections. Ends with DEADLINE those whose peer
 * owes an answer and has sent nothing for the whole timeout. */
void sl_rdma_liveness_open(struct sl_rdma *rdma);
void sl_rdma_liveness_close(struct sl_rdma *rdma);
void sl_rdma_liveness_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn);

/* send.c */

int sl_rdma_send_open(struct sl_rdma_conn *conn);
void sl_rdma_send_close(struct sl_rdma_conn *conn); /* frees what is held; reports nothing */

uint32_t sl_rdma_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);

/* Makes packets of queued frames, as far as credit and the send queue allow, and posts them. */
void sl_rdma_send_flush(struct sl_rdma_conn *conn);

/* Sends an uncounted packet: CREDIT_UPDATE, FIN. False: the send queue is full, retry later. */
bool sl_rdma_send_uncounted(struct sl_rdma_conn *conn, enum sl_rdma_packet_kind kind,
                            uint8_t flags);

/* Nothing is queued, outstanding at the device, or unread by the peer. */
bool sl_rdma_send_is_done(const struct sl_rdma_conn *conn);
/* Whether the peer owes an answer: a LONG packet is unread, or credit is used up (liveness.c). */
bool sl_rdma_send_waits(const struct sl_rdma_conn *conn);
/* All work requests up to `number` are complete. After the end failed ones count, too. */
void sl_rdma_send_completed(struct sl_rdma_conn *conn, uint32_t number);
void sl_rdma_send_report(struct sl_rdma_conn *conn); /* reports `sent` and `writable`; from poll */

/* Remembers the reply buffer of a request of the peer, until the reply with its id is sent. */
void sl_rdma_send_remember(struct sl_rdma_conn *conn, uint64_t request_id,
                           const struct sl_rdma_remote_sge *remote_sges, uint32_t count);

/* The reply buffer of this side's request, and its size; NULL: none. */
void *sl_rdma_send_reply_buffer(const struct sl_rdma_conn *conn, uint64_t request_id,
                                uint32_t *bytes);

/* receive.c */

int sl_rdma_receive_open(struct sl_rdma_conn *conn);
void sl_rdma_receive_close(struct sl_rdma_conn *conn);

/* A packet has arrived in this block, which receive.c owns from here on. */
void sl_rdma_receive_block(struct sl_rdma_conn *conn, struct sl_rdma_block *block, uint32_t bytes);

/* A read that succeeded. */
void sl_rdma_receive_read_done(struct sl_rdma_conn *conn, uint32_t number);
/* Asks `sink` again, and reads and delivers what could not be before. True: work was done. */
bool sl_rdma_receive_visit(struct sl_rdma_conn *conn);
bool sl_rdma_receive_is_done(
    const struct sl_rdma_conn *conn); /* all received frames are delivered */
void sl_rdma_receive_release(struct sl_conn *conn, const struct sl_transport_message *message);

#endif
