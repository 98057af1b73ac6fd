/* What a step is made of: operations as the caller gave them, and the requests that they become.
 * All of it lies in the step's own memory. An application thread builds it; from submit until the
 * step's parts have come back it is the reactors' to read, and each request's lower half is its
 * reactor's to write. */
#ifndef SL_WORKER_OPERATION_H
#define SL_WORKER_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "net/wire/request.h"
#include "worker/route.h"

struct sl_client;
struct sl_substep;

struct sl_table {
    struct sl_client *client;
    uint32_t id;
    struct sl_table_spec spec;
};

/* The sums that one shard made of (some of) the bags of a pooled pull. The shards' sums are added
 * in the order of shards by the application thread, so that the result depends on nobody's timing.
 */
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
    uint64_t start, count;  /* dense: elements; KV: count values in all */
    const void *gradients;  /* f32: rows, or elements [start, start + count); KV: values to push */
    void *values;           /* likewise; or the bags; KV_LENGTHS: u32[key_count] */
    const uint32_t *lens;   /* KV: values of each key; NULL: count / key_count */
    uint32_t command;       /* KV */
    struct sl_route route;  /* sparse and KV: made by submit */
    const uint64_t *firsts; /* KV: the first value of each shard's keys; made by submit */
    struct sl_partial *first_partial, **partials_end;
};

/* One array of a reply, and where it belongs. */
struct sl_read {
    struct sl_read *next;
    void *to;                /* contiguous when there are no places */
    const uint32_t *places;  /* row i belongs to the places[i]-th row of `to`; may be NULL */
    const uint64_t *grouped; /* [place_count]: equal neighbours share one row; may be NULL */
    uint32_t row_count, place_count;
    uint32_t row_bytes; /* dense: of an element; KV: of a value */
};

/* One message to one shard. */
struct sl_request {
    struct sl_request *next; /* in its part */
    struct sl_substep *substep;
    uint32_t shard;
    uint32_t body_bytes, tail_bytes;
    const uint8_t *body; /* prefix, sections and their bodies, in their final form */
    const void *tail;    /* further payload, in the caller's memory; or NULL */
    uint64_t reply_bytes;
    int32_t priority; /* among those that were never sent */
    uint32_t clock;   /* of its last read */
    struct sl_read *first_read;
    void *reply_buffer; /* the whole reply can be received here; or NULL */
    bool writes;        /* pushes, ticks or finishes: carried out once at most */
    bool ticks;         /* the iteration tick_clock */
    bool finishes;
    uint32_t tick_clock;

    /* The reactor's. The request is over when all four are false. */
    bool queued;          /* in its link's queue: waits for credit, or for the link to come back */
    bool in_flight;       /* its reply is awaited */
    bool tail_unsent;     /* the transport may still read the caller's memory */
    bool is_reply_buffer; /* the transport may still write the caller's memory */
    bool over;            /* counted by its part */
    struct sl_request *queue_prev, *queue_next;
    uint64_t id; /* since it was first sent; 0: the shard has not heard of it */
};

#endif
