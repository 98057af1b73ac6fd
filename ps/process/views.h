/* Views of a process: of each of its servers, and of the coordinator. The observer's thread
 * requests them once a second and reads the last ones; no reactor waits for it (reactor/view.h). */
#ifndef SL_PS_PROCESS_VIEWS_H
#define SL_PS_PROCESS_VIEWS_H

#include "ps/coordinator/view.h"
#include "ps/process/hosted.h"
#include "ps/server/view.h"

/* Creates the view of the coordinator, when the reactors exist. Errors: NO_MEMORY, TOO_LARGE. Main
 * thread. */
int sl_process_views_create(struct sl_process *process);

/* Creates the view of a new shard. Errors: NO_MEMORY, TOO_LARGE. Reactor 0. */
int sl_process_views_add(struct sl_process_hosted *hosted);

/* The reactors and the observer's thread have stopped. No effect without views. Main thread. */
void sl_process_views_destroy(struct sl_process *process);

/* The functions below: the observer's thread. What they return is valid until the next request. */

void sl_process_views_request(const struct sl_process *process);

/* Waits for views that are newer than this call: a second at most, if a reactor is late. */
void sl_process_views_renew(const struct sl_process *process);

/* Returns the view of a shard; NULL: there is none yet, or the shard is not here. */
const struct sl_server_view *sl_process_views_shard(const struct sl_process_hosted *hosted,
                                                    uint64_t now_ns);

/* Returns the view of the coordinator; NULL: there is none yet, or it is not here. */
const struct sl_coordinator_view *sl_process_views_coordinator(const struct sl_process *process,
                                                               uint64_t now_ns, uint64_t *age_ns);

#endif
