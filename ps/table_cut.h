/* The cut of a sparse table: the ROWS of an image that shows all records as they were when it
 * began, while pushes go on. A walk puts them into blocks by their number; a record that is about
 * to change before the walk has reached it is put at once. Owner reactor. */
#ifndef SL_PS_TABLE_CUT_H
#define SL_PS_TABLE_CUT_H

#include "ps/cut_blocks.h"
#include "ps/cut_marks.h"
#include "ps/table.h"

struct sl_table_cut {
    struct sl_table_watch watch;
    struct sl_table_store *store;
    struct sl_cut_stream stream;
    struct sl_cut_marks marks;
    struct sl_cut_since since;
    uint32_t float_count, record_cost;
};

/* Begins here and now; allocates nothing. The cut stays where it is until it has ended. base: what
 * the image adds to, or NULL; step: the table's. */
void sl_table_cut_begin(struct sl_table_cut *cut, struct sl_table_store *store,
                        struct sl_cut_blocks *blocks, uint32_t table_id,
                        const struct sl_cut_base *base, uint64_t step);

/* Walks on; returns what it spent, in units of the shard's budget. Stops when the blocks have no
 * room, and at the end, where it closes its last block. */
uint32_t sl_table_cut_run(struct sl_table_cut *cut, uint32_t budget);

static inline bool sl_table_cut_done(const struct sl_table_cut *cut)
{
    return cut->marks.at == cut->marks.count;
}

/* Pushes pay nothing any more; what has been put stays in its blocks but for the open one. */
void sl_table_cut_end(struct sl_table_cut *cut);

#endif
