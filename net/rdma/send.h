/* What send.c and its parts share. Owner reactor.
 *
 *   send.c     the queue of frames, and what is reported of them
 *   pack.c     frames to packets
 *   long.c     what fits no packet: pieces to be read, or writes to where the peer wants it
 *   landing.c  requests whose answer has a place to go to, on both sides
 *   chain.c    work requests, posted together
 *   credit.c   how many packets either side may send */
#ifndef SL_NET_RDMA_SEND_H
#define SL_NET_RDMA_SEND_H

#include "net/rdma/internal.h"

/* A part of a packet below this is copied: a copy costs less than a key, a further piece of the
 * work request, and a completion that must be waited for before `sent`. */
#define SL_RDMA_GATHER_BYTES 1024U

/* A frame that was taken, or with SL_TRANSPORT_MULTI_FRAME several. */
struct sl_rdma_entry {
    struct sl_transport_frame frame;
    uint32_t device_due; /* waits_device: for so many work requests to be completed */
    uint32_t peer_due;   /* waits_peer: for so many LONG packets to be read */
    bool waits_device, waits_peer;
    struct sl_rdma_block *blocks; /* STAGING: copies of unregistered memory, until it is reported */
};

/* A block that the device reads. */
struct sl_rdma_flight {
    uint32_t number; /* work requests that must be completed */
    struct sl_rdma_block *block;
};

struct sl_rdma_reply_buffers; /* landing.c */

struct sl_rdma_send {
    uint32_t head, next, tail; /* of the queue: not reported from, not packed from, end */
    uint32_t offset;           /* bytes of the head of the entry at `next` that are packed */
    bool wants_room;           /* owes the upper layer a `writable` */
    bool wait_buffer;          /* for a block, or memory */
    bool refused;              /* the frame at `next`: no memory could be registered for it, */
    uint32_t refused_round;    /* the last time in this round of retries, */
    uint64_t refused_since_ns; /* and the first time then */
    bool stall_told;           /* the peer knows that its window is too small */
    uint32_t notes_unheard;    /* NOTEs sent since the peer was heard last */
    uint32_t signalled;        /* the last work request that reports its completion */
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

/* ---- chain.c ----------------------------------------------------------------------------------
 */

#define SL_RDMA_SEND_BATCH      32U
#define SL_RDMA_SEND_BATCH_SGES 160U
#define SL_RDMA_FRONT_BYTES     (sizeof(struct sl_rdma_packet) + 2 * SL_RDMA_REMOTE_SGES * 16)

/* Work requests of one queue pair, and what those that are inline refer to; on the stack, and not
 * cleared. */
struct sl_rdma_send_batch {
    struct sl_rdma_conn *conn;
    uint32_t count, sge_count;
    bool wants_signal; /* something waits for the last of them */
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

/* Makes sure that so many work requests with so many pieces in all can be added; posts what is
 * there if they would not fit. False: the send queue is full, or the connection has ended. */
bool sl_rdma_send_batch_reserve(struct sl_rdma_send_batch *batch, uint32_t requests, uint32_t sges);

/* Adds one without pieces. kind: SL_RDMA_WR_*. */
struct ibv_send_wr *sl_rdma_send_batch_add(struct sl_rdma_send_batch *batch, uint32_t kind,
                                           enum ibv_wr_opcode opcode);
void sl_rdma_send_batch_add_piece(struct sl_rdma_send_batch *batch, const void *at, uint32_t bytes,
                                  uint32_t key);

/* How many work requests are completed when the last one that was added is. */
static inline uint32_t sl_rdma_send_batch_number(const struct sl_rdma_send_batch *batch)
{
    return batch->conn->link.sends_posted + batch->count;
}

/* Posts what is there. False: it failed, and the connection has ended. */
bool sl_rdma_send_batch_post(struct sl_rdma_send_batch *batch);

/* The block goes back to its pool when the last one that was added is completed. */
void sl_rdma_send_batch_keep_block(struct sl_rdma_send_batch *batch, struct sl_rdma_block *block);

/* ---- pack.c -----------------------------------------------------------------------------------
 */

#define SL_RDMA_PARTS 48U

/* A packet that is being made. */
struct sl_rdma_packet_builder {
    enum sl_rdma_packet_kind kind;
    uint8_t flags;
    uint8_t remote_sge_count, reply_buffer_count;
    uint32_t frame_bytes, part_count;
    struct sl_rdma_block *block; /* SEND: for what cannot go inline; NULL: not taken yet */
    struct sl_rdma_remote_sge remote_sges[SL_RDMA_REMOTE_SGES], reply_buffer[SL_RDMA_REMOTE_SGES];
    struct sl_rdma_part {
        const uint8_t *at;
        uint32_t bytes;
    } parts[SL_RDMA_PARTS];
};

/* A frame of an entry, as it lies. */
struct sl_rdma_view {
    struct sl_rdma_entry *entry;
    const uint8_t *head; /* the header, and what lies behind it */
    const uint8_t *tail; /* of the payload */
    uint32_t head_bytes, tail_bytes;
    uint32_t head_left; /* of the entry's head, this frame's included */
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

/* Adds the packet to the chain, which has room reserved for one work request with all its pieces.
 * False: it needs a block, and there is none. *by_reference: parts of it stay where they are until
 * it is completed. */
bool sl_rdma_packet_builder_emit(struct sl_rdma_send_batch *batch,
                                 struct sl_rdma_packet_builder *builder, bool *by_reference);

/* Makes one packet of the next frames in the queue, if there are any. False: no more can be made
 * now. */
bool sl_rdma_pack(struct sl_rdma_send_batch *batch);

/* ---- long.c -----------------------------------------------------------------------------------
 */

/* The frame is sent otherwise than in a packet of FRAMES. */
bool sl_rdma_long_is(const struct sl_rdma_conn *conn, const struct sl_rdma_view *view);

/* Makes its packet, and the work requests in front of it. False: not now, or the connection has
 * ended. */
bool sl_rdma_long_pack(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view,
                       bool more);

/* The frames of the entry need nothing more. */
void sl_rdma_long_drop(struct sl_rdma_entry *entry);

/* ---- landing.c --------------------------------------------------------------------------------
 */

/* Memory of ours where the answer to this request may be written, as pieces for the peer. Returns
 * their count; 0: it goes without. */
uint8_t sl_rdma_reply_buffer_export(struct sl_rdma_conn *conn, uint64_t request_id, void *at,
                                    uint32_t bytes, struct sl_rdma_remote_sge *remote_sges);

/* The answer is there, whatever way it came, or the request was not sent. */
void sl_rdma_reply_buffer_unexport(struct sl_rdma_conn *conn, uint64_t request_id);

/* Of the peer's request of this id; NULL: none of so many bytes. Returns their number in *count. */
const struct sl_rdma_remote_sge *sl_rdma_reply_buffer_find(const struct sl_rdma_conn *conn,
                                                           uint64_t request_id, uint32_t bytes,
                                                           uint32_t *count);

/* The peer's request is answered. */
void sl_rdma_reply_buffer_forget(struct sl_rdma_conn *conn, uint64_t request_id);
void sl_rdma_reply_buffer_close(struct sl_rdma_conn *conn);

/* ---- credit.c ---------------------------------------------------------------------------------
 */

/* What every packet says beside its kind; the peer counts as told. */
void sl_rdma_credit_tell(struct sl_rdma_conn *conn, struct sl_rdma_packet *packet);

/* What a packet of the peer's says. Errors: PROTOCOL. */
int sl_rdma_credit_heard(struct sl_rdma_conn *conn, const struct sl_rdma_packet *packet);

/* A counted packet of the peer's needs its buffer no more. */
void sl_rdma_credit_consumed(struct sl_rdma_conn *conn);

/* The peer must be told something though there is nothing to send. */
bool sl_rdma_credit_owes(const struct sl_rdma_conn *conn);

static inline bool sl_rdma_credit_left(const struct sl_rdma_conn *conn)
{
    return conn->counted_sent != conn->limit_theirs;
}

#endif
