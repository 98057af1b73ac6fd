/* The objects of a server process: a node (include/starling_objects.h) with a thread of its own
 * beside the reactors. It keeps what others publish with SL_ORIGIN_PS. In the process that hosts
 * the coordinator it also hosts the catalogue, unless the settings name another host. Main thread.
 */
#ifndef SL_PS_PUBLISH_PS_OBJECTS_H
#define SL_PS_PUBLISH_PS_OBJECTS_H

#include "ps/run.h"

/* An sl_ps_run_extend_fn: without --objects, no effect. Errors: INVALID (--memory-limit is too
 * small; another process hosts the coordinator, and there is no --catalogue). */
int sl_ps_objects_extend(const struct sl_run *run, struct sl_process_options *options,
                         struct sl_reason *reason);

#endif
