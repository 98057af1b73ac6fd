/* Tombstones name the parts that a catalogue has removed: a set of their hashes, in which each part
 * has a row, and the oldest hash of a full row makes room. A part whose tombstone was dropped
 * counts as not removed. Pure functions; one owner. */
#ifndef SL_OBJECTS_CATALOGUE_TOMBSTONES_H
#define SL_OBJECTS_CATALOGUE_TOMBSTONES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/hash.h"

#define SL_OBJECTS_TOMBSTONE_ROWS 8192 /* with 65,536 tombstones in 1 MiB */
#define SL_OBJECTS_TOMBSTONE_WAYS 8

/* Zero: no part was removed. */
struct sl_objects_tombstones {
    /* The newest of a row first; zero: free. */
    struct sl_hash_128 rows[SL_OBJECTS_TOMBSTONE_ROWS][SL_OBJECTS_TOMBSTONE_WAYS];
};

#define SL_OBJECTS_TOMBSTONE_WHOLE UINT32_MAX /* for `part`, without digest: the whole version */

/* The hash of a part: of its name, its numbers and the digest of its manifest. */
struct sl_hash_128 sl_objects_tombstone_of(const char *name, uint64_t version, uint32_t part,
                                           struct sl_hash_128 digest);

bool sl_objects_tombstones_has(const struct sl_objects_tombstones *tombstones,
                               struct sl_hash_128 of);

/* Adds it as the newest. Returns false if it was there before. */
bool sl_objects_tombstones_add(struct sl_objects_tombstones *tombstones, struct sl_hash_128 of);

void sl_objects_tombstones_remove(struct sl_objects_tombstones *tombstones, struct sl_hash_128 of);

#endif
