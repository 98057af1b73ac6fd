/* Private to net/tcp: the state of a transport and of its connections, and the functions that the
 * files offer to each other. Owner reactor. */
#ifndef SL_NET_TCP_INTERNAL_H
#define SL_NET_TCP_INTERNAL_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "core/list.h"
#include "net/tcp/buffers.h"
#include "net/tcp/tls.h"
#include "net/transport.h"
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
 * copy. */
#define SL_TCP_PATIENT_BYTES         (256U << 10)
/* Of a long frame, sent or received in one call while other connections have short frames: about 10
 * us. */
#define SL_TCP_SLICE_BYTES           (64U << 10)
/* how long a connection's recent long, or short, frames count */
#define SL_TCP_SLICING_NS            (10 * SL_CLOCK_NS_PER_MS)
/* received after a long frame, since another one is likely */
#define SL_TCP_PEEK_BYTES            4096
#define SL_TCP_CONGESTION_NAME_BYTES 16    /* the kernel's TCP_CA_NAME_MAX */
#define SL_TCP_SPARES                256   /* closed connections kept for reuse */
#define SL_TCP_PEER_TIMEOUT_MS       10000 /* default of the options */

struct sl_tcp_listener;

struct sl_tcp {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_tcp_tls_context *tls; /* NULL: no TLS */
    struct sl_tcp_buffers buffers;
    char congestion[SL_TCP_CONGESTION_NAME_BYTES]; /* "": the system's default */
    uint32_t connections_max;
    uint32_t peer_timeout_ms;
    uint32_t ops_in_flight; /* of listeners and connections */
    bool closing;
    bool armed; /* since the last poll: the turn did nothing */

    struct sl_list all;     /* connections, until their `closed` */
    struct sl_list sending; /* with queued data and no send in flight */
    /* A connection is in at most one of these lists: */
    struct sl_list pending;     /* to resume in the next poll */
    struct sl_list wait_sink;   /* waits for memory for a frame: asked again in later polls */
    struct sl_list refused;     /* as wait_sink, and was asked since the last turn that did work */
    struct sl_list wait_buffer; /* waits for a buffer to return to the ring */
    struct sl_list sliced;      /* waits for this turn's short sends, before it receives a slice */
    struct sl_list ended;       /* waits for its `closed` */

    /* Closed connections for reuse: up to SL_TCP_SPARES, and more while their messages are not
     * released. */
    struct sl_tcp_conn *spare;
    uint32_t spare_count;
    bool spares_grew; /* since the last poll */
    struct sl_tcp_listener *listeners;
    struct sl_timer sweep;   /* liveness check; armed while there are connections */
    uint64_t sweep_begun_ns; /* start of the current round, or of the last one */
    uint32_t sweep_left;     /* connections that the current round has yet to check */
    struct sl_transport_stats stats;
    uint64_t short_until_ns; /* until then, short frames go first: long ones are sliced */
    uint64_t log_next_ns;    /* until then, log lines about peers are only counted */
    uint32_t log_dropped;
};

/* Parser state. */
enum sl_tcp_phase {
    SL_TCP_PHASE_HEADER, /* header_have bytes of a header are there */
    SL_TCP_PHASE_INLINE, /* a short payload, into the transport's memory */
    SL_TCP_PHASE_SINK,   /* a long payload, until the upper layer gives memory */
    SL_TCP_PHASE_LONG    /* a long payload, into `payload` */
};

struct sl_tcp_receive {
    struct sl_ring_op op; /* at most one receive is in flight */
    bool in_flight;
    bool multishot;  /* kind of the receive in flight */
    bool direct;     /* likewise: into `payload` */
    bool cancelling; /* the receive in flight is being cancelled */
    bool eof;
    bool empty_ring; /* the last receive ended because the ring was empty */
    bool peek;       /* the last frame was long: the next receive is short */
    bool wait_sink;  /* parsing waits for memory */
    bool dry;        /* TLS: nothing to decrypt until more is received */
    enum sl_tcp_phase phase;
    struct sl_tcp_rx_buf *first, *last; /* received, not parsed yet */
    struct sl_frame frame;              /* in all phases but HEADER */
    uint32_t header_have;
    uint32_t payload_have;
    uint32_t low_bytes;             /* the socket's SO_RCVLOWAT; 0: the default, 1 */
    struct sl_tcp_staging *staging; /* INLINE: being filled, or NULL */
    uint8_t *payload;               /* LONG: memory from `sink` */
    uint8_t header[SL_FRAME_HEADER_BYTES];
};

/* A frame and the frames coalesced with it: reported by one `sent`. */
struct sl_tcp_run {
    void *cookie;
    uint32_t bytes, frames;
};

/* The send queue, in two views with the same total bytes: memory pieces, and runs. Indices count up
 * freely and are masked on access. */
struct sl_tcp_send {
    struct sl_ring_op op; /* at most one send is in flight */
    bool in_flight;
    bool wants_room; /* a `writable` is due */
    bool shut;       /* the write half was shut down */
    bool broken;     /* a send failed; data that the peer sent before is still read */
    bool in_doubt;   /* data was sent that no liveness check has seen acknowledged */
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
    uint64_t quiet_since_ns;  /* start of connecting, or of a frame's last progress */
    uint32_t quiet_rounds;    /* checks since then */
    uint64_t received;        /* bytes received, at the last check */
    uint64_t window_since_ns; /* since then the peer's window is closed */
    uint64_t acked;
    uint32_t patience_ms; /* the socket's TCP_USER_TIMEOUT */
};

enum sl_tcp_life {
    SL_TCP_LIVE,
    SL_TCP_DRAINING, /* disconnect was called: sends the queue, drops received data */
    SL_TCP_LEAVING,  /* migrating: waits for its last receive */
    SL_TCP_ENDING    /* waits for its operations, then `closed` follows */
};

struct sl_tcp_conn {
    struct sl_conn base;
    struct sl_tcp *tcp;
    int fd;
    uint32_t ops_in_flight;
    enum sl_tcp_life phase;
    int end_err;               /* DRAINING, ENDING: error of `closed` */
    bool accept_pending;       /* TLS handshake in progress: `accepted` is not reported yet */
    struct sl_tcp_tls *tls;    /* NULL: no TLS */
    struct sl_tcp_conn *moved; /* LEAVING: the connection on the target reactor, bound_for */
    struct sl_reactor *bound_for;
    struct sl_tcp_conn *spare_next;
    /* Messages delivered and not released; they point to the connection. Includes messages of
     * earlier connections in this memory. */
    uint32_t held;
    struct sl_list_link all, sending, waiting;
    struct sl_timer timer; /* limit of DRAINING, or of reading when send.broken */
    struct sl_ring_op connect_op;
    bool connecting;
    struct sockaddr_storage address; /* of the peer, while connecting */
    struct sl_tcp_watch watch;
    uint64_t long_until_ns; /* until then the connection counts as having long frames */
    struct sl_tcp_receive receive;
    struct sl_tcp_send send;
    struct sl_tcp_staging staging; /* its own, so that it can always receive one frame */
};

/* tcp.c */

/* Whether a log line about a peer may be written now: at most one a second. */
bool sl_tcp_may_log(struct sl_tcp *tcp);

/* MSG_WAITALL, if the kernel continues short transfers itself (from 5.19 on). Kernels without
 * multishot receives are treated as older. */
static inline int sl_tcp_wait_all(const struct sl_tcp *tcp)
{
    return tcp->ring->multishot_recv ? MSG_WAITALL : 0;
}

/* Asks the kernel to cancel an operation; its completion still comes. */
void sl_tcp_cancel(struct sl_tcp *tcp, struct sl_ring_op *op);

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

/* socket.c */

/* Opens a blocking socket (io_uring needs no other) with the transport's options. Errors: IO,
 * NO_MEMORY. */
int sl_tcp_socket_open(const struct sl_tcp *tcp, int family, int *out_fd);

/* Sets the options that an accepted socket does not reliably inherit. */
void sl_tcp_socket_tune(const struct sl_tcp *tcp, int fd);

/* Returns fd, or a duplicate above the standard descriptors: if the program was started with one of
 * them closed, its output must not go to a peer. Takes fd. Errors, with fd closed: IO,
 * NO_MEMORY. */
int sl_tcp_socket_lift(int fd, int *out_fd);

/* Sets SO_RCVLOWAT: the socket becomes readable at `bytes`, or at the end of the stream. Returns
 * false if the kernel refuses. */
bool sl_tcp_socket_set_low(int fd, uint32_t bytes);

/* Sets TCP_USER_TIMEOUT: how long sent data may stay unacknowledged. */
void sl_tcp_socket_set_patience(int fd, uint32_t timeout_ms);

/* State of a connection in the kernel (TCP_INFO). */
struct sl_tcp_progress {
    uint64_t received, acked; /* bytes, since the connection opened */
    uint32_t since_ack_ms;    /* since the last acknowledgement */
    bool all_arrived;         /* nothing is unsent or unacknowledged */
    bool window_closed;       /* the peer's receive window is closed */
    bool over;                /* the kernel has ended the connection */
};

/* Returns false if the kernel does not provide the state. */
bool sl_tcp_socket_progress(int fd, struct sl_tcp_progress *out);

/* Returns why the kernel has ended an open connection; CLOSED if unknown. */
int sl_tcp_socket_end_err(int fd);

/* Converts an errno of an open connection. */
int sl_tcp_socket_err(int system_errno);

/* Opens a bound, listening socket. Errors: IN_USE, IO, NOT_FOUND (no such local address). */
int sl_tcp_socket_listen(const struct sl_tcp *tcp, const struct sockaddr_storage *address,
                         socklen_t address_bytes, int *out_fd);

/* Checks that the kernel has this congestion control. Errors: INVALID, with a log line that lists
 * the available ones. */
int sl_tcp_socket_check_congestion(const char *name);

/* Returns the endpoint of this side or of the peer. Errors: IO. */
int sl_tcp_socket_name(int fd, bool of_peer, struct sl_endpoint *out);

/* Whether the socket is connected to itself: the kernel may choose the destination port as source
 * port. */
bool sl_tcp_socket_is_own_peer(int fd);

/* listen.c */

int sl_tcp_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);

/* Cancels accepting; sl_tcp_listen_free closes the listeners when no operation is in flight. */
void sl_tcp_listen_stop(struct sl_tcp *tcp);
void sl_tcp_listen_free(struct sl_tcp *tcp);

/* conn.c */

/* Creates a connection for a socket and links it to the transport; NULL without memory. */
struct sl_tcp_conn *sl_tcp_conn_create(struct sl_tcp *tcp, int fd,
                                       const struct sl_transport_events *events, void *ctx);

int sl_tcp_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out);
void sl_tcp_conn_disconnect(struct sl_conn *base);
int sl_tcp_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);

/* Count the operations in flight. */
void sl_tcp_conn_op_begin(struct sl_tcp_conn *conn);
void sl_tcp_conn_op_end(struct sl_tcp_conn *conn);

/* Ends the connection: cancels operations; `closed` follows from a poll. The first error counts;
 * after disconnect it is OK. */
void sl_tcp_conn_end(struct sl_tcp_conn *conn, int err);

/* As end, but with CANCELLED in any case. */
void sl_tcp_conn_abort(struct sl_tcp_conn *conn);

/* Ends a connection whose handshake failed: sends the alert to the peer, then `closed` with
 * REFUSED. */
void sl_tcp_conn_refuse(struct sl_tcp_conn *conn);

/* Handles a failed send: data that the peer sent before may be read for one more second. */
void sl_tcp_conn_send_broke(struct sl_tcp_conn *conn);

/* DRAINING: takes the next step of closing, if nothing is in flight for it. */
void sl_tcp_conn_drain(struct sl_tcp_conn *conn);

/* LEAVING, no receive in flight: moves the connection to its reactor when no send is in flight. */
void sl_tcp_conn_depart(struct sl_tcp_conn *conn);

/* Called by poll for connections in `pending` and `ended`. */
void sl_tcp_conn_resume(struct sl_tcp_conn *conn);
void sl_tcp_conn_finish(struct sl_tcp_conn *conn);

/* For the transport's close. */
void sl_tcp_conn_free_spares(struct sl_tcp *tcp);

/* Frees spares beyond SL_TCP_SPARES, so that a flood of connections leaves little memory behind. */
void sl_tcp_conn_trim_spares(struct sl_tcp *tcp);

/* liveness.c */

/* The liveness check: one timer per transport checks each connection a few times within the peer
 * timeout. A peer that is silent for the timeout in the middle of a frame, or while connecting, is
 * ended with DEADLINE. */
void sl_tcp_liveness_open(struct sl_tcp *tcp);
void sl_tcp_liveness_close(struct sl_tcp *tcp);

/* Registers a new connection. */
void sl_tcp_liveness_add(struct sl_tcp *tcp, struct sl_tcp_conn *conn);

/* receive.c */

/* Parses received data, makes the upcalls, then starts the receive that is needed next. */
void sl_tcp_receive_advance(struct sl_tcp_conn *conn);

/* Whether the peer owes the rest of a frame: it began one, and this side is ready to receive. */
bool sl_tcp_receive_owed(const struct sl_tcp_conn *conn);

/* Frees the memory of bytes that are not parsed or delivered. */
void sl_tcp_receive_drop(struct sl_tcp_conn *conn);

/* begin returns a submission for a receive and counts it; complete is common to all receive
 * completions. */
struct io_uring_sqe *sl_tcp_receive_begin(struct sl_tcp_conn *conn);
void sl_tcp_receive_complete(struct sl_tcp_conn *conn, int32_t result);

/* Receives slices of long frames; called when the turn's sends are submitted. */
void sl_tcp_receive_slices(struct sl_tcp *tcp);

/* Restarts connections that wait for buffers, as many as there are buffers. */
void sl_tcp_receive_feed(struct sl_tcp *tcp);

void sl_tcp_receive_release(struct sl_conn *base, const struct sl_transport_message *message);

/* send.c */

uint32_t sl_tcp_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

/* Starts a send of the queue. */
void sl_tcp_send_start(struct sl_tcp_conn *conn);

/* Returns a submission for a send and counts it. */
struct io_uring_sqe *sl_tcp_send_begin(struct sl_tcp_conn *conn);

/* Common to all send completions. Returns false if the connection ends here. */
bool sl_tcp_send_complete(struct sl_tcp_conn *conn, int32_t result);

/* Removes `bytes` sent bytes from the queue. */
void sl_tcp_send_advance(struct sl_tcp_conn *conn, uint32_t bytes);

static inline struct iovec *sl_tcp_send_piece_at(struct sl_tcp_send *send, uint32_t index)
{
    return &send->pieces[index & (SL_TCP_SEND_PIECES - 1)];
}

static inline bool sl_tcp_send_idle(const struct sl_tcp_conn *conn)
{
    return conn->send.run_head == conn->send.run_tail && !conn->send.in_flight &&
           (conn->tls == NULL || sl_tcp_tls_output_bytes(conn->tls) == 0);
}

/* tls_conn.c: a connection with TLS, between io_uring and the parser: decrypts what is received and
 * encrypts what is sent. */

/* Creates the TLS state. `host`: the host to connect to; NULL: accepted. Errors: NO_MEMORY. */
int sl_tcp_tls_conn_begin(struct sl_tcp_conn *conn, const char *host);

/* Continues the handshake; reports `accepted` or `connected` at its end. */
void sl_tcp_tls_conn_shake(struct sl_tcp_conn *conn);

/* Returns up to `wanted` bytes of the stream; 0 if more input is needed, or at the end. */
uint32_t sl_tcp_tls_conn_take(struct sl_tcp_conn *conn, uint8_t *to, uint32_t wanted);

/* Start a receive, or a send of the queue. */
void sl_tcp_tls_conn_receive(struct sl_tcp_conn *conn);
void sl_tcp_tls_conn_send(struct sl_tcp_conn *conn);

/* Queues a send for TLS's own messages. */
void sl_tcp_tls_conn_queue(struct sl_tcp_conn *conn);

#endif
