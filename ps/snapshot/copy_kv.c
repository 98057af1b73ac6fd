#include "ps/snapshot/copy_kv.h"

#include <stdlib.h>

#include "core/assert.h"

#define PIECE_BYTES (64U << 10)
#define BUCKETS     4096 /* a power of two */

/* A long array some of whose pieces have been put before the walk came to it. */
struct sl_copy_kv_pieces {
    struct sl_copy_kv_pieces *next; /* in its bucket */
    uint32_t record;
    uint32_t written; /* of the array, as it was */
    uint32_t left;    /* pieces that are not marked */
    uint64_t marks[];
};

/* ---- Pieces ---------------------------------------------------------------------------------- */

static uint32_t piece_count(const struct sl_copy_kv *cut, const struct sl_kv_array *array)
{
    return (array->length - 1) / cut->piece_values + 1;
}

static size_t pieces_bytes(uint32_t count)
{
    return sizeof(struct sl_copy_kv_pieces) + ((size_t)count + 63) / 64 * sizeof(uint64_t);
}

static struct sl_copy_kv_pieces **pieces_at(const struct sl_copy_kv *cut, uint32_t record)
{
    struct sl_copy_kv_pieces **at = &cut->pieces[record % BUCKETS];
    while (*at != NULL && (*at)->record != record) {
        at = &(*at)->next;
    }
    return at;
}

static struct sl_copy_kv_pieces *pieces_find(const struct sl_copy_kv *cut, uint32_t record)
{
    return cut->pieces == NULL ? NULL : *pieces_at(cut, record);
}

/* NULL: no memory. */
static struct sl_copy_kv_pieces *pieces_make(struct sl_copy_kv *cut, uint32_t record,
                                             uint32_t count)
{
    if (cut->pieces == NULL) {
        cut->pieces = calloc(BUCKETS, sizeof *cut->pieces);
    }
    struct sl_copy_kv_pieces *pieces = cut->pieces == NULL ? NULL : calloc(1, pieces_bytes(count));
    if (pieces == NULL) {
        return NULL;
    }
    pieces->record = record;
    pieces->left = count;
    *pieces_at(cut, record) = pieces;
    cut->pieces_bytes += pieces_bytes(count);
    return pieces;
}

static void pieces_free(struct sl_copy_kv *cut, uint32_t record, uint32_t count)
{
    struct sl_copy_kv_pieces **at = cut->pieces == NULL ? NULL : pieces_at(cut, record);
    if (at != NULL && *at != NULL) {
        struct sl_copy_kv_pieces *pieces = *at;
        *at = pieces->next;
        cut->pieces_bytes -= pieces_bytes(count);
        free(pieces);
    }
}

static bool piece_is_put(const struct sl_copy_kv_pieces *pieces, uint32_t piece)
{
    return pieces != NULL && (pieces->marks[piece / 64] >> piece % 64 & 1) != 0;
}

/* ---- Putting --------------------------------------------------------------------------------- */

/* Whether the image holds the array, which has not changed since the cut began. */
static bool holds(const struct sl_copy_kv *cut, uint32_t record, const struct sl_kv_array *array)
{
    return cut->all || record >= cut->base_count || array->epoch > cut->base_epoch;
}

/* Returns what it cost. */
static uint32_t put_piece(struct sl_copy_kv *cut, const struct sl_kv_array *array, uint32_t written,
                          uint32_t piece)
{
    const uint32_t width = sl_kv_table_value_bytes(cut->store);
    const uint32_t first = piece * cut->piece_values;
    uint32_t left = array->length - first;
    left = left < cut->piece_values ? left : cut->piece_values;
    const uint32_t cost = 1 + sl_snapshot_cost((size_t)left * width);
    struct sl_snapshot_kv image = {
        .key = array->key,
        .length = array->length,
        .written = written,
        .first = first,
    };
    while (left > 0) {
        struct sl_snapshot_block *block = sl_snapshot_appender_block(&cut->stream);
        if (block == NULL) {
            break;
        }
        image.count = left;
        image.values = array->values + (size_t)image.first * width;
        const uint32_t count = sl_snapshot_put_kv(block, &image, width);
        if (count == 0) {
            sl_assert(block->count > 0);
            sl_snapshot_appender_close(&cut->stream);
        }
        image.first += count;
        left -= count;
    }
    return cost;
}

/* Some of a long array's values are about to change. */
static void before_long(struct sl_copy_kv *cut, uint32_t record, const struct sl_kv_array *array,
                        uint32_t start, uint32_t count)
{
    struct sl_snapshot_builder *blocks = cut->stream.blocks;
    const uint32_t passed = record == cut->marks.at ? cut->piece_at : 0;
    struct sl_copy_kv_pieces *pieces = pieces_find(cut, record);
    if (pieces == NULL && passed == 0 && !holds(cut, record, array)) {
        (void)sl_copied_mark(&cut->marks, record);
        return;
    }
    if (pieces == NULL) {
        pieces = pieces_make(cut, record, piece_count(cut, array));
        if (pieces == NULL) {
            blocks->err = SL_ERR_NO_MEMORY;
            return;
        }
        pieces->written = array->written; /* nothing has changed yet */
    }
    for (uint32_t i = start / cut->piece_values; i <= (start + count - 1) / cut->piece_values;
         i++) {
        if (i >= passed && !piece_is_put(pieces, i)) {
            blocks->owed += put_piece(cut, array, pieces->written, i);
            pieces->marks[i / 64] |= 1ULL << i % 64;
            pieces->left--;
        }
    }
    if (pieces->left == 0) {
        (void)sl_copied_mark(&cut->marks, record);
        pieces_free(cut, record, piece_count(cut, array));
    }
}

static void before(struct sl_kv_table_hook *watch, uint32_t record, uint32_t start, uint32_t count)
{
    struct sl_copy_kv *cut = (struct sl_copy_kv *)watch;
    struct sl_snapshot_builder *blocks = cut->stream.blocks;
    if (count == 0 || blocks->err != 0 || !sl_copied_is_pending(&cut->marks, record)) {
        return;
    }
    blocks->err = sl_copied_begin(&cut->marks);
    if (blocks->err != 0) {
        return;
    }
    const struct sl_kv_array *array = sl_kv_table_at(cut->store, record);
    if (array->length > cut->piece_values) {
        before_long(cut, record, array, start, count);
    } else if (sl_copied_mark(&cut->marks, record) && holds(cut, record, array)) {
        blocks->owed += put_piece(cut, array, array->written, 0);
    }
}

/* There was nothing when the cut began. */
static void made(struct sl_kv_table_hook *watch, uint32_t record)
{
    struct sl_copy_kv *cut = (struct sl_copy_kv *)watch;
    struct sl_snapshot_builder *blocks = cut->stream.blocks;
    if (blocks->err != 0 || !sl_copied_is_pending(&cut->marks, record)) {
        return;
    }
    blocks->err = sl_copied_begin(&cut->marks);
    if (blocks->err == 0) {
        (void)sl_copied_mark(&cut->marks, record);
    }
}

/* ---- Walking --------------------------------------------------------------------------------- */

void sl_copy_kv_begin(struct sl_copy_kv *cut, struct sl_kv_table *store,
                      struct sl_snapshot_builder *blocks, uint32_t table_id,
                      const struct sl_snapshot_base *base)
{
    *cut = (struct sl_copy_kv){
        .watch = {.before = before, .made = made},
        .store = store,
        .all = base == NULL || !base->open,
        .base_count = base == NULL ? 0 : base->count,
        .base_epoch = base == NULL ? 0 : base->step,
        .piece_values = PIECE_BYTES / sl_kv_table_value_bytes(store),
    };
    sl_snapshot_appender_init(&cut->stream, blocks, SL_SNAPSHOT_KV, table_id, 0);
    sl_copied_init(&cut->marks, sl_kv_table_record_count(store));
    sl_kv_table_set_hook(store, &cut->watch);
}

/* Goes on with the array that the walk is at; true when that is done. */
static bool walk_array(struct sl_copy_kv *cut, uint32_t record, uint32_t budget, uint32_t *spent)
{
    const struct sl_kv_array *array = sl_kv_table_at(cut->store, record);
    if (array->values == NULL || sl_copied_is_set(&cut->marks, record)) {
        return true;
    }
    const struct sl_copy_kv_pieces *pieces = pieces_find(cut, record);
    if (pieces == NULL && cut->piece_at == 0 && !holds(cut, record, array)) {
        return true;
    }
    const uint32_t count = piece_count(cut, array);
    if (cut->piece_at == 0) {
        cut->written = pieces != NULL ? pieces->written : array->written;
    }
    while (cut->piece_at < count) {
        if (*spent >= budget || !sl_snapshot_builder_have_room(cut->stream.blocks)) {
            return false;
        }
        *spent += piece_is_put(pieces, cut->piece_at)
                      ? 1
                      : put_piece(cut, array, cut->written, cut->piece_at);
        cut->piece_at++;
    }
    pieces_free(cut, record, count);
    return true;
}

uint32_t sl_copy_kv_run(struct sl_copy_kv *cut, uint32_t budget)
{
    uint32_t spent = 0;
    uint32_t at = cut->marks.at;
    while (at < cut->marks.count && spent < budget &&
           sl_snapshot_builder_have_room(cut->stream.blocks) &&
           walk_array(cut, at, budget, &spent)) {
        at++;
        cut->piece_at = 0;
        spent += at % 8 == 0;
    }
    sl_copied_pass(&cut->marks, at);
    if (sl_copy_kv_done(cut)) {
        sl_snapshot_appender_close(&cut->stream);
    }
    return spent;
}

void sl_copy_kv_end(struct sl_copy_kv *cut)
{
    sl_kv_table_set_hook(cut->store, NULL);
    sl_snapshot_appender_drop(&cut->stream);
    sl_copied_fini(&cut->marks);
    for (uint32_t i = 0; cut->pieces != NULL && i < BUCKETS; i++) {
        while (cut->pieces[i] != NULL) {
            struct sl_copy_kv_pieces *pieces = cut->pieces[i];
            cut->pieces[i] = pieces->next;
            free(pieces);
        }
    }
    free(cut->pieces);
    cut->pieces = NULL;
}
