#include "net/outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"

#define ALIGN_BYTES    64
#define WRITABLE_BURST 32 /* frames offered at once when there is room again */

/* A frame that was committed, until it is sent, or a run of frames of one connection in one block
 * that the transport took and will report together. These lie in the block, filled from its end
 * downwards while frames fill it upwards: a frame that has room has room for this too. */
struct sl_outbox_waiting {
    struct sl_outbox_waiting *next; /* in its connection's queue */
    struct sl_outbox_queue *queue;
    struct sl_outbox_block *block;
    const void *head, *rest; /* of the first frame, as what follows */
    uint32_t head_bytes, rest_bytes;
    void (*rest_sent)(void *ctx);
    void *rest_ctx;
    uint64_t frame_count;
};

/* Followed by its room. One for a single long frame has `large` set and comes from the heap. */
struct sl_outbox_block {
    struct sl_outbox_block *next; /* among the spares */
    uint32_t room_bytes;
    uint32_t head;          /* offset in the room of the next frame */
    uint32_t tail;          /* offset in the room of the waiting made last */
    uint32_t waiting_count; /* committed and not sent */
    bool large;
};

#define HEADER_BYTES                                                                               \
    ((sizeof(struct sl_outbox_block) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES)
#define ROOM_BYTES ((uint32_t)(SL_OUTBOX_BLOCK_BYTES - HEADER_BYTES))

static_assert(sizeof(struct sl_outbox_waiting) % 8 == 0, "keeps the tail aligned");

static uint8_t *room_of(struct sl_outbox_block *block)
{
    return (uint8_t *)block + HEADER_BYTES;
}

static void block_reset(struct sl_outbox_block *block)
{
    block->head = 0;
    block->tail = block->room_bytes;
}

static void block_init(struct sl_outbox_block *block, uint32_t room_bytes, bool large)
{
    *block = (struct sl_outbox_block){.room_bytes = room_bytes, .large = large};
    block_reset(block);
}

static uint32_t bytes_needed(uint32_t payload_bytes)
{
    return (uint32_t)sl_bytes_pad8((uint64_t)SL_FRAME_HEADER_BYTES + payload_bytes) +
           (uint32_t)sizeof(struct sl_outbox_waiting);
}

int sl_outbox_init(struct sl_outbox *outbox, size_t memory_bytes_max, bool checksum)
{
    sl_assert(outbox != NULL);
    if (memory_bytes_max < SL_OUTBOX_MEMORY_BYTES_MIN) {
        return SL_ERR_INVALID;
    }
    size_t block_count = memory_bytes_max / 2 / SL_OUTBOX_BLOCK_BYTES;
    if (block_count > UINT32_MAX) {
        return SL_ERR_INVALID;
    }
    *outbox = (struct sl_outbox){
        .large_bytes_max = memory_bytes_max - block_count * SL_OUTBOX_BLOCK_BYTES,
        .checksum = checksum,
    };
    return sl_pool_init(&outbox->blocks, SL_OUTBOX_BLOCK_BYTES, (uint32_t)block_count);
}

static void large_free(struct sl_outbox *outbox, struct sl_outbox_block *block)
{
    outbox->large_bytes -= HEADER_BYTES + block->room_bytes;
    free(block);
}

/* Frees spares until `bytes` more may be allocated; false when they are not enough. */
static bool large_make_room(struct sl_outbox *outbox, size_t bytes)
{
    while (bytes > outbox->large_bytes_max - outbox->large_bytes) {
        struct sl_outbox_block *spare = outbox->spares;
        if (spare == NULL) {
            return false;
        }
        outbox->spares = spare->next;
        large_free(outbox, spare);
    }
    return true;
}

/* A spare that is long enough, but not so long that a frame of its own length would miss it. */
static struct sl_outbox_block *large_take_spare(struct sl_outbox *outbox, uint32_t room_bytes)
{
    for (struct sl_outbox_block **at = &outbox->spares; *at != NULL; at = &(*at)->next) {
        struct sl_outbox_block *spare = *at;
        if (spare->room_bytes >= room_bytes && spare->room_bytes / 2 <= room_bytes) {
            *at = spare->next;
            spare->next = NULL;
            return spare;
        }
    }
    return NULL;
}

static struct sl_outbox_block *large_get(struct sl_outbox *outbox, uint32_t room_bytes)
{
    struct sl_outbox_block *block = large_take_spare(outbox, room_bytes);
    if (block != NULL) {
        outbox->large_used_bytes += HEADER_BYTES + block->room_bytes;
        return block;
    }
    size_t bytes = (HEADER_BYTES + room_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (!large_make_room(outbox, bytes)) {
        return NULL;
    }
    block = aligned_alloc(ALIGN_BYTES, bytes);
    if (block != NULL) {
        outbox->large_bytes += bytes;
        outbox->large_used_bytes += bytes;
        block_init(block, (uint32_t)(bytes - HEADER_BYTES), true);
    }
    return block;
}

/* Nothing of the block is in use any more. The one being filled stays where it is, empty. */
static void block_put(struct sl_outbox *outbox, struct sl_outbox_block *block)
{
    block_reset(block);
    if (block->large) {
        outbox->large_used_bytes -= HEADER_BYTES + block->room_bytes;
        block->next = outbox->spares;
        outbox->spares = block;
    } else if (block != outbox->current) {
        sl_pool_put(&outbox->blocks, block);
    }
}

/* The block being filled, if it has so much room left, else a fresh one. */
static struct sl_outbox_block *small_get(struct sl_outbox *outbox, uint32_t bytes)
{
    struct sl_outbox_block *block = outbox->current;
    if (block != NULL && block->tail - block->head >= bytes) {
        return block;
    }
    /* When the pool is empty the full block stays current: its next `sent` may empty it. */
    struct sl_outbox_block *fresh = sl_pool_get(&outbox->blocks);
    if (fresh == NULL) {
        return NULL;
    }
    block_init(fresh, ROOM_BYTES, false);
    sl_assert(block == NULL || block->waiting_count != 0); /* an empty one had room */
    outbox->current = fresh;
    return fresh;
}

void sl_outbox_fini(struct sl_outbox *outbox)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(outbox->frame_count == 0);
    while (outbox->spares != NULL) {
        struct sl_outbox_block *spare = outbox->spares;
        outbox->spares = spare->next;
        large_free(outbox, spare);
    }
    sl_assert(outbox->large_bytes == 0);
    sl_pool_fini(&outbox->blocks);
    outbox->current = NULL;
}

static uint8_t *reserve(struct sl_outbox *outbox, struct sl_outbox_block *block,
                        uint32_t reserved_bytes)
{
    if (block == NULL) {
        return NULL;
    }
    outbox->reserved = block;
    outbox->reserved_bytes = reserved_bytes;
    return room_of(block) + block->head;
}

uint8_t *sl_outbox_reserve(struct sl_outbox *outbox, uint32_t payload_bytes)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
    uint32_t bytes = bytes_needed(payload_bytes);
    struct sl_outbox_block *block =
        bytes > ROOM_BYTES ? large_get(outbox, bytes) : small_get(outbox, bytes);
    return reserve(outbox, block, payload_bytes);
}

uint8_t *sl_outbox_reserve_run(struct sl_outbox *outbox, uint32_t run_bytes, uint32_t frame_count)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved == NULL);
    sl_assert(run_bytes <= SL_OUTBOX_RUN_BYTES_MAX);
    sl_assert(frame_count <= SL_OUTBOX_RUN_FRAMES_MAX);
    uint32_t bytes = run_bytes + frame_count * (uint32_t)sizeof(struct sl_outbox_waiting);
    return reserve(outbox, small_get(outbox, bytes), run_bytes);
}

bool sl_outbox_is_half_full(const struct sl_outbox *outbox)
{
    return outbox->blocks.free_count < outbox->blocks.block_count / 2 ||
           outbox->large_used_bytes > outbox->large_bytes_max / 2;
}

void sl_outbox_abandon(struct sl_outbox *outbox)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved != NULL);
    struct sl_outbox_block *block = outbox->reserved;
    outbox->reserved = NULL;
    if (block->waiting_count == 0) {
        block_put(outbox, block);
    }
}

/* Takes the room of a frame out of the block; the rest of what was reserved stays free. */
static void take_head(struct sl_outbox *outbox, struct sl_outbox_block *block, uint32_t head_bytes)
{
    block->head += (uint32_t)sl_bytes_pad8(head_bytes);
    outbox->frame_count++;
}

static struct sl_outbox_waiting *take_waiting(struct sl_outbox_block *block)
{
    block->tail -= (uint32_t)sizeof(struct sl_outbox_waiting);
    sl_assert(block->head <= block->tail);
    block->waiting_count++;
    return (void *)(room_of(block) + block->tail);
}

static_assert(SL_OUTBOX_RUN_BYTES_MAX +
                      SL_OUTBOX_RUN_FRAMES_MAX * sizeof(struct sl_outbox_waiting) <=
                  ROOM_BYTES,
              "a block has room for the longest run");

static void append(struct sl_outbox_waiting **first, struct sl_outbox_waiting **last,
                   struct sl_outbox_waiting *waiting)
{
    *(*last == NULL ? first : &(*last)->next) = waiting;
    *last = waiting;
}

static struct sl_transport_frame frame_of(struct sl_outbox_waiting *waiting)
{
    return (struct sl_transport_frame){
        .head = waiting->head,
        .payload = waiting->rest,
        .head_bytes = waiting->head_bytes,
        .payload_bytes = waiting->rest_bytes,
        .cookie = waiting,
    };
}

/* Behind others that the transport did not take, `writable` goes on. */
static void offer_next(struct sl_conn *conn, struct sl_outbox_queue *queue,
                       struct sl_outbox_waiting *waiting)
{
    append(&queue->first, &queue->last, waiting);
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
        append(&queue->behind_first, &queue->behind_last, waiting);
        queue->behind_count++;
    } else {
        offer_next(conn, queue, waiting);
    }
}

/* The last of the queue, if the transport can report a frame in the block along with it. */
static struct sl_outbox_waiting *joinable(const struct sl_outbox_queue *queue,
                                          const struct sl_outbox_block *block,
                                          const struct sl_conn *conn)
{
    struct sl_outbox_waiting *last = queue->last;
    if (last == NULL || queue->offer != NULL || queue->is_open || last->block != block ||
        last->rest != NULL || (conn->transport->ops->capabilities & SL_TRANSPORT_JOINS) == 0) {
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
        .head = head, .head_bytes = head_bytes, .cookie = SL_TRANSPORT_JOINED};
    if (sl_transport_send_burst(conn, &offered, 1) == 0) {
        return false;
    }
    take_head(outbox, outbox->reserved, head_bytes);
    outbox->reserved = NULL;
    last->frame_count++;
    queue->count++;
    return true;
}

static void encode(struct sl_outbox *outbox, uint8_t *head, const struct sl_frame *frame,
                   const void *rest, uint32_t rest_bytes)
{
    struct sl_frame encoded = *frame;
    encoded.flags = 0;
    encoded.crc32c = 0;
    sl_frame_encode(&encoded, head);
    if (outbox->checksum || (frame->flags & SL_FRAME_CHECKSUM) != 0) {
        sl_frame_seal(head, head + SL_FRAME_HEADER_BYTES, frame->payload_bytes - rest_bytes, rest,
                      rest_bytes);
    }
}

void sl_outbox_commit(struct sl_outbox *outbox, struct sl_conn *conn, struct sl_outbox_queue *queue,
                      const struct sl_frame *frame, const void *rest, uint32_t rest_bytes,
                      void (*rest_sent)(void *ctx), void *rest_ctx)
{
    struct sl_outbox_block *block = outbox->reserved;
    sl_assert(block != NULL);
    sl_assert(conn != NULL);
    sl_assert((rest != NULL) == (rest_bytes != 0));
    sl_assert(rest_bytes <= frame->payload_bytes);
    sl_assert(frame->payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
    uint32_t near_bytes = frame->payload_bytes - rest_bytes;
    sl_assert(near_bytes <= outbox->reserved_bytes);

    uint8_t *head = room_of(block) + block->head;
    uint32_t head_bytes = SL_FRAME_HEADER_BYTES + near_bytes;
    encode(outbox, head, frame, rest, rest_bytes);
    if (rest == NULL && rest_sent == NULL && join(outbox, conn, queue, head, head_bytes)) {
        return;
    }

    take_head(outbox, block, head_bytes);
    outbox->reserved = NULL;
    struct sl_outbox_waiting *waiting = take_waiting(block);
    *waiting = (struct sl_outbox_waiting){
        .block = block,
        .head = head,
        .head_bytes = head_bytes,
        .rest = rest,
        .rest_bytes = rest_bytes,
        .rest_sent = rest_sent,
        .rest_ctx = rest_ctx,
        .frame_count = 1,
    };
    send_waiting(conn, queue, waiting);
}

/* The whole of the encoded frame that begins here. */
static uint32_t frame_bytes(const uint8_t *head)
{
    uint32_t payload_bytes;
    memcpy(&payload_bytes, head, sizeof payload_bytes);
    return SL_FRAME_HEADER_BYTES + payload_bytes;
}

static void seal_run(uint8_t *head, uint32_t run_bytes)
{
    for (const uint8_t *end = head + run_bytes; head < end; head += frame_bytes(head)) {
        sl_frame_seal(head, head + SL_FRAME_HEADER_BYTES, frame_bytes(head) - SL_FRAME_HEADER_BYTES,
                      NULL, 0);
    }
}

/* The block's next `bytes`, which are reserved, as a piece of their own. */
static void commit_piece(struct sl_outbox *outbox, struct sl_conn *conn,
                         struct sl_outbox_queue *queue, struct sl_outbox_block *block,
                         uint32_t bytes)
{
    const uint8_t *head = room_of(block) + block->head;
    take_head(outbox, block, bytes);
    struct sl_outbox_waiting *waiting = take_waiting(block);
    *waiting = (struct sl_outbox_waiting){
        .block = block, .head = head, .head_bytes = bytes, .frame_count = 1};
    send_waiting(conn, queue, waiting);
}

/* Of what was reserved last so many bytes are to be committed. */
static struct sl_outbox_block *take_reserved(struct sl_outbox *outbox, uint32_t bytes)
{
    sl_assert(outbox != NULL);
    sl_assert(outbox->reserved != NULL);
    sl_assert(bytes > 0);
    sl_assert(bytes % 8 == 0);
    sl_assert(bytes <= outbox->reserved_bytes);
    struct sl_outbox_block *block = outbox->reserved;
    outbox->reserved = NULL;
    return block;
}

void sl_outbox_commit_run(struct sl_outbox *outbox, struct sl_conn *conn,
                          struct sl_outbox_queue *queue, uint32_t run_bytes, bool seal)
{
    struct sl_outbox_block *block = take_reserved(outbox, run_bytes);
    uint8_t *head = room_of(block) + block->head;
    if (outbox->checksum || seal) {
        seal_run(head, run_bytes);
    }
    if ((conn->transport->ops->capabilities & SL_TRANSPORT_STREAMS) != 0) {
        commit_piece(outbox, conn, queue, block, run_bytes);
        return;
    }
    for (const uint8_t *end = head + run_bytes; head < end; head += frame_bytes(head)) {
        commit_piece(outbox, conn, queue, block, frame_bytes(head));
    }
}

/* The frame that they waited for is complete. */
static void send_behind(struct sl_conn *conn, struct sl_outbox_queue *queue)
{
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
    sl_assert((conn->transport->ops->capabilities & SL_TRANSPORT_PARTS) != 0);
    sl_assert(!outbox->checksum);
    queue->is_open = false;
    commit_piece(outbox, conn, queue, block, part_bytes);
    queue->is_open = more;
    if (!more) {
        send_behind(conn, queue);
    }
}

/* The memory is its owner's again. The callback comes last: it may reserve and commit. */
static void waiting_release(struct sl_outbox *outbox, struct sl_outbox_waiting *waiting)
{
    void (*rest_sent)(void *ctx) = waiting->rest_sent;
    void *rest_ctx = waiting->rest_ctx;
    struct sl_outbox_block *block = waiting->block;
    outbox->frame_count -= (uint32_t)waiting->frame_count;
    block->waiting_count--;
    if (block->waiting_count == 0 && block != outbox->reserved) {
        block_put(outbox, block);
    }
    if (rest_sent != NULL) {
        rest_sent(rest_ctx);
    }
}

void sl_outbox_sent(struct sl_outbox *outbox, void *cookie)
{
    sl_assert(outbox != NULL);
    sl_assert(cookie != NULL);
    struct sl_outbox_waiting *waiting = cookie;
    struct sl_outbox_queue *queue = waiting->queue;
    sl_assert(queue->first == waiting); /* a transport reports in the order of sending */
    sl_assert(queue->offer != waiting); /* and only what it took */
    queue->first = waiting->next;
    queue->count -= (uint32_t)waiting->frame_count;
    if (queue->first == NULL) {
        queue->last = NULL;
    }
    waiting_release(outbox, waiting);
}

/* Offers up to WRITABLE_BURST frames; false when the transport did not take them all. */
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
