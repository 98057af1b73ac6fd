/* Inflate decodes a body that comes with the Content-Encoding gzip or deflate, piece by piece, and
 * passes on what it has decoded in pieces of at most SL_INFLATE_BYTES: a short body that becomes
 * very long takes no memory, and ends as soon as its receiver refuses a piece.
 *
 * One thread at a time. Allocates at its creation: about 45 KiB, by zlib. */
#ifndef SL_NET_HTTP_INFLATE_H
#define SL_NET_HTTP_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

#define SL_INFLATE_BYTES 16384

struct sl_inflate;

/* Takes a piece of the decoded body. False: it wants no more. */
typedef bool sl_inflate_put_fn(void *ctx, const void *piece, size_t bytes);

/* coding: "gzip" or "deflate" (RFC 9110, 8.4.1), in any case. Errors: UNSUPPORTED (another coding),
 * NO_MEMORY. */
int sl_inflate_create(const char *coding, struct sl_inflate **out);

/* Nulls *decoder, which may be NULL. */
void sl_inflate_destroy(struct sl_inflate **decoder);

/* Decodes the next piece. Errors: INVALID (the bytes are no such stream, or follow its end),
 * CANCELLED (`put` has refused a piece). After an error it is not called again. */
int sl_inflate_take(struct sl_inflate *decoder, const void *piece, size_t bytes,
                    sl_inflate_put_fn *put, void *ctx);

/* Whether the stream has come to its end, and its checksum is right. */
bool sl_inflate_is_complete(const struct sl_inflate *decoder);

#endif
