#include "ps/snapshot/builder.h"

#include "core/assert.h"

static size_t memory_of(const struct sl_snapshot_block *block)
{
    return sizeof *block + block->capacity;
}

void sl_snapshot_builder_begin(struct sl_snapshot_builder *blocks, size_t bytes_max,
                               uint32_t block_bytes)
{
    sl_assert(blocks->heads.first == NULL);
    sl_assert(blocks->full.first == NULL);
    sl_assert(blocks->open_bytes == 0);
    *blocks = (struct sl_snapshot_builder){
        .bytes_max = bytes_max,
        .bytes = blocks->bytes,
        .spare = blocks->spare,
        .spare_bytes = blocks->spare_bytes,
        .block_bytes = block_bytes,
    };
}

static struct sl_snapshot_block *line_take(struct sl_snapshot_line *line)
{
    struct sl_snapshot_block *block = line->first;
    if (block != NULL) {
        line->first = block->next;
        block->next = NULL;
    }
    return block;
}

static void line_append(struct sl_snapshot_line *line, struct sl_snapshot_block *block)
{
    block->next = NULL;
    if (line->first == NULL) {
        line->first = block;
    } else {
        line->last->next = block;
    }
    line->last = block;
}

static void builder_drop(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block)
{
    sl_assert(blocks->bytes >= memory_of(block));
    blocks->bytes -= memory_of(block);
    sl_snapshot_block_destroy(&block);
}

static void spare_put(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block)
{
    block->next = blocks->spare;
    blocks->spare = block;
    blocks->spare_bytes += memory_of(block);
}

static struct sl_snapshot_block *spare_take(struct sl_snapshot_builder *blocks,
                                            struct sl_snapshot_block **at)
{
    struct sl_snapshot_block *block = *at;
    *at = block->next;
    block->next = NULL;
    blocks->spare_bytes -= memory_of(block);
    return block;
}

/* Returns a spare block of exactly this capacity, or NULL. */
static struct sl_snapshot_block *spare_find(struct sl_snapshot_builder *blocks, uint32_t capacity)
{
    struct sl_snapshot_block **at = &blocks->spare;
    while (*at != NULL && (*at)->capacity != capacity) {
        at = &(*at)->next;
    }
    return *at == NULL ? NULL : spare_take(blocks, at);
}

void sl_snapshot_builder_drop(struct sl_snapshot_builder *blocks)
{
    struct sl_snapshot_block *block;
    while ((block = line_take(&blocks->heads)) != NULL ||
           (block = line_take(&blocks->full)) != NULL) {
        sl_snapshot_builder_put(blocks, block);
    }
}

void sl_snapshot_builder_clean(struct sl_snapshot_builder *blocks)
{
    sl_assert(blocks->spare != NULL);
    builder_drop(blocks, spare_take(blocks, &blocks->spare));
}

struct sl_snapshot_block *sl_snapshot_builder_take(struct sl_snapshot_builder *blocks)
{
    struct sl_snapshot_block *block = line_take(&blocks->heads);
    return block != NULL || !blocks->heads_done ? block : line_take(&blocks->full);
}

/* Small blocks, such as a table's, are freed at once: that costs little. */
void sl_snapshot_builder_put(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block)
{
    if (block->capacity < blocks->block_bytes) {
        builder_drop(blocks, block);
    } else {
        spare_put(blocks, block);
    }
}

struct sl_snapshot_block *sl_snapshot_builder_open(struct sl_snapshot_builder *blocks,
                                                   uint32_t capacity)
{
    struct sl_snapshot_block *block = blocks->err == 0 ? spare_find(blocks, capacity) : NULL;
    if (block != NULL) {
        blocks->open_bytes += memory_of(block);
        return block;
    }
    const size_t bytes = sizeof *block + capacity;
    while (blocks->bytes + bytes > blocks->bytes_max && blocks->spare != NULL) {
        sl_snapshot_builder_clean(blocks); /* spare blocks of another capacity */
    }
    if (blocks->err != 0 || bytes > blocks->bytes_max ||
        blocks->bytes > blocks->bytes_max - bytes ||
        sl_snapshot_block_create(capacity, &block) != 0) {
        blocks->err = SL_ERR_NO_MEMORY;
        return NULL;
    }
    blocks->bytes += bytes;
    blocks->open_bytes += bytes;
    return block;
}

void sl_snapshot_builder_close(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block)
{
    const bool is_head = block->kind == SL_SNAPSHOT_TABLE || block->kind == SL_SNAPSHOT_CLOCKS;
    sl_assert(!is_head || !blocks->heads_done);
    blocks->open_bytes -= memory_of(block);
    sl_snapshot_end_add(&blocks->end, block);
    line_append(is_head ? &blocks->heads : &blocks->full, block);
}

/* Appenders */

void sl_snapshot_appender_init(struct sl_snapshot_appender *stream,
                               struct sl_snapshot_builder *blocks, enum sl_snapshot_kind kind,
                               uint32_t table_id, uint32_t record_bytes_max)
{
    *stream = (struct sl_snapshot_appender){
        .blocks = blocks,
        .least_bytes =
            record_bytes_max > blocks->block_bytes ? record_bytes_max : blocks->block_bytes,
        .table_id = table_id,
        .kind = kind,
    };
}

struct sl_snapshot_block *sl_snapshot_appender_block(struct sl_snapshot_appender *stream)
{
    if (stream->open == NULL) {
        stream->open = sl_snapshot_builder_open(stream->blocks, stream->least_bytes);
        if (stream->open != NULL) {
            sl_snapshot_block_begin(stream->open, stream->kind, stream->table_id);
        }
    }
    return stream->open;
}

void sl_snapshot_appender_close(struct sl_snapshot_appender *stream)
{
    if (stream->open != NULL) {
        sl_snapshot_builder_close(stream->blocks, stream->open);
        stream->open = NULL;
    }
}

void sl_snapshot_appender_drop(struct sl_snapshot_appender *stream)
{
    if (stream->open != NULL) {
        stream->blocks->open_bytes -= memory_of(stream->open);
        sl_snapshot_builder_put(stream->blocks, stream->open);
        stream->open = NULL;
    }
}

bool sl_snapshot_appender_put_record(struct sl_snapshot_appender *stream,
                                     const struct sl_snapshot_record *record, uint32_t float_count)
{
    for (;;) {
        struct sl_snapshot_block *block = sl_snapshot_appender_block(stream);
        if (block == NULL) {
            return false;
        }
        if (sl_snapshot_put_record(block, record, float_count)) {
            return true;
        }
        sl_assert(block->count > 0); /* an empty block has room for the record */
        sl_snapshot_appender_close(stream);
    }
}

/* Incremental snapshots */

struct sl_snapshot_delta sl_snapshot_delta_base(const struct sl_snapshot_base *base,
                                                uint64_t step_now)
{
    if (base == NULL || !base->open) {
        return (struct sl_snapshot_delta){.all = true};
    }
    sl_assert(base->step <= step_now);
    return (struct sl_snapshot_delta){
        .all = step_now - base->step > UINT32_MAX,
        .count = base->count,
        .step = (uint32_t)base->step,
        .span = (uint32_t)(step_now - base->step),
    };
}
