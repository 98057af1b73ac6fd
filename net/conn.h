/* A connection, as the layers above a transport see it. Every implementation's connection begins
 * with this. Owner reactor. */
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
    SL_CONN_CLOSING, /* disconnect was called, or the end is known; `closed` has not been made */
    SL_CONN_CLOSED
};

struct sl_conn {
    struct sl_transport *transport;
    const struct sl_transport_events *events;
    void *ctx;  /* of events: the server or the client's reactor */
    void *user; /* the upper layer's own, for this connection */
    enum sl_conn_state state;
    bool accepted; /* by listen, not by connect */
    /* The peer is known to be one of the cluster: set by the upper layer when it welcomes the peer
     * of an accepted connection; true of a connection that this process made. Before it, a
     * transport keeps only a small share of its memory for the peer, and gives it no access to
     * memory: no long frame may be sent to it. */
    bool is_welcome;
    /* What the peer has taken of what was sent, in bytes, as far as the transport has looked: for
     * who asks whether a long frame gets on. TCP looks four times in its peer timeout. 0: the
     * transport sees only frames. */
    uint64_t taken_bytes;
    char peer[SL_LIMIT_ENDPOINT_BYTES]; /* "tcp://10.0.0.7:4242", for messages */
    /* ONE_SIDED, valid during `received`: where the sender wants the answer's payload: to be
     * written, and then sent as the answer frame's `payload`, while the connection lasts. NULL:
     * anywhere. */
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    /* SHARES, valid during `received` of a long frame for which `sink` said IN_PLACE: the end of
     * its payload, where that lies apart from the beginning (the sender's `payload` from his
     * `head`); message->payload then has so much less. Any alignment. NULL: all of it is there. */
    const uint8_t *tail;
    uint32_t tail_bytes;
};

const char *sl_conn_state_name(enum sl_conn_state state);

/* ---- For those who implement a transport ------------------------------------------------------
 * Every upcall is made through these, which assert that the contract allows it in the connection's
 * state and move the state on. They tell the facade that an upcall is in progress. */

/* A connection that is CONNECTING; `peer` and `user` are left empty. */
void sl_conn_init(struct sl_conn *conn, struct sl_transport *transport,
                  const struct sl_transport_events *events, void *ctx);

/* CONNECTING -> OPEN, with `accepted` or `connected`. */
void sl_conn_report_accepted(struct sl_conn *conn);
void sl_conn_report_connected(struct sl_conn *conn);

/* OPEN only. The sink's answer is asserted to be aligned to 8. */
void *sl_conn_ask_sink(struct sl_conn *conn, const struct sl_frame *header);
void sl_conn_report_received(struct sl_conn *conn, const struct sl_transport_message *message);

/* OPEN or CLOSING. */
void sl_conn_report_sent(struct sl_conn *conn, void *cookie);

/* OPEN only. */
void sl_conn_report_writable(struct sl_conn *conn);

/* Any state but CLOSED -> CLOSED. */
void sl_conn_report_closed(struct sl_conn *conn, int err);

#endif
