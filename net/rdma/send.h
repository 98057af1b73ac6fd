/* The send queue: frames to packets. Owner reactor. */
#ifndef SL_NET_RDMA_SEND_H
#define SL_NET_RDMA_SEND_H

#include "net/rdma/state.h"

/* A queued frame; several frames with SL_TRANSPORT_MULTI_FRAME. */
struct sl_rdma_entry {
    struct sl_transport_frame frame;
    uint32_t device_due; /* waits_device: value of sends_completed that ends the wait */
    uint32_t peer_due;   /* waits_peer: value of longs_done that ends the wait */
    bool waits_device, waits_peer;
    struct sl_rdma_block
        *blocks; /* STAGING: copies of unregistered memory, until the entry is reported */
};

/* A block that the device is reading. */
struct sl_rdma_flight {
    uint32_t number; /* value of sends_completed that frees the block */
    struct sl_rdma_block *block;
};

struct sl_rdma_reply_buffers; /* reply_buffer.c */

struct sl_rdma_send {
    uint32_t head, next, tail; /* queue: first not reported, first not packed, end */
    uint32_t offset;           /* bytes of the entry at `next` that are packed */
    bool wants_room;           /* the upper layer is due a `writable` */
    bool wait_buffer;          /* waits for a block, or for memory */
    struct {
        bool is_set;
        uint32_t round;     /* last in this round of retries, */
        uint64_t since_ns;  /* first at this time */
    } refusal;              /* of the registration of the frame at `next` */
    bool stall_told;        /* the peer was sent STALLED for this limit */
    uint32_t notes_unheard; /* CREDIT_UPDATEs sent since the last packet arrived */
    uint32_t signalled;     /* number of the last signalled work request */
    uint32_t flight_head, flight_tail;
    struct sl_rdma_reply_buffers *reply_buffers; /* NULL: none yet */
    struct sl_rdma_flight flights[SL_RDMA_SENDS];
    struct sl_rdma_entry queue[SL_RDMA_QUEUE];
};

static inline struct sl_rdma_entry *sl_rdma_entry_at(struct sl_rdma_send *send, uint32_t index)
{
    return &send->queue[index % SL_RDMA_QUEUE];
}

static inline bool sl_rdma_may_post(const struct sl_rdma_conn *conn)
{
    return (conn->phase == SL_RDMA_LIVE || conn->phase == SL_RDMA_DRAINING) &&
           conn->link.established && !conn->link.disconnected && !conn->end.fin_sent;
}

int sl_rdma_send_open(struct sl_rdma_conn *conn);
void sl_rdma_send_close(struct sl_rdma_conn *conn); /* frees what is held; reports nothing */

uint32_t sl_rdma_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);

/* Makes packets of queued frames, as far as credit and the send queue allow, and posts them. */
void sl_rdma_send_flush(struct sl_rdma_conn *conn);

/* Sends an uncounted packet: CREDIT_UPDATE, FIN. False: the send queue is full, retry later. */
bool sl_rdma_send_uncounted(struct sl_rdma_conn *conn, enum sl_rdma_packet_kind kind,
                            uint8_t flags);

/* Nothing is queued, outstanding at the device, or unread by the peer. */
bool sl_rdma_send_is_done(const struct sl_rdma_conn *conn);
/* Whether the peer owes an answer: a LONG packet is unread, or credit is used up (liveness.c). */
bool sl_rdma_send_waits(const struct sl_rdma_conn *conn);
/* All work requests up to `number` are complete. After the end failed ones count, too. */
void sl_rdma_send_completed(struct sl_rdma_conn *conn, uint32_t number);
void sl_rdma_send_report(struct sl_rdma_conn *conn); /* reports `sent` and `writable`; from poll */

#endif
