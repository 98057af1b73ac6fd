/* Which keys of an operation go to which shard: a counting sort by owner, stable, so that within a
 * shard the keys keep the caller's order. Pure but for the scratch memory that holds the result. */
#ifndef SL_WORKER_ROUTE_H
#define SL_WORKER_ROUTE_H

#include <stdint.h>

#include "core/err.h"
#include "worker/scratch.h"

/* Shard s owns keys[starts[s] .. starts[s + 1]). Not to be copied: starts may point to `whole`. */
struct sl_route {
    const uint64_t *keys;   /* by owner */
    const uint32_t *labels; /* of each: its place in the caller's array, or its bag; NULL: i -> i */
    const uint32_t *starts; /* [shard_count + 1] */
    uint32_t whole[2];      /* that of a single shard */
};

/* Labels are places. With one shard the result refers to `keys` itself. Errors: NO_MEMORY. */
int sl_route_rows(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  uint32_t shard_count, struct sl_route *out);

/* Labels are bags, which therefore ascend within a shard. Errors: NO_MEMORY. */
int sl_route_bags(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  const uint32_t *bag_ends, uint32_t shard_count, struct sl_route *out);

/* A copy of keys and labels (NULL: i + first_label) in which equal keys stand together, in the
 * order that they had: for a push that is cut, where all of one key must go in one message. A radix
 * sort by key. Errors: NO_MEMORY. */
int sl_route_group(struct sl_scratch *scratch, const uint64_t *keys, const uint32_t *labels,
                   uint32_t first_label, uint32_t key_count, const uint64_t **out_keys,
                   const uint32_t **out_labels);

#endif
