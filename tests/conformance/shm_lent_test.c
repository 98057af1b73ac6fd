/* A malicious peer lends memory and takes it back, but still names it in frames, or still writes
 * to it. */
#include "shm_raw.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"

#define LENT_BYTES 65536U

static struct world *world;
static struct sl_endpoint slow_at;

/* ---- A layer above that is slow, and believes everything --------------------------------------
 * It writes an answer where a frame wanted it when the next frame has come. */

static atomic_uint heard, callers;
static uint8_t *kept_reply_buffer;

static void slow_accepted(void *ctx, struct sl_conn *conn)
{
    callers++;
}

static void *slow_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    static _Alignas(64) uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    return header->request_id % 2 == 0 ? SL_TRANSPORT_IN_PLACE : (void *)sink;
}

static void slow_received(void *ctx, struct sl_conn *conn,
                          const struct sl_transport_message *message)
{
    if (kept_reply_buffer != NULL) {
        memset(kept_reply_buffer, 5, LENT_BYTES);
    }
    kept_reply_buffer = conn->reply_buffer;
    heard++;
    sl_transport_release(conn, message);
}

static void slow_closed(void *ctx, struct sl_conn *conn, int err)
{
    callers--;
}

static void ignore_cookie(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void ignore(void *ctx, struct sl_conn *conn)
{
}

static const struct sl_transport_events slow = {.accepted = slow_accepted,
                                                .sink = slow_sink,
                                                .received = slow_received,
                                                .sent = ignore_cookie,
                                                .writable = ignore,
                                                .closed = slow_closed};

static void listen_slowly(struct node *node, void *ctx)
{
    struct sl_endpoint endpoint = node->bound;
    endpoint.port = 0;
    assert_int_equal(sl_transport_listen(node->transport, &endpoint, &slow, NULL, ctx), 0);
}

static void open_world(void)
{
    world = world_open(1, NULL);
    node_run(&world->nodes[0], listen_slowly, &slow_at);
}

static int make_memory(size_t bytes, int seals)
{
    int fd = memfd_create("mad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct sl_shm_slot slot_of_piece(uint64_t number, uint32_t bytes)
{
    struct sl_shm_slot slot = shm_raw_slot(1, 0);
    memcpy(slot.header, &bytes, sizeof bytes);
    memcpy(slot.header + offsetof(struct sl_frame, request_id), &number, sizeof number);
    slot.kind = SL_SHM_PIECES;
    slot.piece_count = 1;
    slot.pieces[0] = (struct sl_shm_piece){.region = 0, .bytes = bytes};
    return slot;
}

static void lend(const struct shm_raw *raw, uint32_t region, enum sl_shared_access access, int fd)
{
    const struct sl_shm_ctrl_msg note = {
        .kind = SL_SHM_CTRL_MSG_REGION, .region = region, .access = access, .bytes = LENT_BYTES};
    assert_true(shm_raw_note(raw, note, fd));
}

static struct sl_shm_slot slot_with_reply_buffer(uint32_t number, uint32_t region)
{
    struct sl_shm_slot slot = shm_raw_slot(number, 40);
    slot.has_reply_buffer = 1;
    slot.reply_buffer = (struct sl_shm_piece){.region = region, .bytes = LENT_BYTES};
    return slot;
}

/* To write, until a frame that wants its answer there has been heard. */
static void lend_for_one_frame(struct shm_raw *raw, int fd)
{
    const uint32_t before = heard;
    const struct sl_shm_slot slot = slot_with_reply_buffer(1, 0);
    kept_reply_buffer = NULL;
    lend(raw, 0, SL_SHARED_WRITE, fd);
    shm_raw_publish(raw, &slot);
    WAIT_UNTIL(heard == before + 1);
    assert_true(shm_raw_note(
        raw, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_WITHDRAW, .region = 0}, -1));
}

#define CASE(name) SL_CASE_WITH(name, open_world(), world_close(world))

/* Where it was lent to write, there is nothing that cannot be written, until the end. */
CASE(lent__to_write_and_then_to_read)
{
    struct shm_raw raw = shm_raw_connect(&slow_at);
    const int written = make_memory(LENT_BYTES, F_SEAL_SHRINK);
    const int read = make_memory(LENT_BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    const uint32_t before = heard;
    lend_for_one_frame(&raw, written);
    lend(&raw, 0, SL_SHARED_READ, read);
    struct sl_shm_slot slot = slot_of_piece(2, 400);
    shm_raw_publish(&raw, &slot);
    WAIT_UNTIL(heard == before + 2);
    shm_raw_close(&raw);
    WAIT_UNTIL(callers == 0);
    close(written);
    close(read);
}

static uint8_t last_byte(int fd)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, LENT_BYTES - 1), 1);
    return byte;
}

/* Other memory has its place, by another name; what still names the old is not taken for it. */
CASE(lent__anew_in_the_same_place)
{
    struct shm_raw raw = shm_raw_connect(&slow_at);
    const int first = make_memory(LENT_BYTES, F_SEAL_SHRINK);
    const int second = make_memory(LENT_BYTES, F_SEAL_SHRINK);
    const uint32_t again = SL_SHM_REGIONS; /* the place of 0 */
    const uint32_t before = heard;
    lend_for_one_frame(&raw, first);
    lend(&raw, again, SL_SHARED_WRITE, second);
    struct sl_shm_slot slot;
    for (uint32_t i = 2; i <= 3; i++) {
        slot = slot_with_reply_buffer(i, again);
        shm_raw_publish(&raw, &slot);
        WAIT_UNTIL(heard == before + i);
    }
    assert_int_equal(last_byte(first), 0);
    assert_int_equal(last_byte(second), 5);
    slot = slot_with_reply_buffer(4, 0);
    shm_raw_publish(&raw, &slot);
    shm_raw_await_end(&raw);
    assert_int_equal(heard, before + 3);
    shm_raw_close(&raw);
    WAIT_UNTIL(callers == 0);
    kept_reply_buffer = NULL;
    close(first);
    close(second);
}

/* Its owner has it back: nothing is read there any more, and nothing written. */
static void expect_unheard(const struct sl_shm_slot *slot)
{
    struct shm_raw raw = shm_raw_connect(&slow_at);
    const uint32_t before = heard;
    const int fd = make_memory(LENT_BYTES, F_SEAL_SHRINK);
    lend(&raw, 0, SL_SHARED_WRITE, fd);
    sl_shm_side_leave(&raw.segment->sides[0]);
    shm_raw_publish(&raw, slot);
    shm_raw_await_end(&raw);
    assert_int_equal(heard, before);
    shm_raw_close(&raw);
    WAIT_UNTIL(callers == 0);
    close(fd);
}

CASE(lent__and_taken_back)
{
    struct sl_shm_slot slot = slot_with_reply_buffer(1, 0);
    expect_unheard(&slot);
    const uint32_t sizes[] = {400, LENT_BYTES};
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t number = 1; number <= 2; number++) { /* into a sink, and in place */
            slot = slot_of_piece(number, sizes[i]);
            expect_unheard(&slot);
        }
    }
}

/* What was withdrawn keeps its address, and who lends goes on with the same. */
CASE(lent__more_than_there_are_addresses)
{
    const uint64_t half = SL_SHM_IMPORTED_BYTES / 2;
    struct shm_raw raw = shm_raw_connect(&world->nodes[0].bound);
    struct peer *accepted = node_peer(&world->nodes[0], 0);
    for (uint32_t i = 0; i < 3; i++) {
        const int fd = make_memory(half + i * 4096, F_SEAL_SHRINK);
        struct sl_shm_ctrl_msg note = {.kind = SL_SHM_CTRL_MSG_REGION, .bytes = half + i * 4096};
        assert_true(shm_raw_note(&raw, note, fd) || i > 0); /* the end may have come by then */
        note.kind = SL_SHM_CTRL_MSG_WITHDRAW;
        (void)shm_raw_note(&raw, note, -1);
        close(fd);
    }
    WAIT_UNTIL(accepted->closed == 1);
    assert_int_equal(accepted->close_err, SL_ERR_TOO_LARGE);
    shm_raw_close(&raw);
}

struct retired {
    struct sl_conn *conn;
    uint32_t count;
};

static void count_retired(struct node *node, void *ctx)
{
    struct retired *retired = ctx;
    retired->count = ((struct sl_shm_conn *)retired->conn)->link.imported->retired_count;
}

/* Lends memory of so many pages and takes it back, one region after the other. */
static void lend_and_withdraw(const struct shm_raw *raw, uint32_t number, uint32_t pages)
{
    const uint64_t bytes = pages * 4096ULL;
    const int fd = make_memory(bytes, F_SEAL_SHRINK);
    struct sl_shm_ctrl_msg note = {.kind = SL_SHM_CTRL_MSG_REGION,
                                   .region = number * SL_SHM_REGIONS,
                                   .access = SL_SHARED_WRITE,
                                   .bytes = bytes};
    assert_true(shm_raw_note(raw, note, fd));
    note.kind = SL_SHM_CTRL_MSG_WITHDRAW;
    assert_true(shm_raw_note(raw, note, -1));
    close(fd);
}

/* The number of ranges that are withdrawn, once all that the peer has said so far is known: a frame
 * names what it lends last. */
static uint32_t retired_after(struct shm_raw *raw, struct peer *accepted, uint32_t number)
{
    const uint32_t region = number * SL_SHM_REGIONS, before = accepted->received;
    const int fd = make_memory(LENT_BYTES, F_SEAL_SHRINK);
    lend(raw, region, SL_SHARED_WRITE, fd);
    const struct sl_shm_slot slot = slot_with_reply_buffer(before + 1, region);
    shm_raw_publish(raw, &slot);
    WAIT_UNTIL(accepted->received == before + 1 || accepted->closed == 1);
    assert_int_equal(accepted->closed, 0);
    struct retired retired = {.conn = accepted->conn};
    node_run(&world->nodes[0], count_retired, &retired);
    const struct sl_shm_ctrl_msg note = {.kind = SL_SHM_CTRL_MSG_WITHDRAW, .region = region};
    assert_true(shm_raw_note(raw, note, -1));
    close(fd);
    return retired.count;
}

/* Buffers that come and go cost no connection: of many sizes, they have the same addresses. */
CASE(lent__many_sizes_one_after_the_other)
{
    struct shm_raw raw = shm_raw_connect(&world->nodes[0].bound);
    struct peer *accepted = node_peer(&world->nodes[0], 0);
    for (uint32_t i = 0; i < 1000; i++) {
        lend_and_withdraw(&raw, i, 1 + i); /* each larger than all before */
    }
    const uint32_t before = retired_after(&raw, accepted, 1000);
    for (uint32_t i = 1; i < 1000; i++) {
        lend_and_withdraw(&raw, 1000 + i, 1 + i * 7919 % 1000);
    }
    assert_in_range(retired_after(&raw, accepted, 2000), 1, before + 1);
    shm_raw_close(&raw);
    WAIT_UNTIL(accepted->closed == 1);
}

/* It has closed its socket, and goes on writing into the ring, where there is always a frame. */
CASE(ring__of_a_peer_without_a_socket_is_heard_no_more)
{
    struct shm_raw raw = shm_raw_connect(&slow_at);
    WAIT_UNTIL(callers == 1);
    const uint32_t heard_before = heard;
    shutdown(raw.fd, SHUT_RDWR);
    for (uint32_t i = 0; i < 1000000 && callers == 1; i++) {
        while (raw.sent - sl_shm_side_consumed(&raw.segment->sides[1]) >= SL_SHM_SLOTS &&
               callers == 1) {
            sched_yield();
        }
        const struct sl_shm_slot slot = shm_raw_slot(2 * i + 1, 40);
        shm_raw_put(&raw, &slot);
    }
    assert_int_equal(callers, 0);
    assert_true(heard - heard_before < 1000000);
    shm_raw_close(&raw);
}

int main(void)
{
    static struct conformance_target target = {
        .name = "shm lent", .endpoint = "shm://conformance-lent:0", .shakes_hands = true};
    target.ops = sl_builtin_find(SL_ENDPOINT_SHM);
    conformance_target = &target;
    sl_log_setup(SL_LOG_OFF, "shm lent");
    return sl_unit_run("shm lent", __FILE__);
}
