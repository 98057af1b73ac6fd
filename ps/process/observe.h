/* Observes a process for operators: HTTP routes, and a ping of every reactor once a second, on a
 * thread of its own (observe/http). */
#ifndef SL_PS_PROCESS_OBSERVE_H
#define SL_PS_PROCESS_OBSERVE_H

#include "ps/process/state.h"

/* Listens. Before the reactors exist. Errors: those of sl_observer_create. The functions below: the
 * main thread, too. */
int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason);

/* Starts the thread, when the reactors exist. Errors: NO_MEMORY, TOO_LARGE. */
int sl_process_observe_start(struct sl_process *process);

/* /readyz answers 200 from now on, unless the process loses the coordinator. */
void sl_process_observe_ready(struct sl_process *process);

/* Ends the thread. Before the reactors stop. */
void sl_process_observe_stop(struct sl_process *process);

/* Frees, when the reactors have stopped. */
void sl_process_observe_close(struct sl_process *process);

/* "HOST:PORT" of HTTP, or "off". Any thread. */
void sl_process_observe_address(const struct sl_process *process, char *text, size_t text_bytes);

#endif
