#include "ps/table_cut.h"

#include "core/assert.h"

#define AHEAD      8 /* records fetched before they are copied */
#define SCAN_COUNT 4 /* records that are looked at for one unit of the budget */

/* Returns what it cost. */
static uint32_t put(struct sl_table_cut *cut, uint32_t number)
{
    const struct sl_table_record *record = sl_table_store_record(cut->store, number);
    if (!sl_cut_since_holds(&cut->since, number, record->last_step)) {
        return 0;
    }
    const struct sl_image_record image = {
        .key = record->key,
        .last_step = record->last_step,
        .count = record->count,
        .floats = record->values,
    };
    (void)sl_cut_stream_put_record(&cut->stream, &image, cut->float_count);
    return cut->record_cost;
}

/* Records are about to change. One that the image does not hold is marked too: its step, once it is
 * newer, has nothing to say any more. */
static void before(struct sl_table_watch *watch, const uint32_t *records, uint32_t count)
{
    struct sl_table_cut *cut = (struct sl_table_cut *)watch;
    struct sl_cut_blocks *blocks = cut->stream.blocks;
    if (sl_table_cut_done(cut) || blocks->err != 0) {
        return;
    }
    blocks->err = sl_cut_marks_begin(&cut->marks);
    for (uint32_t i = 0; i < count && blocks->err == 0; i++) {
        if (count - i > AHEAD && sl_cut_marks_wants(&cut->marks, records[i + AHEAD])) {
            __builtin_prefetch(sl_table_store_record(cut->store, records[i + AHEAD]));
        }
        if (sl_cut_marks_take(&cut->marks, records[i])) {
            blocks->owed += put(cut, records[i]);
        }
    }
}

void sl_table_cut_begin(struct sl_table_cut *cut, struct sl_table_store *store,
                        struct sl_cut_blocks *blocks, uint32_t table_id,
                        const struct sl_cut_base *base, uint64_t step)
{
    const uint32_t dim = sl_table_store_spec(store)->dim;
    const uint32_t count = (uint32_t)sl_table_store_row_count(store);
    *cut = (struct sl_table_cut){
        .watch = {.before = before},
        .store = store,
        .since = sl_cut_since_base(base, step),
        .float_count =
            dim + (uint32_t)sl_optimizer_slot_floats(sl_table_store_optimizer(store), dim),
        .record_cost = sl_cut_cost(sl_table_store_record_bytes(store)),
    };
    sl_cut_stream_init(&cut->stream, blocks, SL_IMAGE_ROWS, table_id,
                       (uint32_t)sl_image_record_bytes(cut->float_count));
    sl_cut_marks_init(&cut->marks, count);
    if (!cut->since.all && cut->since.span == 0) {
        sl_assert(cut->since.count <= count);
        sl_cut_marks_pass(&cut->marks, cut->since.count); /* only new ones can be in it */
    }
    sl_table_store_watch(store, &cut->watch);
}

/* One in which most are passed over waits for the memory of each otherwise: then what a turn's
 * budget stands for, in time, does not hold. */
static void fetch_ahead(const struct sl_table_cut *cut, uint32_t at)
{
    if (!cut->since.all && cut->marks.count - at > AHEAD) {
        __builtin_prefetch(sl_table_store_record(cut->store, at + AHEAD));
    }
}

uint32_t sl_table_cut_run(struct sl_table_cut *cut, uint32_t budget)
{
    uint32_t at = cut->marks.at;
    uint32_t spent = 0;
    while (at < cut->marks.count && spent < budget && sl_cut_blocks_have_room(cut->stream.blocks)) {
        fetch_ahead(cut, at);
        spent += sl_cut_marks_is_set(&cut->marks, at) ? 0 : put(cut, at);
        at++;
        spent += at % SCAN_COUNT == 0;
    }
    sl_cut_marks_pass(&cut->marks, at);
    if (sl_table_cut_done(cut)) {
        sl_cut_stream_close(&cut->stream);
    }
    return spent;
}

void sl_table_cut_end(struct sl_table_cut *cut)
{
    sl_table_store_watch(cut->store, NULL);
    sl_cut_stream_drop(&cut->stream);
    sl_cut_marks_fini(&cut->marks);
}
