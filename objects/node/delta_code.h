/* The encoding of one block of a delta: how it differs from a block of the base. Pure, but that
 * coders allocate; a coder has one thread at a time.
 *
 * An encoded block is one zstd frame. Its content is the width of an element (u8: 1, 2, 4 or 8),
 * and one entry for each element that differs, in order: how many elements lie between it and the
 * one before (u8), and the XOR of its bytes with the base's. An entry with XOR 0 bridges more than
 * 255 elements. The bytes of all entries lie one plane behind another: all first bytes, all second
 * bytes, and so on. What decode returns is compared with the digest of the block by the caller. */
#ifndef SL_OBJECTS_NODE_DELTA_CODE_H
#define SL_OBJECTS_NODE_DELTA_CODE_H

#include <stdint.h>

#include <starling_objects.h>

struct sl_objects_delta_coder;

/* Errors: NO_MEMORY. Destroy nulls *coder; NULL is allowed. */
int sl_objects_delta_coder_create(struct sl_objects_delta_coder **out);
void sl_objects_delta_coder_destroy(struct sl_objects_delta_coder **coder);

/* Encodes `block` against `base`, both of `bytes` bytes, up to SL_OBJECTS_BLOCK_BYTES. width: bytes
 * of an element. Returns the length; 0: it would be longer than `room`. */
uint32_t sl_objects_delta_encode(struct sl_objects_delta_coder *coder, uint32_t width,
                                 const uint8_t *base, const uint8_t *block, uint32_t bytes,
                                 uint8_t *to, uint32_t room);

/* Rebuilds the block of `bytes` bytes in `block`; `encoded` may be hostile. Errors: CORRUPT: the
 * bytes of the block are not defined. */
int sl_objects_delta_decode(struct sl_objects_delta_coder *coder, const uint8_t *base,
                            const uint8_t *encoded, uint32_t encoded_bytes, uint8_t *block,
                            uint32_t bytes);

#endif
