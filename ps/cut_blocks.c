#include "ps/cut_blocks.h"

#include "core/assert.h"

static size_t memory_of(const struct sl_image_block *block)
{
    return sizeof *block + block->capacity;
}

void sl_cut_blocks_begin(struct sl_cut_blocks *blocks, size_t bytes_max, uint32_t block_bytes)
{
    sl_assert(blocks->heads.first == NULL);
    sl_assert(blocks->full.first == NULL);
    sl_assert(blocks->open_bytes == 0);
    *blocks = (struct sl_cut_blocks){
        .bytes_max = bytes_max,
        .bytes = blocks->bytes,
        .spare = blocks->spare,
        .spare_bytes = blocks->spare_bytes,
        .block_bytes = block_bytes,
    };
}

static struct sl_image_block *line_take(struct sl_cut_line *line)
{
    struct sl_image_block *block = line->first;
    if (block != NULL) {
        line->first = block->next;
        block->next = NULL;
    }
    return block;
}

static void line_append(struct sl_cut_line *line, struct sl_image_block *block)
{
    block->next = NULL;
    if (line->first == NULL) {
        line->first = block;
    } else {
        line->last->next = block;
    }
    line->last = block;
}

static void drop(struct sl_cut_blocks *blocks, struct sl_image_block *block)
{
    sl_assert(blocks->bytes >= memory_of(block));
    blocks->bytes -= memory_of(block);
    sl_image_block_destroy(&block);
}

static void spare_put(struct sl_cut_blocks *blocks, struct sl_image_block *block)
{
    block->next = blocks->spare;
    blocks->spare = block;
    blocks->spare_bytes += memory_of(block);
}

static struct sl_image_block *spare_take(struct sl_cut_blocks *blocks, struct sl_image_block **at)
{
    struct sl_image_block *block = *at;
    *at = block->next;
    block->next = NULL;
    blocks->spare_bytes -= memory_of(block);
    return block;
}

/* NULL: there is none of that capacity. */
static struct sl_image_block *spare_find(struct sl_cut_blocks *blocks, uint32_t capacity)
{
    struct sl_image_block **at = &blocks->spare;
    while (*at != NULL && (*at)->capacity != capacity) {
        at = &(*at)->next;
    }
    return *at == NULL ? NULL : spare_take(blocks, at);
}

void sl_cut_blocks_drop(struct sl_cut_blocks *blocks)
{
    struct sl_image_block *block;
    while ((block = line_take(&blocks->heads)) != NULL ||
           (block = line_take(&blocks->full)) != NULL) {
        sl_cut_blocks_put(blocks, block);
    }
}

void sl_cut_blocks_clean(struct sl_cut_blocks *blocks)
{
    sl_assert(blocks->spare != NULL);
    drop(blocks, spare_take(blocks, &blocks->spare));
}

struct sl_image_block *sl_cut_blocks_take(struct sl_cut_blocks *blocks)
{
    struct sl_image_block *block = line_take(&blocks->heads);
    return block != NULL || !blocks->heads_done ? block : line_take(&blocks->full);
}

/* Small ones, such as a table's, cost nothing to free. */
void sl_cut_blocks_put(struct sl_cut_blocks *blocks, struct sl_image_block *block)
{
    if (block->capacity < blocks->block_bytes) {
        drop(blocks, block);
    } else {
        spare_put(blocks, block);
    }
}

struct sl_image_block *sl_cut_blocks_open(struct sl_cut_blocks *blocks, uint32_t capacity)
{
    struct sl_image_block *block = blocks->err == 0 ? spare_find(blocks, capacity) : NULL;
    if (block != NULL) {
        blocks->open_bytes += memory_of(block);
        return block;
    }
    const size_t bytes = sizeof *block + capacity;
    while (blocks->bytes + bytes > blocks->bytes_max && blocks->spare != NULL) {
        sl_cut_blocks_clean(blocks); /* of another capacity */
    }
    if (blocks->err != 0 || bytes > blocks->bytes_max ||
        blocks->bytes > blocks->bytes_max - bytes || sl_image_block_create(capacity, &block) != 0) {
        blocks->err = SL_ERR_NO_MEMORY;
        return NULL;
    }
    blocks->bytes += bytes;
    blocks->open_bytes += bytes;
    return block;
}

void sl_cut_blocks_close(struct sl_cut_blocks *blocks, struct sl_image_block *block)
{
    const bool is_head = block->kind == SL_IMAGE_TABLE || block->kind == SL_IMAGE_CLOCKS;
    sl_assert(!is_head || !blocks->heads_done);
    blocks->open_bytes -= memory_of(block);
    sl_image_end_add(&blocks->end, block);
    line_append(is_head ? &blocks->heads : &blocks->full, block);
}

/* ---- Streams --------------------------------------------------------------------------------- */

void sl_cut_stream_init(struct sl_cut_stream *stream, struct sl_cut_blocks *blocks,
                        enum sl_image_kind kind, uint32_t table_id, uint32_t record_bytes_max)
{
    *stream = (struct sl_cut_stream){
        .blocks = blocks,
        .least_bytes =
            record_bytes_max > blocks->block_bytes ? record_bytes_max : blocks->block_bytes,
        .table_id = table_id,
        .kind = kind,
    };
}

struct sl_image_block *sl_cut_stream_block(struct sl_cut_stream *stream)
{
    if (stream->open == NULL) {
        stream->open = sl_cut_blocks_open(stream->blocks, stream->least_bytes);
        if (stream->open != NULL) {
            sl_image_block_begin(stream->open, stream->kind, stream->table_id);
        }
    }
    return stream->open;
}

void sl_cut_stream_close(struct sl_cut_stream *stream)
{
    if (stream->open != NULL) {
        sl_cut_blocks_close(stream->blocks, stream->open);
        stream->open = NULL;
    }
}

void sl_cut_stream_drop(struct sl_cut_stream *stream)
{
    if (stream->open != NULL) {
        stream->blocks->open_bytes -= memory_of(stream->open);
        sl_cut_blocks_put(stream->blocks, stream->open);
        stream->open = NULL;
    }
}

bool sl_cut_stream_put_record(struct sl_cut_stream *stream, const struct sl_image_record *record,
                              uint32_t float_count)
{
    for (;;) {
        struct sl_image_block *block = sl_cut_stream_block(stream);
        if (block == NULL) {
            return false;
        }
        if (sl_image_put_record(block, record, float_count)) {
            return true;
        }
        sl_assert(block->count > 0); /* an empty one has room for it */
        sl_cut_stream_close(stream);
    }
}

/* ---- What an image adds to another ----------------------------------------------------------- */

struct sl_cut_since sl_cut_since_base(const struct sl_cut_base *base, uint64_t step_now)
{
    if (base == NULL || !base->open) {
        return (struct sl_cut_since){.all = true};
    }
    sl_assert(base->step <= step_now);
    return (struct sl_cut_since){
        .all = step_now - base->step > UINT32_MAX,
        .count = base->count,
        .step = (uint32_t)base->step,
        .span = (uint32_t)(step_now - base->step),
    };
}
