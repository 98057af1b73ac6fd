/* Routes of a process over HTTP: health, metrics, this process, and the page. The observer's
 * thread. */
#ifndef SL_PS_PROCESS_ROUTES_H
#define SL_PS_PROCESS_ROUTES_H

#include "ps/process/state.h"

struct sl_observer_route;
struct sl_reply;

/* Lists all routes, allocated; NULL: no memory. */
struct sl_observer_route *sl_process_routes_list(struct sl_process *process, uint32_t *count);

/* Whether this process hosts the coordinator; else redirects to the same path there, or replies 503
 * if its address is unknown. */
bool sl_process_routes_at_coordinator(const struct sl_process *process, const char *path,
                                      struct sl_reply *reply);

#endif
