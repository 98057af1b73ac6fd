/* Registration: members register, and receive the cluster (addresses and roles of all servers) when
 * every needed server has registered. */
#ifndef SL_PS_COORDINATOR_CLUSTER_H
#define SL_PS_COORDINATOR_CLUSTER_H

#include "ps/coordinator/state.h"

void sl_coordinator_cluster_register(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member,
                                     const struct sl_message *message, uint64_t now_ns);

/* Sends the cluster, or Waiting messages, to members that need them. */
void sl_coordinator_cluster_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Sends the cluster to members that have an older version, as far as missing servers allow. */
void sl_coordinator_cluster_update(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Appends the tasks without which the cluster is not sent. Returns their number. */
uint32_t sl_coordinator_cluster_missing(const struct sl_coordinator *coordinator,
                                        struct sl_message_waiting *waiting);

#endif
