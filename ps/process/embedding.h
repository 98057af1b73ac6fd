/* A process that a program runs beside its own work (struct sl_process_embedding), and the handler
 * that the program sets while its servers run. */
#ifndef SL_PS_PROCESS_EMBEDDING_H
#define SL_PS_PROCESS_EMBEDDING_H

#include "ps/process/hosted.h"

struct sl_kv_handler;

/* Stops the process, as SIGTERM does. In `woken`. */
void sl_process_embedding_stop(struct sl_process *process);

/* Passes requests to KV tables to the handler, which outlives the process, from now on; NULL:
 * pushes are added up. The process was started with a handler that has no `handle`. In `woken`. */
void sl_process_embedding_handle(struct sl_process *process, const struct sl_kv_handler *handler);

/* The process is a member: reports its rank to the program. Reactor 0. */
void sl_process_embedding_registered(void *process, uint32_t task_index);

/* The mail that creates the shard was posted: posts the handler behind it. Reactor 0. */
void sl_process_embedding_created(const struct sl_process_hosted *hosted);

#endif
