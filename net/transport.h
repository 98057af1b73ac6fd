/* The transport contract: one API with the same meaning over TCP, shared memory, RDMA and DPDK,
 * proven by tests/conformance. Read this first.
 *
 * A transport and its connections belong to one reactor. A transport delivers frames, a fixed
 * header (net/wire/frame.h) and payload_bytes of payload, whole and in order within a connection.
 * Of a frame's content it interprets the length only. Rules:
 * - Only the owner reactor calls the functions. None but close blocks or makes an upcall.
 * - Upcalls (struct sl_transport_events) run only in the reactor's turn: from `poll`, or from
 *   completions of the reactor's ring. An upcall may call every function, also `disconnect` of its
 *   own connection.
 * - Every connection ends with exactly one `closed`, unless it migrates away. Its sl_conn is valid
 *   until then; afterwards the transport may reuse it. After `closed` the transport touches
 *   neither frames taken by send_burst nor memory returned by `sink`.
 * - Callers use the sl_transport_* functions, which assert the contract; implementations fill the
 *   ops table. */
#ifndef SL_NET_TRANSPORT_H
#define SL_NET_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/endpoint.h"
#include "core/err.h"
#include "core/log.h"
#include "net/conn.h"
#include "net/trace.h"
#include "net/transport_metrics.h"
#include "net/wire/frame.h"
#include "reactor/reactor.h"

struct sl_transport;
struct sl_dpdk_options; /* net/dpdk/dpdk.h */

enum sl_transport_capability {
    /* Accepts `reply_buffer` with a frame: the reply is written there. */
    SL_TRANSPORT_DIRECT_REPLIES = 1 << 0,
    SL_TRANSPORT_REGISTERS = 1 << 1, /* the medium itself accesses registered memory */
    SL_TRANSPORT_CHECKSUMS = 1 << 2, /* the medium checks integrity itself */
    /* Supports migrate, and ignores `target` of connect. */
    SL_TRANSPORT_MIGRATES = 1 << 3,
    /* `head` may hold several whole frames in a row; they count as one until `sent`. */
    SL_TRANSPORT_MULTI_FRAME = 1 << 4,
    SL_TRANSPORT_COALESCES = 1 << 5, /* accepts the cookie SL_TRANSPORT_COALESCED */
    /* A sent piece may be part of a frame, continued by the next piece. */
    SL_TRANSPORT_CHUNKS = 1 << 6,
    /* Peers read registered memory in place. */
    SL_TRANSPORT_MAPS_MEMORY = 1 << 7
};
/* REGISTERS: payload in registered memory is sent and received without a copy, unless it is so
 * short that a copy is cheaper. Other memory is copied. With DIRECT_REPLIES as well (RDMA), neither
 * `head` nor `payload` of a frame may be longer than SL_TRANSPORT_UNREGISTERED_BYTES_MAX in
 * unregistered memory, and a long payload is received there piece by piece, which is slow.
 *
 * DIRECT_REPLIES, on the replying side: with MAPS_MEMORY, conn->reply_buffer points into the
 * requester's memory. Otherwise it is NULL, and the transport writes the REPLY frame with that
 * request id to the request's reply buffer itself.
 *
 * MAPS_MEMORY: the sender does not copy parts of a frame in registered memory (core/shared.h),
 * unless they are so short that a copy is cheaper; it copies other parts once. Two kinds of payload
 * are delivered in the sender's memory: a short REPLY, which holds only plain values, and a long
 * frame of any type for which `sink` returned SL_TRANSPORT_IN_PLACE, possibly in two pieces (`tail`
 * of struct sl_conn). A malicious peer can modify this memory while you read it: copy it before
 * validating it. The peer reuses it after its connection has ended: copy data that is kept beyond
 * `closed`. Every other payload is copied to private memory before it is delivered. */
#define SL_TRANSPORT_IN_PLACE               ((void *)UINTPTR_MAX)
#define SL_TRANSPORT_UNREGISTERED_BYTES_MAX (64U << 10)

/* The cookie of a frame that is reported together with the previous frame on the connection, which
 * must be taken and not reported: its `sent` follows when both are sent, and this frame has none.
 * So a run of short frames is reported once. */
extern const char sl_transport_coalesced;
#define SL_TRANSPORT_COALESCED ((void *)(uintptr_t)&sl_transport_coalesced)

/* TLS 1.3, both sides with a certificate; PEM files. The strings must outlive the transport's open.
 * `accepted` and `connected` follow the handshake. On the connecting side a failed handshake is
 * `closed` with REFUSED, one longer than 10 s (or peer_timeout_ms) with DEADLINE; the accepting
 * side gets no upcall. Only the log has the cause. The connecting side completes the handshake
 * before the peer has checked its certificate, so REFUSED may follow `connected`. */
struct sl_transport_tls {
    const char *certificate; /* of this process, with its chain up to an authority */
    const char *key;
    const char *authority; /* the authority of the peers' certificates */
    /* The name required in the certificate of every peer that this process connects to, for
     * clusters whose hosts share a certificate or change addresses. NULL: the host connected to, an
     * IP address or a name, among the alternative names. */
    const char *peer_name;
};

struct sl_transport_options {
    const char *congestion_control; /* TCP_CONGESTION by name; NULL: the system's default */
    uint32_t connections_max;       /* 0: SL_LIMIT_CONNECTIONS */
    uint32_t buffer_bytes;          /* of one receive buffer; 0: 32 KiB */
    uint32_t buffer_count;          /* receive buffers; a power of two; 0: 256 */
    size_t unplaced_bytes;          /* TCP: limit on long frames that wait for memory; 0: 256 MiB */
    /* ms without a response (no acknowledgement, no keep-alive reply, no reply to a connect) until
     * a peer counts as unreachable: `closed` with DEADLINE. The same holds for a peer that stops
     * within a frame or header, unless a `sink` that returned NULL delays it. TCP: idle connections
     * are probed in whole seconds, at least 2 s; a peer that announces a full receive window takes
     * up to three times as long. 0: 10 s. */
    uint32_t peer_timeout_ms;
    const struct sl_transport_tls *tls; /* TCP only; NULL: unencrypted */
    const char *rdma_device;            /* RDMA only: device names, comma-separated; NULL: any */
    /* RDMA only: entry of the GID table of the first device, whose address is used. Without
     * has_rdma_gid_index the endpoint's address selects it. */
    bool has_rdma_gid_index;
    uint32_t rdma_gid_index;
    /* RDMA only: the number of this transport among those of the process that listen on the same
     * endpoint. A peer that connects names it (`target`). DPDK: the reactor's index instead. */
    uint32_t number;
    const struct sl_dpdk_options *dpdk; /* DPDK only: devices; must outlive open */
    struct sl_transport_cells *cells; /* zeroed, outlive the transport; NULL: a block of its own */
    /* The medium of a transport outside the operating system, such as a fault plan or a simulated
     * network. Other transports ignore it. */
    void *medium;
};

/* A frame to send. The transport reads `head` and `payload`, and their owner must not modify them,
 * from when send_burst takes the frame until its `sent` or the connection's `closed`. */
struct sl_transport_frame {
    const void *head;       /* frame header and the first part of the payload */
    const void *payload;    /* the remaining payload, or NULL */
    uint32_t head_bytes;    /* >= SL_FRAME_HEADER_BYTES */
    uint32_t payload_bytes; /* of `payload` */
    void *cookie;           /* returned in `sent` */
    /* DIRECT_REPLIES: where to write the reply's payload: registered memory that peers may write,
     * or, with REGISTERS, any memory. The caller keeps it until the reply arrives or the connection
     * closes. NULL: anywhere. A reply whose payload already lies where `sink` says is not moved. */
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
};

/* A received frame. The receiver may read the memory until it calls release, exactly once, within
 * or after the upcall; no release if `sink` provided the memory. */
struct sl_transport_message {
    struct sl_frame header;
    const uint8_t *payload; /* header.payload_bytes bytes, aligned to 8 unless `sink` chose it */
    void *token;            /* private to the transport; NULL: the payload is where `sink` said */
};

struct sl_transport_events {
    /* A peer connected to a listening endpoint. Set conn->user here. */
    void (*accepted)(void *ctx, struct sl_conn *conn);
    void (*connected)(void *ctx, struct sl_conn *conn); /* frames may be sent from now on */
    /* Asks where to put a payload longer than SL_LIMIT_INLINE_PAYLOAD_BYTES. Returns memory of
     * header->payload_bytes, of any alignment, which the transport may write until `received` or
     * `closed`. With MAPS_MEMORY also asked for requests from conn->sink_bytes on. NULL: none yet;
     * the connection is not read further, and later polls ask again. Meanwhile it holds no
     * resources that other connections need to receive. MAPS_MEMORY: also SL_TRANSPORT_IN_PLACE. */
    void *(*sink)(void *ctx, struct sl_conn *conn, const struct sl_frame *header);
    void (*received)(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message);
    /* The owner may reuse the frame's memory. In the order of sending. */
    void (*sent)(void *ctx, struct sl_conn *conn, void *cookie);
    /* There is room again after send_burst took fewer frames than offered. */
    void (*writable)(void *ctx, struct sl_conn *conn);
    /* The connection has ended: OK after `disconnect`; CLOSED by the peer; REFUSED, DEADLINE or
     * NOT_FOUND for a failed connect; DEADLINE for a peer that is unreachable or stopped within a
     * frame; PROTOCOL, VERSION or TOO_LARGE for data that is no acceptable frame or was tampered
     * with; IO for a stream truncated according to TLS; NO_MEMORY; CANCELLED from the transport's
     * close. Frames taken but not `sent` are returned with this; their cookies are not reported. */
    void (*closed)(void *ctx, struct sl_conn *conn, int err);
};

/* Fifteen slots at most. NULL may be: memory_(un)register, if the medium reads any memory; migrate;
 * send_now (transport_now.h). */
struct sl_transport_ops {
    const char *scheme;    /* "tcp" */
    uint32_t capabilities; /* sl_transport_capability */

    int (*open)(struct sl_reactor *reactor, const struct sl_transport_options *options,
                struct sl_transport **out);
    void (*close)(struct sl_transport **transport);
    int (*memory_register)(struct sl_transport *transport, void *base, size_t bytes);
    void (*memory_unregister)(struct sl_transport *transport, void *base);
    int (*listen)(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                  const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
    int (*connect)(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   uint32_t target, const struct sl_transport_events *events, void *ctx,
                   struct sl_conn **out);
    void (*disconnect)(struct sl_conn *conn);
    int (*migrate)(struct sl_conn *conn, struct sl_transport *to,
                   const struct sl_transport_events *events, void *ctx, void *user);
    uint32_t (*send_burst)(struct sl_conn *conn, const struct sl_transport_frame *frames,
                           uint32_t count);
    uint32_t (*send_now)(struct sl_conn *conn, const struct iovec *parts, uint32_t count);
    void (*release)(struct sl_conn *conn, const struct sl_transport_message *message);
    void (*flush)(struct sl_transport *transport); /* once a turn: sends the frames taken */
    uint32_t (*poll)(struct sl_transport *transport, uint32_t budget); /* receives; makes upcalls */
    bool (*arm)(struct sl_transport *transport); /* false: there is work, do not sleep */

    const struct sl_transport_rma_ops *rma; /* one-sided operations, net/transport_rma.h; or NULL */
};

/* The first member of every implementation's object; filled by sl_transport_open. */
struct sl_transport {
    const struct sl_transport_ops *ops;
    struct sl_reactor *reactor;
    struct sl_reactor_source source; /* calls poll, flush, arm; added by sl_transport_open */
    uint32_t connections_max;        /* of the options, or the default; as the next */
    uint32_t peer_timeout_ms;
    bool is_closing;                  /* sl_transport_close has begun: nobody can connect */
    bool in_upcall;                   /* for assertions */
    struct sl_transport_cells *cells; /* of the options, or own_cells */
    struct sl_transport_cells own_cells;
    /* Set by the user, or NULL: runs after a poll with work, before the clock is read for it. */
    void (*polled)(void *ctx);
    void *polled_ctx;
    struct sl_log_limit log_limit;                    /* for lines about peers */
    bool secure;                                      /* with TLS */
    const struct sl_transport_rma_events *rma_events; /* set by sl_transport_rma_open */
    void *rma_ctx;
};

/* Functions for callers */

/* Returns the built-in implementation of a scheme, or NULL. Any thread. */
const struct sl_transport_ops *sl_builtin_find(enum sl_endpoint_scheme scheme);

/* Why the scheme is unusable on this host, for messages: "built without RDMA", "libibverbs.so.1:
 * not found", or no device although sl_builtin_find returns an implementation (which may still be
 * opened with its own medium). NULL: no known reason. Any thread. */
const char *sl_builtin_missing(enum sl_endpoint_scheme scheme);

/* Opens a transport on the calling reactor and adds it to the reactor's sources. options NULL: the
 * defaults. Asserts that ops is complete. Errors, logged: NO_MEMORY, UNSUPPORTED, INVALID. */
int sl_transport_open(const struct sl_transport_ops *ops, struct sl_reactor *reactor,
                      const struct sl_transport_options *options, struct sl_transport **out);

/* Closes listeners and connections at once, removes the source and frees unreleased messages.
 * Reports `closed` with CANCELLED for each connection from inside this call, the only such upcall.
 * Not in an upcall, nor while another reactor may still migrate a connection to it. Meanwhile
 * delivers other completions of the reactor's ring. Nulls *transport. */
void sl_transport_close(struct sl_transport **transport);

/* Registers memory with the medium; it must outlive the frames sent from it. Errors: NO_MEMORY. */
int sl_transport_memory_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_transport_memory_unregister(struct sl_transport *transport, void *base);

/* Accepts connections on the endpoint; *bound holds the port chosen for port 0. May be called
 * several times. Without MIGRATES several transports of a process, each of another reactor or with
 * another number, may listen on one endpoint: the first chooses the port, the others listen on
 * *bound, and each accepts the connections whose `target` it is. Errors, logged with the endpoint:
 * IN_USE, NOT_FOUND, IO. */
int sl_transport_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx,
                        struct sl_endpoint *bound);

/* Starts to connect; `connected` or `closed` follows. The endpoint's host must be numeric or
 * quickly resolvable: resolve names before. `target` names the peer's transport that shall own the
 * connection, by its number (sl_transport_options.number). `closed` with REFUSED follows if that
 * does not listen. Transports with MIGRATES ignore `target`. Errors: NO_MEMORY, NOT_FOUND,
 * TOO_LARGE (connections_max), CLOSED (while the transport closes), IO. */
int sl_transport_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                         uint32_t target, const struct sl_transport_events *events, void *ctx,
                         void *user, struct sl_conn **out);

/* Starts to close: sends the frames taken by send_burst, as long as the peer reads, for at most a
 * second; then `closed` with OK. Drops frames received meanwhile. Idempotent. */
void sl_transport_disconnect(struct sl_conn *conn);

/* MIGRATES: migrates an accepted connection to another reactor's transport of the same kind, once.
 * Call it inside `received`, after releasing the message; nothing else may be outstanding. The
 * sl_conn here ends with the call, without `closed`. The other reactor gets `accepted`, with
 * conn->user set to `user`, then the frames that arrived in between, but not the current frame
 * again. connections_max limits accepting only, not migration.
 *
 * Errors: NO_MEMORY: then `closed` follows here. */
int sl_transport_migrate(struct sl_conn *conn, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user);

/* Offers `count` frames; returns how many were taken, in order: fewer if the queue is full or the
 * connection is closing. Taken frames are sent in this turn's burst. */
static inline uint32_t sl_transport_send_burst(struct sl_conn *conn,
                                               const struct sl_transport_frame *frames,
                                               uint32_t count)
{
    const struct sl_transport_ops *ops = conn->transport->ops;
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->state != SL_CONN_CLOSED);
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(frames[i].head_bytes >= SL_FRAME_HEADER_BYTES ||
                  (ops->capabilities & SL_TRANSPORT_CHUNKS) != 0);
        sl_assert(frames[i].payload != NULL || frames[i].payload_bytes == 0);
        sl_assert_slow(frames[i].cookie != SL_TRANSPORT_COALESCED ||
                       (ops->capabilities & SL_TRANSPORT_COALESCES) != 0);
    }
    uint32_t taken = ops->send_burst(conn, frames, count);
    if (taken < count) {
        sl_cell_add(&conn->transport->cells->stalled_sends, 1);
    }
    if (sl_trace_wants(SL_VERBOSE_MESSAGES)) {
        sl_trace_sent(conn, frames, taken);
    }
    return taken;
}

/* Releases the memory of a received message, at the latest before the transport closes. A message,
 * and its conn as an argument here, may be kept beyond `closed`. No effect if the token is NULL. */
static inline void sl_transport_release(struct sl_conn *conn,
                                        const struct sl_transport_message *message)
{
    if (message->token != NULL) { /* otherwise the sl_conn may be gone */
        sl_reactor_assert_owner(conn->transport->reactor);
        conn->transport->ops->release(conn, message);
    }
}

/* Whether SL_TRANSPORT_UNREGISTERED_BYTES_MAX holds for frames of the connection. */
static inline bool sl_transport_needs_registered(const struct sl_conn *conn)
{
    const uint32_t both = SL_TRANSPORT_DIRECT_REPLIES | SL_TRANSPORT_REGISTERS;
    return (conn->transport->ops->capabilities & both) == both;
}

void sl_transport_get_stats(const struct sl_transport *transport, struct sl_transport_stats *out);

#endif
