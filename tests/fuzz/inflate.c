/* Compressed bodies: a byte with the coding, a byte with the length of pieces, the body. Any bytes
 * are an error, or decoded in pieces that have a limit; the receiver's limit is kept. The same body
 * in one piece has the same end. */
#include "net/http/inflate.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/err.h"
#include "tests/fuzz/input.h"

#define DECODED_MAX (1U << 20)

struct sink {
    size_t count;
    uint32_t sum;
};

static bool put(void *ctx, const void *piece, size_t bytes)
{
    struct sink *sink = ctx;
    sl_assert(bytes > 0 && bytes <= SL_INFLATE_BYTES && sink->count <= DECODED_MAX);
    for (size_t i = 0; i < bytes; i++) {
        sink->sum = sink->sum * 31 + ((const uint8_t *)piece)[i];
    }
    sink->count += bytes;
    return sink->count <= DECODED_MAX;
}

/* Returns the first error, or whether the stream has ended. */
static int decode(const char *coding, const struct sl_bytes *body, size_t piece_bytes,
                  struct sink *sink)
{
    struct sl_inflate *decoder;
    sl_assert(sl_inflate_create(coding, &decoder) == 0);
    int err = 0;
    for (size_t at = 0; err == 0 && at < body->left; at += piece_bytes) {
        const size_t left = body->left - at;
        err = sl_inflate_take(decoder, body->next + at, left < piece_bytes ? left : piece_bytes,
                              put, sink);
        sl_assert(err == 0 || err == SL_ERR_INVALID || err == SL_ERR_CANCELLED);
    }
    const int end = err != 0 ? err : sl_inflate_is_complete(decoder);
    sl_inflate_destroy(&decoder);
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes in = sl_bytes_over(bytes, byte_count);
    const char *coding = sl_bytes_u8(&in) % 2 == 0 ? "deflate" : "gzip";
    const size_t piece_bytes = 1 + sl_bytes_u8(&in);
    struct sink pieces = {0}, whole = {0};
    if (in.bad || in.left == 0) {
        return 0;
    }
    const int end = decode(coding, &in, piece_bytes, &pieces);
    const int other = decode(coding, &in, in.left, &whole);
    sl_assert((end < 0) == (other < 0)); /* which of two errors comes first may differ */
    sl_assert(end < 0 || (end == other && pieces.count == whole.count && pieces.sum == whole.sum));
    return 0;
}
