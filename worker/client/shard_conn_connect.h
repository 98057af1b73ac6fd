/* Where a shard is served, and attaching it: what follows a welcome and an end. Owner reactor. */
#ifndef SL_WORKER_CLIENT_SHARD_CONN_CONNECT_H
#define SL_WORKER_CLIENT_SHARD_CONN_CONNECT_H

#include "core/reason.h"
#include "worker/client/shard_conn.h"

/* Finds the reactor that serves a shard, for a client with these options. Any thread. Errors:
 * INVALID, with reason:
 * - the server that serves it is not in the cluster
 * - its endpoint is invalid
 * - its endpoint is RDMA or DPDK only, and the client uses TLS or has no DPDK device */
int sl_shard_conn_find_address(const struct sl_client_io_options *options,
                               const struct sl_message_cluster *cluster, uint32_t shard,
                               struct sl_reactor_address *out, struct sl_reason *reason);

/* Sets the names, from the numbers and the connection's endpoint. Also allowed before the reactor
 * owns the connection. */
void sl_shard_conn_set_name(struct sl_shard_conn *conn);

/* Begins to connect. One answer of op->left follows, when welcomed or failed; before it, op->clock,
 * op->counts, op->uses_tcp and op->payload_bytes_max include the shard's values. */
void sl_shard_conn_open(struct sl_shard_conn *conn, struct sl_control_op *op);

/* Leaves the connection, which says goodbye if it is open and no other shard uses it. No request
 * may be left. */
void sl_shard_conn_close(struct sl_shard_conn *conn);

/* If the operation waits for the first welcome, closes and fails the operation with CANCELLED. */
void sl_shard_conn_cancel(struct sl_shard_conn *conn, const struct sl_control_op *op);

/* Sets the address of the reactor that serves the shard. If it is another reactor, the shard is
 * attached there; the old connection is broken only if requests of the shard are in flight. */
void sl_shard_conn_set_address(struct sl_shard_conn *conn,
                               const struct sl_reactor_address *address);

/* Breaks the connection for this reason, with its other shards. All are attached again, but
 * for_good: then all requests of this shard fail once the connection has closed. */
void sl_shard_conn_break(struct sl_shard_conn *conn, const char *reason, bool for_good);

/* For reactor_conn.c. attach: the connection is up. breaks: it is being broken. lost: it has
 * closed. end: the session has ended, or the shard refuses this client for good: all requests fail.
 */
void sl_shard_conn_attach(struct sl_shard_conn *conn);
void sl_shard_conn_breaks(struct sl_shard_conn *conn, const char *reason);
void sl_shard_conn_lost(struct sl_shard_conn *conn, const char *reason);
void sl_shard_conn_end(struct sl_shard_conn *conn, int err, const char *reason);

/* Returns why nothing is sent at the moment; "" if requests are sent. Valid until the state
 * changes. */
const char *sl_shard_conn_last_error(const struct sl_shard_conn *conn);

/* Sets the worker's first clock, after the start has agreed on it; UINT32_MAX: finished. */
void sl_shard_conn_set_clock(struct sl_shard_conn *conn, uint32_t clock);

#endif
