/* Received data: frame parser, upcalls, and the choice of the next receive. An error of the stream
 * is left in the connection (sl_conn_fail). Owner reactor. */
#ifndef SL_NET_TCP_RECEIVE_H
#define SL_NET_TCP_RECEIVE_H

#include "net/tcp/state.h"

/* Takes a completion of the receive in flight. */
void sl_tcp_receive_complete(struct sl_tcp_conn *conn, int32_t result, uint32_t cqe_flags);

/* Parses received data and makes the upcalls. */
void sl_tcp_receive_parse(struct sl_tcp_conn *conn);

/* Starts the receive that is needed next; cancels the receive in flight if another kind is
 * needed. */
void sl_tcp_receive_start(struct sl_tcp_conn *conn);

/* Whether the peer owes the rest of a frame: it began one, and this side is ready to receive. */
bool sl_tcp_receive_owed(const struct sl_tcp_conn *conn);

/* Frees the memory of bytes that are not parsed or delivered. */
void sl_tcp_receive_drop(struct sl_tcp_conn *conn);

/* Receives slices of long frames; called when the turn's sends are submitted. */
void sl_tcp_receive_slices(struct sl_tcp *tcp);

/* Restarts connections that wait for buffers, as many as there are buffers. */
void sl_tcp_receive_feed(struct sl_tcp *tcp);

void sl_tcp_receive_release(struct sl_conn *base, const struct sl_transport_message *message);

#endif
