#include "ps/snapshot/copy_sparse.h"

#include "core/assert.h"

#define AHEAD      8 /* records fetched before they are copied */
#define SCAN_COUNT 4 /* records that are looked at for one unit of the budget */

/* Returns what it cost. */
static uint32_t put(struct sl_copy_sparse *cut, uint32_t number)
{
    const struct sl_row *record = sl_sparse_table_record(cut->store, number);
    if (!sl_snapshot_delta_holds(&cut->since, number, record->last_step)) {
        return 0;
    }
    const struct sl_snapshot_record image = {
        .key = record->key,
        .last_step = record->last_step,
        .count = record->count,
        .floats = record->values,
    };
    (void)sl_snapshot_appender_put_record(&cut->stream, &image, cut->float_count);
    return cut->record_cost;
}

/* Records are about to change. One that the image does not hold is marked too: its step, once it is
 * newer, has nothing to say any more. */
static void before(struct sl_sparse_table_hook *watch, const uint32_t *records, uint32_t count)
{
    struct sl_copy_sparse *cut = (struct sl_copy_sparse *)watch;
    struct sl_snapshot_builder *blocks = cut->stream.blocks;
    if (sl_copy_sparse_done(cut) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_copied_begin(&cut->marks);
    for (uint32_t i = 0; i < count && blocks->err == 0; i++) {
        if (count - i > AHEAD && sl_copied_is_pending(&cut->marks, records[i + AHEAD])) {
            __builtin_prefetch(sl_sparse_table_record(cut->store, records[i + AHEAD]));
        }
        if (sl_copied_mark(&cut->marks, records[i])) {
            blocks->owed += put(cut, records[i]);
        }
    }
}

void sl_copy_sparse_begin(struct sl_copy_sparse *cut, struct sl_sparse_table *store,
                          struct sl_snapshot_builder *blocks, uint32_t table_id,
                          const struct sl_snapshot_base *base, uint64_t step)
{
    const uint32_t dim = sl_sparse_table_spec(store)->dim;
    const uint32_t count = (uint32_t)sl_sparse_table_row_count(store);
    *cut = (struct sl_copy_sparse){
        .watch = {.before = before},
        .store = store,
        .since = sl_snapshot_delta_base(base, step),
        .float_count =
            dim + (uint32_t)sl_optimizer_slot_floats(sl_sparse_table_optimizer(store), dim),
        .record_cost = sl_snapshot_cost(sl_sparse_table_record_bytes(store)),
    };
    sl_snapshot_appender_init(&cut->stream, blocks, SL_SNAPSHOT_ROWS, table_id,
                              (uint32_t)sl_snapshot_record_bytes(cut->float_count));
    sl_copied_init(&cut->marks, count);
    if (!cut->since.all && cut->since.span == 0) {
        sl_assert(cut->since.count <= count);
        sl_copied_pass(&cut->marks, cut->since.count); /* only new ones can be in it */
    }
    sl_sparse_table_set_hook(store, &cut->watch);
}

/* One in which most are passed over waits for the memory of each otherwise: then what a turn's
 * budget stands for, in time, does not hold. */
static void fetch_ahead(const struct sl_copy_sparse *cut, uint32_t at)
{
    if (!cut->since.all && cut->marks.count - at > AHEAD) {
        __builtin_prefetch(sl_sparse_table_record(cut->store, at + AHEAD));
    }
}

uint32_t sl_copy_sparse_run(struct sl_copy_sparse *cut, uint32_t budget)
{
    uint32_t at = cut->marks.at;
    uint32_t spent = 0;
    while (at < cut->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(cut->stream.blocks)) {
        fetch_ahead(cut, at);
        spent += sl_copied_is_set(&cut->marks, at) ? 0 : put(cut, at);
        at++;
        spent += at % SCAN_COUNT == 0;
    }
    sl_copied_pass(&cut->marks, at);
    if (sl_copy_sparse_done(cut)) {
        sl_snapshot_appender_close(&cut->stream);
    }
    return spent;
}

void sl_copy_sparse_end(struct sl_copy_sparse *cut)
{
    sl_sparse_table_set_hook(cut->store, NULL);
    sl_snapshot_appender_drop(&cut->stream);
    sl_copied_fini(&cut->marks);
}
