/* A ps that has come back elsewhere: hub 0 hears it from the coordinator and tells the other hubs
 * of its client, each on its own reactor; those reactors are connected (reactor.h) when there is
 * more than one. */
#ifndef SL_WORKER_FAILOVER_H
#define SL_WORKER_FAILOVER_H

#include "worker/client_io.h"

/* The cluster is as the coordinator says: every link whose ps has another endpoint now goes there
 * with its next connection. What the mail to others needs is allocated, and given back when they
 * have answered: hub->moves_out counts them. Hub 0's reactor. */
void sl_failover_apply(struct sl_client_io *io, const struct sl_message_cluster *cluster);

#endif
