#include "objects/node/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/log.h"
#include "objects/node/cache.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/node.h"

#define POOL_FREE_MS 10000 /* no peer knows it */

int sl_objects_copy_create(const char *name, uint64_t version, uint32_t part,
                           const struct sl_objects_part *info, struct sl_objects_copy **out)
{
    struct sl_objects_copy *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "%s: out of memory", name);
    }
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    made->version = version;
    made->part = part;
    made->info = *info;
    sl_objects_manifest_init(&made->manifest);
    sl_list_init(&made->children.list);
    sl_list_init(&made->cache.uses);
    *out = made;
    return 0;
}

int sl_objects_copy_set_places(struct sl_objects_copy *copy, const struct sl_objects_place *image,
                               uint32_t count)
{
    const uint64_t image_at = sl_objects_copy_image_at(copy);
    copy->places = calloc(count + 1, sizeof *copy->places);
    copy->stored_manifest = calloc(1, copy->info.manifest_bytes + SL_OBJECTS_TENSOR_ALIGNMENT);
    if (copy->places == NULL || copy->stored_manifest == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "%s: out of memory", copy->name);
    }
    copy->places[0] = (struct sl_objects_place){.bytes = copy->info.manifest_bytes,
                                                .base = copy->stored_manifest};
    copy->place_count = count + 1;
    for (uint32_t i = 0; i < count; i++) {
        copy->places[i + 1] = image[i];
        copy->places[i + 1].offset += image_at;
    }
    return 0;
}

void sl_objects_copy_free(struct sl_objects_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    sl_assert(copy->memory.count == 0 && !sl_list_linked(&copy->link));
    sl_objects_manifest_fini(&copy->manifest);
    free(copy->record);
    free(copy->stored_manifest);
    free(copy->places);
    free(copy->verified.ranges);
    free(copy->stops.offsets);
    free(copy);
}

void sl_objects_copy_set_record(struct sl_objects_copy *copy,
                                const struct sl_objects_record *record)
{
    if (copy->record == NULL) {
        copy->record = malloc(sizeof *copy->record);
    }
    if (copy->record != NULL) {
        (void)snprintf(copy->note, sizeof copy->note, "%s", record->note);
        *copy->record = *record;
        copy->record->name = copy->name;
        copy->record->note = copy->note;
    }
}

void sl_objects_copy_put(struct sl_objects_copy *copy)
{
    sl_assert(copy->uses > 0);
    if (--copy->uses == 0) {
        sl_objects_copy_free(copy);
    }
}

/* The node's list */

struct sl_objects_copy *sl_objects_copy_find(struct sl_objects *node, const char *name,
                                             uint64_t version, uint32_t part)
{
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) {
        if (!copy->is_withdrawn && copy->part == part &&
            sl_objects_copy_is_of(copy, name, version)) {
            return copy;
        }
    }
    return NULL;
}

bool sl_objects_copy_exists(const struct sl_objects *node, const char *name, uint64_t version)
{
    SL_LIST_EACH (const struct sl_objects_copy, copy, link, &node->copies) {
        if (sl_objects_copy_is_of(copy, name, version) &&
            !(copy->is_withdrawn && copy->pooled != NULL)) {
            return true;
        }
    }
    return false;
}

/* Ranges */

/* Appends to the last range, if that is the same memory and no child knows it yet. */
static int add_range(struct sl_objects_copy *copy, uint64_t offset, const void *at, uint64_t bytes)
{
    const uint64_t address = (uintptr_t)at;
    struct sl_objects_range *last = copy->verified.range_count > copy->verified.sent
                                        ? &copy->verified.ranges[copy->verified.range_count - 1]
                                        : NULL;
    if (last != NULL && last->offset + last->bytes == offset &&
        last->address + last->bytes == address) {
        last->bytes += bytes;
        return 0;
    }
    if (!sl_array_make_room(&copy->verified.ranges, &copy->verified.range_capacity,
                            copy->verified.range_count, sizeof copy->verified.ranges[0])) {
        return SL_ERR_NO_MEMORY;
    }
    copy->verified.ranges[copy->verified.range_count++] =
        (struct sl_objects_range){.offset = offset, .address = address, .bytes = bytes};
    return 0;
}

/* Bytes [from, to) of the stored part. Those in no place lie between two tensors, and are zero:
 * children read them behind the manifest. */
static int copy_add_bytes(struct sl_objects_copy *copy, uint64_t from, uint64_t to)
{
    uint32_t i = sl_objects_place_find(copy->places, copy->place_count, from);
    int err = 0;
    while (err == 0 && from < to) {
        const struct sl_objects_place *place = i < copy->place_count ? &copy->places[i] : NULL;
        const bool is_gap = place == NULL || from < place->offset;
        const uint64_t end = place == NULL ? to
                             : is_gap      ? place->offset
                                           : place->offset + place->bytes;
        const uint64_t bytes = (end < to ? end : to) - from;
        sl_assert(!is_gap || bytes < SL_OBJECTS_TENSOR_ALIGNMENT);
        err = add_range(copy, from,
                        is_gap ? copy->stored_manifest + copy->info.manifest_bytes
                               : place->base + (from - place->offset),
                        bytes);
        from += bytes;
        i += is_gap || from < end ? 0 : 1;
    }
    return err;
}

int sl_objects_copy_add_manifest(struct sl_objects_copy *copy)
{
    return copy_add_bytes(copy, 0, copy->info.manifest_bytes);
}

int sl_objects_copy_add_block(struct sl_objects_copy *copy, uint32_t block)
{
    const uint64_t from = sl_objects_copy_image_at(copy) + (uint64_t)block * SL_OBJECTS_BLOCK_BYTES;
    const int err =
        copy_add_bytes(copy, from, from + sl_objects_manifest_block_bytes(&copy->manifest, block));
    copy->verified.count += err == 0 ? 1 : 0;
    const uint32_t first = sl_objects_copy_manifest_blocks(copy);
    while (copy->pooled != NULL &&
           first + copy->verified.beginning < copy->pooled->resident_count &&
           copy->pooled->blocks[first + copy->verified.beginning].is_verified) {
        copy->verified.beginning++;
    }
    return err;
}

int sl_objects_copy_add_first(struct sl_objects_copy *copy, uint32_t count)
{
    const uint64_t image_at = sl_objects_copy_image_at(copy);
    const uint64_t bytes = (uint64_t)count * SL_OBJECTS_BLOCK_BYTES;
    int err = sl_objects_copy_add_manifest(copy);
    err = err != 0
              ? err
              : copy_add_bytes(copy, image_at,
                               image_at + (bytes < copy->info.bytes ? bytes : copy->info.bytes));
    copy->verified.count = copy->verified.beginning = err == 0 ? count : 0;
    return err;
}

void sl_objects_copy_keep(struct sl_objects_copy *copy)
{
    struct sl_objects_pool_version *pooled = copy->pooled;
    for (uint32_t i = 0; pooled != NULL && i < pooled->block_count; i++) {
        sl_objects_pool_set_verified(pooled, i);
    }
    if (pooled != NULL) {
        pooled->keep = true;
    }
}

/* Stops */

void sl_objects_copy_set_stops(struct sl_objects_copy *copy, const uint64_t *stops, uint32_t count)
{
    uint64_t *made = count > 0 ? malloc(count * sizeof *made) : NULL;
    if (made != NULL) {
        memcpy(made, stops, count * sizeof *made);
        free(copy->stops.offsets);
        copy->stops.offsets = made;
        copy->stops.count = count;
    }
}

bool sl_objects_copy_stops_behind(const struct sl_objects_copy *copy, uint32_t block)
{
    const uint64_t begin = (uint64_t)block * SL_OBJECTS_BLOCK_BYTES;
    const uint64_t next_end = begin + (uint64_t)SL_OBJECTS_STRIPES * SL_OBJECTS_BLOCK_BYTES;
    for (uint32_t i = 0; i < copy->stops.count; i++) {
        if (copy->stops.offsets[i] > begin && copy->stops.offsets[i] <= next_end) {
            return true;
        }
    }
    return false;
}

/* Slots of the pool */

int sl_objects_copy_open_pool(struct sl_objects *node)
{
    int err = sl_objects_check_engine(node);
    if (err != 0) {
        return err;
    }
    sl_port_set_lock(node->ports);
    if (node->pool.base == NULL) {
        void *base;
        err = sl_transfer_memory_create(node->transfer, node->pool_bytes, -1,
                                        SL_TRANSFER_PEERS_READ, &base);
        if (err != 0) {
            err = sl_objects_fail(err, "the pool: %s", sl_transfer_last_error());
        } else if (sl_objects_pool_init(&node->pool, base, node->pool_bytes,
                                        sl_objects_cache_shrunk, node) != 0) {
            (void)sl_transfer_memory_free(node->transfer, &base, POOL_FREE_MS);
            err = sl_objects_fail(SL_ERR_NO_MEMORY, "the pool: out of memory");
        }
    }
    sl_port_set_unlock(node->ports);
    return err;
}

/* Lists the slots that the copy has got. */
static void add_slots(const struct sl_objects *node, struct sl_objects_copy *copy)
{
    const uint32_t manifest_blocks = sl_objects_copy_manifest_blocks(copy);
    for (uint32_t i = copy->place_count; i < copy->pooled->resident_count; i++) {
        const uint64_t offset = (uint64_t)i * SL_OBJECTS_BLOCK_BYTES;
        const uint64_t end = i < manifest_blocks
                                 ? copy->info.manifest_bytes
                                 : sl_objects_copy_image_at(copy) + copy->info.bytes;
        copy->places[i] = (struct sl_objects_place){
            .offset = offset,
            .bytes = end - offset < SL_OBJECTS_BLOCK_BYTES ? end - offset : SL_OBJECTS_BLOCK_BYTES,
            .base =
                node->pool.base + (uint64_t)copy->pooled->blocks[i].slot * SL_OBJECTS_BLOCK_BYTES};
    }
    copy->place_count = copy->pooled->resident_count;
}

int sl_objects_copy_reserve(struct sl_objects *node, struct sl_objects_copy *copy,
                            struct sl_reason *reason)
{
    const struct sl_objects_pool_key key = {
        .name = copy->name, .version = copy->version, .part = copy->part};
    const uint32_t manifest_blocks = sl_objects_copy_manifest_blocks(copy);
    const uint32_t count = manifest_blocks + copy->manifest.block_count;
    const uint32_t all = manifest_blocks + sl_objects_copy_block_count(copy);
    struct sl_objects_pool_version *version;
    struct sl_hash_128 *digests = calloc(count, sizeof *digests);
    if (copy->places == NULL) {
        copy->places = calloc(all, sizeof *copy->places);
    }
    if (digests == NULL || copy->places == NULL) {
        free(digests);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count; i++) { /* no other version shares blocks of the manifest */
        digests[i] = i < manifest_blocks ? (struct sl_hash_128){.low = copy->version}
                                         : copy->manifest.digests[i - manifest_blocks];
    }
    const int err =
        sl_objects_pool_reserve(&node->pool, &key, all, digests, count, &version, reason);
    free(digests);
    if (err != 0) {
        return err;
    }
    if (version->owner != NULL) {
        sl_objects_pool_unpin(&node->pool, version);
    }
    if (version->owner != NULL && version->owner != copy) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "%s@%" PRIu64 " is published here just now",
                              copy->name, copy->version);
    }
    copy->pooled = version;
    version->owner = copy;
    version->head_count = manifest_blocks;
    add_slots(node, copy);
    return 0;
}

/* Memory */

static int copy_compare(const void *a, const void *b)
{
    const uint8_t *x = ((const struct sl_transfer_memory *)a)->base;
    const uint8_t *y = ((const struct sl_transfer_memory *)b)->base;
    return x < y ? -1 : x > y;
}

/* Sorts the ranges and joins those that overlap or are less than the alignment of tensors apart, as
 * in a memory with the layout of an image: what is between is on a page of one of the two. Returns
 * how many are left. */
static uint32_t join(struct sl_transfer_memory *ranges, uint32_t count)
{
    uint32_t last = 0;
    if (count == 0) {
        return 0;
    }
    qsort(ranges, count, sizeof *ranges, copy_compare);
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t end = (uintptr_t)ranges[last].base + ranges[last].bytes;
        const uint64_t begin = (uintptr_t)ranges[i].base;
        if (begin >= end + SL_OBJECTS_TENSOR_ALIGNMENT) {
            ranges[++last] = ranges[i];
        } else if (begin + ranges[i].bytes > end) {
            ranges[last].bytes += begin + ranges[i].bytes - end;
        }
    }
    return last + 1;
}

int sl_objects_copy_register(struct sl_transfer *transfer, struct sl_objects_copy *const *copies,
                             uint32_t copy_count, const struct sl_object_extent *extents,
                             uint32_t count)
{
    struct sl_objects_memory *memory = &copies[0]->memory;
    struct sl_transfer_memory *ranges = calloc(count + copy_count, sizeof *ranges);
    uint32_t range_count = 0;
    memory->bases = calloc(count + copy_count, sizeof(void *));
    if (ranges == NULL || memory->bases == NULL) {
        free(ranges);
        free(memory->bases);
        *memory = (struct sl_objects_memory){0};
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (extents[i].bytes > 0) {
            ranges[range_count++] = (struct sl_transfer_memory){.base = extents[i].base,
                                                                .bytes = extents[i].bytes,
                                                                .access = SL_TRANSFER_PEERS_READ};
        }
    }
    range_count = join(ranges, range_count);
    for (uint32_t i = 0; i < copy_count; i++) {
        ranges[range_count++] = (struct sl_transfer_memory){
            .base = copies[i]->stored_manifest,
            .bytes = copies[i]->info.manifest_bytes + SL_OBJECTS_TENSOR_ALIGNMENT,
            .access = SL_TRANSFER_PEERS_READ};
    }
    for (uint32_t i = 0; i < range_count; i++) {
        memory->bases[i] = ranges[i].base;
    }
    const int err = sl_transfer_register(transfer, ranges, range_count);
    free(ranges);
    if (err == 0) {
        memory->count = range_count;
        return 0;
    }
    free(memory->bases);
    *memory = (struct sl_objects_memory){0};
    return range_count > SL_TRANSFER_BUFFERS_MAX
               ? sl_objects_fail(SL_ERR_TOO_LARGE,
                                 "the memory is in %u places, more than %d: put tensors side by "
                                 "side, or let them be copied (SL_ORIGIN_HOST)",
                                 range_count, SL_TRANSFER_BUFFERS_MAX)
               : sl_objects_fail(err, "%s", sl_transfer_last_error());
}

int sl_objects_memory_unregister(struct sl_transfer *transfer, struct sl_objects_memory *memory,
                                 uint32_t timeout_ms)
{
    if (memory->count == 0) {
        return 0;
    }
    const int err = sl_transfer_unregister(transfer, memory->bases, memory->count, timeout_ms);
    if (err != 0) {
        return sl_objects_fail(err, "%s", sl_transfer_last_error());
    }
    free(memory->bases);
    *memory = (struct sl_objects_memory){0};
    return 0;
}

int sl_objects_copy_discard(struct sl_objects *node, struct sl_objects_copy *copy,
                            uint32_t timeout_ms)
{
    const int err = sl_objects_memory_unregister(node->transfer, &copy->memory, timeout_ms);
    if (err != 0) {
        sl_log_error("objects: %s@%" PRIu64 ": its memory stays registered: %s", copy->name,
                     copy->version, sl_objects_last_error());
        return err;
    }
    sl_objects_copy_free(copy);
    return 0;
}
