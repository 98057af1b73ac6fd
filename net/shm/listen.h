/* Listening sockets. Owner reactor. */
#ifndef SL_NET_SHM_LISTEN_H
#define SL_NET_SHM_LISTEN_H

#include "net/shm/state.h"

int sl_shm_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound);
void sl_shm_listen_accept(struct sl_shm_listener *listener);
void sl_shm_listen_close(struct sl_shm *shm);

#endif
