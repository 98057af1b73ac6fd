#include "ps/snapshot/copy_kv.h"

#include <stdlib.h>

#include "core/assert.h"

#define PIECE_BYTES (64U << 10)
#define BUCKETS     4096 /* a power of two */

/* A long array of which pushes had some pieces copied before the walk reached it. */
struct sl_copy_kv_pieces {
    struct sl_copy_kv_pieces *next; /* next in its bucket */
    uint32_t record;
    uint32_t initialized_count; /* of the array, before any change */
    uint32_t left;              /* unmarked pieces */
    uint64_t marks[];
};

/* Pieces */

static uint32_t piece_count(const struct sl_copy_kv *copy, const struct sl_kv_array *array)
{
    return (array->length - 1) / copy->piece_values + 1;
}

static size_t pieces_bytes(uint32_t count)
{
    return sizeof(struct sl_copy_kv_pieces) + ((size_t)count + 63) / 64 * sizeof(uint64_t);
}

static struct sl_copy_kv_pieces **pieces_at(const struct sl_copy_kv *copy, uint32_t record)
{
    struct sl_copy_kv_pieces **at = &copy->pieces[record % BUCKETS];
    while (*at != NULL && (*at)->record != record) {
        at = &(*at)->next;
    }
    return at;
}

static struct sl_copy_kv_pieces *pieces_find(const struct sl_copy_kv *copy, uint32_t record)
{
    return copy->pieces == NULL ? NULL : *pieces_at(copy, record);
}

/* Returns NULL when there is no memory. */
static struct sl_copy_kv_pieces *pieces_make(struct sl_copy_kv *copy, uint32_t record,
                                             uint32_t count)
{
    if (copy->pieces == NULL) {
        copy->pieces = calloc(BUCKETS, sizeof *copy->pieces);
    }
    struct sl_copy_kv_pieces *pieces = copy->pieces == NULL ? NULL : calloc(1, pieces_bytes(count));
    if (pieces == NULL) {
        return NULL;
    }
    pieces->record = record;
    pieces->left = count;
    *pieces_at(copy, record) = pieces;
    copy->pieces_bytes += pieces_bytes(count);
    return pieces;
}

static void pieces_free(struct sl_copy_kv *copy, uint32_t record, uint32_t count)
{
    struct sl_copy_kv_pieces **at = copy->pieces == NULL ? NULL : pieces_at(copy, record);
    if (at != NULL && *at != NULL) {
        struct sl_copy_kv_pieces *pieces = *at;
        *at = pieces->next;
        copy->pieces_bytes -= pieces_bytes(count);
        free(pieces);
    }
}

static bool piece_is_put(const struct sl_copy_kv_pieces *pieces, uint32_t piece)
{
    return pieces != NULL && (pieces->marks[piece / 64] >> piece % 64 & 1) != 0;
}

/* Copying */

/* Returns true when the snapshot includes the array, which has not changed since the snapshot
 * started. */
static bool copy_kv_holds(const struct sl_copy_kv *copy, uint32_t record,
                          const struct sl_kv_array *array)
{
    return copy->all || record >= copy->base_count || array->generation > copy->base_epoch;
}

/* Puts one piece and returns the cost. */
static uint32_t copy_kv_put_piece(struct sl_copy_kv *copy, const struct sl_kv_array *array,
                                  uint32_t written, uint32_t piece)
{
    const uint32_t width = sl_kv_table_value_bytes(copy->table);
    const uint32_t first = piece * copy->piece_values;
    uint32_t left = array->length - first;
    left = left < copy->piece_values ? left : copy->piece_values;
    const uint32_t cost = 1 + sl_snapshot_cost((size_t)left * width);
    struct sl_snapshot_kv chunk = {
        .key = array->key,
        .length = array->length,
        .initialized_count = written,
        .first = first,
    };
    while (left > 0) {
        struct sl_snapshot_block *block = sl_snapshot_appender_block(&copy->stream);
        if (block == NULL) {
            break;
        }
        chunk.count = left;
        chunk.values = array->values + (size_t)chunk.first * width;
        const uint32_t count = sl_snapshot_put_kv(block, &chunk, width);
        if (count == 0) {
            sl_assert(block->count > 0);
            sl_snapshot_appender_close(&copy->stream);
        }
        chunk.first += count;
        left -= count;
    }
    return cost;
}

/* Copies the pieces of a long array that are about to change. */
static void before_long(struct sl_copy_kv *copy, uint32_t record, const struct sl_kv_array *array,
                        uint32_t start, uint32_t count)
{
    struct sl_snapshot_builder *blocks = copy->stream.blocks;
    const uint32_t passed = record == copy->marks.at ? copy->piece_at : 0;
    struct sl_copy_kv_pieces *pieces = pieces_find(copy, record);
    if (pieces == NULL && passed == 0 && !copy_kv_holds(copy, record, array)) {
        (void)sl_copied_set_mark(&copy->marks, record);
        return;
    }
    if (pieces == NULL) {
        pieces = pieces_make(copy, record, piece_count(copy, array));
        if (pieces == NULL) {
            blocks->err = SL_ERR_NO_MEMORY;
            return;
        }
        pieces->initialized_count =
            array->initialized_count; /* still the count before any change */
    }
    for (uint32_t i = start / copy->piece_values; i <= (start + count - 1) / copy->piece_values;
         i++) {
        if (i >= passed && !piece_is_put(pieces, i)) {
            blocks->copy_debt += copy_kv_put_piece(copy, array, pieces->initialized_count, i);
            pieces->marks[i / 64] |= 1ULL << i % 64;
            pieces->left--;
        }
    }
    if (pieces->left == 0) {
        (void)sl_copied_set_mark(&copy->marks, record);
        pieces_free(copy, record, piece_count(copy, array));
    }
}

static void copy_kv_before(struct sl_kv_table_hook *hook, uint32_t record, uint32_t start,
                           uint32_t count)
{
    struct sl_copy_kv *copy = (struct sl_copy_kv *)hook;
    struct sl_snapshot_builder *blocks = copy->stream.blocks;
    if (count == 0 || blocks->err != 0 || !sl_copied_set_is_pending(&copy->marks, record)) {
        return;
    }
    blocks->err = sl_copied_set_begin(&copy->marks);
    if (blocks->err != 0) {
        return;
    }
    const struct sl_kv_array *array = sl_kv_table_at(copy->table, record);
    if (array->length > copy->piece_values) {
        before_long(copy, record, array, start, count);
    } else if (sl_copied_set_mark(&copy->marks, record) && copy_kv_holds(copy, record, array)) {
        blocks->copy_debt += copy_kv_put_piece(copy, array, array->initialized_count, 0);
    }
}

/* The array was created after the snapshot started: skip it. */
static void made(struct sl_kv_table_hook *hook, uint32_t record)
{
    struct sl_copy_kv *copy = (struct sl_copy_kv *)hook;
    struct sl_snapshot_builder *blocks = copy->stream.blocks;
    if (blocks->err != 0 || !sl_copied_set_is_pending(&copy->marks, record)) {
        return;
    }
    blocks->err = sl_copied_set_begin(&copy->marks);
    if (blocks->err == 0) {
        (void)sl_copied_set_mark(&copy->marks, record);
    }
}

/* Walk */

void sl_copy_kv_begin(struct sl_copy_kv *copy, struct sl_kv_table *table,
                      struct sl_snapshot_builder *blocks, uint32_t table_id,
                      const struct sl_snapshot_base *base)
{
    *copy = (struct sl_copy_kv){
        .hook = {.before_write = copy_kv_before, .created = made},
        .table = table,
        .all = base == NULL || !base->open,
        .base_count = base == NULL ? 0 : base->count,
        .base_epoch = base == NULL ? 0 : base->step,
        .piece_values = PIECE_BYTES / sl_kv_table_value_bytes(table),
    };
    sl_snapshot_appender_init(&copy->stream, blocks, SL_SNAPSHOT_KV, table_id, 0);
    sl_copied_set_init(&copy->marks, sl_kv_table_record_count(table));
    sl_kv_table_set_hook(table, &copy->hook);
}

/* Continues the current array of the walk; returns true when it is done. */
static bool walk_array(struct sl_copy_kv *copy, uint32_t record, uint32_t budget, uint32_t *spent)
{
    const struct sl_kv_array *array = sl_kv_table_at(copy->table, record);
    if (array->values == NULL || sl_copied_set_is_set(&copy->marks, record)) {
        return true;
    }
    const struct sl_copy_kv_pieces *pieces = pieces_find(copy, record);
    if (pieces == NULL && copy->piece_at == 0 && !copy_kv_holds(copy, record, array)) {
        return true;
    }
    const uint32_t count = piece_count(copy, array);
    if (copy->piece_at == 0) {
        copy->initialized_count =
            pieces != NULL ? pieces->initialized_count : array->initialized_count;
    }
    while (copy->piece_at < count) {
        if (*spent >= budget || !sl_snapshot_builder_have_room(copy->stream.blocks)) {
            return false;
        }
        *spent += piece_is_put(pieces, copy->piece_at)
                      ? 1
                      : copy_kv_put_piece(copy, array, copy->initialized_count, copy->piece_at);
        copy->piece_at++;
    }
    pieces_free(copy, record, count);
    return true;
}

uint32_t sl_copy_kv_run(struct sl_copy_kv *copy, uint32_t budget)
{
    uint32_t spent = 0;
    uint32_t at = copy->marks.at;
    while (at < copy->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(copy->stream.blocks) &&
           walk_array(copy, at, budget, &spent)) {
        at++;
        copy->piece_at = 0;
        spent += at % 8 == 0;
    }
    sl_copied_set_pass(&copy->marks, at);
    if (sl_copied_set_done(&copy->marks)) {
        sl_snapshot_appender_close(&copy->stream);
    }
    return spent;
}

void sl_copy_kv_end(struct sl_copy_kv *copy)
{
    sl_kv_table_set_hook(copy->table, NULL);
    sl_snapshot_appender_drop(&copy->stream);
    sl_copied_set_fini(&copy->marks);
    for (uint32_t i = 0; copy->pieces != NULL && i < BUCKETS; i++) {
        while (copy->pieces[i] != NULL) {
            struct sl_copy_kv_pieces *pieces = copy->pieces[i];
            copy->pieces[i] = pieces->next;
            free(pieces);
        }
    }
    free(copy->pieces);
    copy->pieces = NULL;
}
