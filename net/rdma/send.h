/* Private to the send half of net/rdma. Owner reactor. */
#ifndef SL_NET_RDMA_SEND_H
#define SL_NET_RDMA_SEND_H

#include "net/rdma/internal.h"

/* A shorter part of a packet is copied: that costs less than a key, another SGE, and a
 * completion that `sent` must wait for. */
#define SL_RDMA_GATHER_BYTES 1024U

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
    bool refused;              /* the frame at `next` could not be registered: */
    uint32_t refused_round;    /* last in this round of retries, */
    uint64_t refused_since_ns; /* first at this time */
    bool stall_told;           /* the peer was sent STALLED for this limit */
    uint32_t notes_unheard;    /* CREDIT_UPDATEs sent since the last packet arrived */
    uint32_t signalled;        /* number of the last signalled work request */
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
           conn->link.established && !conn->link.disconnected && !conn->fin_sent;
}

/* send_batch.c */

#define SL_RDMA_SEND_BATCH      32U
#define SL_RDMA_SEND_BATCH_SGES 160U
#define SL_RDMA_FRONT_BYTES     (sizeof(struct sl_rdma_packet) + 2 * SL_RDMA_REMOTE_SGES * 16)

/* Work requests of one queue pair, posted together, and the data of inline ones. On the stack,
 * not cleared. */
struct sl_rdma_send_batch {
    struct sl_rdma_conn *conn;
    uint32_t count, sge_count;
    bool wants_signal; /* something waits for the last one */
    struct ibv_send_wr requests[SL_RDMA_SEND_BATCH];
    struct ibv_sge sges[SL_RDMA_SEND_BATCH_SGES];
    uint8_t fronts[SL_RDMA_SEND_BATCH][SL_RDMA_FRONT_BYTES];
};

static inline void sl_rdma_send_batch_begin(struct sl_rdma_send_batch *batch,
                                            struct sl_rdma_conn *conn)
{
    batch->conn = conn;
    batch->count = batch->sge_count = 0;
    batch->wants_signal = false;
}

/* Ensures room for so many work requests and SGEs; posts the batch if they do not fit. False:
 * the send queue is full, or the connection has ended. */
bool sl_rdma_send_batch_reserve(struct sl_rdma_send_batch *batch, uint32_t requests, uint32_t sges);

/* Adds a work request without SGEs. kind: SL_RDMA_WR_*. */
struct ibv_send_wr *sl_rdma_send_batch_add(struct sl_rdma_send_batch *batch, uint32_t kind,
                                           enum ibv_wr_opcode opcode);
void sl_rdma_send_batch_add_piece(struct sl_rdma_send_batch *batch, const void *at, uint32_t bytes,
                                  uint32_t key);

/* Value of sends_completed at which the last added request is complete. */
static inline uint32_t sl_rdma_send_batch_number(const struct sl_rdma_send_batch *batch)
{
    return batch->conn->link.sends_posted + batch->count;
}

/* Posts the batch. False: an error, and the connection has ended. */
bool sl_rdma_send_batch_post(struct sl_rdma_send_batch *batch);

/* Frees the block when the last added request is complete. */
void sl_rdma_send_batch_keep_block(struct sl_rdma_send_batch *batch, struct sl_rdma_block *block);

/* packet_builder.c */

#define SL_RDMA_PARTS 48U

/* A packet under construction. */
struct sl_rdma_packet_builder {
    enum sl_rdma_packet_kind kind;
    uint8_t flags;
    uint8_t remote_sge_count, reply_buffer_count;
    uint32_t frame_bytes, part_count;
    struct sl_rdma_block
        *block; /* SEND: for a packet that does not fit inline; NULL: taken on demand */
    struct sl_rdma_remote_sge remote_sges[SL_RDMA_REMOTE_SGES], reply_buffer[SL_RDMA_REMOTE_SGES];
    struct sl_rdma_part {
        const uint8_t *at;
        uint32_t bytes;
    } parts[SL_RDMA_PARTS];
};

/* One frame of an entry. */
struct sl_rdma_view {
    struct sl_rdma_entry *entry;
    const uint8_t *head; /* header, and payload behind it */
    const uint8_t *tail; /* rest of the payload */
    uint32_t head_bytes, tail_bytes;
    uint32_t head_left; /* bytes left of the entry's head, including this frame */
};

void sl_rdma_packet_builder_add(struct sl_rdma_packet_builder *builder, const uint8_t *at,
                                uint32_t bytes);

static inline uint32_t sl_rdma_packet_builder_bytes(const struct sl_rdma_packet_builder *builder)
{
    return (uint32_t)sizeof(struct sl_rdma_packet) +
           (uint32_t)sizeof(struct sl_rdma_remote_sge) *
               (builder->remote_sge_count + builder->reply_buffer_count) +
           builder->frame_bytes;
}

/* Adds the packet to the batch, which has room for one work request with all SGEs. False: no
 * SEND block. *by_reference: parts stay where they are until the request is complete. */
bool sl_rdma_packet_builder_emit(struct sl_rdma_send_batch *batch,
                                 struct sl_rdma_packet_builder *builder, bool *by_reference);

/* Makes one packet of the next queued frames. False: none can be made now. */
bool sl_rdma_pack(struct sl_rdma_send_batch *batch);

/* long_message.c */

/* Whether the frame needs a packet other than FRAMES. */
bool sl_rdma_long_is(const struct sl_rdma_conn *conn, const struct sl_rdma_view *view);

/* Makes the packet, and the work requests in front of it. False: not now, or the connection has
 * ended. */
bool sl_rdma_long_pack(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view,
                       bool more);

/* Frees what the frames of the entry needed. */
void sl_rdma_long_drop(struct sl_rdma_entry *entry);

/* reply_buffer.c */

/* Offers memory of this side as the reply buffer of a request, as pieces for the peer. Returns
 * their count; 0: the request goes without. */
uint8_t sl_rdma_reply_buffer_export(struct sl_rdma_conn *conn, uint64_t request_id, void *at,
                                    uint32_t bytes, struct sl_rdma_remote_sge *remote_sges);

/* The reply has arrived, by whatever path, or the request was not sent. */
void sl_rdma_reply_buffer_unexport(struct sl_rdma_conn *conn, uint64_t request_id);

/* The reply buffer of a request of the peer, with *count pieces; NULL: none of so many bytes. */
const struct sl_rdma_remote_sge *sl_rdma_reply_buffer_find(const struct sl_rdma_conn *conn,
                                                           uint64_t request_id, uint32_t bytes,
                                                           uint32_t *count);

/* The peer's request is answered. */
void sl_rdma_reply_buffer_forget(struct sl_rdma_conn *conn, uint64_t request_id);
void sl_rdma_reply_buffer_close(struct sl_rdma_conn *conn);

/* credit.c */

/* Fills limit, done and flags of an outgoing packet. */
void sl_rdma_credit_tell(struct sl_rdma_conn *conn, struct sl_rdma_packet *packet);

/* Takes limit, done and flags of a received packet. Errors: PROTOCOL. */
int sl_rdma_credit_heard(struct sl_rdma_conn *conn, const struct sl_rdma_packet *packet);

/* A counted packet of the peer has returned its buffer. */
void sl_rdma_credit_consumed(struct sl_rdma_conn *conn);

/* Whether the peer needs a CREDIT_UPDATE although nothing is queued. */
bool sl_rdma_credit_owes(const struct sl_rdma_conn *conn);

static inline bool sl_rdma_credit_left(const struct sl_rdma_conn *conn)
{
    return conn->counted_sent != conn->limit_theirs;
}

#endif
