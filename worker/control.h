/* What hub 0 says to the coordinator: run functions of calls, and what keeps the client a member. A
 * connection that breaks is made again: the client registers anew, and a coordinator that has
 * started anew is told the tables that this client knows. Hub 0's reactor. */
#ifndef SL_WORKER_CONTROL_H
#define SL_WORKER_CONTROL_H

#include "worker/client_io.h"

/* Connects to the coordinator, registers, and writes the cluster into *call->cluster (the caller
 * calls sl_message_fini's free of its array) as soon as all ps processes are there. Errors:
 * REFUSED, DEADLINE, VERSION, PROTOCOL. */
void sl_control_join(struct sl_control_op *op);

/* Creates or checks call->spec; writes call->table_id. Errors: EXISTS, INVALID, DEADLINE, CLOSED.
 */
void sl_control_table_open(struct sl_control_op *op);

/* Waits at the barrier call->name for call->count clients, 0: for all workers of the job. Errors:
 * DEADLINE, CLOSED. */
void sl_control_barrier(struct sl_control_op *op);

/* Waits for a checkpoint that begins from now on; writes call->number. Errors: DEADLINE, CLOSED, or
 * what the coordinator says. */
void sl_control_checkpoint(struct sl_control_op *op);

/* Says goodbye. No call may be under way. */
void sl_control_leave(struct sl_client_io *io);

#endif
