/* Base64 (RFC 4648, section 4), as protobuf's JSON has bytes. Any thread; allocates nothing. */
#ifndef SL_PS_METASTORE_BASE64_H
#define SL_PS_METASTORE_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* Characters of `bytes` bytes, without a NUL. */
static inline size_t sl_base64_length(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Writes sl_base64_length(bytes) characters and a NUL. */
void sl_base64_encode(const uint8_t *from, size_t bytes, char *to);

/* Writes at most length / 4 * 3 bytes to `to`. Errors: PROTOCOL (it is not of that alphabet, not
 * padded, or has bits behind its end). */
int sl_base64_decode(const char *from, size_t length, uint8_t *to, size_t *bytes_out);

#endif
