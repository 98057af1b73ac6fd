/* The contents of a step: the operations of the caller and the requests made from them, all in the
 * step's memory. An application thread builds them. From submit until all substeps have returned,
 * the reactors read them, and the fields of a request from `queued` on belong to its reactor. */
#ifndef SL_WORKER_CLIENT_OPERATION_H
#define SL_WORKER_CLIENT_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/flags.h"
#include "net/wire/request.h"
#include "worker/client/route.h"

struct sl_client;
struct sl_substep;

/* In which precision the f32 values of messages travel. */
struct sl_encoding {
    enum sl_precision pull, push;
};

struct sl_table {
    struct sl_client *client;
    uint32_t id;
    uint32_t knows; /* SL_MESSAGE_SPEC_KNOWS of the oldest process that opened it */
    struct sl_table_spec spec;
    struct sl_encoding encoding;        /* of steps that have none of their own */
    struct sl_error_feedback *feedback; /* or NULL: gradients are rounded randomly */
};

/* One shard's sums of (some of) the bags of a pooled pull. The application thread adds them in the
 * order of shards, so that the result does not depend on timing. */
struct sl_partial {
    struct sl_partial *next;
    const uint32_t *bags; /* [bag_count] */
    uint32_t bag_count;
    const float *sums; /* [bag_count][dim] */
};

struct sl_operation {
    enum sl_request_op op;
    enum sl_pooling pooling;
    const struct sl_table *table;
    const uint64_t *keys;
    const uint32_t *bag_ends;
    uint32_t key_count, bag_count;
    enum sl_precision pull, push; /* of the values in messages; F32 where it has none */
    uint64_t seed;                /* of random rounding; no other operation of the thread has it */
    uint64_t start, count;        /* dense: elements; KV: count values in all */
    const void *gradients; /* f32: rows, or elements [start, start + count), to push or assign; */
                           /* KV: values to push */
    void *values;          /* likewise; or pooled bags; KV_LENGTHS: u32[key_count] */
    uint8_t *found;        /* FIND: [key_count] */
    uint32_t *lengths;     /* KV_PULL that asks for them: [key_count]; else NULL */
    bool zeros;            /* KV_PULL: keys without an array have values of 0 */
    /* SCAN, EVICT of this shard; start, count, command: as in the section; width: its bag_count;
     * values: the whole reply */
    const struct sl_request_scan *scan; /* NULL: EVICT */
    uint32_t shard, width;
    const uint32_t *lens;  /* KV: values of each key; NULL: count / key_count */
    uint32_t command;      /* KV; a push to another table: bits of its rate */
    struct sl_route route; /* set by submit */
    struct sl_partial *first_partial, **partials_end;
};

/* One array of a reply, and its destination. */
struct sl_read {
    struct sl_read *next;
    void *to;                /* contiguous if places is NULL */
    const uint32_t *places;  /* row i goes to row places[i] of `to`; may be NULL */
    const uint64_t *grouped; /* [place_count]: equal neighbours share one row; may be NULL */
    uint32_t row_count, place_count;
    uint32_t row_bytes;          /* at `to`; dense: of an element; KV: of a value */
    enum sl_precision precision; /* F32: the reply has the same bytes */
};

/* Bytes of the array in the reply, without padding. */
static inline uint64_t sl_read_bytes(const struct sl_read *read)
{
    const size_t row_bytes =
        read->precision == SL_PRECISION_F32
            ? read->row_bytes
            : sl_precision_row_bytes(read->precision, read->row_bytes / (uint32_t)sizeof(float));
    return (uint64_t)read->row_count * row_bytes;
}

/* One message to one shard. */
enum sl_tick_kind {
    SL_TICK_NONE,
    SL_TICK_ITERATION,
    SL_TICK_FINISH, /* of SL_REQUEST_CLOCK_FINISHED */
};

enum sl_request_wait {
    SL_REQUEST_QUEUED = 1,            /* in its connection's queue, for credit or a connection */
    SL_REQUEST_IN_FLIGHT = 2,         /* for its reply */
    SL_REQUEST_TAIL_UNSENT = 4,       /* the transport may still read the caller's memory */
    SL_REQUEST_REPLY_MEMORY_LENT = 8, /* the transport may still write the caller's memory */
};

struct sl_request {
    struct sl_request *next; /* of the substep */
    struct sl_substep *substep;
    uint32_t shard;
    uint32_t body_bytes, tail_bytes;
    const uint8_t *body; /* prefix, sections and their bodies, in wire format */
    const void *tail;    /* further payload, in the caller's memory; or NULL */
    uint64_t reply_bytes;
    enum sl_request_kind kind; /* of the section with most keys or elements */
    int32_t priority;          /* among requests never sent */
    uint32_t clock;            /* of its last read */
    struct sl_read *first_read;
    void *reply_memory;     /* can receive the whole reply; or NULL */
    bool writes;            /* pushes, ticks or finishes: applied at most once */
    bool is_once;           /* fails when its connection is lost: EVICT */
    enum sl_tick_kind tick; /* ITERATION: tick_clock */
    uint32_t tick_clock;

    /* The reactor's. The request is over when it waits for nothing. */
    uint32_t waits; /* bits, of enum sl_request_wait */
    bool over;      /* counted by its substep */
    struct sl_request *queue_prev, *queue_next;
    uint64_t queued_ns; /* when it was queued last */
    uint64_t id;        /* since it was first sent; 0: never sent */
};

#endif
