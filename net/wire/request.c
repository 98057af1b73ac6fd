#include "net/wire/request.h"

#include <math.h>

#include "core/assert.h"
#include "core/limits.h"

/* Contents and results of an operation: the table of the header file as bits. */
enum shape {
    KNOWN = 1 << 0, /* set in the shape of every operation */
    KEYS = 1 << 1,  /* sparse table */
    BAGS = 1 << 2,
    ROW_GRADIENTS = 1 << 3,
    RANGE = 1 << 4, /* dense table */
    RANGE_GRADIENTS = 1 << 5,
    RETURNS_ROWS = 1 << 6,
    RETURNS_BAGS = 1 << 7,
    RETURNS_RANGE = 1 << 8,
    KV_KEYS = 1 << 9, /* KV table */
    KV_VALUES = 1 << 10,
    RETURNS_VALUES = 1 << 11,
    RETURNS_LENGTHS = 1 << 12,
    RATE = 1 << 13,
    RETURNS_FOUND = 1 << 14, /* after the rows */
    SCANS = 1 << 15,
    EVICTS = 1 << 16,
};

/* Operations on arrays of a KV table, with or without values. */
#define KV_ARRAYS (KV_VALUES | RETURNS_VALUES)
#define PUSHES    (ROW_GRADIENTS | RANGE_GRADIENTS | KV_VALUES)

/* Operations that do not exist have shape 0. */
static const uint32_t shapes[UINT8_MAX + 1] = {
    [SL_REQUEST_PULL] = KNOWN | KEYS | RETURNS_ROWS,
    [SL_REQUEST_PULL_POOLED] = KNOWN | KEYS | BAGS | RETURNS_BAGS,
    [SL_REQUEST_PUSH] = KNOWN | KEYS | ROW_GRADIENTS | RATE,
    [SL_REQUEST_PUSH_PULL] = KNOWN | KEYS | ROW_GRADIENTS | RETURNS_ROWS | RATE,
    [SL_REQUEST_DENSE_PULL] = KNOWN | RANGE | RETURNS_RANGE,
    [SL_REQUEST_DENSE_PUSH] = KNOWN | RANGE | RANGE_GRADIENTS | RATE,
    [SL_REQUEST_DENSE_PUSH_PULL] = KNOWN | RANGE | RANGE_GRADIENTS | RETURNS_RANGE | RATE,
    [SL_REQUEST_TICK] = KNOWN,
    [SL_REQUEST_KV_PUSH] = KNOWN | KV_KEYS | KV_VALUES,
    [SL_REQUEST_KV_PULL] = KNOWN | KV_KEYS | RETURNS_VALUES,
    [SL_REQUEST_KV_PUSH_PULL] = KNOWN | KV_KEYS | KV_VALUES | RETURNS_VALUES,
    [SL_REQUEST_KV_LENGTHS] = KNOWN | KV_KEYS | RETURNS_LENGTHS,
    [SL_REQUEST_ASSIGN] = KNOWN | KEYS | ROW_GRADIENTS,
    [SL_REQUEST_DENSE_ASSIGN] = KNOWN | RANGE | RANGE_GRADIENTS,
    [SL_REQUEST_ERASE] = KNOWN | KEYS,
    [SL_REQUEST_FIND] = KNOWN | KEYS | RETURNS_ROWS | RETURNS_FOUND,
    [SL_REQUEST_SCAN] = KNOWN | SCANS,
    [SL_REQUEST_EVICT] = KNOWN | EVICTS,
};

/* Values in rows of the table. */
static uint64_t rows_bytes(enum sl_precision precision, uint64_t count, uint32_t dim)
{
    return count * sl_precision_row_bytes(precision, dim);
}

/* Values of arrays of a KV table. */
static uint64_t arrays_bytes(enum sl_precision precision, uint64_t count, uint32_t dim)
{
    return dim == sizeof(float) ? sl_precision_array_bytes(precision, count) : count * dim;
}

static bool has_lengths(const struct sl_request_section *section)
{
    return section->op == SL_REQUEST_KV_PULL && (section->flags & SL_REQUEST_FLAG_LENGTHS) != 0;
}

static bool has_lens(const struct sl_request_section *section)
{
    return (section->flags & SL_REQUEST_FLAG_LENS) != 0;
}

enum sl_request_kind sl_request_kind_of(uint8_t op)
{
    static const uint8_t kinds[] = {
        [SL_REQUEST_PULL] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_PULL_POOLED] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_PUSH] = SL_REQUEST_KIND_PUSH,
        [SL_REQUEST_PUSH_PULL] = SL_REQUEST_KIND_PUSH_PULL,
        [SL_REQUEST_DENSE_PULL] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_DENSE_PUSH] = SL_REQUEST_KIND_PUSH,
        [SL_REQUEST_DENSE_PUSH_PULL] = SL_REQUEST_KIND_PUSH_PULL,
        [SL_REQUEST_TICK] = SL_REQUEST_KIND_TICK,
        [SL_REQUEST_KV_PUSH] = SL_REQUEST_KIND_PUSH,
        [SL_REQUEST_KV_PULL] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_KV_PUSH_PULL] = SL_REQUEST_KIND_PUSH_PULL,
        [SL_REQUEST_KV_LENGTHS] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_ASSIGN] = SL_REQUEST_KIND_ASSIGN,
        [SL_REQUEST_DENSE_ASSIGN] = SL_REQUEST_KIND_ASSIGN,
        [SL_REQUEST_ERASE] = SL_REQUEST_KIND_ERASE,
        [SL_REQUEST_FIND] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_SCAN] = SL_REQUEST_KIND_PULL,
        [SL_REQUEST_EVICT] = SL_REQUEST_KIND_ERASE,
    };
    sl_assert(op < sizeof kinds);
    return (enum sl_request_kind)kinds[op];
}

bool sl_request_pushes(uint8_t op)
{
    return (shapes[op] & PUSHES) != 0;
}

bool sl_request_takes_rate(uint8_t op)
{
    return (shapes[op] & RATE) != 0;
}

uint64_t sl_request_structure_bytes(const struct sl_request_section *section)
{
    sl_assert(section != NULL);
    const uint32_t shape = shapes[section->op];
    uint64_t bytes = 0;
    if ((shape & (KEYS | KV_KEYS)) != 0) {
        bytes += section->key_count * (uint64_t)sizeof(uint64_t);
    }
    if ((shape & BAGS) != 0) {
        bytes += sl_bytes_pad8(section->bag_count * (uint64_t)sizeof(uint32_t));
    }
    if (has_lens(section)) {
        bytes += sl_bytes_pad8(section->key_count * (uint64_t)sizeof(uint32_t));
    }
    if ((shape & SCANS) != 0) {
        bytes += sizeof(struct sl_request_scan);
    }
    return bytes;
}

uint64_t sl_request_values_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    const uint32_t shape = shapes[section->op];
    if ((shape & ROW_GRADIENTS) != 0) {
        return rows_bytes(sl_request_pushed(section), section->key_count, dim);
    }
    if ((shape & RANGE_GRADIENTS) != 0) {
        return sl_precision_array_bytes(sl_request_pushed(section), section->count);
    }
    return (shape & KV_VALUES) != 0 ? arrays_bytes(sl_request_pushed(section), section->count, dim)
                                    : 0;
}

uint64_t sl_request_body_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    return sl_request_structure_bytes(section) +
           sl_bytes_pad8(sl_request_values_bytes(section, dim));
}

uint64_t sl_request_result_bytes(const struct sl_request_section *section, uint32_t dim)
{
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    const uint32_t shape = shapes[section->op];
    const enum sl_precision returned = sl_request_returned(section);
    if ((shape & RETURNS_ROWS) != 0) {
        const uint64_t bytes = rows_bytes(returned, section->key_count, dim);
        return (shape & RETURNS_FOUND) != 0 ? sl_bytes_pad8(bytes) + section->key_count : bytes;
    }
    if ((shape & SCANS) != 0) {
        return sizeof(struct sl_request_scanned) +
               section->count * (sizeof(uint64_t) + sizeof(struct sl_request_scan_mark)) +
               section->count * section->bag_count * sizeof(float);
    }
    if ((shape & EVICTS) != 0) {
        return sizeof(uint64_t);
    }
    if ((shape & RETURNS_BAGS) != 0) {
        return rows_bytes(returned, section->bag_count, dim);
    }
    if ((shape & RETURNS_VALUES) != 0) {
        const uint64_t bytes = arrays_bytes(returned, section->count, dim);
        return has_lengths(section)
                   ? sl_bytes_pad8(bytes) + section->key_count * (uint64_t)sizeof(uint32_t)
                   : bytes;
    }
    if ((shape & RETURNS_LENGTHS) != 0) {
        return section->key_count * (uint64_t)sizeof(uint32_t);
    }
    return (shape & RETURNS_RANGE) != 0 ? sl_precision_array_bytes(returned, section->count) : 0;
}

uint64_t sl_request_reply_bytes(const struct sl_request_section *section, uint32_t dim)
{
    return sl_bytes_pad8(sl_request_result_bytes(section, dim));
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

/* Checks that a dense range is not empty and ends within SL_LIMIT_DENSE_ELEMENTS. */
static bool range_is_valid(const struct sl_request_section *section)
{
    return section->count >= 1 && section->count <= SL_LIMIT_DENSE_ELEMENTS &&
           section->start <= SL_LIMIT_DENSE_ELEMENTS - section->count;
}

/* Checks that a chunk lies within its array. */
static bool piece_is_valid(const struct sl_request_section *section)
{
    return section->key_count == 1 && !has_lens(section) && section->count <= section->bag_count &&
           section->start <= section->bag_count - section->count;
}

/* Checks whole arrays, each with at least one value, or a chunk of one. */
static bool arrays_are_valid(const struct sl_request_section *section)
{
    if (section->count < 1 || section->count > UINT32_MAX) {
        return false;
    }
    if (has_lengths(section) && (has_lens(section) || section->bag_count != 0 ||
                                 sl_request_returned(section) != SL_PRECISION_F32)) {
        return false;
    }
    if (section->bag_count != 0) {
        return piece_is_valid(section);
    }
    return section->start == 0 && section->count >= section->key_count &&
           (has_lens(section) || section->count % section->key_count == 0);
}

/* Checks that the operation has what the flags are about. */
static bool flags_are_valid(const struct sl_request_section *section)
{
    const uint32_t shape = shapes[section->op];
    const bool pushes = (shape & (RATE | KV_VALUES)) != 0;
    const bool returns_rows =
        (shape & (RETURNS_ROWS | RETURNS_BAGS)) != 0 && (shape & RETURNS_FOUND) == 0;
    const uint32_t most = returns_rows                                      ? SL_PRECISION_INT8
                          : (shape & (RETURNS_RANGE | RETURNS_VALUES)) != 0 ? SL_PRECISION_BF16
                                                                            : SL_PRECISION_F32;
    const uint32_t lens =
        (shape & KV_ARRAYS) == 0 ? 0
        : section->op == SL_REQUEST_KV_PULL
            ? SL_REQUEST_FLAG_LENS | SL_REQUEST_FLAG_LENGTHS | SL_REQUEST_FLAG_ZEROS
            : SL_REQUEST_FLAG_LENS;
    const uint32_t pushed = pushes ? 3U << SL_REQUEST_PUSHED_SHIFT : 0;
    const uint32_t returned = 3U << SL_REQUEST_RETURNED_SHIFT;
    return (section->flags & ~(lens | pushed | returned)) == 0 &&
           (uint32_t)sl_request_returned(section) <= most;
}

static bool kv_is_valid(const struct sl_request_section *section)
{
    if (section->table_id >= SL_LIMIT_TABLES || section->key_count == 0) {
        return false;
    }
    const bool names_arrays = (shapes[section->op] & KV_ARRAYS) != 0;
    const uint64_t strange =
        section->flags | section->command | section->bag_count | section->start | section->count;
    return names_arrays ? flags_are_valid(section) && arrays_are_valid(section) : strange == 0;
}

/* Checks an operation on all rows of a table. */
static bool whole_is_valid(const struct sl_request_section *section)
{
    if (section->op == SL_REQUEST_SCAN) {
        return section->count <= SL_REQUEST_SCAN_ROWS_MAX;
    }
    const float l2_below = sl_request_evict_l2(section);
    return section->count == 0 && section->command <= SL_REQUEST_EVICT_STEPS_MAX &&
           section->start <= UINT32_MAX && isfinite(l2_below) && l2_below >= 0;
}

/* Checks also that unused fields are 0. */
static bool section_is_valid(const struct sl_request_section *section)
{
    const uint32_t shape = shapes[section->op];
    if ((shape & KV_KEYS) != 0) {
        return kv_is_valid(section);
    }
    const uint32_t keys = (shape & KEYS) != 0 ? 0 : section->key_count;
    const uint32_t bags = (shape & (BAGS | SCANS | EVICTS)) != 0 ? 0 : section->bag_count;
    const uint64_t range =
        (shape & (RANGE | SCANS | EVICTS)) != 0 ? 0 : section->start | section->count;
    const uint32_t command = (shape & (RATE | SCANS | EVICTS)) != 0 ? 0 : section->command;
    if ((command | keys | bags | range) != 0 || shape == 0 || !flags_are_valid(section)) {
        return false;
    }
    if ((shape & RATE) != 0 && !sl_rate_is_valid(sl_rate_from_bits(section->command))) {
        return false;
    }
    if ((shape & RANGE) != 0 && !range_is_valid(section)) {
        return false;
    }
    if ((shape & (SCANS | EVICTS)) != 0 && !whole_is_valid(section)) {
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

/* Takes `count` items and the zeros that pad them to a multiple of 8 bytes. */
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

/* Checks that ends ascend and the last equals key_count. An empty bag repeats the previous end. */
static bool bags_are_valid(const uint32_t *ends, const struct sl_request_section *section)
{
    const bool is_f32 = sl_request_returned(section) == SL_PRECISION_F32;
    const uint32_t keys_max = is_f32 ? UINT32_MAX : SL_REQUEST_NARROW_BAG_KEYS_MAX;
    uint32_t last = 0;
    for (uint32_t i = 0; i < section->bag_count; i++) {
        if (ends[i] < last || ends[i] - last > keys_max) {
            return false;
        }
        last = ends[i];
    }
    return last == section->key_count;
}

/* Checks that every array has a value and that the lengths add up to count. */
static bool lens_are_valid(const uint32_t *lens, uint32_t key_count, uint64_t count)
{
    uint64_t sum = 0;
    bool has_none = false;
    for (uint32_t i = 0; i < key_count; i++) {
        sum += lens[i];
        has_none |= lens[i] == 0;
    }
    return !has_none && sum == count;
}

/* Checks that the operation fits the kind of table that dim implies. */
static bool dim_fits(const struct sl_request_section *section, uint32_t dim)
{
    const uint32_t shape = shapes[section->op];
    const bool is_f32 = sl_request_pushed(section) == SL_PRECISION_F32 &&
                        sl_request_returned(section) == SL_PRECISION_F32;
    return !((shape & (KEYS | SCANS | EVICTS)) != 0 && dim == 0) &&
           !((shape & RANGE) != 0 && dim != 0) &&
           !((shape & KV_KEYS) != 0 && dim != sizeof(float) && !((dim == 1 || dim == 2) && is_f32));
}

/* Reads keys, bags and lens. */
static int read_structure(struct sl_bytes *cursor, const struct sl_request_section *section,
                          uint32_t dim, struct sl_request_view *out)
{
    const uint32_t shape = shapes[section->op];
    if (!dim_fits(section, dim)) {
        return SL_ERR_PROTOCOL;
    }
    *out = (struct sl_request_view){.section = *section};
    if ((shape & (KEYS | KV_KEYS)) != 0) {
        out->keys = sl_bytes_take_array(cursor, section->key_count, sizeof(uint64_t));
    }
    if ((shape & BAGS) != 0) {
        out->bag_ends = take_padded(cursor, section->bag_count, sizeof(uint32_t));
    }
    if ((shape & SCANS) != 0) {
        out->scan = sl_bytes_take_array(cursor, 1, sizeof *out->scan);
    }
    if (has_lens(section)) {
        out->lens = take_padded(cursor, section->key_count, sizeof(uint32_t));
    }
    if (cursor->bad || ((shape & BAGS) != 0 && !bags_are_valid(out->bag_ends, section)) ||
        (has_lens(section) && !lens_are_valid(out->lens, section->key_count, section->count))) {
        return SL_ERR_PROTOCOL;
    }
    return 0;
}

static void set_values(struct sl_request_view *view, const void *values)
{
    if (sl_request_pushed(&view->section) != SL_PRECISION_F32) {
        view->encoded = values;
    } else if ((shapes[view->section.op] & KV_VALUES) != 0) {
        view->values = values;
    } else {
        view->gradients = values;
    }
}

int sl_request_read_body(struct sl_bytes *cursor, const struct sl_request_section *section,
                         uint32_t dim, struct sl_request_view *out)
{
    sl_assert(cursor != NULL);
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    sl_assert(out != NULL);
    sl_assert((uintptr_t)cursor->next % 8 == 0);
    struct sl_request_view view;
    if (read_structure(cursor, section, dim, &view) != 0) {
        return SL_ERR_PROTOCOL;
    }
    if (sl_request_pushes(section->op)) {
        set_values(&view, take_padded(cursor, sl_request_values_bytes(section, dim), 1));
    }
    if (cursor->bad) {
        return SL_ERR_PROTOCOL;
    }
    *out = view;
    return SL_OK;
}

int sl_request_read_body_out_of_line(struct sl_bytes *cursor, struct sl_bytes values,
                                     const struct sl_request_section *section, uint32_t dim,
                                     struct sl_request_view *out)
{
    sl_assert(cursor != NULL);
    sl_assert(section != NULL);
    sl_assert(dim <= SL_LIMIT_DIM);
    sl_assert(out != NULL);
    sl_assert((uintptr_t)cursor->next % 8 == 0);
    sl_assert((uintptr_t)values.next % 8 == 0);
    struct sl_request_view view;
    if (!sl_request_pushes(section->op) || read_structure(cursor, section, dim, &view) != 0 ||
        values.left != sl_bytes_pad8(sl_request_values_bytes(section, dim))) {
        return SL_ERR_PROTOCOL;
    }
    set_values(&view, values.next);
    *out = view;
    return SL_OK;
}
