#include "objects/node/delta_code.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "core/assert.h"
#include "core/err.h"

#define LEVEL      1 /* codes skips and bytes by their frequency, as those below 0 do not */
#define WORD_BYTES 8
#define SKIP_MAX   255

struct sl_objects_delta_coder {
    ZSTD_CCtx *compressor;
    ZSTD_DCtx *decompressor;
    uint8_t content[1 + 2 * SL_OBJECTS_BLOCK_BYTES]; /* all bytes differ, with width 1 */
};

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

static bool is_width(uint32_t width, uint32_t bytes)
{
    return (width == 1 || width == 2 || width == 4 || width == 8) && bytes % width == 0;
}

static uint64_t word_at(const uint8_t *bytes, uint32_t at, uint32_t end)
{
    uint64_t word = 0;
    if (end - at >= WORD_BYTES) {
        memcpy(&word, bytes + at, WORD_BYTES);
    } else {
        memcpy(&word, bytes + at, end - at);
    }
    return word;
}

/* Appends an entry to planes of `stride` bytes. */
static void put_entry(uint8_t *planes, uint32_t stride, uint32_t width, uint32_t entry,
                      uint32_t skip, uint64_t difference)
{
    planes[entry] = (uint8_t)skip;
    for (uint32_t i = 1; i <= width; i++, difference >>= 8) {
        planes[(size_t)i * stride + entry] = (uint8_t)difference;
    }
}

/* Returns the length of the content. */
static uint32_t find_entries(struct sl_objects_delta_coder *coder, uint32_t width,
                             const uint8_t *base, const uint8_t *block, uint32_t bytes)
{
    const uint32_t stride = bytes / width;
    const uint64_t element = UINT64_MAX >> (64 - 8 * width);
    uint8_t *planes = coder->content + 1;
    uint32_t count = 0, next = 0; /* the element behind the last entry */
    for (uint32_t at = 0; at < bytes; at += WORD_BYTES) {
        uint64_t differences = word_at(base, at, bytes) ^ word_at(block, at, bytes);
        while (differences != 0) {
            const uint32_t lane = (uint32_t)__builtin_ctzll(differences) / (8 * width);
            const uint32_t shift = 8 * width * lane, index = at / width + lane;
            for (; index - next > SKIP_MAX; next += SKIP_MAX + 1) {
                put_entry(planes, stride, width, count++, SKIP_MAX, 0);
            }
            put_entry(planes, stride, width, count++, index - next, differences >> shift & element);
            next = index + 1;
            differences &= ~(element << shift);
        }
    }
    coder->content[0] = (uint8_t)width;
    for (uint32_t i = 1; i <= width; i++) {
        memmove(planes + (size_t)i * count, planes + (size_t)i * stride, count);
    }
    return 1 + (1 + width) * count;
}

uint32_t sl_objects_delta_encode(struct sl_objects_delta_coder *coder, uint32_t width,
                                 const uint8_t *base, const uint8_t *block, uint32_t bytes,
                                 uint8_t *to, uint32_t room)
{
    sl_assert(is_width(width, width));
    sl_assert(bytes <= SL_OBJECTS_BLOCK_BYTES);
    const uint32_t length =
        find_entries(coder, is_width(width, bytes) ? width : 1, base, block, bytes);
    const size_t encoded =
        ZSTD_compressCCtx(coder->compressor, to, room, coder->content, length, LEVEL);
    return ZSTD_isError(encoded) ? 0 : (uint32_t)encoded;
}

int sl_objects_delta_decode(struct sl_objects_delta_coder *coder, const uint8_t *base,
                            const uint8_t *encoded, uint32_t encoded_bytes, uint8_t *block,
                            uint32_t bytes)
{
    sl_assert(bytes <= SL_OBJECTS_BLOCK_BYTES);
    const size_t length = ZSTD_decompressDCtx(coder->decompressor, coder->content,
                                              sizeof coder->content, encoded, encoded_bytes);
    const uint32_t width = coder->content[0];
    if (ZSTD_isError(length) || length == 0 || !is_width(width, bytes) ||
        (length - 1) % (1 + width) != 0) {
        return SL_ERR_CORRUPT;
    }
    const size_t count = (length - 1) / (1 + width);
    const uint8_t *skips = coder->content + 1;
    size_t end = count; /* behind the last element */
    for (size_t i = 0; i < count; i++) {
        end += skips[i];
    }
    if (end > bytes / width) {
        return SL_ERR_CORRUPT;
    }
    memcpy(block, base, bytes);
    for (uint32_t plane = 0; plane < width; plane++) {
        const uint8_t *differences = skips + (plane + 1) * count;
        size_t at = plane;
        for (size_t i = 0; i < count; i++, at += width) {
            at += (size_t)skips[i] * width;
            block[at] ^= differences[i];
        }
    }
    return 0;
}
