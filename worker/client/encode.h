/* The encoder turns the routed operations of a step into requests in wire format, shard by shard.
 * It splits them so that neither a request nor its reply exceeds one frame.
 *
 * Splits fall between keys, keys of bags, or dense elements. All occurrences of a key in one push
 * stay in one request, so that the shard visits the row once: a push that must be split has its
 * keys grouped, and the gradients of equal keys are summed here, in their order; an assign keeps
 * the last row of equal keys. KV arrays are split between keys; an array longer than a message is
 * split into chunks. Long dense gradients and KV values of f32 are not copied: the request's tail
 * points to the caller's memory. Values of another precision are narrowed into the message.
 *
 * Allocates in scratch memory alone. The step's thread. */
#ifndef SL_WORKER_CLIENT_ENCODE_H
#define SL_WORKER_CLIENT_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/client/operation.h"
#include "worker/client/scratch.h"

/* From this size on, dense gradients and KV values are sent from the caller's memory. */
#define SL_ENCODE_TAIL_BYTES_MIN      (64U << 10)

/* The same size for KV values that are alone in a step: they have a message of their own anyway. */
#define SL_ENCODE_LONE_BYTES_MIN      (4U << 10)

/* Longest body of a request with a tail: the body is copied into the outbox. */
#define SL_ENCODE_TAIL_BODY_BYTES_MAX (4U << 10)

/* Lower bound of payload_bytes_max: one row of the largest dim. */
#define SL_ENCODE_PAYLOAD_BYTES_MIN   (64U << 10)

struct sl_encode_plan {
    struct sl_scratch *wire;  /* bodies */
    struct sl_scratch *notes; /* requests, reads, partial sums */
    struct sl_operation *operations;
    uint32_t operation_count;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* >= SL_ENCODE_PAYLOAD_BYTES_MIN */
    bool over_tcp;              /* some of the shards: long dense pushes go in short pieces */
    uint32_t clock;
    int32_t priority;
    bool batched; /* batched protocol: operations share short requests; else one request each */
    /* ITERATION: of `clock` after `tick_at` operations; later operations are of clock + 1.
     * FINISH: at the end, in its own request. */
    enum sl_tick_kind tick;
    uint32_t tick_at;
};

struct sl_encode_list {
    struct sl_request *first, *last;
    uint32_t count;
};

/* Routes every operation. Errors: NO_MEMORY. */
int sl_encode_route(const struct sl_encode_plan *plan);

/* Returns the first shard, of those from `from` on, to which the step sends requests: operations
 * touch it, or it receives the tick. From shard_count on: none. */
uint32_t sl_encode_next(const struct sl_encode_plan *plan, uint32_t from);

/* Appends the requests for one shard. Call for each shard of sl_encode_next: partial sums are added
 * in the order of shards. Errors: NO_MEMORY. */
int sl_encode_shard(const struct sl_encode_plan *plan, uint32_t shard, struct sl_encode_list *list);

#endif
