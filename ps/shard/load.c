#include "ps/shard/load.h"

#include <inttypes.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "ps/shard/key_admission.h"
#include "ps/shard/kv.h"
#include "ps/shard/load_internal.h"
#include "ps/shard/lookup.h"

#define BYTES_PER_COST 256

static int load_fail_owner(const struct sl_shard_load *load, struct sl_shard_slice *slice,
                           const char *what, uint64_t key)
{
    return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT,
                              "%s %" PRIu64 " does not belong to that shard", what, key);
}

int sl_shard_load_begin(struct sl_shard_load *load, struct sl_shard *shard, uint32_t stream_shard,
                        uint32_t stream_shard_count, struct sl_reason *reason)
{
    if (stream_shard_count > SL_LIMIT_SHARDS || stream_shard >= stream_shard_count) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT,
                              "a snapshot of shard %u of %u: accepts up to %d shards", stream_shard,
                              stream_shard_count, SL_LIMIT_SHARDS);
    }
    sl_assert(shard->snapshots.current == NULL);
    *load = (struct sl_shard_load){
        .shard = shard,
        .stream_shard = stream_shard,
        .stream_shard_count = stream_shard_count,
        .same = stream_shard == shard->options.index && stream_shard_count == shard->options.count,
    };
    if (load->same) {
        sl_shard_load_clocks_begin(shard);
    }
    return 0;
}

/* Tables */

/* Estimates the rows of this shard's table after all snapshots are loaded, from the row count of
 * one of their shards. Keys are evenly distributed. */
static uint64_t expected_rows(const struct sl_shard_load *load, uint32_t row_count)
{
    return (uint64_t)row_count * load->stream_shard_count / load->shard->options.count;
}

static int load_table(struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    const uint32_t id = load->block->table_id;
    struct sl_reason why;
    struct sl_snapshot_table snapshot;
    int err = sl_snapshot_take_table(load->block, &snapshot, &why);
    if (err != 0) {
        return sl_shard_load_fail(load, slice, err, "%s", why.text);
    }
    err = sl_shard_table_open(load->shard, id, &snapshot.spec, &why);
    if (err != 0) {
        return sl_shard_load_fail(load, slice, err == SL_ERR_NO_MEMORY ? err : SL_ERR_CORRUPT, "%s",
                                  why.text);
    }
    struct sl_shard_table *table = load->shard->tables[id];
    table->eviction.is_loaded = true;
    if (load->same || snapshot.step >= table->step) {
        table->step = snapshot.step;
        table->state = snapshot.state;
    }
    if (load->same) {
        table->pulled_rows = snapshot.pulled_rows;
        table->pushed_rows = snapshot.pushed_rows;
    }
    if (table->sparse != NULL) {
        sl_sparse_table_reserve(table->sparse, expected_rows(load, snapshot.row_count));
    }
    load->named[id / 8] |= (uint8_t)(1U << id % 8);
    (void)sl_bytes_take(&load->cursor, load->cursor.left);
    load->left--;
    slice->spent++;
    return SL_SHARD_DONE;
}

/* Sparse rows */

struct batch {
    uint64_t keys[SL_SHARD_BATCH_KEYS];
    struct sl_snapshot_record rows[SL_SHARD_BATCH_KEYS]; /* rows that this shard owns */
    uint32_t count;
};

/* Reads the next records of the block, as many as one lookup takes and the budget pays for. */
static int read_rows(struct sl_shard_load *load, uint32_t float_count, uint32_t cost,
                     struct sl_shard_slice *slice, struct batch *out)
{
    out->count = 0;
    while (load->left > 0 && out->count < SL_SHARD_BATCH_KEYS && sl_shard_slice_left(slice) > 0) {
        struct sl_snapshot_record *row = &out->rows[out->count];
        if (!sl_snapshot_take_record(&load->cursor, float_count, row)) {
            return sl_shard_load_fail_record(load, slice);
        }
        if (sl_partition_owner(row->key, load->stream_shard_count) != load->stream_shard) {
            return load_fail_owner(load, slice, "key", row->key);
        }
        if (sl_partition_owner(row->key, load->shard->options.count) ==
            load->shard->options.index) {
            out->keys[out->count++] = row->key;
            slice->spent += cost;
        }
        slice->spent++;
        load->left--;
    }
    return SL_SHARD_DONE;
}

static int load_rows(struct sl_shard_load *load, struct sl_shard_table *table,
                     struct sl_shard_slice *slice)
{
    const uint32_t words = sl_sparse_table_layout(table->sparse)->words;
    struct batch batch;
    uint32_t records[SL_SHARD_BATCH_KEYS];
    int err =
        read_rows(load, words, words * (uint32_t)sizeof(float) / BYTES_PER_COST, slice, &batch);
    if (err != 0) {
        return err;
    }
    if (sl_shard_find(load->shard, table, batch.keys, batch.count, false, records, NULL) != 0) {
        return sl_shard_load_fail_memory(load, slice);
    }
    for (uint32_t i = 0; i < batch.count; i++) {
        const uint32_t visits = batch.rows[i].count;
        struct sl_row *record = sl_sparse_table_record(table->sparse, records[i]);
        record->last_step = batch.rows[i].last_step;
        record->count = visits < SL_ROW_COUNT_MAX ? visits : SL_ROW_COUNT_MAX;
        memcpy(record->values, batch.rows[i].floats, words * sizeof(float));
    }
    return SL_SHARD_DONE;
}

/* A block of a filter: as it was, or merged into those of shards that differ. */
static int load_filter(struct sl_shard_load *load, struct sl_shard_table *table,
                       struct sl_shard_slice *slice)
{
    const struct sl_key_filter filter = sl_shard_key_filter(table);
    struct sl_snapshot_record record;
    uint64_t first, end;
    if (!sl_snapshot_take_record(&load->cursor, SL_PARTITION_BLOCK_ELEMENTS, &record)) {
        return sl_shard_load_fail_record(load, slice);
    }
    sl_key_filter_range(filter.block_count, load->stream_shard, load->stream_shard_count, &first,
                        &end);
    if (record.key < first || record.key >= end) {
        return load_fail_owner(load, slice, "block", record.key);
    }
    if (load->same) {
        (void)sl_dense_table_put(filter.table, record.key, record.last_step, record.count,
                                 record.floats);
    } else {
        sl_key_filter_merge(&filter, record.key, record.last_step, table->step + 1, record.floats);
    }
    load->left--;
    slice->spent += 1 + SL_PARTITION_BLOCK_ELEMENTS * (uint32_t)sizeof(float) / BYTES_PER_COST;
    return SL_SHARD_DONE;
}

/* Waiting keys; where the table now has no admission, they are left out. */
static int load_waiting(struct sl_shard_load *load, struct sl_shard_table *table,
                        struct sl_shard_slice *slice)
{
    struct batch batch;
    return table->waiting == NULL          ? read_rows(load, 0, 0, slice, &batch)
           : table->waiting->dense != NULL ? load_filter(load, table, slice)
                                           : load_rows(load, table->waiting, slice);
}

/* Erased rows */

static int load_erased(struct sl_shard_load *load, struct sl_shard_table *table,
                       struct sl_shard_slice *slice)
{
    uint64_t keys[SL_SHARD_BATCH_KEYS];
    uint32_t count = 0;
    if (table->buffered_count > 0 || load->buffered != NULL) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "it stands behind buffered pushes");
    }
    while (load->left > 0 && count < SL_SHARD_BATCH_KEYS && sl_shard_slice_left(slice) > 0) {
        uint64_t key;
        if (!sl_snapshot_take_erased(&load->cursor, &key)) {
            return sl_shard_load_fail_record(load, slice);
        }
        if (sl_partition_owner(key, load->stream_shard_count) != load->stream_shard) {
            return load_fail_owner(load, slice, "key", key);
        }
        if (sl_partition_owner(key, load->shard->options.count) == load->shard->options.index) {
            keys[count++] = key;
        }
        slice->spent++;
        load->left--;
    }
    sl_sparse_table_erase(table->sparse, keys, count);
    sl_sparse_table_reuse(table->sparse, count);
    if (sl_shard_waiting_keys(table) != NULL) {
        sl_sparse_table_erase(table->waiting->sparse, keys, count);
        sl_sparse_table_reuse(table->waiting->sparse, count);
    }
    return SL_SHARD_DONE;
}

/* Dense blocks */

/* Returns true when the shard of the snapshot owned that block. */
static bool snapshot_has_block(const struct sl_shard_load *load, uint64_t length, uint64_t number)
{
    const uint32_t range = sl_partition_range_of_shard(load->block->table_id, load->stream_shard,
                                                       load->stream_shard_count);
    const uint64_t start = sl_partition_range_start(length, load->stream_shard_count, range);
    const uint64_t end = sl_partition_range_start(length, load->stream_shard_count, range + 1);
    const uint64_t at = number * SL_PARTITION_BLOCK_ELEMENTS;
    return at >= start && at < end;
}

static int load_dense(struct sl_shard_load *load, struct sl_shard_table *table,
                      struct sl_shard_slice *slice)
{
    struct sl_bytes peek = load->cursor;
    const uint64_t number = sl_bytes_u64(&peek);
    const uint32_t elements = sl_snapshot_dense_elements(table->spec.length, number);
    const uint32_t floats =
        elements + (uint32_t)sl_optimizer_slot_floats(table->optimizer, elements);
    struct sl_snapshot_record record;
    if (elements == 0 || !sl_snapshot_take_record(&load->cursor, floats, &record)) {
        return sl_shard_load_fail_record(load, slice);
    }
    if (!snapshot_has_block(load, table->spec.length, number)) {
        return load_fail_owner(load, slice, "block", number);
    }
    load->left--;
    slice->spent++;
    if (sl_dense_table_put(table->dense, number, record.last_step, record.count, record.floats)) {
        slice->spent += floats * (uint32_t)sizeof(float) / BYTES_PER_COST;
    }
    return SL_SHARD_DONE;
}

/* KV arrays */

static int load_kv(struct sl_shard_load *load, struct sl_shard_table *table,
                   struct sl_shard_slice *slice)
{
    struct sl_snapshot_kv piece;
    struct sl_shard *shard = load->shard;
    if (shard->options.kv_handler != NULL) {
        return sl_shard_load_fail(load, slice, SL_ERR_UNSUPPORTED,
                                  "this shard's KV tables belong to a handler");
    }
    if (!sl_snapshot_take_kv(&load->cursor, table->spec.dim, &piece)) {
        return sl_shard_load_fail_record(load, slice);
    }
    if (sl_partition_kv_owner(piece.key, load->stream_shard_count) != load->stream_shard) {
        return load_fail_owner(load, slice, "key", piece.key);
    }
    load->left--;
    slice->spent++;
    if (sl_partition_kv_owner(piece.key, shard->options.count) != shard->options.index) {
        return SL_SHARD_DONE;
    }
    const struct sl_kv_array array = {
        .key = piece.key, .length = piece.length, .initialized_count = piece.initialized_count};
    sl_shard_kv_limit_memory(shard, table);
    const int err = sl_kv_table_put(table->kv, &array, piece.first, piece.count, piece.values);
    sl_shard_kv_count_memory(shard, table);
    slice->spent += piece.count * table->spec.dim / BYTES_PER_COST;
    if (err == SL_ERR_INVALID) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT,
                                  "the array of key %" PRIu64 " has two lengths", piece.key);
    }
    return err == 0 ? SL_SHARD_DONE : sl_shard_load_fail_memory(load, slice);
}

/* Blocks */

static int load_end(struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    struct sl_snapshot_end end;
    if (!sl_snapshot_take_end(load->block, &end)) {
        return sl_shard_load_fail_record(load, slice);
    }
    if (end.shard != load->stream_shard || end.shard_count != load->stream_shard_count) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "it is of shard %u of %u", end.shard,
                                  end.shard_count);
    }
    for (uint8_t kind = 0; kind <= SL_SNAPSHOT_BUFFERED_PUSH; kind++) {
        if (end.records[kind] != load->seen.records[kind]) {
            return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT,
                                      "it counts %" PRIu64 " records of %s, and %" PRIu64 " came",
                                      end.records[kind], sl_snapshot_kind_name(kind),
                                      load->seen.records[kind]);
        }
    }
    load->ended = true;
    (void)sl_bytes_take(&load->cursor, load->cursor.left);
    load->left = 0;
    return SL_SHARD_DONE;
}

typedef int (*load_fn)(struct sl_shard_load *load, struct sl_shard_table *table,
                       struct sl_shard_slice *slice);

/* Runs `run` on the block's table, which must have a TABLE in this stream and be of this kind. */
static int load_of_table(struct sl_shard_load *load, enum sl_table_kind kind, load_fn run,
                         struct sl_shard_slice *slice)
{
    const uint32_t id = load->block->table_id;
    struct sl_shard_table *table = load->shard->tables[id];
    if ((load->named[id / 8] >> id % 8 & 1) == 0) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "table %u has not been named before",
                                  id);
    }
    if (table->spec.kind != kind) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "the table is of another kind");
    }
    return run(load, table, slice);
}

static int load_some(struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    const struct sl_shard_table *table = load->shard->tables[load->block->table_id];
    const bool is_dense = table != NULL && table->dense != NULL;
    switch (load->block->kind) {
    case SL_SNAPSHOT_TABLE:
        return load_table(load, slice);
    case SL_SNAPSHOT_ROWS:
        return load_of_table(load, SL_TABLE_SPARSE, load_rows, slice);
    case SL_SNAPSHOT_ERASED:
        return load_of_table(load, SL_TABLE_SPARSE, load_erased, slice);
    case SL_SNAPSHOT_WAITING:
        return load_of_table(load, SL_TABLE_SPARSE, load_waiting, slice);
    case SL_SNAPSHOT_DENSE:
        return load_of_table(load, SL_TABLE_DENSE, load_dense, slice);
    case SL_SNAPSHOT_KV:
        return load_of_table(load, SL_TABLE_KV, load_kv, slice);
    case SL_SNAPSHOT_CLOCKS:
        return sl_shard_load_clock(load, slice);
    case SL_SNAPSHOT_BUFFERED_PUSH:
        return load_of_table(load, is_dense ? SL_TABLE_DENSE : SL_TABLE_SPARSE,
                             sl_shard_load_buffered_push, slice);
    case SL_SNAPSHOT_END:
        return load_end(load, slice);
    default:
        sl_assert(load->block->kind == SL_SNAPSHOT_SESSIONS);
        (void)sl_bytes_take(&load->cursor, load->cursor.left);
        load->left = 0;
        return SL_SHARD_DONE;
    }
}

static int begin_block(struct sl_shard_load *load, const struct sl_snapshot_block *block,
                       struct sl_shard_slice *slice)
{
    struct sl_reason why;
    sl_assert((uintptr_t)block->payload % 8 == 0);
    if (load->ended) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "a block of %s behind its end",
                                  sl_snapshot_kind_name(block->kind));
    }
    const int err = sl_snapshot_block_check(block, &why);
    if (err != 0) {
        return sl_shard_load_fail(load, slice, err, "%s", why.text);
    }
    load->block = block;
    load->cursor = sl_snapshot_records(block);
    load->left = block->count;
    return 0;
}

int sl_shard_load_block(struct sl_shard_load *load, const struct sl_snapshot_block *block,
                        uint32_t budget, struct sl_reason *reason)
{
    struct sl_shard_slice slice = {.budget = budget, .reason = reason};
    sl_assert(load->block == NULL || load->block == block);
    int err = load->block == NULL ? begin_block(load, block, &slice) : 0;
    if (err != 0) {
        return err;
    }
    while (load->left > 0 && err == SL_SHARD_DONE && sl_shard_slice_left(&slice) > 0) {
        err = load_some(load, &slice);
    }
    load->spent = slice.spent;
    if (err != SL_SHARD_DONE || load->left > 0) {
        return err != SL_SHARD_DONE ? err : SL_SHARD_AGAIN;
    }
    if (load->cursor.left != 0) {
        return sl_shard_load_fail(load, &slice, SL_ERR_CORRUPT,
                                  "%zu bytes are left behind its records", load->cursor.left);
    }
    sl_snapshot_end_add(&load->seen, block);
    load->block = NULL;
    return SL_SHARD_DONE;
}

int sl_shard_load_end(struct sl_shard_load *load, struct sl_reason *reason)
{
    struct sl_shard_slice slice = {.reason = reason};
    sl_assert(load->block == NULL);
    if (!load->ended) {
        return sl_shard_load_fail(load, &slice, SL_ERR_CORRUPT, "it has no end");
    }
    return load->same ? sl_shard_load_clocks_end(load, &slice) : 0;
}
