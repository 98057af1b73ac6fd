/* The cut of a shard's part of a dense table, as table_cut.h, block by block. Owner reactor. */
#ifndef SL_PS_DENSE_CUT_H
#define SL_PS_DENSE_CUT_H

#include "ps/cut_blocks.h"
#include "ps/cut_marks.h"
#include "ps/dense.h"

struct sl_dense_cut {
    struct sl_dense_watch watch;
    struct sl_dense_store *store;
    struct sl_cut_stream stream;
    struct sl_cut_marks marks;
    struct sl_cut_since since;
};

/* All as in table_cut.h. */
void sl_dense_cut_begin(struct sl_dense_cut *cut, struct sl_dense_store *store,
                        struct sl_cut_blocks *blocks, uint32_t table_id,
                        const struct sl_cut_base *base, uint64_t step);
uint32_t sl_dense_cut_run(struct sl_dense_cut *cut, uint32_t budget);
static inline bool sl_dense_cut_done(const struct sl_dense_cut *cut)
{
    return cut->marks.at == cut->marks.count;
}
void sl_dense_cut_end(struct sl_dense_cut *cut);

#endif
