/* Rows of some tables, collected from the blocks of a full snapshot of one shard: keys and values,
 * without the state of optimizers. A block of a dense table is a row whose key is its number, and
 * whose values end with zeros if it is shorter than others. Any thread, one at a time. Allocates.
 */
#ifndef SL_PS_SNAPSHOT_ROWS_H
#define SL_PS_SNAPSHOT_ROWS_H

#include "ps/optimizer/row.h"
#include "ps/snapshot/block.h"

struct sl_snapshot_table_rows {
    char name[SL_TABLE_NAME_BYTES];
    uint64_t *keys; /* [count] */
    void *values;   /* [count][row_bytes], as the table stores them */
    uint64_t count, capacity;
    uint32_t dim, row_bytes, table_id;
    struct sl_row_layout layout; /* of a sparse table */
    uint64_t length;             /* of a dense table; 0: it is sparse */
    const struct sl_optimizer *optimizer;
};

struct sl_snapshot_rows {
    const char *names; /* of the wanted tables, with commas between them; the caller's */
    struct sl_snapshot_table_rows *tables;
    uint32_t count, capacity;
    uint32_t shard; /* known after END */
};

/* Takes the next block; keeps nothing of it. Errors, with a reason: CORRUPT, NO_MEMORY, UNSUPPORTED
 * (a wanted table is a KV table), NOT_FOUND (at the END: a wanted table was not there). */
int sl_snapshot_rows_take(struct sl_snapshot_rows *rows, const struct sl_snapshot_block *block,
                          struct sl_reason *reason);

/* Sorts the rows of a table by key; of equal keys the last one stays. Takes as much memory again.
 * Errors: NO_MEMORY, and nothing has changed. */
int sl_snapshot_rows_sort(struct sl_snapshot_table_rows *table);

void sl_snapshot_rows_fini(struct sl_snapshot_rows *rows);

#endif
