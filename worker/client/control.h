/* The coordinator session of client_io 0: run functions of control operations, and the client's
 * membership. After a reconnect the client registers again. If the coordinator restarted, the
 * client also reopens its tables. Reactor of client_io 0. */
#ifndef SL_WORKER_CLIENT_CONTROL_H
#define SL_WORKER_CLIENT_CONTROL_H

#include "worker/client/client_io.h"

/* Connects to the coordinator, registers, and writes *op->cluster once all servers have joined; the
 * caller frees its array. Errors: REFUSED, DEADLINE, VERSION, PROTOCOL. */
void sl_control_join(struct sl_control_op *op);

/* Creates or checks op->spec; writes op->table.id. Errors: EXISTS, INVALID, DEADLINE, CLOSED. */
void sl_control_table_open(struct sl_control_op *op);

/* Uses name and found. */
void sl_control_table_find(struct sl_control_op *op);

/* Writes a page of specifications, of tables with table.id or above, to found[count], which has
 * room for SL_MESSAGE_TABLES_MAX, and the table.id of the next page; 0: there is none. Errors:
 * VERSION, DEADLINE, CLOSED. */
void sl_control_tables(struct sl_control_op *op);

/* Announces the operation op->name. Errors: REFUSED, VERSION, DEADLINE, CLOSED. */
void sl_control_operate(struct sl_control_op *op);

/* Makes placement.change; writes placement.moves[count]. Errors: those of the coordinator, VERSION,
 * DEADLINE, CLOSED. */
void sl_control_change_placement(struct sl_control_op *op);

/* Drops the table op->name. Errors: NOT_FOUND, DEADLINE, CLOSED. */
void sl_control_table_drop(struct sl_control_op *op);

/* Waits at barrier op->name for the processes of op->barrier.groups (SL_MESSAGE_GROUP_...), or, if
 * it is 0, for op->count clients; 0: all workers of the job. Errors: DEADLINE, CLOSED (also: a
 * process of the groups has ended), with groups VERSION. */
void sl_control_barrier(struct sl_control_op *op);

/* Sends a RELAY for the operation; `answer` receives `ctx`, before this returns if it fails at
 * once. Errors: those of struct sl_relay. */
void sl_control_ask_relay(struct sl_control_op *op, struct sl_message *message,
                          sl_session_answer_fn *answer, void *ctx);

/* Waits for a checkpoint that starts now or later; writes op->number. Errors: DEADLINE, CLOSED,
 * errors of the coordinator. */
void sl_control_checkpoint(struct sl_control_op *op);

/* Fails the operation with CANCELLED if it waits for the coordinator. One that joins disconnects,
 * one at a barrier leaves the barrier. */
void sl_control_cancel(struct sl_control_op *op);

/* Disconnects from the coordinator. No operation may be outstanding. */
void sl_control_leave(struct sl_client_io *io);

/* Records a table, unless it is known. Errors: NO_MEMORY. */
int sl_control_add_table(struct sl_client_io *io, uint32_t id, const struct sl_table_spec *spec);

#endif
