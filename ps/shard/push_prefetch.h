/* Prefetches the row of the next short push while the one before it runs: a push of one key waits
 * for its index bucket, then for its record, and has no other key to overlap these misses with.
 * Owner reactor. */
#ifndef SL_PS_SHARD_PUSH_PREFETCH_H
#define SL_PS_SHARD_PUSH_PREFETCH_H

#include "ps/shard/shard.h"

struct sl_shard_push_prefetch {
    uint64_t hash; /* of the first key */
    uint16_t table_id;
    bool is_push; /* else there is nothing to prefetch */
};

/* Before a request runs: prefetches the bucket of the next one. payload: of the next request, not
 * validated; NULL: unknown. */
struct sl_shard_push_prefetch sl_shard_push_prefetch_begin(const struct sl_shard *shard,
                                                           const uint8_t *payload,
                                                           size_t payload_bytes);

/* After the request has run: prefetches the record. */
void sl_shard_push_prefetch_end(const struct sl_shard *shard,
                                const struct sl_shard_push_prefetch *ahead);

#endif
