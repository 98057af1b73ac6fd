/* What hub 0 asks the coordinator: run functions of calls. Hub 0's reactor. */
#ifndef SL_WORKER_CONTROL_H
#define SL_WORKER_CONTROL_H

#include "worker/hub.h"

/* Connects to the coordinator, registers, and writes the cluster into *call->cluster (the caller
 * calls sl_message_fini's free of its array) as soon as all ps processes are there. Errors:
 * REFUSED, DEADLINE, VERSION, PROTOCOL. */
void sl_control_join(struct sl_call *call);

/* Creates or checks call->spec; writes call->table_id. Errors: EXISTS, INVALID, DEADLINE, CLOSED.
 */
void sl_control_table_open(struct sl_call *call);

/* Waits at the barrier call->name for call->count clients. Errors: DEADLINE, CLOSED. */
void sl_control_barrier(struct sl_call *call);

#endif
