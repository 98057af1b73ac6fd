#include "objects/reader/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "objects/node/board.h"
#include "objects/node/copy.h"

#define BLOCK SL_OBJECTS_BLOCK_BYTES

static uint64_t file_bytes(int fd)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0 ? (uint64_t)status.st_size : 0;
}

/* Maps the slots in this order into one range of addresses: each run of adjacent ones at once. */
static int map_slots(const uint32_t *slots, uint32_t count, int pool_fd,
                     struct sl_objects_mapping_image *image, struct sl_reason *reason)
{
    uint8_t *base =
        mmap(NULL, (uint64_t)count * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no room for the addresses of the image");
    }
    image->mapped = base;
    image->mapped_bytes = (uint64_t)count * BLOCK;
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && slots[i + run] == slots[i] + run; run++) {
        }
        if (mmap(base + (uint64_t)i * BLOCK, (uint64_t)run * BLOCK, PROT_READ,
                 MAP_SHARED | MAP_FIXED, pool_fd, (off_t)slots[i] * BLOCK) == MAP_FAILED) {
            return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                                  "too many mappings: raise vm.max_map_count");
        }
    }
    return 0;
}

static int map_part(const struct sl_objects_mapping *mapping,
                    const struct sl_objects_table_part *part, int pool_fd,
                    struct sl_objects_mapping_image *image, struct sl_reason *reason)
{
    const uint64_t manifest_bytes = part->manifest_bytes, pool_slots = file_bytes(pool_fd) / BLOCK;
    const uint64_t manifest_count = sl_objects_block_count(manifest_bytes);
    const uint64_t first = part->first_slot, count = part->slot_count;
    const uint64_t slots_max = (mapping->table_bytes - sizeof *mapping->table) / sizeof(uint32_t);
    const uint32_t *slots = mapping->table->slots + first;
    image->bytes = part->image_bytes;
    if (manifest_bytes == 0 || manifest_bytes > SL_OBJECTS_MANIFEST_BYTES ||
        image->bytes > SL_LIMIT_OBJECTS_IMAGE_BYTES || first + count > slots_max ||
        count != manifest_count + sl_objects_block_count(image->bytes)) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "the sizes in the view's table do not fit");
    }
    for (uint64_t i = 0; i < count; i++) {
        if (slots[i] >= pool_slots) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT, "slot %u is not in the pool", slots[i]);
        }
    }
    int err = map_slots(slots, (uint32_t)count, pool_fd, image, reason);
    err = err != 0
              ? err
              : sl_objects_manifest_decode(&image->decoded, image->mapped, manifest_bytes, reason);
    if (err == 0 && image->decoded.image_bytes != image->bytes) {
        err = sl_reason_fail(reason, SL_ERR_CORRUPT, "the manifest is of another image");
    }
    image->place = (struct sl_objects_place){.bytes = image->bytes,
                                             .base = image->mapped + manifest_count * BLOCK};
    image->manifest = &image->decoded;
    image->places = &image->place;
    image->place_count = 1;
    return err;
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
            image->image_at = sl_objects_copy_image_at(copy);
        } else {
            err = map_part(mapping, part, pool_fd, image, reason);
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
        if (image->mapped != NULL) {
            (void)munmap(image->mapped, image->mapped_bytes);
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
