/* Publications: the layout of an image, its digests, and the commit. They live on a thread of the
 * application, which hashes, copies and registers; the node's reactor asks the catalogue, and then
 * serves the copy (copy.h). */
#ifndef SL_OBJECTS_PUBLISH_H
#define SL_OBJECTS_PUBLISH_H

#include "objects/node.h"

enum sl_publication_state {
    SL_PUBLICATION_OPEN,      /* takes tensors */
    SL_PUBLICATION_SEALED,    /* has its digests; its memory could not be used */
    SL_PUBLICATION_READY,     /* the copy has all bytes, in registered memory */
    SL_PUBLICATION_UNCERTAIN, /* a commit had no answer in time: the catalogue may have taken it */
    SL_PUBLICATION_COMMITTED
};

struct sl_publication {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES], note[SL_OBJECTS_NOTE_BYTES];
    uint64_t version, epoch; /* of the answer to BEGIN */
    enum sl_object_origin origin;
    uint32_t part, part_count;
    enum sl_publication_state state;
    struct sl_objects_manifest manifest;
    struct sl_objects_place *places; /* of the caller's memory, in the image */
    uint32_t place_count, place_capacity;
    /* Has taken over the manifest, and with CALLER the places. NULL before the first commit, and
     * once the node serves it. */
    struct sl_objects_copy *copy;
};

/* Errors: INVALID, with the text in sl_objects_last_error. */
int sl_publish_check(const struct sl_publish_options *options);

/* A publication without version and epoch. Errors: NO_MEMORY. */
int sl_publish_create(struct sl_objects *objects, const struct sl_publish_options *options,
                      struct sl_publication **out);

#endif
