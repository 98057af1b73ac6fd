#include "ps/dense_cut.h"

#include "core/assert.h"
#include "core/partition.h"

/* Returns what it cost. A block counts as old or new by its last step alone: all are there from the
 * beginning. */
static uint32_t put(struct sl_dense_cut *cut, uint32_t index)
{
    const struct sl_dense_block block = sl_dense_store_block(cut->store, index);
    if (!sl_cut_since_holds(&cut->since, 0, block.last_step)) {
        return 1;
    }
    const struct sl_image_record image = {
        .key = block.number,
        .last_step = block.last_step,
        .count = block.count,
        .floats = block.floats,
    };
    (void)sl_cut_stream_put_record(&cut->stream, &image, block.float_count);
    return 1 + sl_cut_cost(block.float_count * sizeof(float));
}

static void before(struct sl_dense_watch *watch, uint32_t first, uint32_t count)
{
    struct sl_dense_cut *cut = (struct sl_dense_cut *)watch;
    struct sl_cut_blocks *blocks = cut->stream.blocks;
    if (sl_dense_cut_done(cut) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_cut_marks_begin(&cut->marks);
    for (uint32_t i = first; i < first + count && blocks->err == 0; i++) {
        if (sl_cut_marks_take(&cut->marks, i)) {
            blocks->owed += put(cut, i);
        }
    }
}

void sl_dense_cut_begin(struct sl_dense_cut *cut, struct sl_dense_store *store,
                        struct sl_cut_blocks *blocks, uint32_t table_id,
                        const struct sl_cut_base *base, uint64_t step)
{
    const size_t floats =
        SL_PARTITION_BLOCK_ELEMENTS +
        sl_optimizer_slot_floats(sl_dense_store_optimizer(store), SL_PARTITION_BLOCK_ELEMENTS);
    *cut = (struct sl_dense_cut){
        .watch = {.before = before},
        .store = store,
        .since = sl_cut_since_base(base, step),
    };
    sl_cut_stream_init(&cut->stream, blocks, SL_IMAGE_DENSE, table_id,
                       (uint32_t)sl_image_record_bytes((uint32_t)floats));
    sl_cut_marks_init(&cut->marks, sl_dense_store_block_count(store));
    if (!cut->since.all && cut->since.span == 0) {
        sl_cut_marks_pass(&cut->marks, cut->marks.count); /* nothing has changed */
    }
    sl_dense_store_watch(store, &cut->watch);
}

uint32_t sl_dense_cut_run(struct sl_dense_cut *cut, uint32_t budget)
{
    uint32_t at = cut->marks.at;
    uint32_t spent = 0;
    while (at < cut->marks.count && spent < budget && sl_cut_blocks_have_room(cut->stream.blocks)) {
        spent += sl_cut_marks_is_set(&cut->marks, at) ? 1 : put(cut, at);
        at++;
    }
    sl_cut_marks_pass(&cut->marks, at);
    if (sl_dense_cut_done(cut)) {
        sl_cut_stream_close(&cut->stream);
    }
    return spent;
}

void sl_dense_cut_end(struct sl_dense_cut *cut)
{
    sl_dense_store_watch(cut->store, NULL);
    sl_cut_stream_drop(&cut->stream);
    sl_cut_marks_fini(&cut->marks);
}
