/* Private to net/shm: the state of a transport and of its connections, and the functions that the
 * files offer to each other. Owner reactor. */
#ifndef SL_NET_SHM_INTERNAL_H
#define SL_NET_SHM_INTERNAL_H

#include <sys/socket.h>
#include <sys/un.h>

#include "core/assert.h"
#include "core/shared.h"
#include "net/shm/segment.h"
#include "net/shm/shm.h"
#include "net/shm/staging.h"
#include "net/transport.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

/* frames of one connection, taken and not reported; a power of two */
#define SL_SHM_QUEUE           512U
#define SL_SHM_REGIONS         256U /* per transport, registered; per peer, imported */
#define SL_SHM_REGION_NAMES    (1U << 30)
#define SL_SHM_IMPORTED_BYTES  (1ULL << 40) /* from one peer */
#define SL_SHM_BY_REF_BYTES    1024U        /* payload parts from this size on may stay in place */
#define SL_SHM_COPY_BYTES      (256U << 10) /* into sinks, per connection and turn */
/* part of an arena that is reused while it is in the cache */
#define SL_SHM_ARENA_WARM      (256U << 10)
#define SL_SHM_PEER_TIMEOUT_MS 10000U

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
struct sl_shm_imported {
    struct sl_shared live[SL_SHM_REGIONS]; /* base NULL: free */
    uint32_t names[SL_SHM_REGIONS];        /* of `live` */
    struct sl_shared *retired;             /* [retired_capacity]; see retired.c */
    uint32_t retired_count, retired_capacity;
    uint32_t writable_count; /* in `live` */
    uint64_t bytes;          /* of live and retired: address space is finite */
};

struct sl_shm_listener;
struct sl_shm_reply_buffers; /* reply_buffer.c */

struct sl_shm {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_ring_op op; /* polls epoll_fd */
    int epoll_fd;         /* all sockets */
    bool watching;
    bool closing;
    bool armed; /* peers see this side as sleeping */
    struct sl_shm_conn **conns;
    uint32_t conn_count, conn_capacity;
    uint32_t next;             /* index in conns where the next poll starts */
    struct sl_shm_conn *dirty; /* have published something since the last flush */
    struct sl_shm_conn *spare; /* closed connections for reuse */
    struct sl_shm_conn *kept;  /* closed, but messages in the peer's memory are still read */
    struct sl_shm_conn *lost;  /* migrated here, but no memory: `closed` is due */
    struct sl_shm_listener *listeners;
    struct sl_shm_staging staging;
    struct sl_shm_region regions[SL_SHM_REGIONS];
    uint32_t region_end; /* regions from here on were never used */
    uint32_t connections_max;
    uint32_t peer_timeout_ms;
    struct sl_timer sweep;
    uint64_t log_next_ns;
    uint32_t log_dropped;
    struct sl_transport_stats stats;
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
    struct sl_shm_imported *imported; /* NULL: nothing imported */
    /* Frame counts when the last owner left. */
    uint32_t sent, acknowledged, received;
};

struct sl_shm_conn {
    struct sl_conn base;
    struct sl_shm *shm;
    enum sl_shm_life phase;
    bool busy;  /* visited in every poll */
    bool ready; /* has work: the reactor must not sleep */
    bool eof;
    bool dirty;
    bool heard; /* a control message arrived since the last liveness check */
    bool accept_pending;
    int end_err;
    uint32_t eof_head; /* receive.head when the end of the socket was seen */
    uint32_t index;    /* in shm->conns */
    uint32_t notified; /* frames published when the peer was last woken, or seen awake */
    struct sl_shm_link link;
    struct sl_shm_conn *dirty_next, *spare_next;
    struct sl_timer timer; /* RETRYING: next attempt; DRAINING: limit */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t quiet_since_ns;
    uint32_t quiet_rounds;
    uint32_t quiet_consumed;
    struct sl_shm_conn *moved; /* LEAVING: the connection on the target reactor, bound_for */
    struct sl_reactor *bound_for;
    uint8_t announced[SL_SHM_REGIONS];
    bool has_shut;                              /* DRAINING: the peer was asked to close */
    struct sl_shm_reply_buffers *reply_buffers; /* NULL: none yet */
    struct sl_shm_receive receive;
    struct sl_shm_send send;
};

/* shm.c */

/* Whether a log line about a peer may be written now: at most one a second. */
bool sl_shm_may_log(struct sl_shm *shm);

/* Marks that the connection has published something: the next flush wakes the peer. */
static inline void sl_shm_mark_dirty(struct sl_shm_conn *conn)
{
    if (!conn->dirty) {
        conn->dirty = true;
        conn->dirty_next = conn->shm->dirty;
        conn->shm->dirty = conn;
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

/* socket.c */

enum sl_shm_ctrl_msg_kind {
    SL_SHM_CTRL_MSG_HELLO = 1,    /* from the connecting side, with the segment */
    SL_SHM_CTRL_MSG_ACCEPT = 2,   /* the answer */
    SL_SHM_CTRL_MSG_REGION = 3,   /* exports memory; brings its descriptor */
    SL_SHM_CTRL_MSG_WITHDRAW = 4, /* ends the export */
    SL_SHM_CTRL_MSG_WAKE = 5,
    SL_SHM_CTRL_MSG_PING = 6, /* the receiver's reactor answers with PONG */
    SL_SHM_CTRL_MSG_PONG = 7
};

#define SL_SHM_CTRL_MSG_MAGIC   0x4d53534cU /* "LSSM" in memory order */
#define SL_SHM_CTRL_MSG_VERSION 2

/* A control message: one packet on the socket. */
struct sl_shm_ctrl_msg {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t region; /* REGION, WITHDRAW: name of the region */
    uint32_t access; /* REGION: sl_shared_access */
    uint64_t bytes;  /* HELLO, REGION: size of the memory */
};
static_assert(sizeof(struct sl_shm_ctrl_msg) == 24, "note size");

/* Computes the abstract socket address of an endpoint, for this user. */
void sl_shm_socket_address(const struct sl_endpoint *endpoint, struct sockaddr_un *out,
                           socklen_t *out_bytes);

/* Opens a socket above the standard descriptors. Errors: IO, NO_MEMORY. */
int sl_shm_socket_open(int *out_fd);

/* Returns fd or a duplicate above the standard descriptors; -1, with fd closed, on error. */
int sl_shm_socket_lift(int fd);

/* Whether the peer has our user id; *pid is its process id. */
bool sl_shm_socket_is_ours(int fd, int *pid);

/* Sends a control message, with descriptor fd unless -1. Errors: AGAIN (the peer does not read),
 * CLOSED. */
int sl_shm_ctrl_msg_send(const struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd);

/* Receives a control message; *fd is -1 or owned by the caller. Errors: AGAIN (none), CLOSED,
 * PROTOCOL, VERSION. */
int sl_shm_ctrl_msg_receive(int socket_fd, struct sl_shm_ctrl_msg *out, int *fd);

/* listen.c */

int sl_shm_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);
void sl_shm_listen_accept(struct sl_shm_listener *listener);
void sl_shm_listen_close(struct sl_shm *shm);

/* conn.c */

/* Adds fd to epoll. `what` is a connection or listener; the lowest bit of the event's data marks a
 * listener. */
int sl_shm_watch(struct sl_shm *shm, int fd, void *what, bool is_listener);

/* Creates a connection in HANDSHAKE for a socket; NULL without memory. */
struct sl_shm_conn *sl_shm_conn_create(struct sl_shm *shm, int fd, uint32_t side,
                                       const struct sl_transport_events *events, void *ctx);

int sl_shm_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out);
void sl_shm_conn_disconnect(struct sl_conn *base);
int sl_shm_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);

/* Attaches the segment: both directions start at the counts in `link`. */
void sl_shm_conn_attach(struct sl_shm_conn *conn);

/* Ends the connection: `closed` follows from a poll. The first error counts; after disconnect it is
 * OK. */
void sl_shm_conn_end(struct sl_shm_conn *conn, int err);

/* Ends the connection for a protocol violation, with one log line. */
void sl_shm_conn_refuse(struct sl_shm_conn *conn, const char *what, int err);

/* Reads control messages from the socket. */
void sl_shm_conn_read(struct sl_shm_conn *conn);

/* Wakes the peer if it sleeps and waits for a published change. Call after a fence. */
void sl_shm_conn_wake(struct sl_shm_conn *conn);

/* Reports the `lost` connections as closed; returns their number. */
uint32_t sl_shm_conn_close_lost(struct sl_shm *shm, int err);

/* Called by poll; returns the work done. The connection may be gone afterwards. */
uint32_t sl_shm_conn_visit(struct sl_shm_conn *conn, uint32_t budget);

/* Makes the `closed` upcall and frees the connection's resources. */
void sl_shm_conn_finish(struct sl_shm_conn *conn);

/* After `closed`: the last message in the peer's memory was released. */
void sl_shm_conn_free_kept(struct sl_shm_conn *conn);
void sl_shm_conn_free_all(struct sl_shm *shm);

/* handshake.c */

/* Connects, or retries; on failure ends the connection. */
void sl_shm_handshake_connect(struct sl_shm_conn *conn);

/* Handles a control message in HANDSHAKE; takes fd. */
void sl_shm_handshake_note(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);

/* region.c */

int sl_shm_region_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_shm_region_unregister(struct sl_transport *transport, void *base);

/* Returns the registered region that contains the memory, after announcing it to the peer. NULL: no
 * region, a revoked one, or the peer cannot be notified now. */
const struct sl_shm_region *sl_shm_region_find(struct sl_shm_conn *conn, const void *at,
                                               size_t bytes);

/* Describes memory as a piece: of a writable region that the peer exported, or of ours. Returns
 * false if it is in neither, or so short that a copy is better. */
bool sl_shm_region_piece(struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                         struct sl_shm_piece *out);

/* Returns the address of the peer's piece; NULL: invalid. */
const uint8_t *sl_shm_region_resolve(struct sl_shm_conn *conn, const struct sl_shm_piece *piece);

/* As resolve, but only in memory that the peer exported as writable. */
uint8_t *sl_shm_region_reply_buffer(struct sl_shm_conn *conn, const struct sl_shm_piece *piece);

/* Handle REGION (takes fd) and WITHDRAW. Errors: PROTOCOL, NO_MEMORY, TOO_LARGE. */
int sl_shm_region_imported(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);
int sl_shm_region_withdrawn(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg);

/* Withdraws all regions announced on the connection, before it migrates. Returns false if the peer
 * cannot be notified. */
bool sl_shm_region_recall(struct sl_shm_conn *conn);

void sl_shm_region_drop_imported(struct sl_shm_imported **imported);

/* reply_buffer.c: requests whose reply the peer may write into our memory. */

/* Exports the frame's reply buffer as a piece, until unexport. Returns false if the peer must not
 * write there. */
bool sl_shm_reply_buffer_export(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                                struct sl_shm_piece *out);

/* The reply has arrived: the peer no longer writes to the buffer. */
void sl_shm_reply_buffer_unexport(struct sl_shm_conn *conn, uint64_t request_id);
bool sl_shm_reply_buffer_is_exported(const struct sl_shm_conn *conn);

/* Before `closed`: if the peer has not closed its end and may still write to reply buffers, revokes
 * its access (core/shared.h). */
void sl_shm_reply_buffer_close(struct sl_shm_conn *conn);

/* retired.c */

/* Keeps the address range of withdrawn memory, which is unmapped in place. Errors: NO_MEMORY,
 * TOO_LARGE. */
int sl_shm_retired_add(struct sl_shm_imported *imported, const struct sl_shared *placeholder);

/* Moves newly imported memory to a retired range, if one fits. */
void sl_shm_retired_reuse(struct sl_shm_imported *imported, struct sl_shared *fresh);
void sl_shm_retired_drop(struct sl_shm_imported *imported);

/* receive.c */

/* Delivers up to `budget` frames; returns the work done. */
uint32_t sl_shm_receive_run(struct sl_shm_conn *conn, uint32_t budget);

/* Drops all received frames. */
void sl_shm_receive_drop(struct sl_shm_conn *conn);

void sl_shm_receive_release(struct sl_conn *base, const struct sl_transport_message *message);

static inline bool sl_shm_receive_pending(const struct sl_shm_conn *conn)
{
    const struct sl_shm_receive *receive = &conn->receive;
    return receive->slots != NULL &&
           sl_shm_slot_ready(&receive->slots[receive->head % SL_SHM_SLOTS], receive->head);
}

/* send.c */

uint32_t sl_shm_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

/* Publishes queued frames while there is room, and reports sent frames. Returns the work done. */
uint32_t sl_shm_send_run(struct sl_shm_conn *conn);

/* Reads how many frames the peer has consumed. */
void sl_shm_send_refresh(struct sl_shm_conn *conn);

/* Whether progress depends on the peer consuming frames. */
static inline bool sl_shm_send_waits(const struct sl_shm_conn *conn)
{
    const struct sl_shm_send *send = &conn->send;
    return send->next != send->tail || send->refs_due != send->consumed ||
           (conn->phase == SL_SHM_DRAINING && send->consumed != send->number);
}

/* liveness.c */

/* The liveness check: one timer per transport checks each connection a few times within the peer
 * timeout. A peer that owes progress and shows none for the timeout is ended with DEADLINE. */
void sl_shm_liveness_open(struct sl_shm *shm);
void sl_shm_liveness_close(struct sl_shm *shm);
void sl_shm_liveness_add(struct sl_shm *shm, struct sl_shm_conn *conn);

#endif
