/* What the files of this folder share: the transport's and the connection's state, and what each
 * file does for the others. Owner reactor throughout. */
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

#define SL_SHM_QUEUE           512U /* frames of one connection taken and not reported; 2^n */
#define SL_SHM_REGIONS         256U /* registered with a transport; lent by one peer */
#define SL_SHM_REGION_NAMES    (1U << 30)
#define SL_SHM_IMPORTED_BYTES  (1ULL << 40) /* by one peer */
#define SL_SHM_BY_REF_BYTES    1024U /* of a payload's part from here on are left where they lie */
#define SL_SHM_COPY_BYTES      (256U << 10) /* into a sink, of one connection in a turn */
#define SL_SHM_ARENA_WARM      (256U << 10) /* of an arena are used over and over */
#define SL_SHM_PEER_TIMEOUT_MS 10000U

/* ---- State ------------------------------------------------------------------------------------
 */

/* Memory registered with the transport. Its name to every peer is its index, and above that how
 * often others had that index before: notes and frames come by two ways, and a peer that has yet to
 * read that memory was withdrawn must not take it for what came in its place. */
struct sl_shm_region {
    const uint8_t *base; /* NULL: free */
    uint32_t name;       /* of this one, or of the last; less than SL_SHM_REGION_NAMES */
    size_t bytes;
    struct sl_shared shared; /* that holds it: what peers are given */
};

/* What a peer has lent. An address that was named to the layer above stays mapped until the
 * connection's end: to nothing, or to what the same peer lends later. */
struct sl_shm_imported {
    struct sl_shared live[SL_SHM_REGIONS]; /* base NULL: nothing */
    uint32_t names[SL_SHM_REGIONS];        /* of what is live */
    struct sl_shared *retired;             /* [retired_capacity]: retired.c */
    uint32_t retired_count, retired_capacity;
    uint32_t writable_count; /* of live */
    uint64_t bytes;          /* of both: addresses are finite */
};

struct sl_shm_listener;
struct sl_shm_reply_buffers; /* landing.c */

struct sl_shm {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_ring_op op; /* watches: */
    int epoll_fd;         /* all sockets */
    bool watching;
    bool closing;
    bool armed; /* peers were told that this side sleeps */
    struct sl_shm_conn **conns;
    uint32_t conn_count, conn_capacity;
    uint32_t next;             /* of conns, where the next poll begins */
    struct sl_shm_conn *dirty; /* published something since the last flush */
    struct sl_shm_conn *spare; /* closed connections, to be used again */
    struct sl_shm_conn *kept;  /* closed, but of which messages are still read */
    struct sl_shm_conn *lost;  /* handed over to here without memory: `closed` is due */
    struct sl_shm_listener *listeners;
    struct sl_shm_staging staging;
    struct sl_shm_region regions[SL_SHM_REGIONS];
    uint32_t region_end; /* none are used from here on */
    uint32_t connections_max;
    uint32_t peer_timeout_ms;
    struct sl_timer sweep;
    uint64_t log_next_ns;
    uint32_t log_dropped;
    struct sl_transport_stats stats;
};

/* A message that is read in the peer's memory; its token. */
struct sl_shm_loan {
    struct sl_shm_token token;
    bool done;
    struct sl_shm_conn *conn;
};

enum sl_shm_phase {
    SL_SHM_PHASE_NEXT, /* looks for a slot */
    SL_SHM_PHASE_HELD, /* has read one, and nobody has memory for its payload */
    SL_SHM_PHASE_COPY  /* copies it into the sink */
};

struct sl_shm_receive {
    const struct sl_shm_slot *slots; /* the peer's */
    uint32_t head;                   /* the next slot's number */
    uint32_t consumed, published;    /* all before need nothing more; and the peer was told so */
    uint32_t claims_open;
    enum sl_shm_phase phase;
    uint8_t part_count;
    bool is_imported; /* HELD, COPY: some of it, or its landing, lies in what the peer lent */
    bool wait_buffer; /* HELD: for a staging buffer */
    const uint8_t *parts[2]; /* HELD, COPY: where the payload lies */
    uint32_t part_bytes[2];
    uint8_t *sink;
    uint32_t sink_have;
    struct sl_frame frame;
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    struct sl_shm_slot slot; /* the copy that is looked at */
    struct sl_shm_loan claims[SL_SHM_SLOTS];
};

/* A frame that was taken. */
struct sl_shm_entry {
    struct sl_transport_frame frame;
    uint32_t due; /* published: reported once so many frames were consumed */
    bool by_ref;  /* else it was copied, and may be reported at once */
};

struct sl_shm_send {
    struct sl_shm_slot *slots;
    uint8_t *arena;
    uint32_t number;           /* frames published */
    uint32_t consumed;         /* of them, when it was looked at last */
    uint32_t refs_due;         /* nothing of the sender's is read once so many are consumed */
    bool wants_room;           /* owes the upper layer a `writable` */
    uint32_t head, next, tail; /* of the queue: not reported from, not published from, end */
    uint64_t arena_top, arena_bottom, arena_touched; /* positions run over all laps */
    uint64_t arena_ends[SL_SHM_SLOTS];               /* by slot */
    struct sl_shm_entry queue[SL_SHM_QUEUE];
};

enum sl_shm_life {
    SL_SHM_RETRYING,  /* the listener's queue is full */
    SL_SHM_HANDSHAKE, /* waits for the peer's part of the handshake */
    SL_SHM_LIVE,
    SL_SHM_DRAINING, /* disconnect: what is queued is sent, what arrives is dropped */
    SL_SHM_LEAVING,  /* handed over */
    SL_SHM_ENDED     /* `closed` is to be made */
};

/* All of a connection that goes with it to another reactor. */
struct sl_shm_link {
    int fd;
    uint32_t side; /* of the segment: 0 who connected */
    struct sl_shared memory;
    struct sl_shm_segment *segment;
    struct sl_shm_imported *imported; /* NULL: nothing yet */
    /* Frames, as the last owner left them. */
    uint32_t sent, acknowledged, received;
};

struct sl_shm_conn {
    struct sl_conn base;
    struct sl_shm *shm;
    enum sl_shm_life phase;
    bool busy;  /* looked at in every poll */
    bool ready; /* and the reactor must not sleep before */
    bool eof;
    bool dirty;
    bool heard; /* from the peer's socket, since the last sweep */
    bool accept_pending;
    int end_err;
    uint32_t eof_head; /* frames that had been received when the end was seen */
    uint32_t index;    /* in conns */
    uint32_t notified; /* frames published when the peer was last woken, or found awake */
    struct sl_shm_link link;
    struct sl_shm_conn *dirty_next, *spare_next;
    struct sl_timer timer; /* RETRYING: when to; DRAINING: how long we are patient */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t quiet_since_ns;
    uint32_t quiet_rounds;
    uint32_t quiet_consumed;
    struct sl_shm_conn *moved; /* LEAVING: what it will be on the other reactor, which is: */
    struct sl_reactor *bound_for;
    uint8_t announced[SL_SHM_REGIONS];
    bool has_shut;                              /* DRAINING: the peer is asked to close */
    struct sl_shm_reply_buffers *reply_buffers; /* NULL: none yet */
    struct sl_shm_receive receive;
    struct sl_shm_send send;
};

/* ---- shm.c ------------------------------------------------------------------------------------
 */

/* Whether a line about a peer's misdeeds may be logged now: one in a second. */
bool sl_shm_may_log(struct sl_shm *shm);

/* The connection has published something: the next flush tells the peer. */
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

/* ---- socket.c ---------------------------------------------------------------------------------
 */

enum sl_shm_ctrl_msg_kind {
    SL_SHM_CTRL_MSG_HELLO = 1,    /* who connects: with the segment */
    SL_SHM_CTRL_MSG_ACCEPT = 2,   /* the answer */
    SL_SHM_CTRL_MSG_REGION = 3,   /* lends memory, which comes with it */
    SL_SHM_CTRL_MSG_WITHDRAW = 4, /* the region is lent no more */
    SL_SHM_CTRL_MSG_WAKE = 5,
    SL_SHM_CTRL_MSG_PING = 6, /* who turns answers */
    SL_SHM_CTRL_MSG_PONG = 7
};

#define SL_SHM_CTRL_MSG_MAGIC   0x4d53534cU /* "LSSM" in memory order */
#define SL_SHM_CTRL_MSG_VERSION 2

/* One packet on the socket. */
struct sl_shm_ctrl_msg {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t region; /* REGION, WITHDRAW: its name */
    uint32_t access; /* REGION: sl_shared_access */
    uint64_t bytes;  /* HELLO, REGION: of the memory */
};
static_assert(sizeof(struct sl_shm_ctrl_msg) == 24, "note size");

/* The abstract address of an endpoint, for this user. */
void sl_shm_socket_address(const struct sl_endpoint *endpoint, struct sockaddr_un *out,
                           socklen_t *out_bytes);

/* None of a process's first three descriptors. Errors: IO, NO_MEMORY. */
int sl_shm_socket_open(int *out_fd);

/* fd, or -1 with fd closed. */
int sl_shm_socket_lift(int fd);

/* Whether the peer is of our user; *pid is its process. */
bool sl_shm_socket_is_ours(int fd, int *pid);

/* Sends one note; fd -1: without. AGAIN: the peer does not read; CLOSED: it is gone. */
int sl_shm_ctrl_msg_send(const struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd);

/* Receives one; *fd is -1 or the caller's to close. AGAIN: there is none; CLOSED: there never will
 * be; PROTOCOL: it is no note; VERSION. */
int sl_shm_ctrl_msg_receive(int socket_fd, struct sl_shm_ctrl_msg *out, int *fd);

/* ---- listen.c ---------------------------------------------------------------------------------
 */

int sl_shm_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);
void sl_shm_listen_accept(struct sl_shm_listener *listener);
void sl_shm_listen_close(struct sl_shm *shm);

/* ---- conn.c -----------------------------------------------------------------------------------
 */

/* What an epoll event points to: a connection, or with the lowest bit set a listener. */
int sl_shm_watch(struct sl_shm *shm, int fd, void *what, bool is_listener);

/* A connection around a socket, SHAKING; NULL without memory. */
struct sl_shm_conn *sl_shm_conn_create(struct sl_shm *shm, int fd, uint32_t side,
                                       const struct sl_transport_events *events, void *ctx);

int sl_shm_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx, struct sl_conn **out);
void sl_shm_conn_disconnect(struct sl_conn *base);
int sl_shm_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);

/* Its segment is there: both directions begin where the link says. */
void sl_shm_conn_attach(struct sl_shm_conn *conn);

/* The connection is over: `closed` follows from a poll. The first reason counts, and after
 * disconnect it is OK. */
void sl_shm_conn_end(struct sl_shm_conn *conn, int err);

/* What the peer did is against the protocol: one line of log, and the end. */
void sl_shm_conn_refuse(struct sl_shm_conn *conn, const char *what, int err);

/* Reads what is on the socket. */
void sl_shm_conn_read(struct sl_shm_conn *conn);

/* After a fence: wakes the peer if it sleeps, and waits for what was published. */
void sl_shm_conn_wake(struct sl_shm_conn *conn);

/* Reports connections closed that were handed over to here and found no memory; returns how many.
 */
uint32_t sl_shm_conn_close_lost(struct sl_shm *shm, int err);

/* From poll; returns the work done. The connection may be gone afterwards. */
uint32_t sl_shm_conn_visit(struct sl_shm_conn *conn, uint32_t budget);

/* Makes `closed`, gives everything back. */
void sl_shm_conn_finish(struct sl_shm_conn *conn);

/* The last message that was read in the peer's memory has been released, after `closed`. */
void sl_shm_conn_free_kept(struct sl_shm_conn *conn);
void sl_shm_conn_free_all(struct sl_shm *shm);

/* ---- handshake.c ------------------------------------------------------------------------------
 */

/* Connects, or tries again. Ends the connection where it fails. */
void sl_shm_handshake_connect(struct sl_shm_conn *conn);

/* A note of the peer while SHAKING; takes fd. */
void sl_shm_handshake_note(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);

/* ---- region.c ---------------------------------------------------------------------------------
 */

int sl_shm_region_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_shm_region_unregister(struct sl_transport *transport, void *base);

/* The registered region that holds the memory, which the connection's peer knows from now on; or
 * NULL: there is none, or the peer cannot be told now. */
const struct sl_shm_region *sl_shm_region_find(struct sl_shm_conn *conn, const void *at,
                                               size_t bytes);

/* As a piece: of a region that the peer lent to be written, or of ours. False: it is neither, or so
 * short that it is better copied. */
bool sl_shm_region_piece(struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                         struct sl_shm_piece *out);

/* Where the peer's piece lies here; NULL: nowhere. */
const uint8_t *sl_shm_region_resolve(struct sl_shm_conn *conn, const struct sl_shm_piece *piece);

/* As resolve, in memory that the peer has lent to be written. */
uint8_t *sl_shm_region_reply_buffer(struct sl_shm_conn *conn, const struct sl_shm_piece *piece);

/* The peer lends (takes fd), or withdraws. Errors: PROTOCOL, NO_MEMORY, TOO_LARGE. */
int sl_shm_region_imported(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);
int sl_shm_region_withdrawn(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg);

/* Takes back all that was announced on the connection: it goes to another transport. False: the
 * peer cannot be told. */
bool sl_shm_region_recall(struct sl_shm_conn *conn);

void sl_shm_region_drop_imported(struct sl_shm_imported **imported);

/* ---- landing.c --------------------------------------------------------------------------------
 * The requests of a connection whose answer the peer may write into memory of ours. */

/* The place for the answer to the frame, as a piece, remembered until it is taken back. False: the
 * peer is not to write there. */
bool sl_shm_reply_buffer_export(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                                struct sl_shm_piece *out);

/* The answer has come: the peer writes there no more. */
void sl_shm_reply_buffer_unexport(struct sl_shm_conn *conn, uint64_t request_id);
bool sl_shm_reply_buffer_is_exported(const struct sl_shm_conn *conn);

/* Before `closed`: what the peer may still write, since it has not closed its end, is revoked
 * (core/shared.h). */
void sl_shm_reply_buffer_close(struct sl_shm_conn *conn);

/* ---- retired.c --------------------------------------------------------------------------------
 */

/* Keeps the address of what was withdrawn, which is hollow. Errors: NO_MEMORY, TOO_LARGE. */
int sl_shm_retired_add(struct sl_shm_imported *imported, const struct sl_shared *unmap_in_place);

/* Moves what comes now to an address that was withdrawn, where there is one for it. */
void sl_shm_retired_reuse(struct sl_shm_imported *imported, struct sl_shared *fresh);
void sl_shm_retired_drop(struct sl_shm_imported *imported);

/* ---- receive.c --------------------------------------------------------------------------------
 */

/* Delivers up to `budget` frames; returns the work done. */
uint32_t sl_shm_receive_run(struct sl_shm_conn *conn, uint32_t budget);

/* Drops all that is there. */
void sl_shm_receive_drop(struct sl_shm_conn *conn);

void sl_shm_receive_release(struct sl_conn *base, const struct sl_transport_message *message);

static inline bool sl_shm_receive_pending(const struct sl_shm_conn *conn)
{
    const struct sl_shm_receive *receive = &conn->receive;
    return receive->slots != NULL &&
           sl_shm_slot_ready(&receive->slots[receive->head % SL_SHM_SLOTS], receive->head);
}

/* ---- send.c -----------------------------------------------------------------------------------
 */

uint32_t sl_shm_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

/* Publishes what is queued, as far as there is room; reports what was sent. Returns the work done.
 */
uint32_t sl_shm_send_run(struct sl_shm_conn *conn);

/* Looks how far the peer has come. */
void sl_shm_send_refresh(struct sl_shm_conn *conn);

/* Something depends on what the peer consumes. */
static inline bool sl_shm_send_waits(const struct sl_shm_conn *conn)
{
    const struct sl_shm_send *send = &conn->send;
    return send->next != send->tail || send->refs_due != send->consumed ||
           (conn->phase == SL_SHM_DRAINING && send->consumed != send->number);
}

/* ---- sweep.c ----------------------------------------------------------------------------------
 */

/* One timer for all connections of a transport: a few times within the peer's timeout each is
 * looked at, and ended with DEADLINE where its peer has shown no life for that long, though it owes
 * some. */
void sl_shm_liveness_open(struct sl_shm *shm);
void sl_shm_liveness_close(struct sl_shm *shm);
void sl_shm_liveness_add(struct sl_shm *shm, struct sl_shm_conn *conn);

#endif
