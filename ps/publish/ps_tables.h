/* Publishes rows of this process's tables as a part of a version: the hook of its node. Any one
 * thread. */
#ifndef SL_PS_PUBLISH_PS_TABLES_H
#define SL_PS_PUBLISH_PS_TABLES_H

#include "objects/node/publish_tables.h"

struct sl_port_set;
struct sl_process;

#define SL_PS_TABLES_ASKED_MAX 64

/* Publications for which this process was asked without tables: what it answered of its shards must
 * still hold when it publishes, else a version would lack a shard that moved meanwhile. The oldest
 * is forgotten. Zero at first. */
struct sl_ps_tables_asked {
    struct {
        uint64_t epoch; /* of the publication: no other has it */
        uint64_t primary_sum;
    } items[SL_PS_TABLES_ASKED_MAX];
    uint32_t next;
};

/* Waits. ports: to the process's reactors. Errors, with a reason: those of sl_process_tables_read
 * and of publications; AGAIN (other shards than it was asked for). */
int sl_ps_tables_publish(struct sl_process *process, struct sl_port_set *ports,
                         struct sl_ps_tables_asked *asked, struct sl_objects *node,
                         const struct sl_objects_tables_request *request,
                         struct sl_objects_tables_state *state, struct sl_reason *reason);

#endif
