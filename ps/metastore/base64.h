/* Base64 (RFC 4648, section 4) encodes and decodes bytes in protobuf's JSON. Any thread; allocates
 * nothing. */
#ifndef SL_PS_METASTORE_BASE64_H
#define SL_PS_METASTORE_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* Length of the text of `bytes` bytes, without a NUL. */
static inline size_t sl_base64_length(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Writes sl_base64_length(bytes) characters and a NUL. */
void sl_base64_encode(const uint8_t *from, size_t bytes, char *to);

/* Writes at most length / 4 * 3 bytes. Errors: PROTOCOL (a character outside the alphabet, missing
 * padding, or bits after the end). */
int sl_base64_decode(const char *from, size_t length, uint8_t *to, size_t *bytes_out);

#endif
