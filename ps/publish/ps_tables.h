/* Publishes rows of this process's tables as a part of a version: the hook of its node. Any one
 * thread. */
#ifndef SL_PS_PUBLISH_PS_TABLES_H
#define SL_PS_PUBLISH_PS_TABLES_H

#include "objects/node/publish_tables.h"

struct sl_port_set;
struct sl_process;

/* Waits. ports: to the process's reactors. Errors, with a reason: those of sl_process_tables_read
 * and of publications. */
int sl_ps_tables_publish(struct sl_process *process, struct sl_port_set *ports,
                         struct sl_objects *node, const struct sl_objects_tables_request *request,
                         struct sl_objects_tables_state *state, struct sl_reason *reason);

#endif
