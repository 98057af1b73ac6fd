/* Private to net/rdma: limits, and the state of a transport and of its connections. Owner reactor.
 */
#ifndef SL_NET_RDMA_STATE_H
#define SL_NET_RDMA_STATE_H

#include "core/assert.h"
#include "core/list.h"
#include "net/base/liveness.h"
#include "net/rdma/library.h"
#include "net/rdma/nic.h"
#include "net/rdma/packet.h"
#include "net/transport_impl.h"
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
#define SL_RDMA_BUFFERS         4096U      /* blocks of each kind on a NIC; default of the option */
#define SL_RDMA_REGIONS         512U
#define SL_RDMA_BUCKETS         1024U /* a power of two */

struct sl_rdma_listener;   /* listen.c */
struct sl_rdma_channel;    /* cm.c */
struct sl_rdma_send;       /* send.h */
struct sl_rdma_receive;    /* receive.h */
struct sl_rdma_rma_memory; /* rma_memory.c */
struct sl_rdma_operations; /* rma.c */

struct sl_rdma_options {
    char devices[256]; /* option rdma_device, or "" */
    bool has_gid_index;
    uint32_t gid_index;
    uint32_t number; /* peers name it in `target` */
    uint32_t buffers_max;
};

/* Memory that the layers above registered. */
struct sl_rdma_region {
    uint8_t *base;
    size_t bytes;
    bool peers_write; /* the memory was shared for writing (core/shared.h) */
    bool lands; /* may hold reply buffers: peers may write it, or it is private to this process */
    uint64_t serial; /* number of this registration: chunks of an earlier one are stale */
};

/* The connections of a transport; conn_table.h. */
struct sl_rdma_conn_table {
    struct sl_rdma_conn **by_index; /* [capacity]; NULL: free */
    uint32_t count, capacity;
    struct sl_rdma_conn *by_queue_pair[SL_RDMA_BUCKETS];
    uint64_t serial; /* of the newest connection */
};

struct sl_rdma {
    struct sl_transport base;
    struct sl_rdma_options options;
    const struct sl_rdma_library *library;
    struct sl_ring_watch watch; /* of epoll_fd */
    int epoll_fd;  /* the event channel; the completion channel and the device of each NIC */
    bool cm_ready; /* the event channel may hold an event */
    bool awake;    /* a connection was marked ready since the last poll */
    struct rdma_event_channel *cm;
    struct sl_rdma_channel *channel; /* owner of cm */
    struct sl_rdma_nic *nics;
    struct sl_rdma_nic
        *lost;         /* NICs of removed devices: closed, but messages may lie in their blocks */
    uint32_t next_nic; /* round robin over NICs for outgoing connections */
    struct sl_rdma_conn_table conns;
    struct sl_list dirty; /* connections that the next flush visits */
    struct sl_list ready; /* connections that the next poll visits */
    struct sl_rdma_conn
        *spare;           /* closed connections for reuse: unreleased messages may name them */
    uint32_t generations; /* queue pairs created; wraps */
    struct sl_rdma_listener *listeners;
    struct sl_rdma_region regions[SL_RDMA_REGIONS];
    uint32_t region_end;
    uint64_t region_serial;
    struct sl_rdma_rma_memory *rma_memory; /* NULL: no regions of one-sided operations yet */
    struct {
        struct sl_timer timer;
        uint32_t count;
    } sweep, retry; /* rounds; a refused registration is retried in the next; wrap */
};

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

/* The connecting side. */
struct sl_rdma_connecting {
    struct sl_endpoint endpoint;
    struct sockaddr_storage local; /* AF_UNSPEC: the system decides */
    uint32_t target;               /* the peer's transport that shall own the connection */
    uint32_t attempts;             /* requests rejected by a busy listener */
};

/* Credit and counts of both directions. All counts wrap. */
struct sl_rdma_credit {
    uint32_t limit_theirs; /* counted packets that this side may send in all */
    uint32_t limit_ours;   /* counted packets that the peer may send in all */
    uint32_t limit_told;   /* limit_ours as last sent */
    uint32_t window;       /* limit_ours = counted_consumed + window */
    uint32_t counted_sent, counted_received, counted_consumed;
    uint32_t longs_sent, longs_done; /* LONG packets of this side: sent; read by the peer */
    uint32_t reads_done, reads_told; /* LONG packets of the peer: read; count as last sent */
    bool note_due;                   /* the peer needs a packet although nothing is queued */
};

/* State of the liveness check. */
struct sl_rdma_watch {
    bool heard;     /* a packet arrived since the last round */
    uint32_t pings; /* sent since the last packet arrived */
    struct sl_silence silence;
};

/* Stages of the end of a connection, in this order. */
enum sl_rdma_end_step {
    SL_RDMA_END_FIN,        /* the peer's FIN is answered */
    SL_RDMA_END_BUFFERS,    /* the queue pair, in the error state, has returned its buffers */
    SL_RDMA_END_COMPLETIONS /* all completions are handled */
};

struct sl_rdma_end {
    int err; /* of `closed` */
    enum sl_rdma_end_step step;
    bool timed_out; /* the time limit of the step has passed */
    bool fin_sent, fin_received;
    bool is_suspected; /* LIVE: ends with PROTOCOL unless rdma_cm reports that the peer is gone */
    uint32_t empties;  /* of the NIC, when the end was noticed, then when the buffers were returned:
                          earlier completions are handled first */
};

struct sl_rdma_conn {
    struct sl_conn base;
    struct sl_rdma *rdma;
    struct sl_rdma_nic *nic; /* NULL until the device is known */
    enum sl_rdma_life phase;
    bool accept_pending; /* the upper layer has not seen `accepted`, and does not see `closed` */
    uint32_t index;      /* in rdma->conns; part of wr_id */
    uint64_t serial;
    uint32_t reserved;   /* receive buffers granted by pool.c */
    uint32_t reads_peer; /* RDMA reads that the peer serves at a time */
    struct sl_list_link dirty, ready;
    struct sl_rdma_conn *spare_next, *queue_pair_next;
    struct sl_timer timer; /* deadline of the phase; LIVE: end.is_suspected */
    struct sl_rdma_link link;
    struct sl_rdma_connecting connect;
    struct sl_rdma_credit credit;
    struct sl_rdma_watch watch;
    struct sl_rdma_end end;
    struct sl_rdma_send *send;
    struct sl_rdma_receive *receive;
    struct sl_rdma_operations *operations; /* NULL: no one-sided operations yet */
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

#endif
