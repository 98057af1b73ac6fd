/* Routing assigns the keys of an operation to shards by a stable counting sort: within a shard,
 * keys keep the caller's order. The result, in scratch memory, has a part for each shard that the
 * operation touches; no other shard costs anything. The step's thread. */
#ifndef SL_WORKER_CLIENT_ROUTE_H
#define SL_WORKER_CLIENT_ROUTE_H

#include <stdint.h>

#include "core/err.h"
#include "worker/client/scratch.h"

#define SL_ROUTE_END UINT32_MAX

/* What an operation has for one shard. */
struct sl_route_part {
    uint32_t shard;            /* SL_ROUTE_END: behind the last part */
    uint32_t first, key_count; /* keys[first .. first + key_count) */
    uint64_t start, count;     /* dense: elements; KV: values by index in the caller's array */
};

struct sl_route {
    const uint64_t *keys; /* by owner */
    const uint32_t
        *labels; /* of each key: its index in the caller's array, or its bag; NULL: i -> i */
    const struct sl_route_part *next; /* of the parts, in ascending order of shards: not encoded */
};

/* Returns room for parts on `shard_count` shards, but for no more than `count`, and for the end.
 * NULL: out of memory. */
struct sl_route_part *sl_route_take_parts(struct sl_scratch *scratch, uint64_t count,
                                          uint32_t shard_count);

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
