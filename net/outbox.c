#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "net/outbox_block.h"

#define ALIGN_BYTES    64
#define WRITABLE_BURST 32 /* frames offered at once in `writable` */

/* A committed frame until it is sent, or a run of frames of one connection in one block that the
 * transport has taken and reports together. Records fill the block from its end downwards, frames
 * upwards; room for a frame includes room for its record. */
struct sl_outbox_waiting {
    struct sl_outbox_waiting *next; /* in the queue of its connection */
    struct sl_outbox_queue *queue;
    struct sl_outbox_block *block;
    const void *head, *tail; /* of the first frame, like the following fields */
    uint32_t head_bytes, tail_bytes;
    void (*tail_sent)(void *ctx);
    void *tail_ctx;
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    uint32_t frame_count; /* frames that the transport reports with this record */
};

#define HEADER_BYTES                                                                               \
    ((sizeof(struct sl_outbox_block) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES)
#define ROOM_BYTES ((uint32_t)(SL_OUTBOX_BLOCK_BYTES - HEADER_BYTES))

static_assert(sizeof(struct sl_outbox_waiting) % 8 == 0, "keeps the tail aligned");

static uint8_t *outbox_room_of(struct sl_outbox_block *block)
{
    return (uint8_t *)block + HEADER_BYTES;
}

static void block_reset(struct sl_outbox_block *block)
{
    block->head = 0;
    block->tail = block->room_bytes;
}

static void block_init(struct sl_outbox_block *block, uint32_t room_bytes, uint32_t unit_count)
{
    *block = (struct sl_outbox_block){.room_bytes = room_bytes, .unit_count = unit_count};
    block_reset(block);
}

static uint32_t bytes_needed(uint32_t payload_bytes)
{
    return (uint32_t)sl_bytes_pad8((uint64_t)SL_FRAME_HEADER_BYTES + payload_bytes) +
           (uint32_t)sizeof(struct sl_outbox_waiting);
}

/* Initializes all but the memory. */
static int outbox_init(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum)
{
    sl_assert(outbox != NULL);
    const size_t block_count = memory_bytes_max / 2 / SL_OUTBOX_BLOCK_BYTES;
    if (memory_bytes_max < SL_OUTBOX_MEMORY_BYTES_MIN || block_count > UINT32_MAX / 4) {
        return SL_ERR_INVALID;
    }
    const size_t left = memory_bytes_max - block_count * SL_OUTBOX_BLOCK_BYTES;
    *outbox = (struct sl_outbox){
        .bytes = memory_bytes_max,
        .block_count = (uint32_t)block_count,
        .free_count = (uint32_t)block_count,
        .unit_count = (uint32_t)(left / SL_OUTBOX_UNIT_BYTES),
        .checksum = checksum,
    };
    outbox->units = calloc(outbox->unit_count, sizeof *outbox->units);
    return outbox->units == NULL ? SL_ERR_NO_MEMORY : 0;
}

int sl_outbox_init(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum)
{
    int err = outbox_init(outbox, memory_bytes_max, checksum);
    if (err != 0) {
        return err;
    }
    void *base = mmap(NULL, outbox->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(outbox->units);
        return SL_ERR_NO_MEMORY;
    }
    outbox->base = base;
    return 0;
}

int sl_outbox_init_shared(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum,
                          struct sl_transport *transport)
{
    sl_assert(
        (transport->ops->capabilities & (SL_TRANSPORT_MAPS_MEMORY | SL_TRANSPORT_REGISTERS)) != 0);
    int err = outbox_init(outbox, memory_bytes_max, checksum);
    if (err != 0) {
        return err;
    }
    outbox->is_registered = true;
    struct sl_shared *shared = &outbox->shared;
    err = sl_shared_create("starling-outbox", outbox->bytes, SL_SHARED_READ, shared);
    if (err == 0) {
        outbox->base = shared->base;
        err = sl_transport_memory_register(transport, shared->base, shared->bytes);
        if (err != 0) {
            sl_shared_destroy(shared);
        }
    }
    if (err != 0) {
        free(outbox->units);
    }
    return err;
}

/* Finds the first `count` free units in a row, most likely used before; unit_count: none. */
static uint32_t units_find(const struct sl_outbox *outbox, uint32_t count)
{
    uint32_t free_count = 0;
    for (uint32_t unit = 0; unit < outbox->unit_count; unit++) {
        free_count = outbox->units[unit] ? 0 : free_count + 1;
        if (free_count == count) {
            return unit + 1 - count;
        }
    }
    return outbox->unit_count;
}

static void units_mark(struct sl_outbox *outbox, uint32_t unit, uint32_t count, bool used)
{
    memset(outbox->units + unit, used, count * sizeof *outbox->units);
    outbox->units_used += used ? count : -count;
}

static struct sl_outbox_block *large_get(struct sl_outbox *outbox, uint32_t room_bytes)
{
    const uint32_t bytes = (uint32_t)HEADER_BYTES + room_bytes;
    const uint32_t count = (bytes + SL_OUTBOX_UNIT_BYTES - 1) / SL_OUTBOX_UNIT_BYTES;
    if (count > outbox->unit_count - outbox->units_used) {
        return NULL;
    }
    const uint32_t unit = units_find(outbox, count);
    if (unit == outbox->unit_count) {
        return NULL;
    }
    units_mark(outbox, unit, count, true);
    sl_warm_note(&outbox->units_warm, unit + count);
    outbox->units_touched =
        outbox->units_touched > unit + count ? outbox->units_touched : unit + count;
    struct sl_outbox_block *block = (void *)sl_outbox_unit_at(outbox, unit);
    block_init(block, (uint32_t)(count * SL_OUTBOX_UNIT_BYTES - HEADER_BYTES), count);
    return block;
}

/* Frees a block without frames. The block being filled stays current, empty. */
static void outbox_block_put(struct sl_outbox *outbox, struct sl_outbox_block *block)
{
    if (block->unit_count > 0) {
        const size_t at = (size_t)((uint8_t *)block - sl_outbox_unit_at(outbox, 0));
        units_mark(outbox, (uint32_t)(at / SL_OUTBOX_UNIT_BYTES), block->unit_count, false);
        return;
    }
    block_reset(block);
    if (block != outbox->current) {
        block->next = outbox->free;
        outbox->free = block;
        outbox->free_count++;
    }
}

/* Returns an unused block; NULL: none. */
static struct sl_outbox_block *block_get(struct sl_outbox *outbox)
{
    struct sl_outbox_block *block = outbox->free;
    if (block != NULL) {
        outbox->free = block->next;
    } else if (outbox->block_fresh < outbox->block_count) {
        block = (void *)(outbox->base + outbox->block_fresh * (size_t)SL_OUTBOX_BLOCK_BYTES);
        outbox->block_fresh++;
    } else {
        return NULL;
    }
    outbox->free_count--;
    sl_warm_note(&outbox->blocks_warm, outbox->block_count - outbox->free_count);
    block_init(block, ROOM_BYTES, 0);
    return block;
}

/* Returns the current block if it has enough room, else a new one. */
static struct sl_outbox_block *small_get(struct sl_outbox *outbox, uint32_t bytes)
{
    struct sl_outbox_block *block = outbox->current;
    if (block != NULL && block->tail - block->head >= bytes) {
        return block;
    }
    /* If there is no block, the full one stays current: its next `sent` may empty it. */
    struct sl_outbox_block *fresh = block_get(outbox);
    if (fresh == NULL) {
        return NULL;
    }
    sl_assert(block == NULL || block->waiting_count != 0); /* an empty block had room */
    outbox->current = fresh;
    return fresh;
}

void sl_outbox_fini(struct sl_outbox *outbox)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(outbox->frame_count == 0);
    sl_assert(outbox->units_used == 0);
    if (outbox->shared.base != NULL) {
        sl_shared_destroy(&outbox->shared);
    } else {
        (void)munmap(outbox->base, outbox->bytes);
    }
    free(outbox->units);
    *outbox = (struct sl_outbox){0};
}

static uint8_t *outbox_reserve(struct sl_outbox *outbox, struct sl_outbox_block *block,
                               uint32_t reserved_bytes)
{
    if (block == NULL) {
        return NULL;
    }
    outbox->reserved = block;
    outbox->reserved_bytes = reserved_bytes;
    return outbox_room_of(block) + block->head;
}

uint8_t *sl_outbox_reserve(struct sl_outbox *outbox, uint32_t payload_bytes)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
    uint32_t bytes = bytes_needed(payload_bytes);
    struct sl_outbox_block *block =
        bytes > ROOM_BYTES ? large_get(outbox, bytes) : small_get(outbox, bytes);
    return outbox_reserve(outbox, block, payload_bytes);
}

uint8_t *sl_outbox_reserve_run(struct sl_outbox *outbox, uint32_t run_bytes, uint32_t frame_count)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(run_bytes <= SL_OUTBOX_RUN_BYTES_MAX);
    sl_assert(frame_count <= SL_OUTBOX_RUN_FRAMES_MAX);
    uint32_t bytes = run_bytes + frame_count * (uint32_t)sizeof(struct sl_outbox_waiting);
    return outbox_reserve(outbox, small_get(outbox, bytes), run_bytes);
}

bool sl_outbox_is_half_full(const struct sl_outbox *outbox)
{
    return outbox->free_count < outbox->block_count / 2 ||
           outbox->units_used > outbox->unit_count / 2;
}

void sl_outbox_abandon(struct sl_outbox *outbox)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved != NULL);
    struct sl_outbox_block *block = outbox->reserved;
    outbox->reserved = NULL;
    if (block->waiting_count == 0) {
        outbox_block_put(outbox, block);
    }
}

/* Takes the frame's room from the block; the rest of the reservation stays free. */
static void outbox_take_head(struct sl_outbox *outbox, struct sl_outbox_block *block,
                             uint32_t head_bytes)
{
    block->head += (uint32_t)sl_bytes_pad8(head_bytes);
    outbox->frame_count++;
}

static struct sl_outbox_waiting *take_waiting(struct sl_outbox_block *block)
{
    block->tail -= (uint32_t)sizeof(struct sl_outbox_waiting);
    sl_assert(block->head <= block->tail);
    block->waiting_count++;
    return (void *)(outbox_room_of(block) + block->tail);
}

static_assert(SL_OUTBOX_RUN_BYTES_MAX +
                      SL_OUTBOX_RUN_FRAMES_MAX * sizeof(struct sl_outbox_waiting) <=
                  ROOM_BYTES,
              "a block has room for the longest run");

static void outbox_append(struct sl_outbox_waiting **first, struct sl_outbox_waiting **last,
                          struct sl_outbox_waiting *waiting)
{
    *(*last == NULL ? first : &(*last)->next) = waiting;
    *last = waiting;
}

static struct sl_transport_frame frame_of(struct sl_outbox_waiting *waiting)
{
    return (struct sl_transport_frame){
        .head = waiting->head,
        .payload = waiting->tail,
        .head_bytes = waiting->head_bytes,
        .payload_bytes = waiting->tail_bytes,
        .cookie = waiting,
        .reply_buffer = waiting->reply_buffer,
        .reply_buffer_bytes = waiting->reply_buffer_bytes,
    };
}

/* If the transport has not taken earlier frames, sl_outbox_writable continues. */
static void offer_next(struct sl_conn *conn, struct sl_outbox_queue *queue,
                       struct sl_outbox_waiting *waiting)
{
    outbox_append(&queue->first, &queue->last, waiting);
    if (queue->offer != NULL) {
        return;
    }
    struct sl_transport_frame offered = frame_of(waiting);
    if (sl_transport_send_burst(conn, &offered, 1) == 0) {
        queue->offer = waiting;
    }
}

static void send_waiting(struct sl_conn *conn, struct sl_outbox_queue *queue,
                         struct sl_outbox_waiting *waiting)
{
    waiting->queue = queue;
    queue->count++;
    if (queue->is_open) {
        outbox_append(&queue->behind_first, &queue->behind_last, waiting);
        queue->behind_count++;
    } else {
        offer_next(conn, queue, waiting);
    }
}

/* Returns the last frame of the queue, if the transport can report a frame in the block with it. */
static struct sl_outbox_waiting *joinable(const struct sl_outbox_queue *queue,
                                          const struct sl_outbox_block *block,
                                          const struct sl_conn *conn)
{
    struct sl_outbox_waiting *last = queue->last;
    if (last == NULL || queue->offer != NULL || queue->is_open || last->block != block ||
        last->tail != NULL || (conn->transport->ops->capabilities & SL_TRANSPORT_COALESCES) == 0) {
        return NULL;
    }
    return last;
}

static bool join(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue,
                 const uint8_t *head, uint32_t head_bytes)
{
    struct sl_outbox_waiting *last = joinable(queue, outbox->reserved, conn);
    if (last == NULL) {
        return false;
    }
    struct sl_transport_frame offered = {
        .head = head, .head_bytes = head_bytes, .cookie = SL_TRANSPORT_COALESCED};
    if (sl_transport_send_burst(conn, &offered, 1) == 0) {
        return false;
    }
    outbox_take_head(outbox, outbox->reserved, head_bytes);
    outbox->reserved = NULL;
    last->frame_count++;
    queue->count++;
    return true;
}

static void encode(struct sl_outbox *outbox, uint8_t *head, const struct sl_frame *frame,
                   const void *tail, uint32_t tail_bytes)
{
    struct sl_frame encoded = *frame;
    encoded.flags = 0;
    encoded.crc32c = 0;
    sl_frame_encode(&encoded, head);
    if (outbox->checksum || (frame->flags & SL_FRAME_CHECKSUM) != 0) {
        sl_frame_seal(head, head + SL_FRAME_HEADER_BYTES, frame->payload_bytes - tail_bytes, tail,
                      tail_bytes);
    }
}

void sl_outbox_commit(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue,
                      const struct sl_frame *frame, const void *tail, uint32_t tail_bytes,
                      void (*tail_sent)(void *ctx), void *tail_ctx)
{
    struct sl_outbox_block *block = outbox->reserved;
    sl_assert(block != NULL);
    sl_assert(conn != NULL);
    sl_assert((tail != NULL) == (tail_bytes != 0));
    sl_assert(tail_bytes <= frame->payload_bytes);
    sl_assert(frame->payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
    uint32_t near_bytes = frame->payload_bytes - tail_bytes;
    sl_assert(near_bytes <= outbox->reserved_bytes);

    uint8_t *head = outbox_room_of(block) + block->head;
    uint32_t head_bytes = SL_FRAME_HEADER_BYTES + near_bytes;
    encode(outbox, head, frame, tail, tail_bytes);
    if (tail == NULL && tail_sent == NULL && outbox->reply_buffer == NULL &&
        join(outbox, conn, queue, head, head_bytes)) {
        return;
    }

    outbox_take_head(outbox, block, head_bytes);
    outbox->reserved = NULL;
    struct sl_outbox_waiting *waiting = take_waiting(block);
    *waiting = (struct sl_outbox_waiting){
        .block = block,
        .head = head,
        .head_bytes = head_bytes,
        .tail = tail,
        .tail_bytes = tail_bytes,
        .tail_sent = tail_sent,
        .tail_ctx = tail_ctx,
        .reply_buffer = outbox->reply_buffer,
        .reply_buffer_bytes = outbox->reply_buffer_bytes,
        .frame_count = 1,
    };
    sl_outbox_set_reply_buffer(outbox, NULL, 0);
    send_waiting(conn, queue, waiting);
}

/* Length of the encoded frame at `head`. */
static uint32_t outbox_frame_bytes(const uint8_t *head)
{
    uint32_t payload_bytes;
    memcpy(&payload_bytes, head, sizeof payload_bytes);
    return SL_FRAME_HEADER_BYTES + payload_bytes;
}

static void seal_run(uint8_t *head, uint32_t run_bytes)
{
    for (const uint8_t *end = head + run_bytes; head < end; head += outbox_frame_bytes(head)) {
        sl_frame_seal(head, head + SL_FRAME_HEADER_BYTES,
                      outbox_frame_bytes(head) - SL_FRAME_HEADER_BYTES, NULL, 0);
    }
}

/* Commits the next `bytes` of the block, which are reserved, as one piece. */
static void commit_piece(struct sl_outbox *outbox, struct sl_conn *conn,
                         struct sl_outbox_queue *queue, struct sl_outbox_block *block,
                         uint32_t bytes)
{
    const uint8_t *head = outbox_room_of(block) + block->head;
    outbox_take_head(outbox, block, bytes);
    struct sl_outbox_waiting *waiting = take_waiting(block);
    *waiting = (struct sl_outbox_waiting){
        .block = block, .head = head, .head_bytes = bytes, .frame_count = 1};
    send_waiting(conn, queue, waiting);
}

/* Ends a reservation, of which `bytes` will be committed. */
static struct sl_outbox_block *take_reserved(struct sl_outbox *outbox, uint32_t bytes)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved != NULL);
    sl_assert(bytes > 0);
    sl_assert(bytes <= outbox->reserved_bytes);
    struct sl_outbox_block *block = outbox->reserved;
    outbox->reserved = NULL;
    return block;
}

void sl_outbox_commit_run(struct sl_outbox *outbox, struct sl_conn *conn,
                          struct sl_outbox_queue *queue, uint32_t run_bytes, bool seal)
{
    sl_assert(run_bytes % 8 == 0);
    struct sl_outbox_block *block = take_reserved(outbox, run_bytes);
    uint8_t *head = outbox_room_of(block) + block->head;
    if (outbox->checksum || seal) {
        seal_run(head, run_bytes);
    }
    if ((conn->transport->ops->capabilities & SL_TRANSPORT_MULTI_FRAME) != 0) {
        commit_piece(outbox, conn, queue, block, run_bytes);
        return;
    }
    for (const uint8_t *end = head + run_bytes; head < end; head += outbox_frame_bytes(head)) {
        commit_piece(outbox, conn, queue, block, outbox_frame_bytes(head));
    }
}

void sl_outbox_end_parts(struct sl_conn *conn, struct sl_outbox_queue *queue)
{
    queue->is_open = false;
    struct sl_outbox_waiting *waiting = queue->behind_first;
    queue->behind_first = queue->behind_last = NULL;
    queue->behind_count = 0;
    while (waiting != NULL) {
        struct sl_outbox_waiting *next = waiting->next;
        waiting->next = NULL;
        offer_next(conn, queue, waiting);
        waiting = next;
    }
}

void sl_outbox_commit_part(struct sl_outbox *outbox, struct sl_conn *conn,
                           struct sl_outbox_queue *queue, uint32_t part_bytes, bool more)
{
    struct sl_outbox_block *block = take_reserved(outbox, part_bytes);
    sl_assert((conn->transport->ops->capabilities & SL_TRANSPORT_CHUNKS) != 0);
    sl_assert(!outbox->checksum);
    queue->is_open = false;
    commit_piece(outbox, conn, queue, block, part_bytes);
    if (more) {
        queue->is_open = true;
    } else {
        sl_outbox_end_parts(conn, queue);
    }
}

/* Returns the memory to its owner. The callback comes last: it may reserve and commit. */
static void waiting_release(struct sl_outbox *outbox, struct sl_outbox_waiting *waiting)
{
    void (*tail_sent)(void *ctx) = waiting->tail_sent;
    void *tail_ctx = waiting->tail_ctx;
    struct sl_outbox_block *block = waiting->block;
    outbox->frame_count -= waiting->frame_count;
    block->waiting_count--;
    if (block->waiting_count == 0 && block != outbox->reserved) {
        outbox_block_put(outbox, block);
    }
    if (tail_sent != NULL) {
        tail_sent(tail_ctx);
    }
}

void sl_outbox_sent(struct sl_outbox *outbox, void *cookie)
{
    sl_assert(outbox != NULL);
    sl_assert(cookie != NULL);
    struct sl_outbox_waiting *waiting = cookie;
    struct sl_outbox_queue *queue = waiting->queue;
    sl_assert(queue->first == waiting); /* the transport reports in order */
    sl_assert(queue->offer != waiting); /* and only frames that it took */
    queue->first = waiting->next;
    queue->count -= waiting->frame_count;
    if (queue->first == NULL) {
        queue->last = NULL;
    }
    waiting_release(outbox, waiting);
}

/* Offers up to WRITABLE_BURST frames; false if the transport did not take all of them. */
static bool offer_burst(struct sl_conn *conn, struct sl_outbox_queue *queue)
{
    struct sl_transport_frame frames[WRITABLE_BURST];
    uint32_t count = 0;
    for (struct sl_outbox_waiting *at = queue->offer; at != NULL && count < WRITABLE_BURST;
         at = at->next) {
        frames[count++] = frame_of(at);
    }
    uint32_t taken = sl_transport_send_burst(conn, frames, count);
    for (uint32_t i = 0; i < taken; i++) {
        queue->offer = queue->offer->next;
    }
    return taken == count;
}

void sl_outbox_writable(struct sl_outbox *outbox, struct sl_conn *conn,
                        struct sl_outbox_queue *queue)
{
    sl_assert(outbox != NULL);
    sl_assert(conn != NULL);
    sl_assert(queue != NULL);
    while (queue->offer != NULL && offer_burst(conn, queue)) {
    }
}

static void release_all(struct sl_outbox *outbox, struct sl_outbox_waiting *waiting)
{
    while (waiting != NULL) {
        struct sl_outbox_waiting *next = waiting->next;
        waiting_release(outbox, waiting);
        waiting = next;
    }
}

void sl_outbox_closed(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue)
{
    sl_assert(outbox != NULL);
    sl_assert(conn != NULL);
    sl_assert(queue != NULL);
    struct sl_outbox_queue ended = *queue;
    *queue = (struct sl_outbox_queue){0};
    release_all(outbox, ended.first);
    release_all(outbox, ended.behind_first);
}
