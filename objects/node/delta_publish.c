/* The publisher's side of deltas. */
#include <stdlib.h>
#include <string.h>

#include "objects/node/call.h"
#include "objects/node/delta.h"
#include "objects/node/delta_code.h"
#include "objects/node/node.h"

#define SAMPLE     16 /* of so many blocks one shows whether a delta pays */
#define SHARE_MAX  7  /* tenths of the part's bytes */
#define SHARE_UNIT 10

/* The base of a publication, pinned until the delta is made. */
struct base_call {
    struct sl_objects_call call;
    const struct sl_objects_copy *copy;
    struct sl_objects_copy *base; /* NULL: there is none */
    const char *name;             /* with version: whose deltas are withdrawn */
    uint64_t version;
};

/* A delta in the making. */
struct making {
    const struct sl_objects_copy *copy, *base;
    struct sl_objects_delta_coder *coder;
    uint8_t *delta; /* header, lengths, blocks */
    uint64_t bytes, room;
    uint32_t tensor; /* that has the middle of the last block */
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

static uint8_t *block_of(const struct sl_objects_copy *copy, uint32_t block)
{
    return copy->places[sl_objects_copy_manifest_blocks(copy) + block].base;
}

/* Bytes of an element in the middle of the block. */
static uint32_t width_of(struct making *making, uint32_t block)
{
    const struct sl_objects_manifest *manifest = &making->copy->manifest;
    const uint64_t middle = (uint64_t)block * SL_OBJECTS_BLOCK_BYTES +
                            sl_objects_manifest_block_bytes(manifest, block) / 2;
    const struct sl_objects_tensor *tensor = &manifest->tensors[making->tensor];
    while (making->tensor + 1 < manifest->tensor_count &&
           tensor->offset + tensor->bytes <= middle) {
        tensor = &manifest->tensors[++making->tensor];
    }
    const uint32_t width = sl_objects_type_bytes(tensor->type);
    return width == 0 ? 1 : width;
}

static bool is_equal(const struct making *making, uint32_t block)
{
    const struct sl_objects_manifest *manifest = &making->copy->manifest,
                                     *base = &making->base->manifest;
    return block < base->block_count &&
           sl_hash_128_equal(manifest->digests[block], base->digests[block]);
}

/* Appends the block. Returns its length; 0: it is equal, or pays as a whole, only. */
static uint32_t encode_block(struct making *making, uint32_t block)
{
    const struct sl_objects_copy *copy = making->copy, *base = making->base;
    const uint32_t bytes = sl_objects_manifest_block_bytes(&copy->manifest, block);
    const uint64_t left = making->room - making->bytes;
    if (block >= base->manifest.block_count || is_equal(making, block) ||
        sl_objects_manifest_block_bytes(&base->manifest, block) < bytes) {
        return 0;
    }
    return sl_objects_delta_encode(making->coder, width_of(making, block), block_of(base, block),
                                   block_of(copy, block), bytes, making->delta + making->bytes,
                                   left < bytes ? (uint32_t)left : bytes - bytes / 8);
}

/* Whether a sample of the blocks that are not equal becomes shorter. */
static bool pays(struct making *making)
{
    const struct sl_objects_manifest *manifest = &making->copy->manifest;
    uint64_t whole = 0, encoded = 0;
    for (uint32_t i = 0; i < manifest->block_count;
         i += manifest->block_count < SAMPLE * SAMPLE ? 1 : SAMPLE) {
        const uint32_t bytes = sl_objects_manifest_block_bytes(manifest, i);
        const uint32_t length = encode_block(making, i);
        whole += is_equal(making, i) ? 0 : bytes;
        encoded += is_equal(making, i) ? 0 : length != 0 ? length : bytes;
    }
    making->tensor = 0;
    return whole == 0 || encoded * SHARE_UNIT < whole * SHARE_MAX;
}

/* Returns false if there is no memory, or the delta does not pay. */
static bool make(struct making *making)
{
    const struct sl_objects_copy *copy = making->copy;
    const uint32_t count = copy->manifest.block_count;
    const uint64_t head = SL_OBJECTS_DELTA_HEADER_BYTES + count * sizeof(uint32_t);
    const struct sl_objects_delta_header header = {.base = making->base->version,
                                                   .base_digest = making->base->info.digest,
                                                   .digest = copy->info.digest,
                                                   .block_count = count};
    making->bytes = head;
    making->room = head + copy->info.bytes / SHARE_UNIT * SHARE_MAX;
    making->delta = malloc(making->room); /* pages that are not written take no memory */
    if (making->delta == NULL || sl_objects_delta_coder_create(&making->coder) != 0) {
        return false;
    }
    sl_objects_delta_header_encode(&header, making->delta);
    bool is_worth = pays(making);
    for (uint32_t i = 0; is_worth && i < count; i++) {
        const uint32_t length = encode_block(making, i);
        memcpy(making->delta + SL_OBJECTS_DELTA_HEADER_BYTES + i * sizeof length, &length,
               sizeof length);
        making->bytes += length;
    }
    return is_worth && making->bytes > head;
}

void *sl_objects_delta_make(struct sl_objects *node, const struct sl_objects_copy *copy,
                            uint64_t *bytes, uint64_t *base)
{
    struct base_call of = {.call = {.run = take_base_here}, .copy = copy};
    if (copy->pooled == NULL || copy->manifest.block_count < SL_OBJECTS_DELTA_BLOCKS_MIN ||
        sl_objects_call(node, &of.call) != 0 || of.base == NULL) {
        return NULL;
    }
    struct making making = {.copy = copy, .base = of.base};
    const bool is_made = make(&making);
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

static void forget_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct base_call *of = SL_CONTAINER_OF(call, struct base_call, call);
    sl_objects_delta_withdraw(node, of->name, of->version);
    sl_objects_answer(call, 0, "forgotten");
}

void sl_objects_delta_forget(struct sl_objects *node, const char *name, uint64_t version)
{
    struct base_call of = {.call = {.run = forget_here}, .name = name, .version = version};
    (void)sl_objects_call(node, &of.call);
}
