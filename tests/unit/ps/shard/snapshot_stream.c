#include "snapshot_stream.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/support/shard_image.h"
#include "tests/support/unit.h"

#define PLACES (1U << 17)

struct snapshot_stream *snapshot_stream_new(void)
{
    struct snapshot_stream *stream = calloc(1, sizeof *stream);
    assert_non_null(stream);
    stream->places = calloc(PLACES, sizeof *stream->places);
    assert_non_null(stream->places);
    return stream;
}

void snapshot_stream_free(struct snapshot_stream *stream)
{
    for (size_t i = 0; stream != NULL && i < stream->count; i++) {
        free(stream->items[i].bytes);
    }
    if (stream != NULL) {
        free(stream->items);
        free(stream->places);
    }
    free(stream);
}

static uint32_t *place_of(const struct snapshot_stream *stream, uint8_t kind, uint32_t table_id,
                          uint64_t key)
{
    uint64_t hash = sl_hash_key(key ^ ((uint64_t)kind << 56) ^ ((uint64_t)table_id << 40));
    for (;; hash++) {
        uint32_t *place = &stream->places[hash % PLACES];
        const struct snapshot_item *item = *place == 0 ? NULL : &stream->items[*place - 1];
        if (item == NULL ||
            (item->kind == kind && item->table_id == table_id && item->key == key)) {
            return place;
        }
    }
}

struct snapshot_item *snapshot_stream_find(const struct snapshot_stream *stream, uint8_t kind,
                                           uint32_t table_id, uint64_t key)
{
    const uint32_t place = *place_of(stream, kind, table_id, key);
    return place == 0 ? NULL : &stream->items[place - 1];
}

size_t snapshot_stream_count(const struct snapshot_stream *stream, uint8_t kind, uint32_t table_id)
{
    size_t count = 0;
    for (size_t i = 0; i < stream->count; i++) {
        count += stream->items[i].kind == kind && stream->items[i].table_id == table_id;
    }
    return count;
}

static struct snapshot_item *item_new(struct snapshot_stream *stream, uint8_t kind,
                                      uint32_t table_id, uint64_t key)
{
    uint32_t *place = place_of(stream, kind, table_id, key);
    assert_int_equal(*place, 0);
    assert_true(stream->count < PLACES / 2);
    if (stream->count == stream->capacity) {
        stream->capacity = stream->capacity == 0 ? 256 : stream->capacity * 2;
        stream->items = realloc(stream->items, stream->capacity * sizeof *stream->items);
        assert_non_null(stream->items);
    }
    struct snapshot_item *item = &stream->items[stream->count++];
    *item = (struct snapshot_item){.kind = kind, .table_id = table_id, .key = key};
    *place = (uint32_t)stream->count;
    return item;
}

static void append(struct snapshot_item *item, const void *bytes, size_t length)
{
    if (item->length + length > item->capacity) {
        item->capacity = (item->length + length) * 2;
        item->bytes = realloc(item->bytes, item->capacity);
        assert_non_null(item->bytes);
    }
    if (length > 0) {
        memcpy(item->bytes + item->length, bytes, length);
    }
    item->length += length;
}

const float *snapshot_stream_floats(const struct snapshot_item *item)
{
    return (const float *)(const void *)(item->bytes + (item->kind == SL_SNAPSHOT_KV ? 0 : 8));
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static uint32_t float_count(const struct snapshot_stream *stream,
                            const struct sl_snapshot_block *block, uint64_t number)
{
    const struct sl_table_spec *spec = &stream->tables[block->table_id].spec;
    const struct sl_optimizer *optimizer =
        sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    const uint32_t dim = block->kind == SL_SNAPSHOT_ROWS
                             ? spec->dim
                             : sl_snapshot_dense_elements(spec->length, number);
    return dim + (uint32_t)sl_optimizer_slot_floats(optimizer, dim);
}

static void add_record(struct snapshot_stream *stream, const struct sl_snapshot_block *block,
                       struct sl_bytes *cursor)
{
    uint64_t number;
    struct sl_bytes peek = *cursor;
    number = sl_bytes_u64(&peek);
    struct sl_snapshot_record record;
    const uint32_t count = float_count(stream, block, number);
    assert_true(sl_snapshot_take_record(cursor, count, &record));
    struct snapshot_item *item = item_new(stream, block->kind, block->table_id, record.key);
    append(item, &record.last_step, sizeof record.last_step);
    append(item, &record.count, sizeof record.count);
    append(item, record.floats, count * sizeof(float));
}

static void add_kv(struct snapshot_stream *stream, const struct sl_snapshot_block *block,
                   struct sl_bytes *cursor)
{
    const uint32_t width = stream->tables[block->table_id].spec.dim;
    struct sl_snapshot_kv piece;
    assert_true(sl_snapshot_take_kv(cursor, width, &piece));
    struct snapshot_item *item =
        snapshot_stream_find(stream, SL_SNAPSHOT_KV, block->table_id, piece.key);
    if (item == NULL) {
        item = item_new(stream, SL_SNAPSHOT_KV, block->table_id, piece.key);
        item->length = item->capacity = (size_t)piece.length * width;
        item->written = piece.initialized_count;
        item->bytes = calloc(1, item->length);
        assert_non_null(item->bytes);
        item->missing = piece.length;
    }
    assert_int_equal(item->length, (size_t)piece.length * width);
    assert_true(item->missing >= piece.count); /* nothing comes twice */
    assert_int_equal(item->written, piece.initialized_count);
    item->missing -= piece.count;
    memcpy(item->bytes + (size_t)piece.first * width, piece.values, (size_t)piece.count * width);
}

static void add_clock(struct snapshot_stream *stream, struct sl_bytes *cursor)
{
    struct sl_snapshot_clock clock;
    assert_true(sl_snapshot_take_clock(cursor, &clock));
    struct snapshot_item *item = item_new(stream, SL_SNAPSHOT_CLOCKS, 0, clock.worker);
    const uint32_t fields[] = {clock.clock,  clock.state, clock.seen,
                               clock.joined, clock.began, clock.pushed};
    append(item, fields, sizeof fields);
}

/* The pieces of one push follow each other: `missing` of the worker's item counts what is to come
 * of it. */
static void add_buffered(struct snapshot_stream *stream, const struct sl_snapshot_block *block,
                         struct sl_bytes *cursor)
{
    const struct sl_table_spec *spec = &stream->tables[block->table_id].spec;
    const uint32_t dim = spec->kind == SL_TABLE_SPARSE ? spec->dim : 0;
    struct sl_snapshot_buffered_push piece;
    const uint64_t *keys;
    const float *gradients;
    assert_true(sl_snapshot_take_buffered_push(cursor, dim, &piece, &keys, &gradients));
    struct snapshot_item *item =
        snapshot_stream_find(stream, SL_SNAPSHOT_BUFFERED_PUSH, block->table_id, piece.worker);
    item = item == NULL ? item_new(stream, SL_SNAPSHOT_BUFFERED_PUSH, block->table_id, piece.worker)
                        : item;
    if (item->missing == 0) {
        assert_true(piece.first == 0);
        append(item, &piece.clock, sizeof piece.clock);
        append(item, &piece.count, sizeof piece.count);
        append(item, &piece.start, sizeof piece.start);
        item->missing = piece.count;
    }
    assert_true(piece.first == piece.count - item->missing);
    assert_true(piece.here <= item->missing);
    item->missing -= piece.here;
    for (uint32_t i = 0; i < piece.here; i++) {
        if (dim != 0) {
            append(item, &keys[i], sizeof keys[i]);
        }
        const uint32_t width = dim == 0 ? 1 : dim;
        append(item, gradients + (size_t)i * width, width * sizeof(float));
    }
}

static void add_table(struct snapshot_stream *stream, const struct sl_snapshot_block *block)
{
    char reason[256];
    assert_false(stream->has_table[block->table_id]);
    stream->has_table[block->table_id] = true;
    assert_int_equal(
        sl_snapshot_take_table(block, &stream->tables[block->table_id], reason, sizeof reason), 0);
}

void snapshot_stream_add(struct snapshot_stream *stream, const struct sl_snapshot_block *block)
{
    char reason[256];
    assert_int_equal(sl_snapshot_block_check(block, reason, sizeof reason), 0);
    assert_false(stream->ended);
    stream->blocks++;
    sl_snapshot_end_add(&stream->counted, block);
    struct sl_bytes cursor = sl_snapshot_records(block);
    const bool of_table = block->kind <= SL_SNAPSHOT_KV || block->kind == SL_SNAPSHOT_BUFFERED_PUSH;
    assert_true(block->kind == SL_SNAPSHOT_TABLE || !of_table ||
                stream->has_table[block->table_id]);
    if (block->kind == SL_SNAPSHOT_TABLE) {
        add_table(stream, block);
        return;
    }
    if (block->kind == SL_SNAPSHOT_END) {
        assert_true(sl_snapshot_take_end(block, &stream->end));
        assert_memory_equal(stream->end.records, stream->counted.records,
                            sizeof stream->end.records);
        stream->ended = true;
        return;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->kind == SL_SNAPSHOT_ROWS || block->kind == SL_SNAPSHOT_DENSE) {
            add_record(stream, block, &cursor);
        } else if (block->kind == SL_SNAPSHOT_KV) {
            add_kv(stream, block, &cursor);
        } else if (block->kind == SL_SNAPSHOT_CLOCKS) {
            add_clock(stream, &cursor);
        } else {
            assert_int_equal(block->kind, SL_SNAPSHOT_BUFFERED_PUSH);
            add_buffered(stream, block, &cursor);
        }
    }
    assert_int_equal(cursor.left, 0);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void check_whole(const struct snapshot_stream *stream)
{
    assert_true(stream->ended);
    for (size_t i = 0; i < stream->count; i++) {
        assert_int_equal(stream->items[i].missing, 0);
    }
}

static void same_table(const struct sl_snapshot_table *a, const struct sl_snapshot_table *b)
{
    char reason[256];
    assert_int_equal(sl_message_compare_specs(&a->spec, &b->spec, reason, sizeof reason), 0);
    assert_true(a->step == b->step);
    assert_memory_equal(&a->state, &b->state, sizeof a->state);
}

void snapshot_stream_same(const struct snapshot_stream *a, const struct snapshot_stream *b)
{
    check_whole(a);
    check_whole(b);
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        assert_int_equal(a->has_table[i], b->has_table[i]);
        if (a->has_table[i]) {
            same_table(&a->tables[i], &b->tables[i]);
        }
    }
    for (size_t i = 0; i < a->count; i++) {
        const struct snapshot_item *item = &a->items[i];
        const struct snapshot_item *other =
            snapshot_stream_find(b, item->kind, item->table_id, item->key);
        if (other == NULL) {
            fail_msg("the %s %llu of table %u are missing", sl_snapshot_kind_name(item->kind),
                     (unsigned long long)item->key, item->table_id);
            return;
        }
        assert_int_equal(other->length, item->length);
        assert_int_equal(other->written, item->written);
        if (memcmp(item->bytes, other->bytes, item->length) != 0) {
            fail_msg("the %s %llu of table %u differ", sl_snapshot_kind_name(item->kind),
                     (unsigned long long)item->key, item->table_id);
        }
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct snapshot_item *item = &b->items[i];
        if (snapshot_stream_find(a, item->kind, item->table_id, item->key) == NULL) {
            fail_msg("the %s %llu of table %u are too many", sl_snapshot_kind_name(item->kind),
                     (unsigned long long)item->key, item->table_id);
        }
    }
    assert_int_equal(a->count, b->count);
}

/* Clocks and pushes kept aside are whole in every image. */
static void forget_momentary(struct snapshot_stream *stream)
{
    struct snapshot_item *items = stream->items;
    const size_t count = stream->count;
    memset(stream->places, 0, PLACES * sizeof *stream->places);
    stream->items = NULL;
    stream->count = stream->capacity = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].kind == SL_SNAPSHOT_CLOCKS || items[i].kind == SL_SNAPSHOT_BUFFERED_PUSH) {
            free(items[i].bytes);
        } else {
            *item_new(stream, items[i].kind, items[i].table_id, items[i].key) = items[i];
        }
    }
    free(items);
}

void snapshot_stream_overlay(struct snapshot_stream *base, const struct snapshot_stream *adds)
{
    check_whole(base);
    check_whole(adds);
    forget_momentary(base);
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        if (adds->has_table[i]) {
            base->has_table[i] = true;
            base->tables[i] = adds->tables[i];
        }
    }
    for (size_t i = 0; i < adds->count; i++) {
        const struct snapshot_item *item = &adds->items[i];
        struct snapshot_item *old =
            snapshot_stream_find(base, item->kind, item->table_id, item->key);
        old = old != NULL ? old : item_new(base, item->kind, item->table_id, item->key);
        old->length = 0;
        old->written = item->written;
        append(old, item->bytes, item->length);
    }
}

void snapshot_stream_take(struct sl_shard *shard, struct snapshot_stream *stream)
{
    struct sl_snapshot_block *block;
    while ((block = sl_shard_snapshot_take(shard)) != NULL) {
        snapshot_stream_add(stream, block);
        sl_shard_snapshot_put(shard, block);
    }
}

struct snapshot_stream *snapshot_stream_of(struct sl_shard *shard,
                                           const struct sl_shard_snapshot_base *from,
                                           struct sl_shard_snapshot_base **base)
{
    const struct sl_shard_snapshot_options options = {.base = from};
    struct snapshot_stream *stream = snapshot_stream_new();
    assert_int_equal(sl_shard_snapshot_begin(shard, &options), 0);
    while (sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_RUNNING) {
        (void)sl_shard_snapshot_run(shard, 100000);
        snapshot_stream_take(shard, stream);
    }
    assert_int_equal(sl_shard_snapshot_state(shard), SL_SHARD_SNAPSHOT_DONE);
    sl_shard_snapshot_end(shard, base);
    check_whole(stream);
    return stream;
}

struct snapshot_stream *snapshot_stream_still(struct sl_shard *shard)
{
    struct snapshot_stream *stream = snapshot_stream_new();
    struct shard_stream plain;
    shard_stream_make(shard, NULL, SL_SNAPSHOT_BLOCK_BYTES, &plain);
    for (const struct sl_snapshot_block *block = plain.first; block != NULL; block = block->next) {
        snapshot_stream_add(stream, block);
    }
    shard_stream_fini(&plain);
    return stream;
}
