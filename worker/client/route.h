/* Routing assigns the keys of an operation to shards by a stable counting sort: within a shard,
 * keys keep the caller's order. The result is in scratch memory. The step's thread. */
#ifndef SL_WORKER_CLIENT_ROUTE_H
#define SL_WORKER_CLIENT_ROUTE_H

#include <stdint.h>

#include "core/err.h"
#include "worker/client/scratch.h"

/* Shard s owns keys[starts[s] .. starts[s + 1]). Do not copy: starts may point to `whole`. */
struct sl_route {
    const uint64_t *keys; /* by owner */
    const uint32_t
        *labels; /* of each key: its index in the caller's array, or its bag; NULL: i -> i */
    const uint32_t *starts; /* [shard_count + 1] */
    uint32_t whole[2];      /* starts of a single shard */
};

/* Routes keys; labels are indices. With one shard the result points to `keys`. Errors:
 * NO_MEMORY. */
int sl_route_rows(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  uint32_t shard_count, struct sl_route *out);

/* Routes keys in bags; labels are bags, ascending within a shard. Errors: NO_MEMORY. */
int sl_route_bags(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  const uint32_t *bag_ends, uint32_t shard_count, struct sl_route *out);

/* Copies keys and labels (NULL: i + first_label) so that equal keys are adjacent, in their order.
 * For a push that is split: all occurrences of a key must be in one message. Radix sort by key.
 * Errors: NO_MEMORY. */
int sl_route_group(struct sl_scratch *scratch, const uint64_t *keys, const uint32_t *labels,
                   uint32_t first_label, uint32_t key_count, const uint64_t **out_keys,
                   const uint32_t **out_labels);

#endif
