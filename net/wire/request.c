#include "net/wire/request.h"

#include <stdbool.h>

#include "core/assert.h"
#include "core/limits.h"
#include "net/wire/frame.h"

/* What an operation carries and returns: the table of the header file as data. */
struct op_shape {
    bool known;
    bool keys, bags, row_gradients; /* of a sparse table */
    bool range, range_gradients;    /* of a dense table */
    bool returns_rows, returns_bags, returns_range;
};

static const struct op_shape shapes[] = {
    [SL_REQUEST_PULL] = {.known = true, .keys = true, .returns_rows = true},
    [SL_REQUEST_PULL_POOLED] = {.known = true, .keys = true, .bags = true, .returns_bags = true},
    [SL_REQUEST_PUSH] = {.known = true, .keys = true, .row_gradients = true},
    [SL_REQUEST_PUSH_PULL] = {.known = true,
                              .keys = true,
                              .row_gradients = true,
                              .returns_rows = true},
    [SL_REQUEST_DENSE_PULL] = {.known = true, .range = true, .returns_range = true},
    [SL_REQUEST_DENSE_PUSH] = {.known = true, .range = true, .range_gradients = true},
    [SL_REQUEST_DENSE_PUSH_PULL] = {.known = true,
                                    .range = true,
                                    .range_gradients = true,
                                    .returns_range = true},
    [SL_REQUEST_TICK] = {.known = true},
};

/* An operation that is not there has the empty shape. */
static struct op_shape shape_of(uint8_t op)
{
    return op < sizeof shapes / sizeof shapes[0] ? shapes[op] : (struct op_shape){0};
}

static uint64_t floats_bytes(uint64_t count, uint64_t dim)
{
    return sl_bytes_pad8(count * dim * sizeof(float));
}

uint64_t sl_request_body_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    struct op_shape shape = shape_of(section->op);
    uint64_t bytes = 0;
    if (shape.keys) {
        bytes += section->key_count * (uint64_t)sizeof(uint64_t);
    }
    if (shape.bags) {
        bytes += sl_bytes_pad8(section->bag_count * (uint64_t)sizeof(uint32_t));
    }
    if (shape.row_gradients) {
        bytes += floats_bytes(section->key_count, dim);
    }
    if (shape.range_gradients) {
        bytes += floats_bytes(section->count, 1);
    }
    return bytes;
}

uint64_t sl_request_reply_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    struct op_shape shape = shape_of(section->op);
    if (shape.returns_rows) {
        return floats_bytes(section->key_count, dim);
    }
    if (shape.returns_bags) {
        return floats_bytes(section->bag_count, dim);
    }
    return shape.returns_range ? floats_bytes(section->count, 1) : 0;
}

uint64_t sl_request_credit_bytes(uint64_t request_bytes, uint64_t reply_bytes)
{
    return (request_bytes > reply_bytes ? request_bytes : reply_bytes) + SL_FRAME_HEADER_BYTES;
}

int sl_request_read_prefix(struct sl_bytes *cursor, struct sl_request_prefix *out)
{
    sl_assert(cursor != NULL);
    sl_assert(out != NULL);
    struct sl_request_prefix prefix;
    sl_bytes_copy(cursor, &prefix, sizeof prefix);
    if (cursor->bad || prefix.section_count == 0 ||
        prefix.section_count > SL_LIMIT_REQUEST_SECTIONS) {
        return SL_ERR_PROTOCOL;
    }
    *out = prefix;
    return SL_OK;
}

/* A dense range is not empty and ends within the longest array there may be. */
static bool range_is_valid(const struct sl_request_section *section)
{
    return section->count >= 1 && section->count <= SL_LIMIT_DENSE_ELEMENTS &&
           section->start <= SL_LIMIT_DENSE_ELEMENTS - section->count;
}

static bool section_is_valid(const struct sl_request_section *section)
{
    struct op_shape shape = shape_of(section->op);
    if (!shape.known || section->zero != 0 || section->zero_too != 0) {
        return false;
    }
    if (!shape.keys && section->key_count != 0) {
        return false;
    }
    if (!shape.bags && section->bag_count != 0) {
        return false;
    }
    if (shape.range) {
        if (!range_is_valid(section)) {
            return false;
        }
    } else if (section->start != 0 || section->count != 0) {
        return false;
    }
    return section->op == SL_REQUEST_TICK ? section->table_id == 0
                                          : section->table_id < SL_LIMIT_TABLES;
}

int sl_request_read_section(struct sl_bytes *cursor, struct sl_request_section *out)
{
    sl_assert(cursor != NULL);
    sl_assert(out != NULL);
    struct sl_request_section section;
    sl_bytes_copy(cursor, &section, sizeof section);
    if (cursor->bad || !section_is_valid(&section)) {
        return SL_ERR_PROTOCOL;
    }
    *out = section;
    return SL_OK;
}

/* The next `count` items, and the zeros after them up to a multiple of 8 bytes. */
static const void *take_padded(struct sl_bytes *cursor, uint64_t count, size_t item_bytes)
{
    const void *items = sl_bytes_take_array(cursor, count, item_bytes);
    if (items == NULL) {
        return NULL;
    }
    uint64_t bytes = count * item_bytes;
    for (uint64_t at = bytes; at < sl_bytes_pad8(bytes); at++) {
        if (sl_bytes_u8(cursor) != 0) {
            cursor->bad = true;
        }
    }
    return items;
}

/* Bags ascend, an empty one repeats the end before it, and the last ends with the keys. */
static bool bags_are_valid(const uint32_t *ends, uint32_t bag_count, uint32_t key_count)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < bag_count; i++) {
        if (ends[i] < last) {
            return false;
        }
        last = ends[i];
    }
    return last == key_count;
}

int sl_request_read_body(struct sl_bytes *cursor, const struct sl_request_section *section,
                         uint32_t dim, struct sl_request_view *out)
{
    sl_assert(cursor != NULL);
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    sl_assert(out != NULL);
    sl_assert((uintptr_t)cursor->next % 8 == 0);
    struct op_shape shape = shape_of(section->op);
    if ((shape.keys && dim == 0) || (shape.range && dim != 0)) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_request_view view = {.section = *section};
    if (shape.keys) {
        view.keys = sl_bytes_take_array(cursor, section->key_count, sizeof(uint64_t));
    }
    if (shape.bags) {
        view.bag_ends = take_padded(cursor, section->bag_count, sizeof(uint32_t));
    }
    if (shape.row_gradients) {
        view.gradients = take_padded(cursor, (uint64_t)section->key_count * dim, sizeof(float));
    }
    if (shape.range_gradients) {
        view.gradients = take_padded(cursor, section->count, sizeof(float));
    }
    if (cursor->bad) {
        return SL_ERR_PROTOCOL;
    }
    if (shape.bags && !bags_are_valid(view.bag_ends, section->bag_count, section->key_count)) {
        return SL_ERR_PROTOCOL;
    }
    *out = view;
    return SL_OK;
}
