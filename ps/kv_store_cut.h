/* The cut of a shard's part of a KV table, as table_cut.h, array by array; a long one piece by
 * piece, so that a push to a part of it does not have to wait for the copy of the whole. Owner
 * reactor. Allocates a few bytes for each long array of which pushes have had some pieces copied,
 * and the walk has yet to come to the others. */
#ifndef SL_PS_KV_STORE_CUT_H
#define SL_PS_KV_STORE_CUT_H

#include "ps/cut_blocks.h"
#include "ps/cut_marks.h"
#include "ps/kv_store.h"

struct sl_kv_store_cut_pieces;

struct sl_kv_store_cut {
    struct sl_kv_watch watch;
    struct sl_kv_store *store;
    struct sl_cut_stream stream;
    struct sl_cut_marks marks; /* of an array of which nothing is wanted any more */
    bool all;                  /* arrays; else those newer than the base: */
    uint32_t base_count;       /* records that it had */
    uint64_t base_epoch;
    uint32_t piece_values;
    uint32_t piece_at; /* the walk has passed so many pieces of the array that it is at, */
    uint32_t written;  /* which was written so far */
    struct sl_kv_store_cut_pieces **pieces; /* by record number: hashed; NULL: none yet */
    size_t pieces_bytes;
};

/* All as in table_cut.h, but for the base, in which the store's epoch stands for the step. */
void sl_kv_store_cut_begin(struct sl_kv_store_cut *cut, struct sl_kv_store *store,
                           struct sl_cut_blocks *blocks, uint32_t table_id,
                           const struct sl_cut_base *base);
uint32_t sl_kv_store_cut_run(struct sl_kv_store_cut *cut, uint32_t budget);
static inline bool sl_kv_store_cut_done(const struct sl_kv_store_cut *cut)
{
    return cut->marks.at == cut->marks.count;
}
void sl_kv_store_cut_end(struct sl_kv_store_cut *cut);

#endif
