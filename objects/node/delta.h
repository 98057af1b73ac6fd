/* Deltas: a version of a large part, in less bytes, for nodes whose pool has the version before it.
 *
 * The delta of NAME@VERSION, part P, is an object of its own, NAME~deltaP@VERSION, which its
 * publisher commits right before the version. Its note is the number of the base. Its bytes are one
 * length (u32) for each block of the version's image, and the encoded blocks (delta_code.h), in
 * order; length 0: the block is not in the delta.
 *
 * Nodes fetch it as any object; from it and the base they rebuild blocks, whose digests are those
 * of the version. A block that the delta lacks, or that is wrong, is fetched as a whole, as without
 * a delta; so no node needs a chain of deltas. Blocks that are equal in base and version share a
 * slot of the pool (pool.h): they are in no delta.
 *
 * Owner: the node's reactor; blocks are rebuilt on its offload thread. */
#ifndef SL_OBJECTS_NODE_DELTA_H
#define SL_OBJECTS_NODE_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include <starling_objects.h>

#define SL_OBJECTS_DELTA_BLOCKS_MIN 2 /* that are missing; fewer are read at once */

struct sl_objects_copy;
struct sl_objects_delta;

/* The name of the deltas of a part. False: it would be too long, and there are none. */
bool sl_objects_delta_name(const char *name, uint32_t part, char out[SL_OBJECTS_NAME_BYTES]);

/* Whether the name is that of deltas: nothing else is published under it. */
bool sl_objects_delta_is_name(const char *name);

/* The newest older version of the copy's part (version 0), or that one, if the node's pool has all
 * of it. NULL: it has not. */
struct sl_objects_copy *sl_objects_delta_find_base(struct sl_objects *node,
                                                   const struct sl_objects_copy *copy,
                                                   uint64_t version);

/* Rebuilding a copy in the pool, whose manifest is verified. Nothing else writes its memory before
 * `over`. */

struct sl_objects_delta_events {
    /* A block has been rebuilt, and matches its digest. */
    void (*rebuilt)(void *ctx, uint32_t block);
    /* Once, the last event, in a turn of its own: nothing uses the copy's memory any more, and the
     * delta is freed. Blocks that it did not bring are fetched as a whole. */
    void (*over)(void *ctx);
};

/* The functions that a fetch calls. It finds them in the node, since a delta is fetched, too: a
 * call of this file would close a circle. */
struct sl_objects_delta_functions {
    /* Looks for a delta, if the copy may have one that pays: origin HOST, at least two blocks are
     * missing, and the node's pool has an older version. NULL: there is none. */
    struct sl_objects_delta *(*start)(struct sl_objects *node, struct sl_objects_copy *copy,
                                      uint32_t missing_count, uint64_t deadline_ns,
                                      const struct sl_objects_delta_events *events, void *ctx);
    /* `over` follows, and no other event; nothing if that is on its way. */
    void (*cancel)(struct sl_objects_delta *delta);
};
extern const struct sl_objects_delta_functions sl_objects_delta_functions;

/* Withdraws this node's deltas of the version, of all parts. */
void sl_objects_delta_withdraw(struct sl_objects *node, const char *name, uint64_t version);

/* Publish */

/* A thread of the application: makes the delta of a copy in this node's pool, which is not in its
 * list yet, if the pool has an older version, *base, and the delta is less than 0.7 of the blocks
 * that differ. The caller frees it. NULL: there is none. */
void *sl_objects_delta_make(struct sl_objects *node, const struct sl_objects_copy *copy,
                            uint64_t *bytes, uint64_t *base);

#endif
