/* A part: the requests of one batch to one segment. Cuts them into slices, joins requests that
 * touch in both memories, and records what has become of each request. Pure; owner reactor.
 *
 * Slices are not queued: the part has a cursor. Only slices of a broken lane wait in a list, to be
 * sent again. */
#ifndef SL_NET_TRANSFER_PART_H
#define SL_NET_TRANSFER_PART_H

#include <starling_transfer.h>

#include "net/rma/initiator.h"
#include "net/transfer/schedule.h"

#define SL_TRANSFER_PART_END         UINT32_MAX /* no further item */
#define SL_TRANSFER_CAUSE_COUNT      8
#define SL_TRANSFER_PART_SMALL_BYTES (64U << 10)

struct sl_transfer_part;
struct sl_transfer_route;

/* Texts of errors, of one batch. Many requests fail for the same cause. The last text stands for
 * all that have no room. */
struct sl_transfer_causes {
    char texts[SL_TRANSFER_CAUSE_COUNT][SL_TRANSFER_REASON_BYTES];
    uint32_t count;
};

/* One request. */
struct sl_transfer_item {
    struct sl_transfer_route *route;
    uint8_t *local;
    uint64_t remote;    /* address at the target */
    uint64_t local_key; /* of the local registration */
    uint64_t key;       /* of the target's memory, and where in it */
    uint64_t offset;
    uint64_t bytes, left; /* left: not read or applied yet */
    uint32_t next;        /* of the same part; or SL_TRANSFER_PART_END */
    uint8_t op;           /* sl_transfer_op */
    uint8_t state;        /* sl_transfer_state */
    uint8_t cause;        /* why it failed; index into the causes */
    uint32_t near; /* rails that are preferred for its memory, as bits; 0: all are the same */
    int err;
};

/* What was sent in one piece: bytes of one item, and of those that follow it. */
struct sl_transfer_slice {
    struct sl_rma_slice rma;
    struct sl_transfer_part *part;
    struct sl_list *home; /* list of the free slices that it belongs to */
    uint64_t item_offset; /* where in its first item */
    uint32_t item;
    uint32_t attempts;
    bool is_posted;    /* as a one-sided operation, else as frames */
    bool needs_frames; /* an operation was refused: the target says why */
};

struct sl_transfer_part {
    struct sl_transfer_turn turn; /* in the route's schedule, while there is something to send */
    struct sl_list_link link;     /* of the parts of its route */
    struct sl_transfer_route *route;
    /* Everything was sent and answered, or dropped. */
    void (*over)(struct sl_transfer_part *part);
    void *batch;
    struct sl_transfer_item *items; /* of the batch */
    struct sl_transfer_causes *causes;
    uint64_t deadline_ns;
    uint32_t first, last; /* items */
    uint32_t at;          /* cursor: item, or SL_TRANSFER_PART_END */
    uint64_t at_offset;
    uint32_t in_flight;   /* slices that belong to a lane */
    struct sl_list again; /* slices to be sent again; not in flight */
    bool is_stopped;      /* sends nothing more */
    bool needs_frames;    /* no RDMA rail carries it: memory is not registered there */
    bool is_small;        /* all items have up to SL_TRANSFER_PART_SMALL_BYTES */
};

void sl_transfer_part_init(struct sl_transfer_part *part, struct sl_transfer_item *items,
                           struct sl_transfer_causes *causes);

/* Appends an item. */
void sl_transfer_part_add(struct sl_transfer_part *part, uint32_t item);

/* Returns the next slice: one that is to be sent again, else a new one from free_slices. NULL:
 * nothing is left to send, or none is free. */
struct sl_transfer_slice *sl_transfer_part_next(struct sl_transfer_part *part, uint32_t bytes_max,
                                                struct sl_list *free_slices);

/* Returns the item that the next slice begins with; NULL: nothing is left to send. */
const struct sl_transfer_item *sl_transfer_part_peek(struct sl_transfer_part *part);

/* Makes a slice the next one again: its lane could not send it, or has ended without an answer. */
void sl_transfer_part_return(struct sl_transfer_part *part, struct sl_transfer_slice *slice);

/* The slice is over, with an error or 0: records it with its items, and frees it. `cause` as of
 * sl_transfer_part_cause. */
void sl_transfer_part_done(struct sl_transfer_part *part, struct sl_transfer_slice *slice, int err,
                           uint8_t cause);

/* Sends nothing more: slices that wait are dropped, and no slice may be returned. */
void sl_transfer_part_stop(struct sl_transfer_part *part);

/* Everything was sent and answered. */
static inline bool sl_transfer_part_is_over(const struct sl_transfer_part *part)
{
    return part->in_flight == 0 && part->at == SL_TRANSFER_PART_END && sl_list_empty(&part->again);
}

/* Marks all items that have no result with the error and state. */
void sl_transfer_part_fail(struct sl_transfer_part *part, int err, enum sl_transfer_state state,
                           uint8_t cause);

/* Stores a text, once; returns its index. */
uint8_t sl_transfer_part_cause(struct sl_transfer_causes *causes, const char *text);

#endif
