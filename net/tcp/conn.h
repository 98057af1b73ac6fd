/* Connections: creation, handshake, end, migration. Completions of the ring arrive here: the lower
 * files receive and send, and this one acts on what they leave in the connection. Owner reactor. */
#ifndef SL_NET_TCP_CONN_H
#define SL_NET_TCP_CONN_H

#include "net/tcp/state.h"

int sl_tcp_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out);
void sl_tcp_conn_disconnect(struct sl_conn *base);
int sl_tcp_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user);

/* Takes an accepted socket of the peer with this name. Errors: NO_MEMORY, with the socket still
 * open. */
int sl_tcp_conn_accept(struct sl_tcp *tcp, int fd, const char *peer,
                       const struct sl_transport_events *events, void *ctx);

/* Parses received data, makes the upcalls, then starts the receive that is needed next, or takes
 * the next step of ending or migrating. */
void sl_tcp_conn_advance(struct sl_tcp_conn *conn);

/* As sl_tcp_send_start; ends the connection if that failed. */
void sl_tcp_conn_send(struct sl_tcp_conn *conn);

/* Ends the connection: cancels operations; `closed` follows from a poll. The first error counts;
 * after disconnect it is OK. */
void sl_tcp_conn_end(struct sl_tcp_conn *conn, int err);

/* Ends the connection if lower code has stored a failure. */
void sl_tcp_conn_check(struct sl_tcp_conn *conn);

/* As end, but with CANCELLED in any case. */
void sl_tcp_conn_abort(struct sl_tcp_conn *conn);

/* Called by poll for connections in `pending` and `ended`. */
void sl_tcp_conn_resume(struct sl_tcp_conn *conn);
void sl_tcp_conn_finish(struct sl_tcp_conn *conn);

/* For the transport's close. */
void sl_tcp_conn_free_spares(struct sl_tcp *tcp);

/* Frees spares beyond SL_TCP_SPARES, so that a flood of connections leaves little memory behind. */
void sl_tcp_conn_trim_spares(struct sl_tcp *tcp);

#endif
