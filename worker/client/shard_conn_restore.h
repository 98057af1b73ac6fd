/* Restores a shard's state of this client: opens its tables again, and lets its clock join. Owner
 * reactor. */
#ifndef SL_WORKER_CLIENT_SHARD_CONN_RESTORE_H
#define SL_WORKER_CLIENT_SHARD_CONN_RESTORE_H

#include "worker/client/shard_conn.h"

/* Sends the next request that restores the shard's state; opens the connection after the last. Does
 * nothing while an answer is outstanding or without a connection. */
void sl_shard_conn_restore(struct sl_shard_conn *conn);

/* Sets the worker's first clock, after the start has agreed on it; UINT32_MAX: finished. */
void sl_shard_conn_set_clock(struct sl_shard_conn *conn, uint32_t clock);

#endif
