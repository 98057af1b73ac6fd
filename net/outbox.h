/* The outbox builds outgoing frames of a reactor in place: the caller reserves room, writes a frame
 * and commits it to a connection. Consecutive frames are adjacent in a block, so that a stream
 * transport sends a burst as one piece. A block is free once all its frames are sent. Frames that a
 * transport does not take are queued in order and offered again.
 *
 * Memory: one region, mapped at init, untouched until needed. Half consists of blocks of
 * SL_OUTBOX_BLOCK_BYTES, half of units for frames longer than a block. Owner reactor. */
#ifndef SL_NET_OUTBOX_H
#define SL_NET_OUTBOX_H

#include "core/shared.h"
#include "core/warm.h"
#include "net/transport.h"

#define SL_OUTBOX_BLOCK_BYTES      (256U << 10)
#define SL_OUTBOX_UNIT_BYTES       (64U << 10) /* a long frame takes whole units */

/* Less could never hold the longest frame, which would wait forever. */
#define SL_OUTBOX_MEMORY_BYTES_MIN (2 * (SL_LIMIT_FRAME_PAYLOAD_BYTES + SL_OUTBOX_BLOCK_BYTES))

struct sl_outbox_block;
struct sl_outbox_waiting;

/* Committed and unsent frames of one connection, oldest first. Embedded in the upper layer's object
 * of the connection, which must not move. Zero at first. */
struct sl_outbox_queue {
    struct sl_outbox_waiting *first, *last;
    struct sl_outbox_waiting *offer; /* the first that the transport has not taken; NULL: none */
    uint32_t count; /* of all frames here: offered or not, and behind; each part counts as one */
    /* The last part of a frame is not committed yet. Other frames wait in behind_first. */
    bool is_open;
    struct sl_outbox_waiting *behind_first, *behind_last;
    uint32_t behind_count; /* frames in behind_first */
};

struct sl_outbox {
    struct sl_shared shared; /* if shared, the memory at base */
    uint8_t *base;           /* blocks, then units */
    size_t bytes;
    struct sl_outbox_block *free;     /* used before, last in first out */
    uint32_t block_count, free_count; /* total; not in use */
    uint32_t block_fresh;             /* index of the first block never used */
    uint32_t unit_count, units_used;
    bool *units;                      /* [unit_count]: in use */
    struct sl_outbox_block *current;  /* being filled, or NULL */
    struct sl_outbox_block *reserved; /* holds the current reservation; NULL: none */
    uint32_t reserved_bytes;          /* of payload */
    uint32_t reply_buffer_bytes;      /* of the next frame */
    void *reply_buffer;
    uint32_t frame_count;   /* committed and unsent, of all queues; 0 at fini */
    uint32_t units_touched; /* this many units, from the first, have memory */
    struct sl_warm blocks_warm, units_warm;
    bool is_registered; /* registered or shared: memory is never returned */
    bool checksum;      /* seal every frame */
};

/* memory_bytes_max covers blocks and long frames. Errors: NO_MEMORY, INVALID (less than
 * SL_OUTBOX_MEMORY_BYTES_MIN). */
int sl_outbox_init(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum);

/* Like init, with memory registered with a transport that has MAPS_MEMORY or REGISTERS: all
 * committed data except `tail` is sent without a copy. With MAPS_MEMORY, peers can read the whole
 * memory. Errors: IO too. */
int sl_outbox_init_shared(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum,
                          struct sl_transport *transport);

/* Also registers the memory with a transport that has REGISTERS: from now on committed data except
 * `tail` is sent on its connections without a copy. Errors: of sl_transport_memory_register; then
 * the outbox works as before. */
static inline int sl_outbox_register(struct sl_outbox *outbox, struct sl_transport *transport)
{
    outbox->is_registered = true;
    return sl_transport_memory_register(transport, outbox->base, outbox->bytes);
}

/* Call once a second: returns memory unused for some seconds to the system, part by part; never of
 * a shared or registered outbox. False: none left to return. */
bool sl_outbox_give_back(struct sl_outbox *outbox);

/* Before, close every connection that used it and every transport that it is registered with. */
void sl_outbox_fini(struct sl_outbox *outbox);

/* Reserves room for a frame with payload_bytes, at most SL_LIMIT_FRAME_PAYLOAD_BYTES. The result is
 * aligned to 8; the payload starts SL_FRAME_HEADER_BYTES after it. NULL if memory is short: retry
 * after some `sent`. One reservation at a time, ended by commit or abandon. */
uint8_t *sl_outbox_reserve(struct sl_outbox *outbox, uint32_t payload_bytes);

/* Sets the reply buffer (struct sl_transport_frame) of the frame committed next. For connections
 * with SL_TRANSPORT_DIRECT_REPLIES. */
static inline void sl_outbox_set_reply_buffer(struct sl_outbox *outbox, void *reply_buffer,
                                              uint32_t reply_buffer_bytes)
{
    outbox->reply_buffer = reply_buffer;
    outbox->reply_buffer_bytes = reply_buffer_bytes;
}

/* Whether half of the blocks or units is in use: callers that already have frames queued should
 * leave the other half to others. */
bool sl_outbox_is_half_full(const struct sl_outbox *outbox);

/* Returns the memory in use for unsent frames. */
static inline size_t sl_outbox_bytes(const struct sl_outbox *outbox)
{
    return outbox->frame_count == 0
               ? 0
               : (size_t)(outbox->block_count - outbox->free_count) * SL_OUTBOX_BLOCK_BYTES +
                     (size_t)outbox->units_used * SL_OUTBOX_UNIT_BYTES;
}

/* Ends a reservation without a commit. */
void sl_outbox_abandon(struct sl_outbox *outbox);

/* Encodes `frame` into the reserved room and sends it on a connection that is not reported
 * `closed`. frame->payload_bytes may be less than reserved. The frame gets a checksum if the outbox
 * or SL_FRAME_CHECKSUM in frame->flags asks for it. `tail` (may be NULL) is the end of the payload,
 * counted in frame->payload_bytes and not copied here; it must stay valid until tail_sent(tail_ctx)
 * is called, exactly once, from sl_outbox_sent or sl_outbox_closed. tail_sent NULL: the caller
 * tracks it by other means. Never fails. */
void sl_outbox_commit(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue,
                      const struct sl_frame *frame, const void *tail, uint32_t tail_bytes,
                      void (*tail_sent)(void *ctx), void *tail_ctx);

/* Several frames of one connection at once, at little more than the cost of one. Reserve: room for
 * run_bytes of whole frames, each a multiple of 8 long; NULL as above. Commit: the caller has
 * encoded run_bytes of frames (sl_frame_encode); they get checksums if the outbox or the caller
 * asks for it, and are sent in one piece if the transport supports it. */
#define SL_OUTBOX_RUN_BYTES_MAX  (64U << 10)
#define SL_OUTBOX_RUN_FRAMES_MAX 64
uint8_t *sl_outbox_reserve_run(struct sl_outbox *outbox, uint32_t run_bytes, uint32_t frame_count);
void sl_outbox_commit_run(struct sl_outbox *outbox, struct sl_conn *conn,
                          struct sl_outbox_queue *queue, uint32_t run_bytes, bool seal);

/* A frame whose payload is built part by part, so that each part is sent while still in the cache;
 * for SL_TRANSPORT_CHUNKS. Reserve each part as a run of one frame. The first part starts with the
 * header, encoded by the caller, without a checksum. `more`: further parts follow. Until the last
 * part is committed, other frames of the connection wait. A frame that was begun must be completed,
 * or its connection ended. While all that was committed is sent, sl_transport_send_now may send
 * parts too; end_parts follows when it has sent the last one. */
void sl_outbox_commit_part(struct sl_outbox *outbox, struct sl_conn *conn,
                           struct sl_outbox_queue *queue, uint32_t part_bytes, bool more);
void sl_outbox_end_parts(struct sl_conn *conn, struct sl_outbox_queue *queue);

/* Call from the upcalls of the same names. After `closed` the queue is empty. */
void sl_outbox_sent(struct sl_outbox *outbox, void *cookie);
void sl_outbox_writable(struct sl_outbox *outbox, struct sl_conn *conn,
                        struct sl_outbox_queue *queue);
void sl_outbox_closed(struct sl_outbox *outbox, struct sl_conn *conn,
                      struct sl_outbox_queue *queue);

#endif
