/* Packets to frames. Owner reactor. */
#ifndef SL_NET_RDMA_RECEIVE_H
#define SL_NET_RDMA_RECEIVE_H

#include "net/rdma/state.h"

enum sl_rdma_item_state {
    SL_RDMA_ITEM_WAITS,   /* LONG: no read is posted; packets of other kinds keep this state */
    SL_RDMA_ITEM_READING, /* the device reads */
    SL_RDMA_ITEM_READ     /* the payload is complete */
};

/* A packet with undelivered frames. */
struct sl_rdma_item {
    struct sl_rdma_block *block; /* holds the packet */
    uint32_t bytes;
    struct sl_rdma_packet head;
    struct sl_frame frame; /* of all kinds but FRAMES */
    enum sl_rdma_item_state state;
    uint32_t read_end;             /* READING: number of the last read */
    struct sl_rdma_block *staging; /* LONG: a short payload; or bytes to be copied to the sink */
};

struct sl_rdma_receive {
    uint32_t head, tail; /* of items */
    uint32_t reading;    /* items in state READING */
    /* The item at the head, if its payload goes to a sink. */
    uint8_t *sink;            /* NULL: not asked yet */
    bool has_keys;            /* keys of the sink were looked up */
    uint32_t have;            /* payload bytes that have arrived, or are being read */
    uint32_t in_hand;         /* of these in staging, to be copied to the sink */
    uint32_t local_sge_count; /* 0 with has_keys: the sink is not registered, read through staging
                                 blocks */
    struct sl_rdma_local_sge spans[SL_RDMA_REMOTE_SGES];
    struct sl_rdma_item items[SL_RDMA_WINDOW_MAX];
};

static inline struct sl_rdma_item *sl_rdma_item_at(struct sl_rdma_receive *receive, uint32_t index)
{
    return &receive->items[index % SL_RDMA_WINDOW_MAX];
}

/* The frames of an item's packet, behind its pieces. */
static inline const uint8_t *sl_rdma_item_frames(const struct sl_rdma_item *item)
{
    return item->block->at + sizeof(struct sl_rdma_packet) +
           sizeof(struct sl_rdma_remote_sge) *
               (item->head.remote_sge_count + item->head.reply_buffer_count);
}

/* Payload bytes that came with the packet. */
static inline uint32_t sl_rdma_item_prefix(const struct sl_rdma_item *item)
{
    return item->head.frame_bytes - SL_FRAME_HEADER_BYTES;
}

int sl_rdma_receive_open(struct sl_rdma_conn *conn);
void sl_rdma_receive_close(struct sl_rdma_conn *conn);

/* A packet has arrived in this block, which receive.c owns from here on. */
void sl_rdma_receive_block(struct sl_rdma_conn *conn, struct sl_rdma_block *block, uint32_t bytes);

/* A read that succeeded. */
void sl_rdma_receive_read_done(struct sl_rdma_conn *conn, uint32_t number);
/* Asks `sink` again, and reads and delivers what could not be before. True: work was done. */
bool sl_rdma_receive_visit(struct sl_rdma_conn *conn);
bool sl_rdma_receive_is_done(
    const struct sl_rdma_conn *conn); /* all received frames are delivered */
void sl_rdma_receive_release(struct sl_conn *conn, const struct sl_transport_message *message);

#endif
