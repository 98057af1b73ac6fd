#include "tests/support/wrong_delta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/node/delta.h"
#include "objects/node/delta_code.h"
#include "objects/node/publish.h"

static uint8_t *block_of(const struct sl_objects_copy *copy, uint32_t block)
{
    return copy->places[sl_objects_copy_manifest_blocks(copy) + block].base;
}

/* Returns the length. */
static uint64_t make(const struct sl_objects_copy *copy, const struct sl_objects_copy *base,
                     uint8_t *to, uint64_t room)
{
    static uint8_t wrong[SL_OBJECTS_BLOCK_BYTES];
    const uint32_t count = copy->manifest.block_count;
    struct sl_objects_delta_coder *coder;
    uint64_t end = count * sizeof(uint32_t);
    sl_assert(sl_objects_delta_coder_create(&coder) == 0);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bytes = sl_objects_manifest_block_bytes(&copy->manifest, i);
        uint32_t length = 0;
        if (i < base->manifest.block_count &&
            bytes <= sl_objects_manifest_block_bytes(&base->manifest, i)) {
            memcpy(wrong, block_of(copy, i), bytes);
            wrong[bytes / 2] ^= 1;
            length = sl_objects_delta_encode(coder, 1, block_of(base, i), wrong, bytes, to + end,
                                             (uint32_t)(room - end));
        }
        length = length > SL_OBJECTS_BLOCK_BYTES ? 0 : length;
        memcpy(to + i * sizeof length, &length, sizeof length);
        end += length;
    }
    sl_objects_delta_coder_destroy(&coder);
    return end;
}

int wrong_delta_publish(struct sl_objects *node, const char *name, uint64_t version,
                        uint32_t timeout_ms)
{
    char delta[SL_OBJECTS_NAME_BYTES], note[24];
    struct sl_objects_copy *copy = sl_objects_copy_find(node, name, version, 0);
    const struct sl_objects_copy *base =
        copy != NULL && copy->pooled != NULL ? sl_objects_delta_find_base(node, copy, 0) : NULL;
    if (base == NULL || !sl_objects_delta_name(name, 0, delta)) {
        return SL_ERR_NOT_FOUND;
    }
    const uint64_t room = copy->info.bytes + (1U << 20);
    struct sl_object_extent extent = {.base = malloc(room)};
    sl_assert(extent.base != NULL);
    extent.bytes = make(copy, base, extent.base, room);
    (void)snprintf(note, sizeof note, "%" PRIu64, base->version);
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = delta,
                                               .note = note,
                                               .version = version,
                                               .take_over = true,
                                               .delta = true};
    struct sl_publication *publication = NULL;
    int err = sl_publish_start(node, &options, timeout_ms, &publication);
    err = err != 0 ? err : sl_publish_bytes(publication, &extent, 1);
    err = err != 0 ? err : sl_publish_commit(publication, timeout_ms, &version);
    sl_publish_end(&publication);
    free(extent.base);
    return err;
}
