/* Publications: the layout of an image, its digests, and the commit. They live on a thread of the
 * application, which hashes, copies and registers; the node's reactor asks the catalogue, and then
 * serves the copy (copy.h). */
#ifndef SL_OBJECTS_PUBLISH_H
#define SL_OBJECTS_PUBLISH_H

#include "objects/node.h"

struct sl_publication {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES], note[SL_OBJECTS_NOTE_BYTES];
    uint64_t version, epoch; /* of the answer to BEGIN */
    enum sl_object_origin origin;
    uint32_t part, part_count;
    bool is_committed;
    bool is_uncertain; /* the commit had no answer in time: the catalogue may have taken it */
    struct sl_objects_manifest manifest;
    struct sl_objects_place *places; /* of the caller's memory, in the image */
    uint32_t place_count, place_capacity;
    /* Has taken over the manifest, and with CALLER the places. NULL before the first commit, and
     * once the node serves it. */
    struct sl_objects_copy *copy;
    bool is_ready; /* the copy has all bytes, in registered memory */
};

#endif
