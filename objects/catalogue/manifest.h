/* The layout of an image, and its manifest: tensors and groups in load order, and the digest of
 * every block. Pure, except that it allocates; one thread at a time.
 *
 * Tensor i begins at the first multiple of 64 bytes behind tensor i - 1; the bytes between are
 * zero. So places follow from the shapes, and cannot overlap. A group is the tensors from its first
 * one to the next group's; tensors before the first group are in none. Blocks are
 * SL_OBJECTS_BLOCK_BYTES long, the last one is shorter.
 *
 * A part is *stored* as the blocks of its encoded manifest, the last one padded to a whole block,
 * then the blocks of its image: block numbers and offsets of messages and pools count from the
 * beginning of the manifest. The manifest's blocks have no digests of their own.
 *
 * Use to publish: init, add_group and add_tensor in load order, seal, hash each block, encode. Use
 * to get: init, decode, verify each block. Then fini. */
#ifndef SL_OBJECTS_CATALOGUE_MANIFEST_H
#define SL_OBJECTS_CATALOGUE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/hash.h"
#include "core/key_index.h"
#include "core/limits.h"
#include "core/reason.h"

#define SL_OBJECTS_TENSOR_ALIGNMENT  64
#define SL_OBJECTS_TENSOR_NAME_BYTES 256 /* of a tensor or group, with NUL */
/* Of all encoded manifests within the limits: 21 MiB of tensors, 4 of groups, 16 of digests. */
#define SL_OBJECTS_MANIFEST_BYTES    (48U << 20)

struct sl_objects_tensor {
    uint64_t offset, bytes; /* in the image; bytes may be 0 */
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    uint32_t name; /* sl_objects_manifest_text */
    uint32_t type; /* enum sl_object_type */
    uint32_t rank;
};

struct sl_objects_group {
    uint32_t name;
    uint32_t first; /* tensor; a group has at least one */
};

struct sl_objects_manifest {
    struct sl_objects_tensor *tensors;
    struct sl_objects_group *groups;
    struct sl_hash_128 *digests; /* of the blocks of the image; NULL before seal */
    uint64_t image_bytes;        /* end of the last tensor; may be 0 */
    uint64_t encoded_bytes;      /* of encode; complete after seal */
    uint32_t tensor_count, group_count, block_count;

    /* Private */
    uint32_t tensor_capacity, group_capacity, text_bytes, text_capacity;
    char *texts;
    struct sl_key_index names; /* of tensors: hashes */
};

/* Bytes of one element; 0: no such type, or not whole bytes. */
uint32_t sl_objects_type_bytes(uint32_t type);

/* Bytes of all elements. False: no such type, a rank above the limit, a product of 2^64 bits, or no
 * whole bytes. */
bool sl_objects_tensor_bytes(uint32_t type, uint32_t rank, const uint64_t *shape, uint64_t *out);

/* Blocks that so many bytes of a manifest or an image take. */
static inline uint64_t sl_objects_block_count(uint64_t bytes)
{
    return bytes / SL_OBJECTS_BLOCK_BYTES + (bytes % SL_OBJECTS_BLOCK_BYTES != 0);
}

/* Empty. */
void sl_objects_manifest_init(struct sl_objects_manifest *manifest);
void sl_objects_manifest_fini(struct sl_objects_manifest *manifest);

/* Begin a group, append a tensor. The name is copied: 1 to SL_OBJECTS_TENSOR_NAME_BYTES - 1
 * bytes without control characters. Errors: INVALID (name, type, rank; the group before has no
 * tensor), EXISTS (a tensor has the name), TOO_LARGE (the shape, the image, their number),
 * NO_MEMORY; with a reason that names the tensor or group, and nothing has changed. Not after seal.
 */
int sl_objects_manifest_add_group(struct sl_objects_manifest *manifest, const char *name,
                                  struct sl_reason *reason);
int sl_objects_manifest_add_tensor(struct sl_objects_manifest *manifest, const char *name,
                                   uint32_t type, uint32_t rank, const uint64_t *shape,
                                   struct sl_reason *reason);

/* The layout is complete: allocates the digests. Errors: INVALID (no tensor; the last group has
 * none), NO_MEMORY; with a reason. */
int sl_objects_manifest_seal(struct sl_objects_manifest *manifest, struct sl_reason *reason);

uint32_t sl_objects_manifest_block_bytes(const struct sl_objects_manifest *manifest,
                                         uint32_t block);

/* Sets, or checks, the digest of a block of the image: block_bytes bytes. Sealed. */
void sl_objects_manifest_hash(struct sl_objects_manifest *manifest, uint32_t block,
                              const void *bytes);
bool sl_objects_manifest_verify(const struct sl_objects_manifest *manifest, uint32_t block,
                                const void *bytes);

/* Writes encoded_bytes bytes to `to`, and returns their digest, that of the part. Every block was
 * hashed. */
struct sl_hash_128 sl_objects_manifest_encode(const struct sl_objects_manifest *manifest, void *to);

/* Reads a manifest, which may be hostile, into an empty *manifest, which is sealed then, and
 * independent of `bytes`. Allocates at most 20 MiB and `byte_count`. Errors: CORRUPT, with a reason
 * that names the tensor; NO_MEMORY. After an error call fini. The caller compares the digest of the
 * bytes with that of the part before. */
int sl_objects_manifest_decode(struct sl_objects_manifest *manifest, const void *bytes,
                               size_t byte_count, struct sl_reason *reason);

/* The text of a tensor's or a group's `name`. */
static inline const char *sl_objects_manifest_text(const struct sl_objects_manifest *manifest,
                                                   uint32_t name)
{
    return manifest->texts + name;
}

/* Image bytes [offset, offset + bytes) lie at `base`: how a caller's memory holds an image. */
struct sl_objects_place {
    uint64_t offset, bytes;
    uint8_t *base;
};

/* Index of the first place that ends behind `offset`; `count` if there is none. Places are in
 * ascending order, and do not overlap. */
uint32_t sl_objects_place_find(const struct sl_objects_place *places, uint32_t count,
                               uint64_t offset);

/* Returns the image bytes [offset, offset + bytes): where they are, if that is in one place; else
 * collected in `to`, with zeros for bytes that are in no place. */
const void *sl_objects_place_read(const struct sl_objects_place *places, uint32_t count,
                                  uint64_t offset, uint32_t bytes, void *to);

/* Describes tensor `index` of an image that begins at `image_at` of these places. out->data is NULL
 * if its bytes are not in one place. */
void sl_objects_manifest_describe(const struct sl_objects_manifest *manifest,
                                  const struct sl_objects_place *places, uint32_t place_count,
                                  uint64_t image_at, uint32_t index, struct sl_object_tensor *out);

/* Number of the tensor with the name; tensor_count: there is none. */
uint32_t sl_objects_manifest_find(const struct sl_objects_manifest *manifest, const char *name);

#endif
