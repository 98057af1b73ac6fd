#include "net/wire/request.h"

#include <stdbool.h>

#include "core/assert.h"
#include "core/limits.h"
#include "net/wire/frame.h"

/* What an operation carries and returns: the table of the header file as data. */
enum shape {
    KNOWN = 1 << 0, /* a shape that is not empty */
    KEYS = 1 << 1,  /* of a sparse table */
    BAGS = 1 << 2,
    ROW_GRADIENTS = 1 << 3,
    RANGE = 1 << 4, /* of a dense table */
    RANGE_GRADIENTS = 1 << 5,
    RETURNS_ROWS = 1 << 6,
    RETURNS_BAGS = 1 << 7,
    RETURNS_RANGE = 1 << 8,
};

/* An operation that is not there has the empty shape. */
static const uint16_t shapes[UINT8_MAX + 1] = {
    [SL_REQUEST_PULL] = KNOWN | KEYS | RETURNS_ROWS,
    [SL_REQUEST_PULL_POOLED] = KNOWN | KEYS | BAGS | RETURNS_BAGS,
    [SL_REQUEST_PUSH] = KNOWN | KEYS | ROW_GRADIENTS,
    [SL_REQUEST_PUSH_PULL] = KNOWN | KEYS | ROW_GRADIENTS | RETURNS_ROWS,
    [SL_REQUEST_DENSE_PULL] = KNOWN | RANGE | RETURNS_RANGE,
    [SL_REQUEST_DENSE_PUSH] = KNOWN | RANGE | RANGE_GRADIENTS,
    [SL_REQUEST_DENSE_PUSH_PULL] = KNOWN | RANGE | RANGE_GRADIENTS | RETURNS_RANGE,
    [SL_REQUEST_TICK] = KNOWN,
};

static uint64_t floats_bytes(uint64_t count, uint64_t dim)
{
    return sl_bytes_pad8(count * dim * sizeof(float));
}

uint64_t sl_request_body_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    const uint32_t shape = shapes[section->op];
    uint64_t bytes = 0;
    if ((shape & KEYS) != 0) {
        bytes += section->key_count * (uint64_t)sizeof(uint64_t);
    }
    if ((shape & BAGS) != 0) {
        bytes += sl_bytes_pad8(section->bag_count * (uint64_t)sizeof(uint32_t));
    }
    if ((shape & ROW_GRADIENTS) != 0) {
        bytes += floats_bytes(section->key_count, dim);
    }
    if ((shape & RANGE_GRADIENTS) != 0) {
        bytes += floats_bytes(section->count, 1);
    }
    return bytes;
}

uint64_t sl_request_reply_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    const uint32_t shape = shapes[section->op];
    if ((shape & RETURNS_ROWS) != 0) {
        return floats_bytes(section->key_count, dim);
    }
    if ((shape & RETURNS_BAGS) != 0) {
        return floats_bytes(section->bag_count, dim);
    }
    return (shape & RETURNS_RANGE) != 0 ? floats_bytes(section->count, 1) : 0;
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

/* The fields that the operation does not use are 0. */
static bool section_is_valid(const struct sl_request_section *section)
{
    const uint32_t shape = shapes[section->op];
    const uint32_t keys = (shape & KEYS) != 0 ? 0 : section->key_count;
    const uint32_t bags = (shape & BAGS) != 0 ? 0 : section->bag_count;
    const uint64_t range = (shape & RANGE) != 0 ? 0 : section->start | section->count;
    if ((section->flags | section->command | keys | bags | range) != 0 || shape == 0) {
        return false;
    }
    if ((shape & RANGE) != 0 && !range_is_valid(section)) {
        return false;
    }
    return section->table_id < (section->op == SL_REQUEST_TICK ? 1 : SL_LIMIT_TABLES);
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
    const uint32_t shape = shapes[section->op];
    if (((shape & KEYS) != 0 && dim == 0) || ((shape & RANGE) != 0 && dim != 0)) {
        return SL_ERR_PROTOCOL;
    }
    const void *keys = NULL;
    const void *bag_ends = NULL;
    const void *gradients = NULL;
    if ((shape & KEYS) != 0) {
        keys = sl_bytes_take_array(cursor, section->key_count, sizeof(uint64_t));
    }
    if ((shape & BAGS) != 0) {
        bag_ends = take_padded(cursor, section->bag_count, sizeof(uint32_t));
    }
    if ((shape & ROW_GRADIENTS) != 0) {
        gradients = take_padded(cursor, (uint64_t)section->key_count * dim, sizeof(float));
    }
    if ((shape & RANGE_GRADIENTS) != 0) {
        gradients = take_padded(cursor, section->count, sizeof(float));
    }
    if (cursor->bad) {
        return SL_ERR_PROTOCOL;
    }
    if ((shape & BAGS) != 0 && !bags_are_valid(bag_ends, section->bag_count, section->key_count)) {
        return SL_ERR_PROTOCOL;
    }
    *out = (struct sl_request_view){
        .section = *section, .keys = keys, .bag_ends = bag_ends, .gradients = gradients};
    return SL_OK;
}
