/* Leadership: with a leadership, this process may be elected to host the coordinator. */
#ifndef SL_PS_PROCESS_LEADERSHIP_H
#define SL_PS_PROCESS_LEADERSHIP_H

#include "ps/process/state.h"

/* Opens the metastore. `coordinator`: options of the coordinator that this process hosts when it is
 * elected. Call after the server is created. Errors: NO_MEMORY, IO, TOO_LARGE, INVALID;
 * logged. */
int sl_process_leadership_open(struct sl_process_core *core,
                               const struct sl_coordinator_options *coordinator);

/* Starts to campaign, if this process can host the coordinator. Call when it listens. */
void sl_process_leadership_begin(struct sl_process *process);

/* Returns the last known endpoint of the coordinator. */
struct sl_endpoint sl_process_leadership_coordinator(const struct sl_process *process);

/* Callback of the server: the connection of a member is closed. */
void sl_process_leadership_gone(void *process, uint64_t peer);

/* Returns whether the cluster store does not answer. False without a leadership. Reactor 0. */
bool sl_process_leadership_store_is_away(const struct sl_process *process);

/* Resigns the leadership, then calls done(core). */
void sl_process_leadership_end(struct sl_process_core *core, void (*done)(void *core));

/* Call before the server is destroyed. */
void sl_process_leadership_close(struct sl_process *process);

#endif
