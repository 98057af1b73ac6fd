/* Listening sockets. Owner reactor. */
#ifndef SL_NET_TCP_LISTEN_H
#define SL_NET_TCP_LISTEN_H

#include "net/tcp/state.h"

int sl_tcp_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);

/* Cancels accepting; sl_tcp_listen_free closes the listeners when no operation is in flight. */
void sl_tcp_listen_stop(struct sl_tcp *tcp);
void sl_tcp_listen_free(struct sl_tcp *tcp);

#endif
