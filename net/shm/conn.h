/* Connections: creation, connect, end, migration. Lower files leave an error in the connection
 * (sl_shm_fail), and only this one ends it. Owner reactor. */
#ifndef SL_NET_SHM_CONN_H
#define SL_NET_SHM_CONN_H

#include "net/shm/state.h"

/* Creates a connection in HANDSHAKE for a socket; NULL without memory. */
struct sl_shm_conn *sl_shm_conn_create(struct sl_shm *shm, int fd, uint32_t side,
                                       const struct sl_transport_events *events, void *ctx);

int sl_shm_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out);
void sl_shm_conn_disconnect(struct sl_conn *base);
int sl_shm_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);
void sl_shm_conn_release(struct sl_conn *base, const struct sl_transport_message *message);

/* Wakes the peer if it sleeps and waits for a published change. Call after a fence. */
void sl_shm_conn_wake(struct sl_shm_conn *conn);

/* Called by poll; returns the work done. The connection may be gone afterwards. */
uint32_t sl_shm_conn_visit(struct sl_shm_conn *conn, uint32_t budget);

/* For the transport's close: `closed` with CANCELLED; then the memory of all connections. */
void sl_shm_conn_cancel(struct sl_shm_conn *conn);
void sl_shm_conn_free_all(struct sl_shm *shm);

#endif
