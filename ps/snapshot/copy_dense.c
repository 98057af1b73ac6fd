#include "ps/snapshot/copy_dense.h"

#include "core/assert.h"
#include "core/partition.h"

/* Returns what it cost. A block counts as old or new by its last step alone: all are there from the
 * beginning. */
static uint32_t put(struct sl_copy_dense *cut, uint32_t index)
{
    const struct sl_dense_block block = sl_dense_table_block(cut->store, index);
    if (!sl_snapshot_delta_holds(&cut->since, 0, block.last_step)) {
        return 1;
    }
    const struct sl_snapshot_record image = {
        .key = block.number,
        .last_step = block.last_step,
        .count = block.count,
        .floats = block.floats,
    };
    (void)sl_snapshot_appender_put_record(&cut->stream, &image, block.float_count);
    return 1 + sl_snapshot_cost(block.float_count * sizeof(float));
}

static void before(struct sl_dense_table_hook *watch, uint32_t first, uint32_t count)
{
    struct sl_copy_dense *cut = (struct sl_copy_dense *)watch;
    struct sl_snapshot_builder *blocks = cut->stream.blocks;
    if (sl_copy_dense_done(cut) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_copied_begin(&cut->marks);
    for (uint32_t i = first; i < first + count && blocks->err == 0; i++) {
        if (sl_copied_mark(&cut->marks, i)) {
            blocks->owed += put(cut, i);
        }
    }
}

void sl_copy_dense_begin(struct sl_copy_dense *cut, struct sl_dense_table *store,
                         struct sl_snapshot_builder *blocks, uint32_t table_id,
                         const struct sl_snapshot_base *base, uint64_t step)
{
    const size_t floats =
        SL_PARTITION_BLOCK_ELEMENTS +
        sl_optimizer_slot_floats(sl_dense_table_optimizer(store), SL_PARTITION_BLOCK_ELEMENTS);
    *cut = (struct sl_copy_dense){
        .watch = {.before = before},
        .store = store,
        .since = sl_snapshot_delta_base(base, step),
    };
    sl_snapshot_appender_init(&cut->stream, blocks, SL_SNAPSHOT_DENSE, table_id,
                              (uint32_t)sl_snapshot_record_bytes((uint32_t)floats));
    sl_copied_init(&cut->marks, sl_dense_table_block_count(store));
    if (!cut->since.all && cut->since.span == 0) {
        sl_copied_pass(&cut->marks, cut->marks.count); /* nothing has changed */
    }
    sl_dense_table_set_hook(store, &cut->watch);
}

uint32_t sl_copy_dense_run(struct sl_copy_dense *cut, uint32_t budget)
{
    uint32_t at = cut->marks.at;
    uint32_t spent = 0;
    while (at < cut->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(cut->stream.blocks)) {
        spent += sl_copied_is_set(&cut->marks, at) ? 1 : put(cut, at);
        at++;
    }
    sl_copied_pass(&cut->marks, at);
    if (sl_copy_dense_done(cut)) {
        sl_snapshot_appender_close(&cut->stream);
    }
    return spent;
}

void sl_copy_dense_end(struct sl_copy_dense *cut)
{
    sl_dense_table_set_hook(cut->store, NULL);
    sl_snapshot_appender_drop(&cut->stream);
    sl_copied_fini(&cut->marks);
}
