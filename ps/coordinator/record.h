/* Records for the next leader: JSON, and TableOpen messages, which hold a table's whole
 * specification. Input is checked like that of a peer: other programs may write to the metastore.
 * Some keys and values differ from the names in state.h (key: member):
 * - formed: cluster_ready; in_step: in_sync, in records of older versions; whole:
 * last_on_all_servers; checkpoint: max_seen;
 * - fast: bypass_endpoint; departed: left_job; told: notified;
 * - placements: a text for each shard, "epoch primary backup partner moves_to in_sync deposed_id",
 * in hexadecimal; tasks plus 1;
 * - stage "gathering": WAITING_FOR_MEMBERS; end "lost": EXPIRED, also for a member that has left.
 *
 * Not recorded: connections, times of last messages, waiting barriers (members ask again), and
 * clients (they hold no task). */
#ifndef SL_PS_COORDINATOR_RECORD_H
#define SL_PS_COORDINATOR_RECORD_H

#include "core/reason.h"
#include "ps/coordinator/state.h"

/* While loaded records await a known server: admits only such a server. Errors: AGAIN. */
int sl_coordinator_record_admits(struct sl_coordinator *coordinator,
                                 const struct sl_message_hello *hello, struct sl_reason *reason);

/* Erases loaded records whose recovery deadline has passed. */
void sl_coordinator_record_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_record_fini(struct sl_coordinator *coordinator);

#endif
