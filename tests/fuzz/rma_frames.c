/* Frames of hostile peers on two connections: to a target of one-sided operations, and to an
 * initiator. Each slice ends exactly once, memory is written only where a slice allows it, and no
 * memory is in use when the connections have ended. The input: a step each. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/rma/initiator.h"
#include "net/rma/target.h"
#include "tests/fuzz/input.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"

#define STEPS_MAX     64
#define SLICES        16
#define MEMORY_BYTES  (64U << 10)
#define PAYLOAD_BYTES (40U << 10)
#define OUTBOX_BYTES  ((size_t)32 << 20)
#define LAST_TURNS    200

/* Their index is that of the connection: the first goes to a target, the second to an initiator. */
enum { TO_TARGET, TO_INITIATOR, CONNS };

struct end {
    struct sl_conn *conn; /* NULL: closed */
    struct sl_outbox_queue queue;
    bool is_played, is_asked; /* is_asked: `accepted` or `connected` came */
};

/* One world, for one input after the other. */
static struct world {
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_outbox outboxes[2]; /* of the connecting and the accepting reactor */
    struct end ends[CONNS][2];
    struct sl_rma_target target;
    struct sl_rma_memory memories[2]; /* peers may read the second, not write it */
    struct sl_rma_initiator initiator;
    struct sl_rma_slice slices[SLICES];
    bool is_sent[SLICES];
    uint64_t next_id;
} world;

static uint8_t sinks[2][SL_LIMIT_FRAME_PAYLOAD_BYTES];

/* Upper layers */

static struct sl_rma_memory *find(void *ctx, uint64_t key)
{
    return key < 2 ? &world.memories[key] : NULL;
}

static void unused(void *ctx, struct sl_rma_memory *memory)
{
    sl_assert(memory->uses == 0);
}

static void done(void *ctx, struct sl_rma_slice *slice, int err, const char *text)
{
    const size_t index = (size_t)(slice - world.slices);
    sl_assert(world.is_sent[index] && !slice->is_lent);
    sl_assert(err <= 0 && (err == 0) == (text[0] == '\0'));
    world.is_sent[index] = false;
}

static const struct sl_rma_target_events target_events = {.find = find, .unused = unused};
static const struct sl_rma_initiator_events initiator_events = {.done = done};

static struct end *end_of(const struct sl_conn *conn)
{
    return conn->user;
}

static bool is_accepting(const struct end *end)
{
    return end == &world.ends[TO_TARGET][1] || end == &world.ends[TO_INITIATOR][1];
}

static struct sl_outbox *outbox_of(const struct end *end)
{
    return &world.outboxes[is_accepting(end)];
}

static void violated(struct end *end)
{
    sl_transport_disconnect(end->conn);
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct end *end = world.ends[TO_TARGET][1].is_asked ? &world.ends[TO_INITIATOR][1]
                                                        : &world.ends[TO_TARGET][1];
    conn->user = end;
    conn->is_welcome = true;
    end->conn = conn;
    end->is_asked = true;
    if (!end->is_played) {
        sl_rma_target_init(&world.target, &target_events, NULL, conn, outbox_of(end), &end->queue,
                           sinks[0]);
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct end *end = end_of(conn);
    end->conn = conn;
    end->is_asked = true;
    if (!end->is_played) {
        const struct sl_credit credit = {.bytes = SL_LIMIT_TRANSFER_CREDIT_BYTES, .requests = 64};
        sl_rma_initiator_open(&world.initiator, conn, outbox_of(end), &end->queue, credit);
    }
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct end *end = end_of(conn);
    if (end->is_played) {
        return sinks[1];
    }
    void *memory = is_accepting(end) ? sl_rma_target_sink(&world.target, header)
                                     : sl_rma_initiator_sink(&world.initiator, header);
    if (memory == NULL) {
        violated(end);
    }
    return memory;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct end *end = end_of(conn);
    const char *violation = NULL;
    if (end->is_played) {
        sl_transport_release(conn, message);
        return;
    }
    const int err = is_accepting(end)
                        ? sl_rma_target_received(&world.target, message, &violation)
                        : sl_rma_initiator_received(&world.initiator, message, &violation);
    if (err != 0) {
        sl_assert(err == SL_ERR_PROTOCOL && violation != NULL);
        violated(end);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    sl_outbox_sent(outbox_of(end_of(conn)), cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct end *end = end_of(conn);
    sl_outbox_writable(outbox_of(end), conn, &end->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct end *end = end_of(conn);
    sl_outbox_closed(outbox_of(end), conn, &end->queue);
    if (!end->is_played && is_accepting(end)) {
        sl_rma_target_closed(&world.target);
    } else if (!end->is_played) {
        sl_rma_initiator_closed(&world.initiator, SL_ERR_CLOSED, "closed");
    }
    end->conn = NULL;
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

/* The world */

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_stepped_pair_turn(&world.pair, SL_CLOCK_NS_PER_MS);
        if (world.ends[TO_TARGET][1].conn != NULL) {
            (void)sl_rma_target_pump(&world.target);
        }
        if (world.ends[TO_INITIATOR][0].conn != NULL) {
            sl_rma_initiator_pump(&world.initiator);
        }
    }
}

static void start(uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.next_id = 1;
    world.ends[TO_TARGET][0].is_played = world.ends[TO_INITIATOR][1].is_played = true;
    sl_loop_network_init(&world.network, seed);
    sl_stepped_pair_init(&world.pair, &sl_loop_transport_ops, &world.network, &world.network);
    sl_stepped_pair_turn(&world.pair, SL_CLOCK_NS_PER_MS);
    for (uint32_t i = 0; i < 2; i++) {
        sl_assert(sl_outbox_init(&world.outboxes[i], OUTBOX_BYTES, false) == 0);
        world.memories[i] = (struct sl_rma_memory){
            .key = i, .bytes = MEMORY_BYTES, .peers_read = true, .peers_write = i == 0};
        world.memories[i].base = calloc(1, MEMORY_BYTES);
        sl_assert(world.memories[i].base != NULL);
    }
    sl_rma_initiator_init(&world.initiator, &initiator_events, NULL);
    struct sl_endpoint bound;
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    sl_assert(sl_transport_listen(world.pair.b.transport, &any, &events, NULL, &bound) == 0);
    for (uint32_t i = 0; i < CONNS; i++) {
        struct sl_conn *conn;
        sl_assert(sl_transport_connect(world.pair.a.transport, &bound, 0, &events, NULL,
                                       &world.ends[i][0], &conn) == 0);
        while (!world.ends[i][1].is_asked) {
            sl_stepped_pair_turn(&world.pair, SL_CLOCK_NS_PER_MS);
        }
    }
}

static void end(void)
{
    for (uint32_t i = 0; i < CONNS; i++) {
        if (world.ends[i][0].conn != NULL) {
            sl_transport_disconnect(world.ends[i][0].conn);
        }
    }
    turns(LAST_TURNS);
    sl_stepped_pair_fini(&world.pair);
    for (uint32_t i = 0; i < 2; i++) {
        sl_assert(world.memories[i].uses == 0);
        sl_outbox_fini(&world.outboxes[i]);
    }
    for (uint32_t i = 0; i < SLICES; i++) {
        sl_assert(!world.is_sent[i]);
        free(world.slices[i].local);
    }
    for (uint32_t i = 0; i < MEMORY_BYTES; i++) {
        sl_assert(world.memories[1].base[i] == 0);
    }
    free(world.memories[0].base);
    free(world.memories[1].base);
    sl_loop_network_fini(&world.network);
}

/* Steps */

static struct end *played(uint32_t conn)
{
    return &world.ends[conn][conn == TO_TARGET ? 0 : 1];
}

/* Sends a frame from a played end; a payload that is shorter than the frame's ends in zeros. */
static void send_frame(uint32_t conn, struct sl_frame frame, const void *payload, size_t bytes)
{
    struct end *from = played(conn);
    uint8_t *head =
        from->conn == NULL ? NULL : sl_outbox_reserve(outbox_of(from), frame.payload_bytes);
    if (head != NULL) {
        memset(head + SL_FRAME_HEADER_BYTES, 0, frame.payload_bytes);
        memcpy(head + SL_FRAME_HEADER_BYTES, payload, bytes);
        sl_outbox_commit(outbox_of(from), from->conn, &from->queue, &frame, NULL, 0, NULL, NULL);
    }
}

static void send_raw(uint32_t conn, struct sl_bytes *input)
{
    const uint8_t type = sl_bytes_u8(input), how = sl_bytes_u8(input);
    struct sl_frame frame = {
        .type = (uint8_t)(SL_FRAME_CONTROL + type % 5),
        .request_id = (how & 1) != 0 ? sl_bytes_u64(input) : sl_bytes_u8(input),
        .budget_us = how & 2,
        .credit_bytes = (how & 4) != 0 ? UINT32_MAX : 0,
        .credit_requests = (how & 8) != 0 ? UINT16_MAX : 0,
    };
    const struct sl_bytes piece = fuzz_input_piece(input, PAYLOAD_BYTES);
    frame.payload_bytes = (uint32_t)piece.left + ((how & 16) != 0 ? sl_bytes_u16(input) : 0);
    frame.payload_bytes = frame.type == SL_FRAME_CREDIT ? 0 : frame.payload_bytes;
    frame.status = frame.type == SL_FRAME_REPLY && (how & 32) != 0 ? how : 0;
    send_frame(conn, frame, piece.next, frame.type == SL_FRAME_CREDIT ? 0 : piece.left);
}

static void request(struct sl_bytes *input)
{
    struct {
        struct sl_rma_wire_prefix prefix;
        struct sl_rma_wire_slice slices[8];
    } payload = {.prefix = {.slice_count = 1 + sl_bytes_u8(input) % 8U}};
    for (uint32_t i = 0; i < payload.prefix.slice_count; i++) {
        const uint8_t how = sl_bytes_u8(input);
        const uint64_t offset = sl_bytes_u16(input);
        payload.slices[i] = (struct sl_rma_wire_slice){
            .key = how / 2 % 3,
            .offset = (how & 128) != 0 ? UINT64_MAX - offset : offset,
            .bytes = 1 + sl_bytes_u16(input) % PAYLOAD_BYTES,
            .op = how % 2 == 0 ? SL_RMA_READ : SL_RMA_WRITE,
        };
    }
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = sl_rma_wire_request_bytes(payload.prefix.slice_count),
        .request_id = world.next_id,
        .budget_us = 1U << sl_bytes_u8(input) % 24,
    };
    world.next_id += payload.prefix.slice_count;
    send_frame(TO_TARGET, frame, &payload, frame.payload_bytes);
}

/* The DATA that the target waits for, or nearly so. */
static void data(struct sl_bytes *input)
{
    const struct sl_rma_target_slice *slice = world.target.writes.first;
    const uint8_t how = sl_bytes_u8(input);
    if (world.ends[TO_TARGET][1].conn != NULL && slice != NULL) {
        const struct sl_frame frame = {.type = SL_FRAME_DATA,
                                       .request_id = slice->id + (how == 255),
                                       .payload_bytes = slice->bytes + (how == 254)};
        send_frame(TO_TARGET, frame, &how, 1);
    }
}

static void send_slices(struct sl_bytes *input)
{
    struct sl_rma_slice *offered[SLICES];
    uint32_t count = 0;
    const uint32_t wanted = 1 + sl_bytes_u8(input) % SLICES;
    for (uint32_t i = 0; i < SLICES && count < wanted; i++) {
        if (!world.is_sent[i]) {
            struct sl_rma_slice *slice = &world.slices[i];
            free(slice->local);
            slice->bytes = 1 + sl_bytes_u16(input) % PAYLOAD_BYTES;
            slice->op = sl_bytes_u8(input) % 2 == 0 ? SL_RMA_READ : SL_RMA_WRITE;
            slice->local = calloc(1, slice->bytes); /* of just that size, for the sanitizer */
            sl_assert(slice->local != NULL);
            offered[count++] = slice;
        }
    }
    if (world.ends[TO_INITIATOR][0].conn != NULL && count > 0) {
        const uint32_t sent = sl_rma_initiator_send(&world.initiator, offered, count, 1000);
        for (uint32_t i = 0; i < sent; i++) {
            world.is_sent[offered[i] - world.slices] = true;
        }
    }
}

/* The answer to a slice that is in flight, or nearly so. */
static void answer(struct sl_bytes *input)
{
    const struct sl_rma_slice *slice = &world.slices[sl_bytes_u8(input) % SLICES];
    const uint8_t how = sl_bytes_u8(input);
    const struct sl_rma_wire_prefix applied = {.slice_count = how % 8U};
    if (slice->bytes == 0) { /* was never sent */
        return;
    }
    struct sl_frame frame = {.type = SL_FRAME_REPLY,
                             .request_id = slice->id,
                             .credit_bytes = slice->bytes,
                             .credit_requests = 1};
    if (slice->op == SL_RMA_WRITE) {
        frame.payload_bytes = sizeof applied;
    } else {
        frame.payload_bytes = slice->bytes - (how == 255);
    }
    frame.status = how >= 240 && how < 250 ? how : 0;
    const size_t bytes = frame.payload_bytes < sizeof applied ? 0 : sizeof applied;
    send_frame(TO_INITIATOR, frame, &applied, bytes);
}

static void step(struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input);
    switch (what % 8) {
    case 0:
        send_raw(what / 8 % CONNS, input);
        break;
    case 1:
        request(input);
        break;
    case 2:
        data(input);
        break;
    case 3:
        send_slices(input);
        break;
    case 4:
    case 5:
        answer(input);
        break;
    case 6:
        turns(1 + what / 8);
        break;
    default:
        if (what == 255 && played(sl_bytes_u8(input) % CONNS)->conn != NULL) {
            sl_transport_disconnect(played(TO_TARGET)->conn != NULL ? played(TO_TARGET)->conn
                                                                    : played(TO_INITIATOR)->conn);
        } else {
            turns(1 + what / 8);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    start(1 + sl_bytes_u8(&input));
    for (uint32_t steps = 0; steps < STEPS_MAX && fuzz_input_has_more(&input); steps++) {
        step(&input);
    }
    end();
    return 0;
}
