/* Outgoing frames of one reactor, built in place: the maker reserves room, writes a frame into it,
 * and commits it to a connection. Consecutive frames lie one behind the other in a block, so that a
 * stream transport sends a burst as one piece. A block is free again when everything in it was
 * sent. Frames that a transport does not take at once are kept, in order, and offered again.
 *
 * Memory: one region, mapped at init; what was never needed is never touched. Half of it are blocks
 * of SL_OUTBOX_BLOCK_BYTES, the other half is for frames that are longer than a block. Owner
 * reactor. */
#ifndef SL_NET_OUTBOX_H
#define SL_NET_OUTBOX_H

#include "core/shared.h"
#include "core/warm.h"
#include "net/transport.h"

#define SL_OUTBOX_BLOCK_BYTES      (256U << 10)
#define SL_OUTBOX_UNIT_BYTES       (64U << 10) /* a long frame takes whole ones */

/* Less could not hold the longest frame, and would wait for it for ever. */
#define SL_OUTBOX_MEMORY_BYTES_MIN (2 * (SL_LIMIT_FRAME_PAYLOAD_BYTES + SL_OUTBOX_BLOCK_BYTES))

struct sl_outbox_block;
struct sl_outbox_waiting;

/* Frames of one connection that were committed and not yet sent, oldest first; embedded in the
 * upper layer's per-connection object, where it must stay. Zeroed at first. */
struct sl_outbox_queue {
    struct sl_outbox_waiting *first, *last;
    struct sl_outbox_waiting *offer; /* the first that the transport has not taken; NULL: none */
    uint32_t count;
    bool is_open; /* the last part of a frame has not been committed: others wait for it here: */
    struct sl_outbox_waiting *behind_first, *behind_last;
    uint32_t behind_count; /* of count */
};

struct sl_outbox {
    struct sl_shared shared; /* the memory, when it is shared: base is its */
    uint8_t *base;           /* the blocks, then the units */
    size_t bytes;
    struct sl_outbox_block *free;     /* that were used before; the last one used is the first */
    uint32_t block_count, free_count; /* in all; of those not in use */
    uint32_t block_fresh;             /* the first that was never used */
    uint32_t unit_count, units_used;
    bool *units;                      /* [unit_count]: which are */
    struct sl_outbox_block *current;  /* being filled, or NULL */
    struct sl_outbox_block *reserved; /* holds what was reserved last; NULL: nothing is */
    uint32_t reserved_bytes;          /* of payload */
    uint32_t reply_buffer_bytes;      /* of the next frame */
    void *reply_buffer;
    uint32_t frame_count;   /* committed and not sent, for fini's check */
    uint32_t units_touched; /* from the first, so many units have memory */
    struct sl_warm blocks_warm, units_warm;
    bool is_registered; /* the memory is, or is shared: all of it stays */
    bool checksum;      /* seal every frame */
};

/* memory_bytes_max covers blocks and long frames. Errors: NO_MEMORY, INVALID (it is below
 * SL_OUTBOX_MEMORY_BYTES_MIN). */
int sl_outbox_init(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum);

/* As above, in memory that is registered with a transport that SHARES or REGISTERS: whatever is
 * committed to its connections, but for `rest`, goes without a copy. Peers of one that SHARES can
 * read all of it. Errors: IO too. */
int sl_outbox_init_shared(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum,
                          struct sl_transport *transport);

/* Registers the memory with a transport that REGISTERS, whatever others it is used with: what is
 * committed to its connections, but for `rest`, goes without a copy from now on. Errors: those of
 * sl_transport_memory_register; then it works as before. */
static inline int sl_outbox_register(struct sl_outbox *outbox, struct sl_transport *transport)
{
    outbox->is_registered = true;
    return sl_transport_memory_register(transport, outbox->base, outbox->bytes);
}

/* To be called once a second: memory that nothing has used for some seconds goes back to the
 * system, a part at a time; not that of an outbox that is shared or registered. False: there is
 * none to give back. */
bool sl_outbox_give_back(struct sl_outbox *outbox);

/* Every connection that it was used with must be closed, and every transport that it is registered
 * with too. */
void sl_outbox_fini(struct sl_outbox *outbox);

/* Room for a frame of header and payload_bytes, at most SL_LIMIT_FRAME_PAYLOAD_BYTES, aligned to 8:
 * the payload begins SL_FRAME_HEADER_BYTES behind what is returned. NULL when memory is short: the
 * caller keeps its work and tries again after some `sent`. Nothing else may be reserved before
 * commit or abandon. */
uint8_t *sl_outbox_reserve(struct sl_outbox *outbox, uint32_t payload_bytes);

/* Where the payload of the answer to the frame that is committed next shall lie: see `landing` of
 * struct sl_transport_frame. For connections with SL_TRANSPORT_DIRECT_REPLIES. */
static inline void sl_outbox_set_landing(struct sl_outbox *outbox, void *reply_buffer,
                                         uint32_t reply_buffer_bytes)
{
    outbox->reply_buffer = reply_buffer;
    outbox->reply_buffer_bytes = reply_buffer_bytes;
}

/* Half of the blocks, or of the room for longer frames, is in use: who has frames waiting already
 * should leave the rest to others. */
bool sl_outbox_is_half_full(const struct sl_outbox *outbox);

/* Gives back what was reserved last instead of committing it. */
void sl_outbox_abandon(struct sl_outbox *outbox);

/* Encodes `frame` into the reserved room and sends it on a connection that has not been reported
 * `closed`; frame->payload_bytes may be less than was reserved. It is sealed when the outbox or
 * SL_FRAME_CHECKSUM in frame->flags asks for it. `rest` (may be NULL) is a further part of the
 * payload that stays where it is, counted in frame->payload_bytes; its memory must stay until
 * `tail_sent(tail_ctx)` is called, exactly once: when it was sent or the connection has closed.
 * tail_sent is called from `sent` or `closed` below, never from here; NULL: the caller knows by
 * other means. Never fails. */
void sl_outbox_commit(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue,
                      const struct sl_frame *frame, const void *tail, uint32_t tail_bytes,
                      void (*tail_sent)(void *ctx), void *tail_ctx);

/* Several frames of one connection at once, which costs little more than one. Reserve: room for
 * whole frames, each a multiple of 8 long, `run_bytes` in all; NULL as above. Commit: the
 * caller has encoded so many bytes of them (sl_frame_encode); they are sealed when the outbox or
 * the caller asks for it, and sent, in one piece where the transport takes that. */
#define SL_OUTBOX_RUN_BYTES_MAX  (64U << 10)
#define SL_OUTBOX_RUN_FRAMES_MAX 64
uint8_t *sl_outbox_reserve_run(struct sl_outbox *outbox, uint32_t run_bytes, uint32_t frame_count);
void sl_outbox_commit_run(struct sl_outbox *outbox, struct sl_conn *conn,
                          struct sl_outbox_queue *queue, uint32_t run_bytes, bool seal);

/* A frame whose payload is made part by part, each sent while it is still in the cache, over a
 * transport with SL_TRANSPORT_CHUNKS. Each part is reserved as a run of one frame, of a multiple of
 * 8 bytes. The first begins with the header, which the caller has encoded; nothing seals it.
 * `more`: it is not the last. Until the last one is committed, whatever else is committed to the
 * connection waits behind them. A frame that is begun must be completed, or its connection ended.
 */
void sl_outbox_commit_part(struct sl_outbox *outbox, struct sl_conn *conn,
                           struct sl_outbox_queue *queue, uint32_t part_bytes, bool more);

/* To be called from the upcalls of the same names. After `closed` the queue is empty. */
void sl_outbox_sent(struct sl_outbox *outbox, void *cookie);
void sl_outbox_writable(struct sl_outbox *outbox, struct sl_conn *conn,
                        struct sl_outbox_queue *queue);
void sl_outbox_closed(struct sl_outbox *outbox, struct sl_conn *conn,
                      struct sl_outbox_queue *queue);

#endif
