/* Replica groups: the primary and the backup of each server's shards. The shards of ps/N live on
 * ps/N and on the next server: one is their primary, the other may be their backup. Every change of
 * roles begins a new epoch, which only the coordinator issues. */
#ifndef SL_PS_COORDINATOR_REPLICA_GROUP_H
#define SL_PS_COORDINATOR_REPLICA_GROUP_H

#include "ps/coordinator/state.h"

/* Counts the degraded shards. */
uint32_t sl_coordinator_replica_degraded_shards(const struct sl_coordinator *coordinator);

/* Retries failed catch-ups, and logs degraded shards once a minute. */
void sl_coordinator_replica_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Returns true if the job cannot run without this server: it is the primary of some shards. */
bool sl_coordinator_replica_needs(const struct sl_coordinator *coordinator, uint32_t task);

/* Appends the servers that the job needs and that are not registered. Returns their number. */
uint32_t sl_coordinator_replica_list_missing(const struct sl_coordinator *coordinator,
                                             struct sl_message_waiting *waiting);

/* Returns the primary of the shards that belong to `owner`. */
uint32_t sl_coordinator_replica_primary(const struct sl_coordinator *coordinator, uint32_t owner);

/* Returns the error in the replica settings of a registering server, or NULL. */
const char *sl_coordinator_replica_check(const struct sl_coordinator *coordinator,
                                         const struct sl_coordinator_member *member,
                                         const struct sl_message_register *reg);

/* Creates the replica groups, once every server has registered. */
void sl_coordinator_replica_begin(struct sl_coordinator *coordinator);

/* Makes a registered server the backup of groups that need one, and applies its replica reports. */
void sl_coordinator_replica_register(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member,
                                     const struct sl_message_register *reg, bool is_new,
                                     uint64_t now_ns);

/* Updates the groups of a server that is no longer a member; last_seen_ns: when it was last seen.
 */
void sl_coordinator_replica_leave(struct sl_coordinator *coordinator, uint32_t task,
                                  uint64_t last_seen_ns);

/* Fills in the replica group of a server for the Cluster message. */
void sl_coordinator_replica_fill(const struct sl_coordinator *coordinator, uint32_t task,
                                 struct sl_message_ps *out);

#endif
