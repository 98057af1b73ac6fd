/* The transport contract: one API with the same meaning over TCP, shared memory, RDMA and DPDK,
 * proven by tests/conformance. Read this first.
 *
 * A transport object belongs to one reactor; so do its connections. It carries frames: a fixed
 * header (net/wire/frame.h) followed by payload_bytes of payload, whole and in order within a
 * connection. What the frames mean is not its business, beyond their length.
 *
 * Rules:
 * - Every function is called by the owner reactor only. None blocks, none makes an upcall.
 * - Upcalls (struct sl_transport_events) are made only from inside the reactor's turn: from `poll`,
 *   which for a transport on the reactor's ring includes the ring's completions. In an upcall every
 *   function may be called, `disconnect` of the same connection included.
 * - Every connection, accepted or connecting, ends with exactly one `closed`; until then its
 *   sl_conn is valid, after it the transport may reuse it. Nothing that the transport took with
 *   send_burst, and no memory named by `sink`, is touched after `closed` has been called.
 * - Callers use the sl_transport_* functions of this file, which assert the contract; the ops table
 *   is for those who implement it. */
#ifndef SL_NET_TRANSPORT_H
#define SL_NET_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/endpoint.h"
#include "core/err.h"
#include "net/conn.h"
#include "net/trace.h"
#include "net/wire/frame.h"
#include "reactor/reactor.h"

struct sl_transport;
struct sl_dpdk_options; /* net/dpdk/dpdk.h */

enum sl_transport_capability {
    SL_TRANSPORT_DIRECT_REPLIES = 1 << 0, /* takes `landing` with a frame: the peer writes there */
    SL_TRANSPORT_REGISTERS = 1 << 1,   /* the medium reads and writes registered memory by itself */
    SL_TRANSPORT_CHECKSUMS = 1 << 2,   /* the medium checks integrity itself */
    SL_TRANSPORT_MIGRATES = 1 << 3,    /* migrate works */
    SL_TRANSPORT_MULTI_FRAME = 1 << 4, /* the head of what is sent may be several whole frames, one
                                        * behind the other: they count as one until `sent` */
    SL_TRANSPORT_COALESCES = 1 << 5,   /* takes frames whose cookie is SL_TRANSPORT_COALESCED */
    SL_TRANSPORT_CHUNKS = 1 << 6,      /* what is sent need not be a whole frame: the next is its
                                        * continuation, as far as the receiver can tell */
    SL_TRANSPORT_MAPS_MEMORY = 1 << 7  /* registered memory is read by the peer where it lies */
};
/* What REGISTERS means. What lies in memory registered with the transport is sent from there and
 * received there without a copy, but for what is so short that a copy is cheaper. Other memory is
 * copied. With DIRECT_REPLIES as well (RDMA), neither `head` nor `payload` of a frame may be longer
 * than SL_TRANSPORT_UNREGISTERED_BYTES_MAX in such memory, and a long payload is received there
 * piece by piece, which is slow.
 *
 * What ONE_SIDED means for who answers: conn->landing where the peer's memory can be written as
 * ours can (SHARES); else nothing, and the frame of type REPLY with the request's id goes to the
 * landing of that request by itself.
 *
 * What SHARES means. A frame's parts that lie in memory registered with the transport
 * (core/shared.h) are not copied by the sender, unless they are so short that this is cheaper; all
 * else is, once. A short payload of a REPLY is delivered where the peer has it, since a reply is
 * plain values; so is a long frame, of any type, for which `sink` said SL_TRANSPORT_IN_PLACE, in
 * two places where its sender has it so (`rest` of struct sl_conn). The peer may change such a
 * payload while it is read, if it is mad: what is checked there must be copied before. It has the
 * memory back once its connection has ended: what is kept beyond `closed` must be copied too. Every
 * other payload is copied to where only this process can write before it is delivered. */
#define SL_TRANSPORT_IN_PLACE               ((void *)UINTPTR_MAX)
#define SL_TRANSPORT_UNREGISTERED_BYTES_MAX (64U << 10)

/* The cookie of a frame that goes with the one before it on the connection, which was taken and has
 * not been reported: that one's `sent` comes when both are sent, and this one has none. So a run of
 * short frames is reported once. */
extern const char sl_transport_coalesced;
#define SL_TRANSPORT_COALESCED ((void *)(uintptr_t)&sl_transport_coalesced)

/* TLS 1.3, both sides with a certificate: files in PEM. Strings must outlive the transport's open.
 * `accepted` and `connected` come when hands are shaken. A handshake that fails is `closed` with
 * REFUSED for who connects, one that takes longer than 10 s (or peer_timeout_ms) with DEADLINE; who
 * accepts never hears of either. Only the log says why. To who connects the handshake is over
 * before the peer has checked his certificate: he may hear of REFUSED after `connected`. */
struct sl_transport_tls {
    const char *certificate; /* ours, with the chain that leads to an authority */
    const char *key;
    const char *authority; /* who has signed the peers' */
    /* What the certificate of every peer that we connect to must name, instead of the host that
     * was connected to: for clusters whose hosts have one certificate, or no lasting address. NULL:
     * the host, an IP address or a name, among the certificate's alternative names. */
    const char *peer_name;
};

struct sl_transport_options {
    const char *congestion_control; /* TCP_CONGESTION by name; NULL: the system's default */
    uint32_t connections_max;       /* 0: SL_LIMIT_CONNECTIONS */
    uint32_t buffer_bytes;          /* one receive buffer; 0: 32 KiB */
    uint32_t buffer_count;          /* receive buffers; a power of two; 0: 256 */
    size_t unplaced_bytes; /* TCP: of long frames that wait for memory, what has come; 0: 256 MiB */
    /* A peer that is unreachable for about so long (nothing acknowledged, no answer to
     * keep-alives, no answer to a connect) is gone: `closed` with DEADLINE. So is one of which a
     * frame, or only its header, has come in part and then nothing more. One that is kept waiting
     * by a `sink` that said NULL is not. TCP: idle connections are probed in whole seconds, so
     * that below 2 s they take 2; a connection whose peer takes nothing, and says so, takes up to
     * three times as long. 0: 10 s */
    uint32_t peer_timeout_ms;
    const struct sl_transport_tls *tls; /* TCP only; NULL: in the clear */
    /* RDMA only. Names of devices, with commas between; NULL: any. */
    const char *rdma_device;
    /* RDMA only. The entry, counted from 1, of the GID table of the first of them whose address is
     * used; 0: the endpoint's address decides. */
    uint32_t rdma_gid;
    /* DPDK only: the devices. Outlives the transport's open. */
    const struct sl_dpdk_options *dpdk;
    void *medium; /* what a transport that is not of the operating system works on: net/fault's
                   * plan, a simulated network; ignored by the others */
};

/* One frame to send. `head` and `payload` are the transport's to read, unmodified by their owner,
 * from the moment that send_burst took the frame until `sent` (or `closed`) for it. */
struct sl_transport_frame {
    const void *head;       /* frame header, with as much of the payload as the owner put there */
    const void *payload;    /* the rest of the payload, or NULL */
    uint32_t head_bytes;    /* >= SL_FRAME_HEADER_BYTES */
    uint32_t payload_bytes; /* of `payload` */
    void *cookie;           /* comes back in `sent` */
    /* ONE_SIDED: where the payload of the peer's answer shall lie, in registered memory that peers
     * may write, or, with REGISTERS, in any; the caller keeps it until the answer has come or the
     * connection has closed. NULL: anywhere. A frame whose payload already lies where `sink` says
     * is not moved. */
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
};

/* One frame received. The memory is the receiver's to read until it calls release, which it must
 * before or after returning from the upcall, exactly once, unless it named the memory by `sink`. */
struct sl_transport_message {
    struct sl_frame header;
    const uint8_t *payload; /* header.payload_bytes bytes, aligned to 8 */
    void *token;            /* the transport's; NULL: the payload lies where `sink` said */
};

struct sl_transport_events {
    /* A peer connected to what `listen` opened. Set conn->user here. */
    void (*accepted)(void *ctx, struct sl_conn *conn);
    /* A connect has succeeded; frames may be sent from now on. */
    void (*connected)(void *ctx, struct sl_conn *conn);
    /* The header of a frame whose payload is longer than SL_LIMIT_INLINE_PAYLOAD_BYTES: where shall
     * the payload go? Memory of header->payload_bytes, aligned to 8, the transport's to write until
     * `received` or `closed`. NULL: nowhere now; the connection is read no further, and the
     * question is asked again in later polls. It holds nothing meanwhile that other connections
     * need to receive. SHARES: also SL_TRANSPORT_IN_PLACE. */
    void *(*sink)(void *ctx, struct sl_conn *conn, const struct sl_frame *header);
    void (*received)(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message);
    /* The frame's memory is its owner's again; in the order of sending. */
    void (*sent)(void *ctx, struct sl_conn *conn, void *cookie);
    /* send_burst took fewer than offered before; now it has room. */
    void (*writable)(void *ctx, struct sl_conn *conn);
    /* The end, after `disconnect`, the peer's close (CLOSED), a failed connect (REFUSED, DEADLINE,
     * NOT_FOUND), a peer that is out of reach or stopped within a frame (DEADLINE), or an error:
     * PROTOCOL for what is no frame, or was tampered with; IO for a stream that TLS says was cut.
     * Frames taken but not `sent` are given back with this: their cookies are not reported again.
     */
    void (*closed)(void *ctx, struct sl_conn *conn, int err);
};

struct sl_transport_stats {
    uint64_t bytes_sent, bytes_received, frames_sent, frames_received;
    uint64_t send_calls, receive_calls; /* operations submitted to the medium */
    uint64_t copied_bytes;              /* moved once more than the medium requires */
    uint32_t connections;
};

/* Fourteen slots, and no more. */
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
                   const struct sl_transport_events *events, void *ctx, struct sl_conn **out);
    void (*disconnect)(struct sl_conn *conn);
    int (*migrate)(struct sl_conn *conn, struct sl_transport *to,
                   const struct sl_transport_events *events, void *ctx, void *user);
    uint32_t (*send_burst)(struct sl_conn *conn, const struct sl_transport_frame *frames,
                           uint32_t count);
    void (*release)(struct sl_conn *conn, const struct sl_transport_message *message);
    void (*flush)(struct sl_transport *transport); /* once a turn: what was taken goes out */
    uint32_t (*poll)(struct sl_transport *transport, uint32_t budget); /* receive; upcalls */
    bool (*arm)(struct sl_transport *transport); /* false: there is work, do not sleep */
    void (*stats)(const struct sl_transport *transport, struct sl_transport_stats *out);
};

/* What every implementation's object begins with; filled by sl_transport_open. */
struct sl_transport {
    const struct sl_transport_ops *ops;
    struct sl_reactor *reactor;
    struct sl_reactor_source source; /* calls poll, flush, arm; added by sl_transport_open */
    bool polling;                    /* an upcall is in progress: for the facade's assertions */
    bool secure;                     /* with TLS */
};

/* ---- The facade: what callers use ------------------------------------------------------------ */

/* The implementation of a scheme that is built in, or NULL. Any thread. */
const struct sl_transport_ops *sl_builtin_find(enum sl_endpoint_scheme scheme);

/* Why it cannot be used on this machine, for messages: "built without RDMA", "libibverbs.so.1: not
 * found", or that there is no device, where sl_builtin_find gives one (which may be opened with a
 * medium of its own); NULL: nothing is known against it. Any thread. */
const char *sl_builtin_missing(enum sl_endpoint_scheme scheme);

/* Opens a transport on the calling reactor and adds it to the reactor's sources; options may be
 * NULL for the defaults. Asserts that the ops table is complete. Errors: NO_MEMORY, UNSUPPORTED,
 * INVALID (an option), with a log line that says why. */
int sl_transport_open(const struct sl_transport_ops *ops, struct sl_reactor *reactor,
                      const struct sl_transport_options *options, struct sl_transport **out);

/* Closes listeners and connections at once (`closed` with CANCELLED for each, from inside this
 * call: the one exception to the rule on upcalls), removes the source, frees the memory of messages
 * that were not released. Not from inside an upcall, and not while another reactor may still hand a
 * connection over to it. Other completions of the reactor's ring are delivered meanwhile. Nulls
 * *transport. */
void sl_transport_close(struct sl_transport **transport);

/* Makes memory known to the medium; must outlive what is sent from it. Errors: NO_MEMORY. */
int sl_transport_memory_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_transport_memory_unregister(struct sl_transport *transport, void *base);

/* Accepts connections on the endpoint; *bound has the port that was chosen when it was 0. May be
 * called several times. Errors: IN_USE, NOT_FOUND, IO: with a log line that names the endpoint. */
int sl_transport_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx,
                        struct sl_endpoint *bound);

/* Begins to connect; `connected` or `closed` follows. The endpoint's host must be numeric or
 * resolvable without long waiting (resolve names before). Errors: NO_MEMORY, NOT_FOUND, TOO_LARGE
 * (connections_max), IO. */
int sl_transport_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                         const struct sl_transport_events *events, void *ctx, void *user,
                         struct sl_conn **out);

/* Begins to close: what was taken by send_burst is sent first, where the peer still reads, within
 * a second; `closed` (with OK) follows. Frames received meanwhile are dropped. Idempotent. */
void sl_transport_disconnect(struct sl_conn *conn);

/* Moves an accepted connection to another reactor's transport of the same kind, once. Called from
 * inside `received`; nothing may be outstanding on the connection but the message being delivered,
 * which must be released before. On this reactor the sl_conn is gone when the call returns (no
 * `closed`); on the other `accepted` comes, with conn->user already set to `user`, then the frames
 * that arrived in between. The frame being handled is not delivered again. connections_max is
 * enforced where connections are accepted, not where they are handed to. Errors: UNSUPPORTED,
 * NO_MEMORY: then `closed` follows here. */
int sl_transport_migrate(struct sl_conn *conn, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user);

/* Offers `count` frames; returns how many it took, in order: fewer when its queue is full or the
 * connection is closing. What was taken goes out in this turn's burst. */
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
    if (sl_trace_wants(SL_VERBOSE_MESSAGES)) {
        sl_trace_sent(conn, frames, taken);
    }
    return taken;
}

/* Gives a received message's memory back, at the latest before the transport is closed; a message
 * may be kept beyond its connection's `closed`, and its conn still named here. Does nothing for a
 * message whose token is NULL. */
static inline void sl_transport_release(struct sl_conn *conn,
                                        const struct sl_transport_message *message)
{
    if (message->token != NULL) { /* else nothing holds the connection's memory */
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
