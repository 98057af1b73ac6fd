#include "net/http/inflate.h"

#include <stdint.h>
#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

#include "core/err.h"

#define GZIP_WINDOW_BITS (MAX_WBITS + 16) /* as zlib.h says: with a gzip header */

struct sl_inflate {
    z_stream stream;
    bool is_complete;
};

int sl_inflate_create(const char *coding, struct sl_inflate **out)
{
    const bool is_gzip = strcasecmp(coding, "gzip") == 0;
    if (!is_gzip && strcasecmp(coding, "deflate") != 0) {
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_inflate *made = calloc(1, sizeof *made);
    if (made == NULL ||
        inflateInit2(&made->stream, is_gzip ? GZIP_WINDOW_BITS : MAX_WBITS) != Z_OK) {
        free(made);
        return SL_ERR_NO_MEMORY;
    }
    *out = made;
    return 0;
}

void sl_inflate_destroy(struct sl_inflate **decoder)
{
    if (*decoder != NULL) {
        (void)inflateEnd(&(*decoder)->stream);
        free(*decoder);
        *decoder = NULL;
    }
}

int sl_inflate_take(struct sl_inflate *decoder, const void *piece, size_t bytes,
                    sl_inflate_put_fn *put, void *ctx)
{
    z_stream *stream = &decoder->stream;
    uint8_t decoded[SL_INFLATE_BYTES];
    if (bytes > UINT32_MAX) {
        return SL_ERR_INVALID;
    }
    stream->next_in = (void *)(uintptr_t)piece;
    stream->avail_in = (uInt)bytes;
    do {
        if (decoder->is_complete) { /* there are bytes behind the end */
            return stream->avail_in == 0 ? 0 : SL_ERR_INVALID;
        }
        stream->next_out = decoded;
        stream->avail_out = sizeof decoded;
        const int result = inflate(stream, Z_NO_FLUSH);
        const size_t count = sizeof decoded - stream->avail_out;
        decoder->is_complete = result == Z_STREAM_END;
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
            return SL_ERR_INVALID;
        }
        if (count > 0 && !put(ctx, decoded, count)) {
            return SL_ERR_CANCELLED;
        }
    } while (stream->avail_in > 0 || stream->avail_out == 0); /* there is more to decode */
    return 0;
}

bool sl_inflate_is_complete(const struct sl_inflate *decoder)
{
    return decoder->is_complete;
}
