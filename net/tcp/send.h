/* The send queue. A TLS error is left in the connection (sl_conn_fail). Owner reactor. */
#ifndef SL_NET_TCP_SEND_H
#define SL_NET_TCP_SEND_H

#include "net/tcp/state.h"

uint32_t sl_tcp_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

uint32_t sl_tcp_send_now(struct sl_conn *base, const struct iovec *parts, uint32_t count);

/* Starts a send of the queue; none may be in flight. */
void sl_tcp_send_start(struct sl_tcp_conn *conn);

/* Takes the completion of a send of `bytes` bytes: removes them from the queue and reports the sent
 * frames. */
void sl_tcp_send_complete(struct sl_tcp_conn *conn, uint32_t bytes);

/* Queues a send if TLS has output: its own messages. */
void sl_tcp_send_tls_output(struct sl_tcp_conn *conn);

static inline bool sl_tcp_send_idle(const struct sl_tcp_conn *conn)
{
    return conn->send.run_head == conn->send.run_tail && !conn->send.in_flight &&
           (conn->tls == NULL || sl_tcp_tls_output_bytes(conn->tls) == 0);
}

#endif
