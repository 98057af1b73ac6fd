#include "objects/mapping.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "objects/board.h"
#include "objects/copy.h"

#define BLOCK SL_OBJECTS_BLOCK_BYTES

static uint64_t file_bytes(int fd)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0 ? (uint64_t)status.st_size : 0;
}

/* The slots of one part in the pool, checked. */
struct stored {
    int pool_fd;
    const uint32_t *slots; /* manifest_count, then image_count */
    uint32_t manifest_count, image_count, manifest_bytes;
};

static int read_manifest(const struct stored *stored, struct sl_objects_manifest *manifest,
                         struct sl_reason *reason)
{
    uint8_t *bytes = malloc(stored->manifest_bytes);
    if (bytes == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    int err = 0;
    for (uint32_t i = 0; i < stored->manifest_count && err == 0; i++) {
        const uint32_t at = i * BLOCK, left = stored->manifest_bytes - at;
        const size_t here = left < BLOCK ? left : BLOCK;
        if (pread(stored->pool_fd, bytes + at, here, (off_t)stored->slots[i] * BLOCK) !=
            (ssize_t)here) {
            err = sl_reason_fail(reason, SL_ERR_IO, "cannot read the pool");
        }
    }
    err = err != 0 ? err
                   : sl_objects_manifest_decode(manifest, bytes, stored->manifest_bytes, reason);
    free(bytes);
    return err;
}

/* Each run of adjacent slots is one mapping. */
static int map_image(const struct stored *stored, struct sl_objects_mapping_image *image,
                     struct sl_reason *reason)
{
    const uint32_t *slots = stored->slots + stored->manifest_count;
    uint8_t *base = NULL;
    image->mapped_bytes = (uint64_t)stored->image_count * BLOCK;
    if (image->mapped_bytes > 0) {
        base = mmap(NULL, image->mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (base == MAP_FAILED) {
        image->mapped_bytes = 0;
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no room for the addresses of the image");
    }
    image->place = (struct sl_objects_place){.bytes = image->bytes, .base = base};
    for (uint32_t i = 0, run; i < stored->image_count; i += run) {
        for (run = 1; i + run < stored->image_count && slots[i + run] == slots[i] + run; run++) {
        }
        if (mmap(base + (uint64_t)i * BLOCK, (uint64_t)run * BLOCK, PROT_READ,
                 MAP_SHARED | MAP_FIXED, stored->pool_fd, (off_t)slots[i] * BLOCK) == MAP_FAILED) {
            return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                                  "too many mappings: see vm.max_map_count");
        }
    }
    return 0;
}

static int open_stored(const struct sl_objects_mapping *mapping,
                       const struct sl_objects_table_part *part, int pool_fd,
                       struct sl_objects_mapping_image *image, struct sl_reason *reason)
{
    const uint64_t manifest_bytes = part->manifest_bytes, pool_slots = file_bytes(pool_fd) / BLOCK;
    const uint64_t first = part->first_slot, count = part->slot_count;
    const uint64_t slots_max = (mapping->table_bytes - sizeof *mapping->table) / sizeof(uint32_t);
    image->bytes = part->image_bytes;
    if (manifest_bytes == 0 || manifest_bytes > SL_OBJECTS_MANIFEST_BYTES ||
        image->bytes > SL_LIMIT_OBJECTS_IMAGE_BYTES || first + count > slots_max ||
        count != sl_objects_block_count(manifest_bytes) + sl_objects_block_count(image->bytes)) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "the sizes in the view's table do not fit");
    }
    const struct stored stored = {.pool_fd = pool_fd,
                                  .slots = mapping->table->slots + first,
                                  .manifest_bytes = (uint32_t)manifest_bytes,
                                  .manifest_count =
                                      (uint32_t)sl_objects_block_count(manifest_bytes),
                                  .image_count = (uint32_t)sl_objects_block_count(image->bytes)};
    for (uint64_t i = 0; i < count; i++) {
        if (stored.slots[i] >= pool_slots) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT, "slot %u is not in the pool",
                                  stored.slots[i]);
        }
    }
    int err = read_manifest(&stored, &image->decoded, reason);
    if (err == 0 && image->decoded.image_bytes != image->bytes) {
        err = sl_reason_fail(reason, SL_ERR_CORRUPT, "the manifest is of another image");
    }
    image->manifest = &image->decoded;
    image->places = &image->place;
    image->place_count = image->bytes > 0;
    return err != 0 ? err : map_image(&stored, image, reason);
}

static int map_table(struct sl_objects_mapping *mapping, int table_fd, struct sl_reason *reason)
{
    mapping->table_bytes = file_bytes(table_fd);
    if (mapping->table_bytes < sizeof *mapping->table) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "the view's table is too short");
    }
    const void *table = mmap(NULL, mapping->table_bytes, PROT_READ, MAP_SHARED, table_fd, 0);
    if (table == MAP_FAILED) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the view's table");
    }
    mapping->table = table;
    if (mapping->table->part_count == 0 || mapping->table->part_count > SL_OBJECTS_PARTS_MAX) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "the view's table has %u parts",
                              mapping->table->part_count);
    }
    return 0;
}

int sl_objects_mapping_open(struct sl_objects_mapping *mapping, int table_fd, int pool_fd,
                            bool is_own, struct sl_reason *reason)
{
    *mapping = (struct sl_objects_mapping){0};
    int err = map_table(mapping, table_fd, reason);
    const uint32_t count = err == 0 ? mapping->table->part_count : 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        const struct sl_objects_table_part *part = &mapping->table->parts[i];
        struct sl_objects_mapping_image *image = &mapping->images[mapping->image_count++];
        sl_objects_manifest_init(&image->decoded);
        if (is_own && part->slot_count == 0) {
            const struct sl_objects_copy *copy = (const struct sl_objects_copy *)part->copy;
            image->bytes = copy->info.bytes;
            image->manifest = &copy->manifest;
            image->places = copy->places;
            image->place_count = copy->place_count;
        } else {
            err = open_stored(mapping, part, pool_fd, image, reason);
        }
    }
    if (err != 0) {
        sl_objects_mapping_close(mapping);
    }
    return err;
}

void sl_objects_mapping_close(struct sl_objects_mapping *mapping)
{
    for (uint32_t i = 0; i < mapping->image_count; i++) {
        struct sl_objects_mapping_image *image = &mapping->images[i];
        sl_objects_manifest_fini(&image->decoded);
        if (image->mapped_bytes > 0) {
            (void)munmap(image->place.base, image->mapped_bytes);
        }
    }
    if (mapping->table != NULL) {
        (void)munmap((void *)(uintptr_t)mapping->table, mapping->table_bytes);
    }
    *mapping = (struct sl_objects_mapping){0};
}

uint64_t sl_objects_mapping_verified(const struct sl_objects_mapping *mapping)
{
    uint64_t verified = 0;
    for (uint32_t i = 0; i < mapping->image_count; i++) {
        const uint64_t here = sl_objects_table_verified(&mapping->table->parts[i]);
        verified += here;
        if (here < mapping->images[i].bytes) {
            break;
        }
    }
    return verified;
}
