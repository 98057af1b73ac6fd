/* Deltas of objects: the first bytes choose the length of a block; the others are an
 * encoded block, the content of its frame, or the change of a valid one. The decoder writes inside
 * the block only, and gives the same bytes twice. */
#include <string.h>
#include <zstd.h>

#include "core/assert.h"
#include "core/err.h"
#include "objects/node/delta_code.h"
#include "tests/fuzz/input.h"

#define BEHIND 16
#define MARK   0xa5

static struct sl_objects_delta_coder *coder;
static uint8_t base[SL_OBJECTS_BLOCK_BYTES], block[2][SL_OBJECTS_BLOCK_BYTES + BEHIND],
    encoded[SL_OBJECTS_BLOCK_BYTES];

static void decode(const uint8_t *bytes, uint32_t byte_count, uint32_t block_bytes)
{
    int err[2];
    for (uint32_t i = 0; i < 2; i++) {
        memset(block[i], MARK, sizeof block[i]);
        err[i] = sl_objects_delta_decode(coder, base, bytes, byte_count, block[i], block_bytes);
        for (uint32_t k = 0; k < BEHIND; k++) {
            sl_assert(block[i][block_bytes + k] == MARK);
        }
    }
    sl_assert(err[0] == err[1]);
    sl_assert(err[0] == 0 || err[0] == SL_ERR_CORRUPT);
    sl_assert(err[0] != 0 || memcmp(block[0], block[1], block_bytes) == 0);
}

/* A valid encoding, of which some bytes are changed. The block is the base with the input. */
static void change(struct sl_bytes input, uint32_t block_bytes)
{
    const uint32_t width = 1U << (sl_bytes_u8(&input) % 4);
    uint8_t *changed = block[0];
    memcpy(changed, base, block_bytes);
    struct sl_bytes piece = fuzz_input_piece(&input, block_bytes);
    for (size_t i = 0; i < piece.left; i++) {
        changed[i * 7 % block_bytes] ^= piece.next[i];
    }
    const uint32_t length =
        sl_objects_delta_encode(coder, width, base, changed, block_bytes, encoded, sizeof encoded);
    sl_assert(length <= sizeof encoded);
    if (length == 0) {
        return;
    }
    sl_assert(sl_objects_delta_decode(coder, base, encoded, length, block[1], block_bytes) == 0);
    sl_assert(memcmp(changed, block[1], block_bytes) == 0);
    while (fuzz_input_has_more(&input)) {
        const uint32_t at = sl_bytes_u16(&input) % length;
        encoded[at] = sl_bytes_u8(&input);
    }
    decode(encoded, length, block_bytes);
}

/* The bytes as the content of a frame. */
static void decode_content(struct sl_bytes input, uint32_t block_bytes)
{
    const size_t length = ZSTD_compress(encoded, sizeof encoded, input.next,
                                        input.left < 4096 ? input.left : 4096, 1);
    sl_assert(!ZSTD_isError(length));
    decode(encoded, (uint32_t)length, block_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    if (coder == NULL) {
        sl_assert(sl_objects_delta_coder_create(&coder) == 0);
        for (uint32_t i = 0; i < sizeof base; i++) {
            base[i] = (uint8_t)(i * 2654435761U >> 13);
        }
    }
    const uint32_t block_bytes = 1 + sl_bytes_u32(&input) % SL_OBJECTS_BLOCK_BYTES;
    const uint32_t left =
        input.left < SL_OBJECTS_BLOCK_BYTES ? (uint32_t)input.left : SL_OBJECTS_BLOCK_BYTES;
    decode(input.next, input.bad ? 0 : left, block_bytes);
    decode_content(input, block_bytes);
    change(input, block_bytes);
    return 0;
}
