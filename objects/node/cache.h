/* The cache is what the node's pool has of versions that others published: copies that are fetched
 * on demand, shared by all users in this process, and left in the pool after the last use. Unused
 * copies give up blocks for others, from the last block to the first, and the catalogue learns of
 * it; the next use fetches what is missing. Children that read a copy keep it as users do.
 *
 * Nothing is registered for a copy: its manifest lies in slots, too, and the pool is registered
 * once (sl_objects_copy_open_pool, before the first use). Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_CACHE_H
#define SL_OBJECTS_NODE_CACHE_H

#include "objects/node/copy.h"
#include "reactor/timer.h"

struct sl_objects_pool_version;

/* A use of one part of one version. Storage of the user from get until put, zero at first. */
struct sl_objects_cache_use {
    /* More is verified: the manifest, or blocks of the image. NULL: of no interest. */
    void (*grown)(struct sl_objects_cache_use *use);
    /* Once, in a later turn than get: 0: all blocks are verified; else the fetch has failed, or not
     * ended in time. The use stays until put. All callbacks may get and put any use. */
    void (*ended)(struct sl_objects_cache_use *use, int err, const char *reason);
    struct sl_objects_copy *copy; /* its slots keep their bytes until put */
    /* Private */
    struct sl_list_link link;
    struct sl_timer timer; /* of `ended`, if the part is complete, or of the deadline */
    bool has_ended;
};

/* Finds the part in the pool, or fetches it. news has the record (a NEWS, or the answer to FIND);
 * its plan is used if it is of this part. deadline_ns: of this use. After it the fetch continues
 * for other users.
 * Errors: NO_MEMORY; TOO_LARGE (the pool); EXISTS: this process has the part in memory of the
 * application, or publishes it just now. */
int sl_objects_cache_get(struct sl_objects *node, struct sl_objects_cache_use *use,
                         const struct sl_objects_message *news, uint32_t part,
                         uint64_t deadline_ns);

/* A fetch without users is cancelled, and what it has is dropped. */
void sl_objects_cache_put(struct sl_objects *node, struct sl_objects_cache_use *use);

/* An event of the pool: it has taken blocks of a copy. */
void sl_objects_cache_shrunk(void *node, struct sl_objects_pool_version *version);

#endif
