/* Turns the routed operations of a step into requests in their final wire form, shard by shard, cut
 * so that neither a request nor its reply is longer than one frame may be.
 *
 * A cut falls between keys, bags' keys, or dense elements. All occurrences of a key in one push
 * stay in one request, so that the shard visits the row once: a push that must be cut has its keys
 * grouped, and gradients of equal keys are summed here, in their order. Arrays of a KV table are
 * cut between keys, and one that is itself longer than a message into pieces. Long dense gradients
 * and KV values are not copied: their request ends with them, in the caller's memory.
 *
 * Pure but for the scratch memory. */
#ifndef SL_WORKER_ENCODE_H
#define SL_WORKER_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/operation.h"
#include "worker/scratch.h"

/* Dense gradients and KV values of this many bytes and more are sent from the caller's memory. */
#define SL_ENCODE_TAIL_BYTES_MIN      (64U << 10)

/* A request with a tail has no longer body than this, since it is copied into the outbox. */
#define SL_ENCODE_TAIL_BODY_BYTES_MAX (4U << 10)

/* The least payload_bytes_max that any operation can be cut to: one row of the greatest dim. */
#define SL_ENCODE_PAYLOAD_BYTES_MIN   (64U << 10)

struct sl_encode_plan {
    struct sl_scratch *wire;  /* bodies */
    struct sl_scratch *notes; /* requests, reads, partial sums */
    struct sl_operation *operations;
    uint32_t operation_count;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* >= SL_ENCODE_PAYLOAD_BYTES_MIN */
    uint32_t clock;
    int32_t priority;
    bool lite; /* operations share requests that are received inline; else each has its own */
    bool tick; /* of `clock`, after `tick_at` operations; those behind it are of clock + 1 */
    uint32_t tick_at;
    bool finish; /* ends with a tick of SL_REQUEST_CLOCK_FINISHED, in a request of its own */
};

struct sl_encode_list {
    struct sl_request *first, *last;
    uint32_t count;
};

/* Routes every sparse and KV operation. Errors: NO_MEMORY. */
int sl_encode_route(const struct sl_encode_plan *plan);

/* Appends the requests for one shard. To be called for the shards in ascending order, which is the
 * order of the operations' partial sums. Errors: NO_MEMORY. */
int sl_encode_shard(const struct sl_encode_plan *plan, uint32_t shard, struct sl_encode_list *list);

#endif
