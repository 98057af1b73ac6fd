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

struct sl_process_tables_read {
    struct sl_process *process;
    struct sl_port_set *ports;  /* to its reactors */
    const char *names;          /* of the tables, with commas between them */
    uint32_t iterations;        /* BSP iterations that each shard has to have applied */
    bool (*is_over)(void *ctx); /* asked at least once a second; true: CANCELLED */
    void *ctx;
};

/* Reads the tables into *out, unsorted; waits. The thread of a port. Errors, with a reason: AGAIN
 * (a shard is past that iteration, or does not get there), NOT_FOUND (a table), UNSUPPORTED (a KV
 * table), NO_MEMORY, CANCELLED, those of the snapshot. */
int sl_process_tables_read(const struct sl_process_tables_read *read, struct sl_process_tables *out,
                           struct sl_reason *reason);

/* Sets *iterations to the most that a shard has applied; `names` and `iterations` are not used.
 * Errors: NO_MEMORY. */
int sl_process_tables_iterations(const struct sl_process_tables_read *read, uint32_t *iterations);

void sl_process_tables_fini(struct sl_process_tables *tables);

#endif
