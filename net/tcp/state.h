/* Private to net/tcp: limits, and the state of a transport and of its connections. Owner reactor.
 */
#ifndef SL_NET_TCP_STATE_H
#define SL_NET_TCP_STATE_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "core/assert.h"
#include "net/base/liveness.h"
#include "net/tcp/buffers.h"
#include "net/tcp/tls.h"
#include "net/transport_impl.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

/* runs queued on one connection: twice the request credits */
#define SL_TCP_SEND_RUNS             512
/* memory pieces queued likewise; adjacent ones are merged */
#define SL_TCP_SEND_PIECES           512
#define SL_TCP_CALL_PIECES           64 /* pieces in one system call */
/* A send takes no further piece beyond this, so that `sent` is not delayed too long. */
#define SL_TCP_CALL_BYTES            (1U << 20)
/* A remaining long payload of at least this size is received in place. Below, a copy is cheaper
 * than cancelling the receive. */
#define SL_TCP_DIRECT_BYTES          (32U << 10)
/* Low-water mark for a long payload: waking up for every segment costs both sides more than the
 * copy. The 512 KiB that clients push at a time come in one receive, with what
 * describes them. */
#define SL_TCP_PATIENT_BYTES         ((512U << 10) + 256)
/* Of a long frame, sent or received in one call while other connections have short frames: about 10
 * us. */
#define SL_TCP_SLICE_BYTES           (64U << 10)
/* how long a connection's recent long, or short, frames count */
#define SL_TCP_SLICING_NS            (10 * SL_CLOCK_NS_PER_MS)
/* received after a long frame, since another one is likely */
#define SL_TCP_PEEK_BYTES            4096
#define SL_TCP_CONGESTION_NAME_BYTES 16  /* the kernel's TCP_CA_NAME_MAX */
#define SL_TCP_SPARES                256 /* closed connections kept for reuse */

struct sl_tcp_listener;

struct sl_tcp {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_tcp_tls_context *tls; /* NULL: no TLS */
    struct sl_tcp_buffers buffers;
    char congestion[SL_TCP_CONGESTION_NAME_BYTES]; /* "": the system's default */
    uint32_t ops_in_flight;                        /* of listeners and connections */
    bool armed; /* since the last poll: the reactor found no work before it */

    struct sl_liveness liveness; /* has all connections, until their `closed` */
    struct sl_list sending;      /* with queued data and no send in flight */
    /* A connection is in at most one of these lists: */
    struct sl_list pending;     /* to resume in the next poll */
    struct sl_list wait_memory; /* waits for memory for a frame: asked again in later polls */
    struct sl_list
        wait_memory_asked;      /* waits too, and was asked after the last turn that did work */
    struct sl_list wait_buffer; /* waits for a buffer to return to the ring */
    struct sl_list sliced;      /* waits for this turn's short sends, before it receives a slice */
    struct sl_list ended;       /* waits for its `closed` */

    /* Closed connections for reuse: up to SL_TCP_SPARES, and more while their messages are not
     * released. */
    struct sl_tcp_conn *spare;
    uint32_t spare_count;
    bool spares_grew; /* since the last poll */
    struct sl_tcp_listener *listeners;
    uint64_t short_until_ns; /* until then, short frames go first: long ones are sliced */
};

/* Parser state. */
enum sl_tcp_phase {
    SL_TCP_PHASE_HEADER, /* header_have bytes of a header are there */
    SL_TCP_PHASE_INLINE, /* a short payload, into the transport's memory */
    SL_TCP_PHASE_SINK,   /* a long payload, until the upper layer gives memory */
    SL_TCP_PHASE_LONG    /* a long payload, into `payload` */
};

enum sl_tcp_flight { SL_TCP_FLIGHT_NONE, SL_TCP_FLIGHT_RECEIVING, SL_TCP_FLIGHT_CANCELLING };

/* Where the receive in flight, or the last one, puts its data, and the kind of the next. */
enum sl_tcp_receive_mode {
    SL_TCP_RECEIVE_BUFFERS, /* into provided buffers */
    SL_TCP_RECEIVE_PEEK,  /* into them; the next receive is short, since the last frame was long */
    SL_TCP_RECEIVE_DIRECT /* into `payload`, and `header` behind it */
};

/* DRY, with TLS: nothing to decrypt until more is received. */
enum sl_tcp_input { SL_TCP_INPUT_OPEN, SL_TCP_INPUT_DRY, SL_TCP_INPUT_ENDED };

struct sl_tcp_receive {
    struct sl_ring_op op; /* at most one receive is in flight */
    enum sl_tcp_flight flight;
    enum sl_tcp_receive_mode mode;
    enum sl_tcp_input input;
    bool empty_ring;  /* the last receive ended because the ring was empty */
    bool wait_memory; /* parsing waits for memory */
    enum sl_tcp_phase phase;
    struct sl_tcp_rx_buf *first, *last; /* received, not parsed yet */
    struct sl_frame frame;              /* in all phases but HEADER */
    uint32_t header_have;
    uint32_t payload_have;
    uint32_t low_bytes;             /* the socket's SO_RCVLOWAT; 0: the default, 1 */
    struct sl_tcp_staging *staging; /* INLINE: being filled, or NULL */
    uint8_t *payload;               /* LONG: memory from `sink` */
    uint8_t header[SL_FRAME_HEADER_BYTES];
    struct msghdr message; /* DIRECT: the payload, and the header behind it */
    struct iovec parts[2];
};

/* A frame and the frames coalesced with it: reported by one `sent`. */
struct sl_tcp_run {
    void *cookie;
    uint32_t bytes, frames;
};

/* State of the write half. BROKEN: a send failed; data that the peer sent before is still read. */
enum sl_tcp_write { SL_TCP_WRITE_OPEN, SL_TCP_WRITE_SHUT, SL_TCP_WRITE_BROKEN };

/* The send queue, in two views with the same total bytes: memory pieces, and runs. Indices count up
 * freely and are masked on access. */
struct sl_tcp_send {
    struct sl_ring_op op; /* at most one send is in flight */
    bool in_flight;
    bool wants_room; /* a `writable` is due */
    bool in_doubt;   /* data was sent that no liveness check has seen acknowledged */
    enum sl_tcp_write write;
    uint32_t piece_head, piece_tail;
    uint32_t run_head, run_tail;
    /* Bytes sent of the run at run_head; the pieces no longer contain them. */
    uint64_t run_sent;
    struct msghdr message;
    struct iovec cut[2]; /* a head, and a slice of the piece after it */
    struct iovec pieces[SL_TCP_SEND_PIECES];
    struct sl_tcp_run runs[SL_TCP_SEND_RUNS];
};

/* State of the liveness check of one connection. */
struct sl_tcp_watch {
    struct sl_silence silence; /* since the start of connecting, or a frame's last progress */
    uint64_t received;         /* bytes received, at the last check */
    uint64_t window_since_ns;  /* since then the peer's window is closed */
    uint64_t acked;
    uint32_t patience_ms; /* the socket's TCP_USER_TIMEOUT */
};

enum sl_tcp_life {
    SL_TCP_LIFE_LIVE,
    SL_TCP_LIFE_DRAINING, /* disconnect was called: sends the queue, drops received data */
    SL_TCP_LIFE_LEAVING,  /* migrating: waits for its last receive */
    SL_TCP_LIFE_ENDING    /* waits for its operations, then `closed` follows */
};

struct sl_tcp_conn {
    struct sl_conn base;
    struct sl_tcp *tcp;
    int fd;
    uint32_t ops_in_flight;
    enum sl_tcp_life life;
    int end_err;               /* DRAINING, ENDING: error of `closed` */
    bool accept_pending;       /* TLS handshake in progress: `accepted` is not reported yet */
    struct sl_tcp_tls *tls;    /* NULL: no TLS */
    struct sl_tcp_conn *moved; /* LEAVING: the connection on the target reactor, bound_for */
    struct sl_reactor *bound_for;
    struct sl_tcp_conn *spare_next;
    /* Messages delivered and not released; they point to the connection. Includes messages of
     * earlier connections in this memory. */
    uint32_t held;
    struct sl_list_link alive, sending, waiting; /* alive: in the list of liveness */
    struct sl_timer timer; /* limit of DRAINING, or of reading when sends are BROKEN */
    struct sl_ring_op connect_op;
    bool connecting;
    struct sockaddr_storage address; /* of the peer, while connecting */
    struct sl_tcp_watch watch;
    uint64_t long_until_ns; /* until then the connection counts as having long frames */
    struct sl_tcp_receive receive;
    struct sl_tcp_send send;
    struct sl_tcp_staging staging; /* its own, so that it can always receive one frame */
};

/* Count the operations in flight. The last one of an ending connection lets `closed` follow. */
static inline void sl_tcp_op_begin(struct sl_tcp_conn *conn)
{
    conn->ops_in_flight++;
    conn->tcp->ops_in_flight++;
}

static inline void sl_tcp_op_end(struct sl_tcp_conn *conn)
{
    sl_assert(conn->ops_in_flight > 0);
    conn->ops_in_flight--;
    conn->tcp->ops_in_flight--;
    if (conn->life == SL_TCP_LIFE_ENDING && conn->ops_in_flight == 0) {
        sl_list_append(&conn->tcp->ended, &conn->waiting);
    }
}

/* MSG_WAITALL, if the kernel continues short transfers itself (from 5.19 on). Kernels without
 * multishot receives are treated as older. */
static inline int sl_tcp_wait_all(const struct sl_tcp *tcp)
{
    return tcp->ring->multishot_recv ? MSG_WAITALL : 0;
}

/* Notes that the connection was served a short frame. A call that moves megabytes takes as long as
 * hundreds of short ones: so while there are short frames, long ones move one slice a turn. */
static inline void sl_tcp_note_short(struct sl_tcp_conn *conn)
{
    struct sl_tcp *tcp = conn->tcp;
    uint64_t now_ns = sl_reactor_now_ns(tcp->base.reactor);
    if (now_ns >= conn->long_until_ns) {
        tcp->short_until_ns = now_ns + SL_TCP_SLICING_NS;
    }
}

/* Whether the connection had long frames recently. */
static inline bool sl_tcp_has_long(const struct sl_tcp_conn *conn)
{
    return sl_reactor_now_ns(conn->tcp->base.reactor) < conn->long_until_ns;
}

/* Returns how much of `bytes` one call may move. */
static inline size_t sl_tcp_slice(struct sl_tcp_conn *conn, size_t bytes)
{
    if (bytes <= SL_TCP_SLICE_BYTES) {
        return bytes;
    }
    uint64_t now_ns = sl_reactor_now_ns(conn->tcp->base.reactor);
    conn->long_until_ns = now_ns + SL_TCP_SLICING_NS;
    bool cuts = bytes > 2 * SL_TCP_SLICE_BYTES && now_ns < conn->tcp->short_until_ns;
    return cuts ? SL_TCP_SLICE_BYTES : bytes;
}

#endif
