/* Publications: the layout of an image, its digests, and the commit. They live on a thread of the
 * application, which hashes, copies and registers; the node's reactor asks the catalogue, and then
 * serves the copy (copy.h). */
#ifndef SL_OBJECTS_NODE_PUBLISH_H
#define SL_OBJECTS_NODE_PUBLISH_H

#include "objects/node/node.h"

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
    enum { SL_DELTA_NONE, SL_DELTA_WANTED, SL_DELTA_PUBLISHED } delta; /* PUBLISHED: perhaps */
    struct sl_objects_manifest manifest;
    struct sl_objects_place *places; /* of the caller's memory, in the image */
    uint32_t place_count, place_capacity;
    /* Has taken over the manifest, and with CALLER the places. NULL before the first commit, and
     * once the node serves it. */
    struct sl_objects_copy *copy;
    /* That store the part (store.h); none: this node serves it. */
    struct sl_publication_keeper {
        uint64_t node;
        char address[SL_OBJECTS_ADDRESS_BYTES];
    } keepers[SL_OBJECTS_KEEPERS_MAX];
    uint32_t keeper_count;
    bool is_kept_here; /* this node is one of them, and keeps the copy */
    bool is_served;    /* to keepers: the copy is in the node's list */
};

/* Errors: INVALID, with the text in sl_objects_last_error. */
int sl_publish_check(const struct sl_publish_options *options);

/* As sl_publish_begin, for options that are valid; also of deltas. */
int sl_publish_start(struct sl_objects *objects, const struct sl_publish_options *options,
                     uint32_t timeout_ms, struct sl_publication **out);

/* A publication without version and epoch. Errors: NO_MEMORY. */
int sl_publish_create(struct sl_objects *objects, const struct sl_publish_options *options,
                      struct sl_publication **out);

/* A thread of the application: sends STORE to the keepers, and waits for their answers. record: the
 * one to commit; or with its time: that of the commit. Errors, with the text in
 * sl_objects_last_error: AGAIN (a keeper is not there, or with time does not have the part),
 * DEADLINE, and those of keepers: IO, NO_MEMORY, EXISTS. */
int sl_publish_store_send(struct sl_publication *publication,
                          const struct sl_objects_record *record, uint64_t deadline_ns);

/* A thread of the application: sends a small part with its manifest to its agent, which stores and
 * commits it. Its digests are set. An error, with the text in sl_objects_last_error, says nothing
 * of the version: it is to be stored and committed as others are. */
int sl_publish_store_put(struct sl_publication *publication, uint32_t timeout_ms);

/* Ends the use of the copy that was stored. is_over: it is not needed here any more. Errors:
 * DEADLINE: it is still read. */
int sl_publish_store_release(struct sl_publication *publication, bool is_over, uint32_t timeout_ms);

#endif
