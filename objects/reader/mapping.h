/* A mapping makes a version readable here: it has the manifests of all parts, and their images in
 * this process's memory. Those in a node's pool are mapped read-only, each into one range of
 * addresses, as the table of a view says (board.h). The mapping does not need the node any more,
 * but the node must keep the blocks in their slots.
 *
 * Opening checks all that the table and the manifests say. One thread; any thread. */
#ifndef SL_OBJECTS_READER_MAPPING_H
#define SL_OBJECTS_READER_MAPPING_H

#include "objects/catalogue/manifest.h"

struct sl_objects_table;

struct sl_objects_mapping_image {
    uint64_t bytes;
    const struct sl_objects_manifest *manifest;
    const struct sl_objects_place *places;
    uint64_t image_at; /* of the places: where the image begins */
    uint32_t place_count;

    /* Private: of an image in the pool. */
    struct sl_objects_manifest decoded;
    struct sl_objects_place place;
    uint8_t *mapped; /* its manifest, then its image */
    uint64_t mapped_bytes;
};

struct sl_objects_mapping {
    const struct sl_objects_table *table; /* mapped: of table_bytes */
    uint64_t table_bytes;
    uint32_t image_count;
    struct sl_objects_mapping_image images[SL_OBJECTS_PARTS_MAX];
};

/* Maps the table and what it describes. Closes no descriptor. pool_fd -1: all parts are in memory
 * of the application. is_own: of a node of this process, whose tables may have addresses. Errors,
 * with a reason: CORRUPT, NO_MEMORY, IO. */
int sl_objects_mapping_open(struct sl_objects_mapping *mapping, int table_fd, int pool_fd,
                            bool is_own, struct sl_reason *reason);

void sl_objects_mapping_close(struct sl_objects_mapping *mapping);

/* How many bytes of the images, taken together, are verified: from the first one on. */
uint64_t sl_objects_mapping_verified(const struct sl_objects_mapping *mapping);

#endif
