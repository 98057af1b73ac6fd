/* What the files of this folder share: the transport's and the connection's state, and what each
 * file does for the others. Owner reactor throughout. */
#ifndef SL_NET_TCP_INTERNAL_H
#define SL_NET_TCP_INTERNAL_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "net/tcp/buffers.h"
#include "net/tcp/list.h"
#include "net/tcp/tls.h"
#include "net/transport.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

#define SL_TCP_SEND_RUNS   512 /* queued on one connection: twice the credits in requests */
#define SL_TCP_SEND_PIECES 512 /* of memory, likewise; two that touch are one */
#define SL_TCP_CALL_PIECES 64  /* of them, in one system call */
#define SL_TCP_CALL_BYTES                                                                          \
    (1U << 20) /* after these a send takes no further piece: `sent` is not                         \
                  put off for too long */
#define SL_TCP_DIRECT_BYTES                                                                        \
    (32U << 10) /* what is left of a long payload is received in place from                        \
                   here on; below, a copy is cheaper than to cancel */
#define SL_TCP_PATIENT_BYTES                                                                       \
    (256U << 10) /* of a long payload are awaited before anybody is woken for it: a                \
                    wake-up for every segment costs both sides more than the copy */
#define SL_TCP_SLICE_BYTES                                                                         \
    (64U << 10) /* of a long frame, sent or received at a time while others                        \
                   have short ones: about 10 us */
#define SL_TCP_SLICING_NS            (10 * SL_CLOCK_NS_PER_MS) /* either is remembered for so long */
#define SL_TCP_PEEK_BYTES            4096  /* read after a long frame, since another is likely */
#define SL_TCP_CONGESTION_NAME_BYTES 16    /* the kernel's TCP_CA_NAME_MAX */
#define SL_TCP_SPARES                256   /* closed connections kept for new ones */
#define SL_TCP_PEER_TIMEOUT_MS       10000 /* unless the options say otherwise */

struct sl_tcp_listener;

struct sl_tcp {
    struct sl_transport base;
    struct sl_ring *ring;
    struct sl_tcp_tls_context *tls; /* NULL: in the clear */
    struct sl_tcp_buffers buffers;
    char congestion[SL_TCP_CONGESTION_NAME_BYTES]; /* "": the system's default */
    uint32_t connections_max;
    uint32_t peer_timeout_ms;
    uint32_t ops_in_flight; /* of listeners and connections */
    bool closing;
    bool armed; /* since the last poll: the turn did nothing */

    struct sl_tcp_list all;     /* connections, until their `closed` */
    struct sl_tcp_list sending; /* have something queued and no send in flight */
    /* A connection waits in at most one of these: */
    struct sl_tcp_list pending; /* to be looked at in the next poll */
    struct sl_tcp_list
        wait_sink;              /* for memory to receive a frame into: asked again in later polls */
    struct sl_tcp_list refused; /* likewise, and asked since the last turn that did work */
    struct sl_tcp_list wait_buffer; /* for a buffer to come back to the ring */
    struct sl_tcp_list sliced; /* for what is short to be sent, before the next slice is received */
    struct sl_tcp_list ended;  /* for `closed` to be made */

    struct sl_tcp_conn *spare; /* closed connections, to be used again; SL_TCP_SPARES of them, and
                                * those whose messages are not released yet */
    uint32_t spare_count;
    bool spares_grew; /* since the last poll */
    struct sl_tcp_listener *listeners;
    struct sl_timer sweep;   /* armed while there are connections */
    uint64_t sweep_begun_ns; /* the round in progress, or the last one */
    uint32_t sweep_left;     /* connections that the round in progress has yet to look at */
    struct sl_transport_stats stats;
    uint64_t short_until_ns; /* until then connections without long frames count as busy */
    uint64_t log_next_ns;    /* until then lines about peers are only counted */
    uint32_t log_dropped;
};

/* Where the parser stands in the stream. */
enum sl_tcp_phase {
    SL_TCP_PHASE_HEADER, /* header_have bytes of a header are there */
    SL_TCP_PHASE_INLINE, /* a payload that the transport has memory for */
    SL_TCP_PHASE_SINK,   /* a long payload that nobody has named memory for */
    SL_TCP_PHASE_LONG    /* a long payload, into `payload` */
};

struct sl_tcp_receive {
    struct sl_ring_op op; /* at most one receive is in flight */
    bool in_flight;
    bool multishot;  /* what is in flight; or: */
    bool direct;     /* into `payload` */
    bool cancelling; /* what is in flight was asked to end */
    bool eof;
    bool empty_ring; /* the last receive ended since the ring had no buffer */
    bool peek;       /* a long frame was last: read little, and see */
    bool wait_sink;  /* parsing waits for memory */
    bool dry;        /* TLS: nothing can be opened until more is received */
    enum sl_tcp_phase phase;
    struct sl_tcp_rx_buf *first, *last; /* received and not parsed yet */
    struct sl_frame frame;              /* in all phases but HEADER */
    uint32_t header_have;
    uint32_t payload_have;
    uint32_t low_bytes; /* the socket is readable from so many on, as it was told; 0: from one */
    struct sl_tcp_staging *staging; /* INLINE: being filled, or NULL */
    uint8_t *payload;               /* LONG: the sink */
    uint8_t header[SL_FRAME_HEADER_BYTES];
};

/* A frame, and those that were joined to it: what is reported as sent at once. */
struct sl_tcp_run {
    void *cookie;
    uint32_t bytes, frames;
};

/* What is queued to be sent is kept twice: as pieces of memory, and as runs, whose bytes add up to
 * the same. Indices run freely. */
struct sl_tcp_send {
    struct sl_ring_op op; /* at most one send is in flight */
    bool in_flight;
    bool wants_room; /* owes the upper layer a `writable` */
    bool shut;       /* the peer has been told that nothing follows */
    bool broken;     /* a send failed: what the peer sent before is still being read */
    bool in_doubt;   /* something was sent of which no sweep has seen that all arrived */
    uint32_t piece_head, piece_tail;
    uint32_t run_head, run_tail;
    uint64_t run_sent; /* bytes of the run at run_head that were sent; they are in no piece now */
    struct msghdr message;
    struct iovec cut[2]; /* a head, and a slice of what follows */
    struct iovec pieces[SL_TCP_SEND_PIECES];
    struct sl_tcp_run runs[SL_TCP_SEND_RUNS];
};

/* What the sweeps remember of a connection. */
struct sl_tcp_watch {
    uint64_t quiet_since_ns;  /* of connecting; or since a frame has begun and not grown */
    uint32_t quiet_rounds;    /* of the sweeps, since then */
    uint64_t received;        /* bytes, when it was looked at last */
    uint64_t window_since_ns; /* the peer takes nothing since then, and says so */
    uint64_t acked;
    uint32_t patience_ms; /* the socket's TCP_USER_TIMEOUT */
};

enum sl_tcp_life {
    SL_TCP_LIVE,
    SL_TCP_DRAINING, /* disconnect: what is queued is sent, what arrives is dropped */
    SL_TCP_LEAVING,  /* handed over: its last receive is awaited */
    SL_TCP_ENDING    /* its operations are awaited, then `closed` is made */
};

struct sl_tcp_conn {
    struct sl_conn base;
    struct sl_tcp *tcp;
    int fd;
    uint32_t ops_in_flight;
    enum sl_tcp_life phase;
    int end_err;               /* DRAINING, ENDING: what `closed` will say */
    bool accept_pending;       /* accepted by the kernel, and nobody above knows of it */
    struct sl_tcp_tls *tls;    /* NULL: in the clear */
    struct sl_tcp_conn *moved; /* LEAVING: what it will be on the other reactor, which is: */
    struct sl_reactor *bound_for;
    struct sl_tcp_conn *spare_next;
    uint32_t held; /* messages delivered and not released: they name the connection, and those of an
                    * earlier connection count too */
    struct sl_tcp_link all, sending, waiting;
    struct sl_timer timer; /* DRAINING, or broken: how long we are patient */
    struct sl_ring_op connect_op;
    bool connecting;
    struct sockaddr_storage address; /* of the peer, while connecting */
    struct sl_tcp_watch watch;
    uint64_t long_until_ns; /* until then it counts as one that has long frames */
    struct sl_tcp_receive receive;
    struct sl_tcp_send send;
    struct sl_tcp_staging staging; /* its own: it can always take one frame */
};

#define SL_TCP_CONN_OF(link, member)                                                               \
    ((struct sl_tcp_conn *)((char *)(link)-offsetof(struct sl_tcp_conn, member)))

/* ---- tcp.c ------------------------------------------------------------------------------------
 */

/* Whether a line about a peer's misdeeds may be logged now: one in a second. */
bool sl_tcp_may_log(struct sl_tcp *tcp);

/* MSG_WAITALL where the kernel continues a short transfer by itself. All do from 5.19 on; but where
 * multishot receives are missing the kernel is old enough that we rather continue it ourselves. */
static inline int sl_tcp_wait_all(const struct sl_tcp *tcp)
{
    return tcp->ring->multishot_recv ? MSG_WAITALL : 0;
}

/* Asks the kernel to end an operation; its completion still comes. */
void sl_tcp_cancel(struct sl_tcp *tcp, struct sl_ring_op *op);

/* A call that moves megabytes takes as long as hundreds of short ones. So while connections that
 * have no long frames are served, those that have are content with a slice in each turn. */
static inline void sl_tcp_note_short(struct sl_tcp_conn *conn)
{
    struct sl_tcp *tcp = conn->tcp;
    uint64_t now_ns = sl_reactor_now_ns(tcp->base.reactor);
    if (now_ns >= conn->long_until_ns) {
        tcp->short_until_ns = now_ns + SL_TCP_SLICING_NS;
    }
}

/* It has had long frames lately. */
static inline bool sl_tcp_has_long(const struct sl_tcp_conn *conn)
{
    return sl_reactor_now_ns(conn->tcp->base.reactor) < conn->long_until_ns;
}

/* How much of `bytes` a call may move. */
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

/* ---- socket.c ---------------------------------------------------------------------------------
 */

/* A blocking socket (the ring needs no other) with our options. Errors: IO, NO_MEMORY. */
int sl_tcp_socket_open(const struct sl_tcp *tcp, int family, int *out_fd);

/* Sets what an accepted socket does not inherit reliably. */
void sl_tcp_socket_tune(const struct sl_tcp *tcp, int fd);

/* The same descriptor, or a copy of it that is none of a process's first three: who starts a
 * program with one of those closed must not have what it prints sent to a peer. Takes fd. Errors:
 * IO, NO_MEMORY; then fd is closed. */
int sl_tcp_socket_lift(int fd, int *out_fd);

/* The socket is readable once so many bytes are there, or the stream has ended. False: it does not
 * learn it. */
bool sl_tcp_socket_set_low(int fd, uint32_t bytes);

/* How long sent data may stay unacknowledged. */
void sl_tcp_socket_set_patience(int fd, uint32_t timeout_ms);

/* How a connection gets on, as the kernel sees it. */
struct sl_tcp_progress {
    uint64_t received, acked; /* bytes, over the connection's life */
    uint32_t since_ack_ms;    /* since the peer was last heard of */
    bool all_arrived;         /* nothing is unsent or unacknowledged */
    bool window_closed;       /* the peer lets us send nothing */
    bool over;                /* ended by the kernel */
};

/* False: the kernel does not say. */
bool sl_tcp_socket_progress(int fd, struct sl_tcp_progress *out);

/* Why the kernel has ended an open connection; CLOSED when it does not say. */
int sl_tcp_socket_end_err(int fd);

/* What an error of an open connection means. */
int sl_tcp_socket_err(int system_errno);

/* Bound to the address and listening. Errors: IN_USE, IO, NOT_FOUND (no such local address). */
int sl_tcp_socket_listen(const struct sl_tcp *tcp, const struct sockaddr_storage *address,
                         socklen_t address_bytes, int *out_fd);

/* Whether this system knows the congestion control. Errors: INVALID, with a line that says which
 * there are. */
int sl_tcp_socket_check_congestion(const char *name);

/* The endpoint of this side or of the peer. Errors: IO. */
int sl_tcp_socket_name(int fd, bool of_peer, struct sl_endpoint *out);

/* A connection to itself: the kernel may choose the very port that is connected to. */
bool sl_tcp_socket_is_own_peer(int fd);

/* ---- listen.c ---------------------------------------------------------------------------------
 */

int sl_tcp_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);

/* Closes every listener; they are freed by sl_tcp_listen_free once no operation is in flight. */
void sl_tcp_listen_stop(struct sl_tcp *tcp);
void sl_tcp_listen_free(struct sl_tcp *tcp);

/* ---- conn.c -----------------------------------------------------------------------------------
 */

/* A connection around a socket, linked to the transport; NULL without memory. */
struct sl_tcp_conn *sl_tcp_conn_create(struct sl_tcp *tcp, int fd,
                                       const struct sl_transport_events *events, void *ctx);

int sl_tcp_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx, struct sl_conn **out);
void sl_tcp_conn_disconnect(struct sl_conn *base);
int sl_tcp_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);

/* Counts an operation as in flight, or as completed. */
void sl_tcp_conn_op_begin(struct sl_tcp_conn *conn);
void sl_tcp_conn_op_end(struct sl_tcp_conn *conn);

/* The connection is over: operations are cancelled, `closed` follows from a poll. The first reason
 * counts, and after disconnect it is OK. */
void sl_tcp_conn_end(struct sl_tcp_conn *conn, int err);

/* As end, with CANCELLED whatever was before. */
void sl_tcp_conn_abort(struct sl_tcp_conn *conn);

/* The handshake failed: what tells the peer why is sent, then comes `closed` with REFUSED. */
void sl_tcp_conn_refuse(struct sl_tcp_conn *conn);

/* The peer cannot be sent to any more: gives what it sent before a second to be read. */
void sl_tcp_conn_send_broke(struct sl_tcp_conn *conn);

/* DRAINING: takes the next step towards the end, if nothing is awaited for it. */
void sl_tcp_conn_drain(struct sl_tcp_conn *conn);

/* LEAVING, and no receive in flight: sends it on its way, once no send is either. */
void sl_tcp_conn_depart(struct sl_tcp_conn *conn);

/* Of the lists `pending` and `ended`, from poll. */
void sl_tcp_conn_resume(struct sl_tcp_conn *conn);
void sl_tcp_conn_finish(struct sl_tcp_conn *conn);

/* Memory of a connection; for the transport's close. */
void sl_tcp_conn_free_spares(struct sl_tcp *tcp);

/* Frees spares beyond SL_TCP_SPARES, so that a flood of connections leaves little behind. */
void sl_tcp_conn_trim_spares(struct sl_tcp *tcp);

/* ---- sweep.c ----------------------------------------------------------------------------------
 */

/* One timer for all connections of a transport: a few times within the peer's timeout each is
 * looked at, and ended with DEADLINE where its peer has been silent in the middle of a frame, or
 * while connecting, for that long. */
void sl_tcp_liveness_open(struct sl_tcp *tcp);
void sl_tcp_liveness_close(struct sl_tcp *tcp);

/* The connection is new to the transport. */
void sl_tcp_liveness_add(struct sl_tcp *tcp, struct sl_tcp_conn *conn);

/* ---- receive.c --------------------------------------------------------------------------------
 */

/* Parses what is there, makes the upcalls, then sees to it that the right receive is in flight. */
void sl_tcp_receive_advance(struct sl_tcp_conn *conn);

/* Whether the peer has begun a frame, and it is not for us to go on: it owes the rest. */
bool sl_tcp_receive_owed(const struct sl_tcp_conn *conn);

/* Gives back all memory that is held for bytes not parsed, or not delivered. */
void sl_tcp_receive_drop(struct sl_tcp_conn *conn);

/* A submission for a receive, which is counted as in flight from here on; and what is alike in all
 * completions that end one. */
struct io_uring_sqe *sl_tcp_receive_begin(struct sl_tcp_conn *conn);
void sl_tcp_receive_complete(struct sl_tcp_conn *conn, int32_t result);

/* The turn's sends are under way: now slices of long frames are received. */
void sl_tcp_receive_slices(struct sl_tcp *tcp);

/* Starved connections try again, as many as there are buffers. */
void sl_tcp_receive_feed(struct sl_tcp *tcp);

void sl_tcp_receive_release(struct sl_conn *base, const struct sl_transport_message *message);

/* ---- send.c -----------------------------------------------------------------------------------
 */

uint32_t sl_tcp_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

/* Puts a send in flight for what is queued. */
void sl_tcp_send_start(struct sl_tcp_conn *conn);

/* A submission for a send, counted as in flight from here on. */
struct io_uring_sqe *sl_tcp_send_begin(struct sl_tcp_conn *conn);

/* What is alike in all completions of sends. False: there is nothing more to be done. */
bool sl_tcp_send_complete(struct sl_tcp_conn *conn, int32_t result);

/* After a send: `bytes` more of the queued frames are gone. */
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

/* ---- secure.c: a connection with TLS ----------------------------------------------------------
 * Between the ring and the rest: frames are parsed from what the channel opens, and sealed by it.
 */

/* Gives the connection its channel; the host is that which it connects to, NULL when it was
 * accepted. Errors: NO_MEMORY. */
int sl_tcp_tls_conn_begin(struct sl_tcp_conn *conn, const char *host);

/* Goes on with the handshake, with `accepted` or `connected` at its end. */
void sl_tcp_tls_conn_shake(struct sl_tcp_conn *conn);

/* Up to `wanted` bytes of the stream; none when it is dry, or over. */
uint32_t sl_tcp_tls_conn_take(struct sl_tcp_conn *conn, uint8_t *to, uint32_t wanted);

/* Puts a receive in flight, or a send for what is queued. */
void sl_tcp_tls_conn_receive(struct sl_tcp_conn *conn);
void sl_tcp_tls_conn_send(struct sl_tcp_conn *conn);

/* Sees to it that what TLS has to say of itself is sent. */
void sl_tcp_tls_conn_queue(struct sl_tcp_conn *conn);

#endif
