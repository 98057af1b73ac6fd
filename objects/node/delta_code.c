#include "objects/node/delta_code.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/err.h"

#define MAGIC      0x314c444a424f4c53ULL /* "SLOBJDL1" */
#define LEVEL      (-1)                  /* twice as fast as level 1, and a tenth longer */
#define WIDTH_MAX  8
#define WORD_BYTES 8
#define LINE_BYTES 64
#define BITMAP_BYTES                                                                               \
    (SL_OBJECTS_BLOCK_BYTES / 8 + WORD_BYTES) /* of bytes; and a rest of a word                    \
                                               */

struct sl_objects_delta_coder {
    ZSTD_CCtx *compressor;
    ZSTD_DCtx *decompressor;
    uint8_t bitmap[BITMAP_BYTES];
    /* One behind another, each with room for all elements, and for one that does not count. */
    uint8_t planes[SL_OBJECTS_BLOCK_BYTES + WIDTH_MAX];
};

/* Header */

void sl_objects_delta_header_encode(const struct sl_objects_delta_header *header, void *to)
{
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_OBJECTS_DELTA_HEADER_BYTES);
    sl_bytes_put_u64(&writer, MAGIC);
    sl_bytes_put_u64(&writer, header->base);
    sl_bytes_put_u64(&writer, header->base_digest.low);
    sl_bytes_put_u64(&writer, header->base_digest.high);
    sl_bytes_put_u64(&writer, header->digest.low);
    sl_bytes_put_u64(&writer, header->digest.high);
    sl_bytes_put_u32(&writer, header->block_count);
    sl_bytes_put_u32(&writer, 0);
    sl_assert(!writer.bad && writer.left == 0);
}

int sl_objects_delta_header_decode(struct sl_objects_delta_header *header, const void *bytes)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, SL_OBJECTS_DELTA_HEADER_BYTES);
    const uint64_t magic = sl_bytes_u64(&cursor);
    header->base = sl_bytes_u64(&cursor);
    header->base_digest.low = sl_bytes_u64(&cursor);
    header->base_digest.high = sl_bytes_u64(&cursor);
    header->digest.low = sl_bytes_u64(&cursor);
    header->digest.high = sl_bytes_u64(&cursor);
    header->block_count = sl_bytes_u32(&cursor);
    return magic == MAGIC && sl_bytes_u32(&cursor) == 0 ? 0 : SL_ERR_CORRUPT;
}

/* Coder */

int sl_objects_delta_coder_create(struct sl_objects_delta_coder **out)
{
    struct sl_objects_delta_coder *made = malloc(sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->compressor = ZSTD_createCCtx();
    made->decompressor = ZSTD_createDCtx();
    if (made->compressor == NULL || made->decompressor == NULL) {
        sl_objects_delta_coder_destroy(&made);
        return SL_ERR_NO_MEMORY;
    }
    *out = made;
    return 0;
}

void sl_objects_delta_coder_destroy(struct sl_objects_delta_coder **coder)
{
    struct sl_objects_delta_coder *gone = *coder;
    *coder = NULL;
    if (gone != NULL) {
        (void)ZSTD_freeCCtx(gone->compressor);
        (void)ZSTD_freeDCtx(gone->decompressor);
        free(gone);
    }
}

static uint32_t bitmap_bytes_of(uint32_t count)
{
    return (count + 7) / 8;
}

static inline uint64_t bytes_of(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

/* Encode */

/* Adds the elements of a word that are not 0; `index`: of its first one. */
static inline uint32_t add_word(struct sl_objects_delta_coder *coder, uint32_t width,
                                uint32_t stride, uint32_t index, uint64_t word, uint32_t changed)
{
    const uint32_t bits = 8 * width;
    const uint64_t ones = UINT64_MAX / (UINT64_MAX >> (64 - bits)); /* the lowest bit of each */
    const uint64_t highest = ones << (bits - 1);
    uint64_t others =
        (((word & ~highest) + ~highest) | word) & highest; /* of those that are not 0 */
    for (; others != 0; others &= others - 1, changed++) {
        const uint32_t at = (uint32_t)__builtin_ctzll(others) / bits;
        const uint64_t element = word >> at * bits;
        for (uint32_t i = 0; i < width; i++) {
            coder->planes[i * stride + changed] = (uint8_t)(element >> 8 * i);
        }
        coder->bitmap[(index + at) / 8] |= (uint8_t)(1U << (index + at) % 8);
    }
    return changed;
}

static inline uint64_t word_at(const uint8_t *base, const uint8_t *block, size_t at, uint32_t bytes)
{
    return bytes_of(base + at, bytes) ^ bytes_of(block + at, bytes);
}

static inline bool is_equal(const uint8_t *base, const uint8_t *block)
{
    uint64_t difference = 0;
    for (uint32_t i = 0; i < LINE_BYTES; i += WORD_BYTES) {
        difference |= word_at(base, block, i, WORD_BYTES);
    }
    return difference == 0;
}

/* Fills bitmap and planes; returns how many elements differ. Lines that are equal, which most are,
 * take a comparison. Inlined for each width. */
static inline uint32_t find_changed(struct sl_objects_delta_coder *coder, uint32_t width,
                                    const uint8_t *base, const uint8_t *block, uint32_t count)
{
    const uint32_t stride = count + 1, bytes = count * width;
    uint32_t changed = 0, at = 0;
    memset(coder->bitmap, 0, bitmap_bytes_of(count));
    for (; at + LINE_BYTES <= bytes; at += LINE_BYTES) {
        for (uint32_t i = at; i < at + LINE_BYTES && !(i == at && is_equal(base + at, block + at));
             i += WORD_BYTES) {
            changed = add_word(coder, width, stride, i / width, word_at(base, block, i, WORD_BYTES),
                               changed);
        }
    }
    for (; at < bytes; at += width) {
        changed =
            add_word(coder, width, stride, at / width, word_at(base, block, at, width), changed);
    }
    return changed;
}

static uint32_t find_changed_of(struct sl_objects_delta_coder *coder, uint32_t width,
                                const uint8_t *base, const uint8_t *block, uint32_t count)
{
    switch (width) {
    case 1:
        return find_changed(coder, 1, base, block, count);
    case 2:
        return find_changed(coder, 2, base, block, count);
    case 4:
        return find_changed(coder, 4, base, block, count);
    default:
        return find_changed(coder, 8, base, block, count);
    }
}

/* Returns the length of the section, at most `bytes`; and UINT32_MAX: there is no room. */
static uint32_t put_section(struct sl_objects_delta_coder *coder, struct sl_bytes_writer *to,
                            const uint8_t *section, uint32_t bytes)
{
    const size_t room = to->left < bytes ? to->left : bytes;
    const size_t shorter =
        room < 2 ? 0
                 : ZSTD_compressCCtx(coder->compressor, to->next, room - 1, section, bytes, LEVEL);
    if (shorter != 0 && !ZSTD_isError(shorter)) {
        (void)sl_bytes_reserve(to, shorter);
        return (uint32_t)shorter;
    }
    sl_bytes_put(to, section, bytes);
    return bytes;
}

uint32_t sl_objects_delta_encode(struct sl_objects_delta_coder *coder, uint32_t width,
                                 const uint8_t *base, const uint8_t *block, uint32_t bytes,
                                 uint8_t *to, uint32_t room)
{
    sl_assert(width == 1 || width == 2 || width == 4 || width == 8);
    sl_assert(bytes <= SL_OBJECTS_BLOCK_BYTES);
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, room);
    const uint32_t count = bytes / width;
    const uint32_t changed = find_changed_of(coder, width, base, block, count);
    sl_bytes_put_u8(&writer, (uint8_t)width);
    uint8_t *lengths = sl_bytes_reserve(&writer, (1 + width) * sizeof(uint32_t));
    for (uint32_t i = 0; i <= width && !writer.bad; i++) {
        const uint32_t length =
            i == 0 ? put_section(coder, &writer, coder->bitmap, bitmap_bytes_of(count))
                   : put_section(coder, &writer, coder->planes + (i - 1) * (count + 1), changed);
        memcpy(lengths + i * sizeof length, &length, sizeof length);
    }
    sl_bytes_put(&writer, block + (size_t)count * width, bytes % width);
    return writer.bad ? 0 : (uint32_t)(room - writer.left);
}

/* Decode */

/* Takes a section of `bytes` bytes, whose length is `length`. */
static bool take_section(struct sl_objects_delta_coder *coder, struct sl_bytes *cursor,
                         uint32_t length, uint8_t *to, uint32_t bytes)
{
    const void *section = sl_bytes_take(cursor, length);
    if (section == NULL || length > bytes) {
        return false;
    }
    if (length == bytes) {
        memcpy(to, section, bytes);
        return true;
    }
    return ZSTD_decompressDCtx(coder->decompressor, to, bytes, section, length) == bytes;
}

static uint64_t bitmap_word(const struct sl_objects_delta_coder *coder, uint32_t word)
{
    return bytes_of(coder->bitmap + (size_t)word * WORD_BYTES, WORD_BYTES);
}

/* Returns how many elements differ; the bits behind the last element are ignored, and cleared. */
static uint32_t count_changed(struct sl_objects_delta_coder *coder, uint32_t count)
{
    uint32_t changed = 0;
    memset(coder->bitmap + bitmap_bytes_of(count), 0, WORD_BYTES);
    if (count % 8 != 0) {
        coder->bitmap[count / 8] &= (uint8_t)((1U << count % 8) - 1);
    }
    for (uint32_t i = 0; i * 64 < count; i++) {
        changed += (uint32_t)__builtin_popcountll(bitmap_word(coder, i));
    }
    return changed;
}

/* Inlined for each width. */
static inline void apply(const struct sl_objects_delta_coder *coder, uint32_t width, uint8_t *block,
                         uint32_t count)
{
    uint32_t changed = 0;
    for (uint32_t i = 0; i * 64 < count; i++) {
        for (uint64_t word = bitmap_word(coder, i); word != 0; word &= word - 1, changed++) {
            uint8_t *at = block + (i * 64 + (size_t)__builtin_ctzll(word)) * width;
            uint64_t element = 0;
            for (uint32_t k = 0; k < width; k++) {
                element |= (uint64_t)coder->planes[k * (count + 1) + changed] << 8 * k;
            }
            element ^= bytes_of(at, width);
            memcpy(at, &element, width);
        }
    }
}

static void apply_to(const struct sl_objects_delta_coder *coder, uint32_t width, uint8_t *block,
                     uint32_t count)
{
    switch (width) {
    case 1:
        apply(coder, 1, block, count);
        break;
    case 2:
        apply(coder, 2, block, count);
        break;
    case 4:
        apply(coder, 4, block, count);
        break;
    default:
        apply(coder, 8, block, count);
        break;
    }
}

int sl_objects_delta_decode(struct sl_objects_delta_coder *coder, const uint8_t *base,
                            const uint8_t *encoded, uint32_t encoded_bytes, uint8_t *block,
                            uint32_t bytes)
{
    struct sl_bytes cursor = sl_bytes_over(encoded, encoded_bytes);
    sl_assert(bytes <= SL_OBJECTS_BLOCK_BYTES);
    const uint32_t width = sl_bytes_u8(&cursor);
    if (width != 1 && width != 2 && width != 4 && width != 8) {
        return SL_ERR_CORRUPT;
    }
    const uint32_t count = bytes / width;
    uint32_t lengths[1 + WIDTH_MAX];
    sl_bytes_copy(&cursor, lengths, (1 + width) * sizeof lengths[0]);
    bool is_right = take_section(coder, &cursor, lengths[0], coder->bitmap, bitmap_bytes_of(count));
    const uint32_t changed = is_right ? count_changed(coder, count) : 0;
    for (uint32_t i = 0; is_right && i < width; i++) {
        is_right =
            take_section(coder, &cursor, lengths[1 + i], coder->planes + i * (count + 1), changed);
    }
    if (!is_right || cursor.left != bytes % width) {
        return SL_ERR_CORRUPT;
    }
    memcpy(block, base, (size_t)count * width);
    apply_to(coder, width, block, count);
    sl_bytes_copy(&cursor, block + (size_t)count * width, bytes % width);
    return 0;
}
