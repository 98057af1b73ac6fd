/* Connections of a shard connection: its address, its session, what follows a welcome and an end.
 * Owner reactor. */
#ifndef SL_WORKER_CLIENT_SHARD_CONN_CONNECT_H
#define SL_WORKER_CLIENT_SHARD_CONN_CONNECT_H

#include "core/reason.h"
#include "worker/client/shard_conn.h"

/* Finds the address of a shard for a client with these options. Any thread. Errors: INVALID, with
 * reason:
 * - the server that serves it is not in the cluster
 * - its endpoint is invalid
 * - its endpoint is RDMA or DPDK only, and the client uses TLS or has no DPDK device */
int sl_shard_conn_find_address(const struct sl_client_io_options *options,
                               const struct sl_message_cluster *cluster, uint32_t shard,
                               struct sl_shard_address *out, struct sl_reason *reason);

/* Sets the names, from the numbers and the session's endpoint. Also allowed before the reactor owns
 * the connection. */
void sl_shard_conn_set_name(struct sl_shard_conn *conn);

/* Begins to connect. One answer of op->left follows, when welcomed or failed; before it, op->clock,
 * op->counts, op->uses_tcp and op->payload_bytes_max include the shard's values. */
void sl_shard_conn_open(struct sl_shard_conn *conn, struct sl_control_op *op);

/* Closes the session, with a goodbye if it is open. No request may be left. */
void sl_shard_conn_close(struct sl_shard_conn *conn);

/* If the operation waits for the first welcome, closes and fails the operation with CANCELLED. */
void sl_shard_conn_cancel(struct sl_shard_conn *conn, const struct sl_control_op *op);

/* Sets the shard's address. If another server serves the shard now, reconnects at once; else the
 * next connection uses it. */
void sl_shard_conn_set_address(struct sl_shard_conn *conn, const struct sl_shard_address *address);

/* Breaks the connection for this reason. The client reconnects, unless for_good: then all requests
 * fail once the connection has closed. */
void sl_shard_conn_break(struct sl_shard_conn *conn, const char *reason, bool for_good);

/* Returns why nothing is sent at the moment; "" if requests are sent. Valid until the state
 * changes. */
const char *sl_shard_conn_last_error(const struct sl_shard_conn *conn);

#endif
