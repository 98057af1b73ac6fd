/* What receive.c and read.c share. Owner reactor. */
#ifndef SL_NET_RDMA_RECEIVE_H
#define SL_NET_RDMA_RECEIVE_H

#include "net/rdma/internal.h"

enum sl_rdma_item_state {
    SL_RDMA_ITEM_WAITS,   /* LONG: no read was posted; all others stay so */
    SL_RDMA_ITEM_READING, /* the device reads */
    SL_RDMA_ITEM_READ     /* all of the payload is there */
};

/* A packet whose frames were not delivered yet. */
struct sl_rdma_item {
    struct sl_rdma_block *block; /* it lies in */
    uint32_t bytes;
    struct sl_rdma_packet head;
    struct sl_frame frame; /* all but FRAMES */
    enum sl_rdma_item_state state;
    uint32_t read_end;             /* READING: the work request that ends it */
    struct sl_rdma_block *staging; /* LONG: for a short payload; or on its way to the sink */
};

struct sl_rdma_receive {
    uint32_t head, tail; /* of the items */
    uint32_t reading;    /* items in this state */
    bool stayed;         /* a frame was delivered, and the connection was not handed over */
    /* Of the item at the head, if its payload goes to a sink. */
    uint8_t *sink;            /* NULL: not named yet */
    bool has_keys;            /* its keys were asked for */
    uint32_t have;            /* bytes of the payload that are there, or on their way */
    uint32_t in_hand;         /* of them in staging, to be copied to the sink */
    uint32_t local_sge_count; /* 0, has_keys: there are no keys; read by way of staging blocks */
    struct sl_rdma_local_sge spans[SL_RDMA_REMOTE_SGES];
    struct sl_rdma_block *orphans; /* that are read into for nobody any more */
    uint32_t orphans_end;          /* until so many work requests are completed */
    struct sl_rdma_item items[SL_RDMA_WINDOW_MAX];
};

static inline struct sl_rdma_item *sl_rdma_item_at(struct sl_rdma_receive *receive, uint32_t index)
{
    return &receive->items[index % SL_RDMA_WINDOW_MAX];
}

/* ---- receive.c --------------------------------------------------------------------------------
 */

/* Where frames begin in the packet of an item, behind its pieces. */
static inline const uint8_t *sl_rdma_item_frames(const struct sl_rdma_item *item)
{
    return item->block->at + sizeof(struct sl_rdma_packet) +
           sizeof(struct sl_rdma_remote_sge) *
               (item->head.remote_sge_count + item->head.reply_buffer_count);
}

/* Of the payload, how many came with the packet. */
static inline uint32_t sl_rdma_item_prefix(const struct sl_rdma_item *item)
{
    return item->head.frame_bytes - SL_FRAME_HEADER_BYTES;
}

/* ---- read.c -----------------------------------------------------------------------------------
 */

/* The payload of a LONG packet that is to be delivered next: goes on with it. True: it is READ. */
bool sl_rdma_read_next(struct sl_rdma_conn *conn, struct sl_rdma_item *item);

/* Begins to read short payloads of packets further behind, as far as that is possible now. */
void sl_rdma_read_ahead(struct sl_rdma_conn *conn);

/* Gives up what the item holds beside its packet. False: the device still writes there. */
bool sl_rdma_read_drop(struct sl_rdma_conn *conn, struct sl_rdma_item *item);

#endif
