/* The publisher's side of deltas. */
#include <stdlib.h>
#include <string.h>

#include "objects/node/call.h"
#include "objects/node/delta.h"
#include "objects/node/delta_code.h"
#include "objects/node/node.h"

#define SAMPLE     16 /* of so many blocks one shows whether a delta pays */
#define SHARE_MAX  7  /* tenths of the blocks that differ */
#define SHARE_UNIT 10

/* The base of a publication, pinned until the delta is made. */
struct base_call {
    struct sl_objects_call call;
    const struct sl_objects_copy *copy;
    struct sl_objects_copy *base; /* NULL: there is none */
};

/* A delta in the making. */
struct making {
    const struct sl_objects_copy *copy, *base;
    struct sl_objects_delta_coder *coder;
    uint8_t *delta; /* lengths, blocks */
    uint64_t bytes;
    uint32_t tensor; /* that has the beginning of the last block */
};

static void take_base_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct base_call *of = SL_CONTAINER_OF(call, struct base_call, call);
    of->base = sl_objects_delta_find_base(node, of->copy, 0);
    if (of->base != NULL) {
        sl_objects_pool_pin(&node->pool, of->base->pooled);
    }
    sl_objects_answer(call, 0, "found");
}

static void put_base_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct base_call *of = SL_CONTAINER_OF(call, struct base_call, call);
    sl_objects_pool_unpin(&node->pool, of->base->pooled);
    sl_objects_answer(call, 0, "put");
}

/* Bytes of an element at the beginning of the block, which lies behind the one before. */
static uint32_t width_of(struct making *making, uint32_t block)
{
    const struct sl_objects_manifest *manifest = &making->copy->manifest;
    const struct sl_objects_tensor *tensor = &manifest->tensors[making->tensor];
    while (making->tensor + 1 < manifest->tensor_count &&
           tensor->offset + tensor->bytes <= (uint64_t)block * SL_OBJECTS_BLOCK_BYTES) {
        tensor = &manifest->tensors[++making->tensor];
    }
    const uint32_t width = sl_objects_type_bytes(tensor->type);
    return width == 0 ? 1 : width;
}

/* Appends every step-th block that differs. Returns whether they become short enough. */
static bool encode(struct making *making, uint32_t step)
{
    const struct sl_objects_copy *copy = making->copy, *base = making->base;
    const uint32_t count = copy->manifest.block_count;
    uint64_t whole = 0, sent = 0;
    making->bytes = count * sizeof(uint32_t);
    making->tensor = 0;
    for (uint32_t i = 0; i < count; i += step) {
        const uint32_t bytes = sl_objects_manifest_block_bytes(&copy->manifest, i);
        const bool has_base = i < base->manifest.block_count;
        const bool is_equal =
            has_base && sl_hash_128_equal(copy->manifest.digests[i], base->manifest.digests[i]);
        uint32_t length = 0;
        if (has_base && !is_equal && sl_objects_manifest_block_bytes(&base->manifest, i) >= bytes) {
            length = sl_objects_delta_encode(making->coder, width_of(making, i),
                                             sl_objects_copy_block(base, i),
                                             sl_objects_copy_block(copy, i), bytes,
                                             making->delta + making->bytes, bytes - bytes / 8);
        }
        memcpy(making->delta + i * sizeof length, &length, sizeof length);
        making->bytes += length;
        whole += is_equal ? 0 : bytes;
        sent += is_equal ? 0 : length != 0 ? length : bytes;
    }
    return sent * SHARE_UNIT < whole * SHARE_MAX;
}

void *sl_objects_delta_make(struct sl_objects *node, const struct sl_objects_copy *copy,
                            uint64_t *bytes, uint64_t *base)
{
    struct base_call of = {.call = {.run = take_base_here}, .copy = copy};
    const uint32_t count = copy->manifest.block_count;
    if (copy->pooled == NULL || count < SL_OBJECTS_DELTA_BLOCKS_MIN ||
        sl_objects_call(node, &of.call) != 0 || of.base == NULL) {
        return NULL;
    }
    struct making making = {.copy = copy, .base = of.base};
    /* Pages that are not written take no memory. */
    making.delta = malloc(count * sizeof(uint32_t) + copy->info.bytes);
    const bool is_made = making.delta != NULL &&
                         sl_objects_delta_coder_create(&making.coder) == 0 &&
                         (count < SAMPLE * SAMPLE || encode(&making, SAMPLE)) && encode(&making, 1);
    *bytes = making.bytes;
    *base = of.base->version;
    of.call.run = put_base_here;
    (void)sl_objects_call(node, &of.call);
    sl_objects_delta_coder_destroy(&making.coder);
    if (!is_made) {
        free(making.delta);
    }
    return is_made ? making.delta : NULL;
}
