/* The bytes of a delta: how one version of a part differs from another one, its base, block by
 * block. Pure, but that coders allocate; a coder has one thread at a time.
 *
 * A delta is a header, one length (u32) for each block of the image, and the encoded blocks, in
 * order. Length 0: the delta does not have the block, which is equal to that of the base, or is
 * fetched as a whole.
 *
 * An encoded block is the XOR with the base's block: the width of an element (u8: 1, 2, 4 or 8);
 * the lengths (u32) of 1 + width sections; the sections; and the bytes behind the last whole
 * element, as they are. The first section is a bitmap of the elements that differ, the others are
 * byte planes: byte 0 of the XOR of each of these elements, byte 1, and so on. A section is a zstd
 * frame, or its bytes as they are, if it has their length. What decode returns is compared with the
 * digest of the block by the caller. */
#ifndef SL_OBJECTS_NODE_DELTA_CODE_H
#define SL_OBJECTS_NODE_DELTA_CODE_H

#include <stdint.h>

#include <starling_objects.h>

#include "core/hash.h"

#define SL_OBJECTS_DELTA_HEADER_BYTES 56

/* Which versions a delta is of. */
struct sl_objects_delta_header {
    uint64_t base;                          /* number of the base */
    struct sl_hash_128 base_digest, digest; /* of both parts: of their manifests */
    uint32_t block_count;
};

/* Writes SL_OBJECTS_DELTA_HEADER_BYTES. */
void sl_objects_delta_header_encode(const struct sl_objects_delta_header *header, void *to);

/* `bytes`: SL_OBJECTS_DELTA_HEADER_BYTES, which may be hostile. Errors: CORRUPT. */
int sl_objects_delta_header_decode(struct sl_objects_delta_header *header, const void *bytes);

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
