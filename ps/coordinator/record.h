/* Records for the next leader: JSON, which an operator can read, and TableOpen messages, which hold
 * a table's whole specification. Input is checked like that of a peer: other programs may write to
 * the metastore.
 *
 * Not recorded: connections, times of last messages, waiting barriers (members ask again), and
 * clients (they hold no task). */
#ifndef SL_PS_COORDINATOR_RECORD_H
#define SL_PS_COORDINATOR_RECORD_H

#include "ps/coordinator/state.h"

/* While loaded records await a known server: admits only such a server. Errors: AGAIN. */
int sl_coordinator_record_admits(struct sl_coordinator *coordinator,
                                 const struct sl_message_hello *hello, char *reason,
                                 size_t reason_bytes);

/* Erases loaded records whose recovery deadline has passed. */
void sl_coordinator_record_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_record_fini(struct sl_coordinator *coordinator);

#endif
