/* Reads tables out of the shards of a process while they serve, on a thread beside the reactors.
 * Each shard takes a snapshot (ps/server/checkpoint.h), so what is read of it is of one moment. */
#ifndef SL_PS_PROCESS_TABLES_H
#define SL_PS_PROCESS_TABLES_H

#include "ps/snapshot/rows.h"

struct sl_port_set;
struct sl_process;

struct sl_process_tables {
    /* Of each shard that this process has; of a backup, and if no table is named, without rows. */
    struct sl_snapshot_rows *shards;
    uint32_t shard_count;
    uint32_t primary_count; /* shards that are no backups */
    uint64_t primary_sum;   /* of their hashes: which ones they are */
    uint32_t iterations;    /* of BSP: the most that a shard had applied before */
};

/* Reads the tables, named with commas between the names, into *out, unsorted; waits. iterations: of
 * BSP, that each shard has to have applied. ports: to the process's reactors. The thread of a port.
 * *out needs fini after an error too. Errors, with a reason: AGAIN (a shard is past that iteration,
 * or does not get there; a checkpoint is in progress), NOT_FOUND (a table), UNSUPPORTED (a KV
 * table), NO_MEMORY, those of the snapshot. */
int sl_process_tables_read(struct sl_process *process, struct sl_port_set *ports, const char *names,
                           uint32_t iterations, struct sl_process_tables *out,
                           struct sl_reason *reason);

void sl_process_tables_fini(struct sl_process_tables *tables);

#endif
