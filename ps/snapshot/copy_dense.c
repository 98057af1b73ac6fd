#include "ps/snapshot/copy_dense.h"

#include "core/partition.h"

/* Puts a block and returns the cost. Only its last step decides whether it is new, because all
 * blocks exist from the beginning. */
static uint32_t copy_dense_put(struct sl_copy_dense *copy, uint32_t index)
{
    const struct sl_dense_block block = sl_dense_table_block(copy->table, index);
    if (!sl_snapshot_delta_holds(&copy->since, 0, block.last_step)) {
        return 1;
    }
    const struct sl_snapshot_record entry = {
        .key = block.number,
        .last_step = block.last_step,
        .count = block.count,
        .floats = block.floats,
    };
    (void)sl_snapshot_appender_put_record(&copy->stream, &entry, block.float_count);
    return 1 + sl_snapshot_cost(block.float_count * sizeof(float));
}

static void copy_dense_before(struct sl_dense_table_hook *hook, uint32_t first, uint32_t count)
{
    struct sl_copy_dense *copy = (struct sl_copy_dense *)hook;
    struct sl_snapshot_builder *blocks = copy->stream.blocks;
    if (sl_copied_set_done(&copy->marks) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_copied_set_begin(&copy->marks);
    for (uint32_t i = first; i < first + count && blocks->err == 0; i++) {
        if (sl_copied_set_mark(&copy->marks, i)) {
            blocks->copy_debt += copy_dense_put(copy, i);
        }
    }
}

void sl_copy_dense_begin(struct sl_copy_dense *copy, struct sl_dense_table *table,
                         struct sl_snapshot_builder *blocks, enum sl_snapshot_kind kind,
                         uint32_t table_id, const struct sl_snapshot_base *base, uint64_t step)
{
    const size_t floats =
        SL_PARTITION_BLOCK_ELEMENTS +
        sl_optimizer_slot_floats(sl_dense_table_optimizer(table), SL_PARTITION_BLOCK_ELEMENTS);
    *copy = (struct sl_copy_dense){
        .hook = {.before_write = copy_dense_before},
        .table = table,
        .since = sl_snapshot_delta_base(base, step),
    };
    sl_snapshot_appender_init(&copy->stream, blocks, kind, table_id,
                              (uint32_t)sl_snapshot_record_bytes((uint32_t)floats));
    sl_copied_set_init(&copy->marks, sl_dense_table_block_count(table));
    if (!copy->since.all && copy->since.span == 0) {
        sl_copied_set_pass(&copy->marks, copy->marks.count); /* nothing has changed */
    }
    sl_dense_table_set_hook(table, &copy->hook);
}

uint32_t sl_copy_dense_run(struct sl_copy_dense *copy, uint32_t budget)
{
    uint32_t at = copy->marks.at;
    uint32_t spent = 0;
    while (at < copy->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(copy->stream.blocks)) {
        spent += sl_copied_set_is_set(&copy->marks, at) ? 1 : copy_dense_put(copy, at);
        at++;
    }
    sl_copied_set_pass(&copy->marks, at);
    if (sl_copied_set_done(&copy->marks)) {
        sl_snapshot_appender_close(&copy->stream);
    }
    return spent;
}

void sl_copy_dense_end(struct sl_copy_dense *copy)
{
    sl_dense_table_set_hook(copy->table, NULL);
    sl_snapshot_appender_drop(&copy->stream);
    sl_copied_set_fini(&copy->marks);
}
