/* Notifies members that workers or servers expired, and restarted servers that workers left. */
#ifndef SL_PS_COORDINATOR_EXPIRY_H
#define SL_PS_COORDINATOR_EXPIRY_H

#include "ps/coordinator/state.h"

/* Notifies all servers and workers that a member ended. A server that has not received the cluster
 * on its connection is notified after it does. */
void sl_coordinator_expiry_notify(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *expired,
                                  enum sl_coordinator_end end);

/* Notifies restarted servers that workers left, one lease after they left. A leaving worker
 * notifies the shards it is connected to, but a restarted server may have shards that it never
 * reached and that still wait for it. After a lease its own notification can no longer be in
 * flight. */
void sl_coordinator_expiry_notify_departures(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Sends a server, which has just received the cluster, the expirations that it may have missed. */
void sl_coordinator_expiry_notify_missed(struct sl_coordinator *coordinator,
                                         struct sl_coordinator_member *ps);

/* Records that a promoted server may have missed expirations, given when the former primary was
 * last seen. */
void sl_coordinator_expiry_mark_missed(struct sl_coordinator *coordinator,
                                       struct sl_coordinator_member *ps, uint64_t last_seen_ns);

/* Returns the time from which a server last seen at last_seen_ns may have missed expirations:
 * messages sent up to one lease earlier may not have arrived. */
uint64_t sl_coordinator_expiry_since(const struct sl_coordinator *coordinator,
                                     uint64_t last_seen_ns);

#endif
