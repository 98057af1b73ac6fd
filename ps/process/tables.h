/* Reads tables out of the shards of a process while they serve, on a thread beside the reactors.
 * Each shard takes a snapshot (ps/server/checkpoint.h), so what is read of it is of one moment. */
#ifndef SL_PS_PROCESS_TABLES_H
#define SL_PS_PROCESS_TABLES_H

#include "ps/snapshot/rows.h"

struct sl_port_set;
struct sl_process;

struct sl_process_tables {
    struct sl_snapshot_rows *shards; /* of each shard that this process serves as primary */
    uint32_t count;
};

/* Reads the tables, named with commas between the names, into *out, unsorted; waits. ports: to the
 * process's reactors. is_over: asked at least once a second; true: the read ends with CANCELLED.
 * The thread of a port. Errors, with a reason: NOT_FOUND (a table), UNSUPPORTED (a KV table),
 * NO_MEMORY, CANCELLED, those of the snapshot. */
int sl_process_tables_read(struct sl_process *process, struct sl_port_set *ports, const char *names,
                           bool (*is_over)(void *ctx), void *ctx, struct sl_process_tables *out,
                           struct sl_reason *reason);

void sl_process_tables_fini(struct sl_process_tables *tables);

#endif
