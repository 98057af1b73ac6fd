#include "ps/snapshot/copy_sparse.h"

#include "core/assert.h"

#define AHEAD      8 /* prefetch distance in records */
#define SCAN_COUNT 4 /* records scanned for one unit of budget */

/* Puts a record and returns the cost. A row that no push has visited may use the record of a row
 * that was erased since the base, so its number does not show that it is new. */
static uint32_t copy_sparse_put(struct sl_copy_sparse *copy, uint32_t number)
{
    const struct sl_row *record = sl_sparse_table_record(copy->table, number);
    if (record->count == SL_ROW_ERASED ||
        (record->last_step != 0 &&
         !sl_snapshot_delta_holds(&copy->since, number, record->last_step))) {
        return 0;
    }
    const struct sl_snapshot_record entry = {
        .key = record->key,
        .last_step = record->last_step,
        .count = record->count,
        .floats = record->values,
    };
    (void)sl_snapshot_appender_put_record(&copy->stream, &entry, copy->float_count);
    return copy->record_cost;
}

/* Copies records before a push or an erase changes them. A record outside the delta is marked too:
 * after the push its newer step would make the walk include it. */
static void copy_sparse_before(struct sl_sparse_table_hook *hook, const uint32_t *records,
                               uint32_t count)
{
    struct sl_copy_sparse *copy = (struct sl_copy_sparse *)hook;
    struct sl_snapshot_builder *blocks = copy->stream.blocks;
    if (sl_copied_set_done(&copy->marks) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_copied_set_begin(&copy->marks);
    for (uint32_t i = 0; i < count && blocks->err == 0; i++) {
        if (count - i > AHEAD && sl_copied_set_is_pending(&copy->marks, records[i + AHEAD])) {
            __builtin_prefetch(sl_sparse_table_record(copy->table, records[i + AHEAD]));
        }
        if (sl_copied_set_mark(&copy->marks, records[i])) {
            blocks->copy_debt += copy_sparse_put(copy, records[i]);
        }
    }
}

void sl_copy_sparse_begin(struct sl_copy_sparse *copy, struct sl_sparse_table *table,
                          struct sl_snapshot_builder *blocks, uint32_t table_id,
                          const struct sl_snapshot_base *base, uint64_t step)
{
    const uint32_t dim = sl_sparse_table_spec(table)->dim;
    const uint32_t count = sl_sparse_table_record_count(table);
    *copy = (struct sl_copy_sparse){
        .hook = {.before_write = copy_sparse_before},
        .table = table,
        .since = sl_snapshot_delta_base(base, step),
        .float_count = sl_sparse_table_layout(table)->words,
        .record_cost = sl_snapshot_cost(sl_sparse_table_record_bytes(table)),
    };
    sl_snapshot_appender_init(&copy->stream, blocks,
                              dim == 0 ? SL_SNAPSHOT_WAITING : SL_SNAPSHOT_ROWS, table_id,
                              (uint32_t)sl_snapshot_record_bytes(copy->float_count));
    sl_copied_set_init(&copy->marks, count);
    const bool reuses = sl_sparse_table_erased_log(table)->end > 0;
    if (!copy->since.all && copy->since.span == 0 && !reuses) {
        sl_assert(copy->since.count <= count);
        sl_copied_set_pass(&copy->marks, copy->since.count); /* only new records can be included */
    }
    sl_sparse_table_set_hook(table, &copy->hook);
}

/* An incremental snapshot skips most records. Without prefetch it would wait for memory at each
 * one, and a turn would take longer than its budget stands for. */
static void fetch_ahead(const struct sl_copy_sparse *copy, uint32_t at)
{
    if (!copy->since.all && copy->marks.count - at > AHEAD) {
        __builtin_prefetch(sl_sparse_table_record(copy->table, at + AHEAD));
    }
}

uint32_t sl_copy_sparse_run(struct sl_copy_sparse *copy, uint32_t budget)
{
    uint32_t at = copy->marks.at;
    uint32_t spent = 0;
    while (at < copy->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(copy->stream.blocks)) {
        fetch_ahead(copy, at);
        spent += sl_copied_set_is_set(&copy->marks, at) ? 0 : copy_sparse_put(copy, at);
        at++;
        spent += at % SCAN_COUNT == 0;
    }
    sl_copied_set_pass(&copy->marks, at);
    if (sl_copied_set_done(&copy->marks)) {
        sl_snapshot_appender_close(&copy->stream);
    }
    return spent;
}

void sl_copy_sparse_end(struct sl_copy_sparse *copy)
{
    sl_sparse_table_set_hook(copy->table, NULL);
    sl_snapshot_appender_drop(&copy->stream);
    sl_copied_set_fini(&copy->marks);
}
