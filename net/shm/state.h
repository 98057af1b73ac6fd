/* Private to net/shm: limits, and the state of a transport and of its connections. Owner reactor.
 */
#ifndef SL_NET_SHM_STATE_H
#define SL_NET_SHM_STATE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "core/assert.h"
#include "core/shared.h"
#include "net/base/liveness.h"
#include "net/shm/segment.h"
#include "net/shm/shm.h"
#include "net/shm/staging.h"
#include "net/transport_impl.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

/* frames of one connection, taken and not reported; a power of two */
#define SL_SHM_QUEUE          512U
#define SL_SHM_REGIONS        256U /* per transport, registered; per peer, imported */
#define SL_SHM_REGION_NAMES   (1U << 30)
#define SL_SHM_IMPORTED_BYTES (1ULL << 40) /* from one peer */
#define SL_SHM_BY_REF_BYTES   1024U        /* payload parts from this size on may stay in place */
#define SL_SHM_COPY_BYTES     (256U << 10) /* into sinks, per connection and turn */
/* part of an arena that is reused while it is in the cache */
#define SL_SHM_ARENA_WARM     (256U << 10)

/* Memory registered with the transport. Name = index + SL_SHM_REGIONS x generation: control
 * messages and frames travel separately, so a peer that has not read a withdrawal must not mistake
 * the next region of that index for the old one. */
struct sl_shm_region {
    const uint8_t *base; /* NULL: free */
    uint32_t name;       /* current or last; below SL_SHM_REGION_NAMES */
    size_t bytes;
    struct sl_shared shared; /* the memory exported to peers; contains the region */
};

/* Memory imported from a peer. Addresses that the upper layer has seen stay mapped until the
 * connection ends: to zeros, or to memory that the same peer exports later. */
struct sl_shm_imported_memory {
    struct sl_shared live[SL_SHM_REGIONS]; /* base NULL: free */
    uint32_t names[SL_SHM_REGIONS];        /* of `live` */
    struct sl_shared *retired;             /* [retired_capacity]; see retired_ranges.c */
    uint32_t retired_count, retired_capacity;
    uint32_t writable_count; /* in `live` */
    uint64_t bytes;          /* of live and retired: address space is finite */
};

struct sl_shm_listener;
struct sl_shm_reply_buffers; /* reply_buffer.c */
struct sl_shm_rma;           /* rma.c */

struct sl_shm {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_ring_watch watch;  /* of epoll_fd */
    int epoll_fd;                /* all sockets */
    bool armed;                  /* peers see this side as sleeping */
    struct sl_liveness liveness; /* has all connections, until their `closed` */
    struct sl_list_link *next;   /* of these: the next poll starts there */
    struct sl_list dirty;        /* have published something since the last flush */
    struct sl_list kept;         /* closed, but messages in the peer's memory are still read */
    struct sl_shm_conn *spare;   /* closed connections for reuse */
    struct sl_shm_listener *listeners;
    struct sl_shm_staging staging;
    struct sl_shm_region regions[SL_SHM_REGIONS];
    uint32_t region_end; /* regions from here on were never used */
    struct sl_list rma_regions,
        rma_due; /* rma.c: regions of one-sided operations; to be reported */
    uint32_t rma_region_count;
};

/* A message delivered in the peer's memory; its token. */
struct sl_shm_loan {
    struct sl_shm_token token;
    bool done;
    struct sl_shm_conn *conn;
};

enum sl_shm_phase {
    SL_SHM_PHASE_NEXT, /* ready for the next slot */
    SL_SHM_PHASE_HELD, /* has read a slot, waits for memory for its payload */
    SL_SHM_PHASE_COPY  /* copies the payload into the sink */
};

struct sl_shm_receive {
    const struct sl_shm_slot *slots; /* the peer's ring */
    uint32_t head;                   /* number of the next frame */
    uint32_t consumed, published;    /* frames done with; as of the last flush */
    uint32_t claims_open;
    enum sl_shm_phase phase;
    uint8_t part_count;
    bool is_imported;        /* HELD, COPY: payload or reply buffer is in imported memory */
    bool wait_buffer;        /* HELD: waits for a staging buffer */
    const uint8_t *parts[2]; /* HELD, COPY: location of the payload */
    uint32_t part_bytes[2];
    uint8_t *sink;
    uint32_t sink_have;
    struct sl_frame frame;
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    struct sl_shm_slot slot; /* private copy */
    struct sl_shm_loan claims[SL_SHM_SLOTS];
};

/* A frame taken by send_burst. */
struct sl_shm_entry {
    struct sl_transport_frame frame;
    uint32_t due; /* report once this many frames are consumed */
    bool by_ref;  /* not copied: report only when consumed */
};

struct sl_shm_send {
    struct sl_shm_slot *slots;
    uint8_t *arena;
    uint32_t number;           /* frames published */
    uint32_t consumed;         /* of them, at the last refresh */
    uint32_t refs_due;         /* once this many are consumed, no memory of the sender is in use */
    bool wants_room;           /* a `writable` is due */
    uint32_t head, next, tail; /* of the queue: first unreported, first unpublished, end */
    uint64_t arena_top, arena_bottom;  /* positions count all laps */
    uint64_t arena_ends[SL_SHM_SLOTS]; /* by slot */
    struct sl_shm_entry queue[SL_SHM_QUEUE];
};

enum sl_shm_life {
    SL_SHM_RETRYING,  /* the listener's queue is full */
    SL_SHM_HANDSHAKE, /* waits for the peer's handshake message */
    SL_SHM_LIVE,
    SL_SHM_DRAINING, /* disconnect was called: sends the queue, drops received frames */
    SL_SHM_LEAVING,  /* migrating */
    SL_SHM_ENDED     /* `closed` is due */
};

/* The part of a connection that migrates to another reactor. */
struct sl_shm_link {
    int fd;
    uint32_t side; /* of the segment: 0 connecting, 1 accepting */
    struct sl_shared memory;
    struct sl_shm_segment *segment;
    struct sl_shm_imported_memory *imported; /* NULL: nothing imported */
    /* Frame counts when the last owner left. */
    uint32_t sent, acknowledged, received;
};

struct sl_shm_conn {
    struct sl_conn base;
    struct sl_shm *shm;
    struct sl_list_link alive; /* in the list of liveness, or in `kept` */
    enum sl_shm_life phase;
    bool busy;  /* visited in every poll */
    bool ready; /* has work: the reactor must not sleep */
    bool accept_pending;
    struct {
        bool eof;          /* the end of the socket was seen, */
        uint32_t eof_head; /* with this receive.head */
        bool has_shut;     /* DRAINING: the peer was asked to close */
        int err;
    } end;
    uint32_t notified; /* frames published when the peer was last woken, or seen awake */
    struct sl_shm_link link;
    struct sl_list_link dirty;
    struct sl_shm_conn *spare_next;
    struct sl_timer timer; /* RETRYING: next attempt; DRAINING: limit */
    struct sockaddr_un address;
    socklen_t address_bytes;
    struct {
        struct sl_silence silence;
        bool heard;            /* a control message arrived since the last check */
        uint32_t consumed;     /* frames consumed by the peer, at the last check */
    } watch;                   /* for liveness */
    struct sl_shm_conn *moved; /* LEAVING: the connection on the target reactor, bound_for */
    struct sl_reactor *bound_for;
    uint8_t announced[SL_SHM_REGIONS];
    struct sl_shm_reply_buffers *reply_buffers; /* NULL: none yet */
    struct sl_shm_rma *rma;                     /* NULL: no one-sided operations yet */
    struct sl_shm_receive receive;
    struct sl_shm_send send;
};

/* Stores why the connection has to end (sl_conn_fail); the next poll ends it. Returns false. */
static inline bool sl_shm_fail(struct sl_shm_conn *conn, int err, const char *text)
{
    conn->busy = conn->ready = true;
    return sl_conn_fail(&conn->base, err, text);
}

/* Marks that the connection has published something: the next flush wakes the peer. */
static inline void sl_shm_mark_dirty(struct sl_shm_conn *conn)
{
    if (!sl_list_linked(&conn->dirty)) {
        sl_list_append(&conn->shm->dirty, &conn->dirty);
    }
}

static inline struct sl_shm_side *sl_shm_our_side(const struct sl_shm_conn *conn)
{
    return &conn->link.segment->sides[conn->link.side];
}

static inline struct sl_shm_side *sl_shm_peer_side(const struct sl_shm_conn *conn)
{
    return &conn->link.segment->sides[1 - conn->link.side];
}

#endif
