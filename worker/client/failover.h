/* Failover redirects shard connections when a server has moved or its backup was promoted.
 * client_io 0 receives the new cluster from the coordinator and forwards it by mail to the other
 * client_ios, whose reactors are connected (reactor.h). */
#ifndef SL_WORKER_CLIENT_FAILOVER_H
#define SL_WORKER_CLIENT_FAILOVER_H

#include "worker/client/client_io.h"

/* Applies the new cluster: see sl_shard_conn_set_address. Allocates the mails to other client_ios;
 * io->mails_out counts those that have not returned. Reactor of client_io 0. */
void sl_failover_apply(struct sl_client_io *io, const struct sl_message_cluster *cluster);

/* Copies a cluster with its arrays, which sl_failover_free frees. Errors: NO_MEMORY. */
int sl_failover_copy(const struct sl_message_cluster *from, struct sl_message_cluster *to);
void sl_failover_free(struct sl_message_cluster *cluster);

#endif
