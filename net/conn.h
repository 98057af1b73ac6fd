/* A connection as the layers above a transport see it; the first member of every implementation's
 * connection. Owner reactor. */
#ifndef SL_NET_CONN_H
#define SL_NET_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

struct sl_frame;
struct sl_transport;
struct sl_transport_events;
struct sl_transport_message;

enum sl_conn_state {
    SL_CONN_CONNECTING,
    SL_CONN_OPEN,
    SL_CONN_CLOSING, /* disconnect was called, or the end is known; `closed` is still to come */
    SL_CONN_CLOSED
};

struct sl_conn {
    struct sl_transport *transport;
    const struct sl_transport_events *events;
    void *ctx;  /* of events: a server or a client's reactor */
    void *user; /* of the upper layer */
    enum sl_conn_state state;
    /* Why the transport has to end the connection, from sl_conn_fail; 0: it has not. */
    int failure;
    const char *failure_text;
    bool accepted; /* by listen, not by connect */
    /* The peer is a known member of the cluster. The upper layer sets it when it welcomes the peer
     * of an accepted connection; always true of outgoing connections. Before, a transport keeps
     * little memory for the peer and gives it no access to memory: long frames must not be sent to
     * it. */
    bool is_welcome;
    /* Set before disconnect, outside upcalls of the connection: `closed` follows at once, and
     * frames that were taken and not sent are dropped. Without it they are sent first, for at most
     * a second. TCP and shared memory; if the peer may write to memory of this side, that is
     * awaited for 0.1 s. */
    bool is_abrupt;
    /* Bytes accepted by the peer, as of the transport's last check: shows whether a long frame
     * makes progress. TCP checks four times per peer timeout. 0: the transport counts frames
     * only. */
    uint64_t taken_bytes;
    char peer[SL_LIMIT_ENDPOINT_BYTES]; /* "tcp://10.0.0.7:4242", for messages */
    /* DIRECT_REPLIES, valid during `received`: the requester's buffer for the reply's payload.
     * Write the payload there and send it as `payload` of the reply, while the connection lasts.
     * NULL: anywhere. */
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    /* MAPS_MEMORY: `sink` is asked for REQUEST frames with a payload from this size on, too, unless
     * they lie in the ring or have a checksum. Set by the upper layer; 0: for long frames only. */
    uint32_t sink_bytes;
    /* MAPS_MEMORY, valid during `received` of a frame for which `sink` returned IN_PLACE: the
     * tail of its payload, if the sender keeps it apart from the beginning; message->payload is
     * then shorter by tail_bytes. Any alignment. NULL: no tail. */
    const uint8_t *tail;
    uint32_t tail_bytes;
    /* TCP, valid during `received`: bytes that were received behind the frame, for prefetches. They
     * may begin with the next frame, and nothing in them is validated. */
    const uint8_t *ahead;
    uint32_t ahead_bytes;
};

/* For transport implementations. All upcalls go through these functions, which assert that the
 * contract allows the upcall in the connection's state, change the state, and mark the transport as
 * in an upcall. */

/* Stores why the connection has to end, with state CLOSING; the first failure counts. For the lower
 * code of a transport, which then returns: the code that owns the connection ends it. `text`
 * completes "closed, since " in a log line and lives as long as the connection; NULL: no line.
 * Returns false. */
bool sl_conn_fail(struct sl_conn *conn, int err, const char *text);

/* Logs the failure, once, if it has a text. */
void sl_conn_log_failure(struct sl_conn *conn);

/* Initializes a connection in state CONNECTING; `peer` and `user` stay empty. */
void sl_conn_init(struct sl_conn *conn, struct sl_transport *transport,
                  const struct sl_transport_events *events, void *ctx);

/* CONNECTING -> OPEN, with `accepted` or `connected`. */
void sl_conn_report_accepted(struct sl_conn *conn);
void sl_conn_report_connected(struct sl_conn *conn);

/* OPEN only. */
void *sl_conn_ask_sink(struct sl_conn *conn, const struct sl_frame *header);
void sl_conn_report_received(struct sl_conn *conn, const struct sl_transport_message *message);

/* OPEN or CLOSING. */
void sl_conn_report_sent(struct sl_conn *conn, void *cookie);

/* OPEN only. */
void sl_conn_report_writable(struct sl_conn *conn);

/* Any state but CLOSED -> CLOSED. */
void sl_conn_report_closed(struct sl_conn *conn, int err);

#endif
