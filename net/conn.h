/* A connection, as the layers above a transport see it. Every implementation's connection begins
 * with this. Owner reactor. */
#ifndef SL_NET_CONN_H
#define SL_NET_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

struct sl_transport;
struct sl_transport_events;

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
    bool accepted;                      /* by listen, not by connect */
    char peer[SL_LIMIT_ENDPOINT_BYTES]; /* "tcp://10.0.0.7:4242", for messages */
};

const char *sl_conn_state_name(enum sl_conn_state state);

#endif
