/* Packets of a peer over RDMA, well made or badly, to a connection of a device that is not there:
 * with answers to requests that had reply buffers, sinks that are refused and given, messages that
 * are held, reads that end or do not, and the end in the middle of all. Nothing may crash or leak;
 * the device may be asked for nothing that is not registered; no more may be delivered than was
 * sent. */
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/shared.h"
#include "net/rdma/end.h"
#include "net/rdma/receive.h"
#include "net/rdma/send.h"
#include "tests/fuzz/input.h"
#include "tests/unit/net/rdma/wire.h"

#define STEPS_MAX          64 /* of one input */
#define SINK_BYTES         SL_LIMIT_FRAME_PAYLOAD_BYTES
#define FRAME_BYTES        (SL_FRAME_HEADER_BYTES + 20000)
#define REPLY_BUFFER_BYTES 65536U

static struct rdma_wire wire; /* large */
static struct sl_shared reply_buffer;
static _Alignas(4096) uint8_t sink[SINK_BYTES], frame[FRAME_BYTES];

static struct rdma_wire_end *mad(void)
{
    return &wire.ends[0];
}

static struct rdma_wire_end *victim(void)
{
    return &wire.ends[1];
}

/* The head as it should be, as far as the length allows: else few inputs get behind it. */
static void fix_checksums(uint8_t *packet, uint32_t bytes)
{
    struct sl_rdma_packet head;
    if (bytes < sizeof head) {
        return;
    }
    memcpy(&head, packet, sizeof head);
    uint32_t pieces = ((uint32_t)head.remote_sge_count + head.reply_buffer_count) *
                      (uint32_t)sizeof(struct sl_rdma_remote_sge);
    head.limit = victim()->conn->credit.limit_theirs + head.limit % 4;
    head.done = victim()->conn->credit.longs_done;
    if (bytes >= sizeof head + pieces) {
        head.frame_bytes = (uint32_t)(bytes - sizeof head) - pieces;
    }
    memcpy(packet, &head, sizeof head);
}

static bool is_over(void)
{
    return victim()->conn->phase == SL_RDMA_ENDED;
}

static void say_anything(struct sl_bytes *input)
{
    uint8_t packet[SL_RDMA_PACKET_BYTES];
    bool is_fixed = sl_bytes_u8(input) % 8 != 0;
    struct sl_bytes piece = fuzz_input_piece(input, sizeof packet);
    uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, packet, bytes);
    if (is_fixed) {
        fix_checksums(packet, bytes);
    }
    if (!is_over() && wire.fake.posted_count > 0) {
        rdma_wire_inject(victim(), packet, bytes);
    }
}

/* A frame of any kind and size, as a transport of ours would send it. */
static void say_frame(struct sl_bytes *input)
{
    uint32_t bytes = sl_bytes_u16(input) % (FRAME_BYTES - SL_FRAME_HEADER_BYTES);
    bool is_reply = sl_bytes_u8(input) % 2 == 0;
    uint64_t request_id = sl_bytes_u8(input);
    struct sl_rdma_send *send = mad()->conn->send;
    if (mad()->conn->base.state == SL_CONN_OPEN && send != NULL && !is_over()) {
        rdma_wire_frame(frame, is_reply ? SL_FRAME_REPLY : SL_FRAME_REQUEST, request_id, bytes, 1);
        const struct sl_transport_frame offered = {
            .head = frame, .head_bytes = SL_FRAME_HEADER_BYTES + bytes, .cookie = frame};
        (void)sl_rdma_send_burst(&mad()->conn->base, &offered, 1);
    }
}

/* A request of the victim, whose answer may be written to the reply buffer. */
static void ask(struct sl_bytes *input)
{
    static _Alignas(8) uint8_t request[SL_FRAME_HEADER_BYTES];
    rdma_wire_frame(request, SL_FRAME_REQUEST, sl_bytes_u8(input), 0, 0);
    const struct sl_transport_frame offered = {.head = request,
                                               .head_bytes = sizeof request,
                                               .cookie = request,
                                               .reply_buffer = reply_buffer.base,
                                               .reply_buffer_bytes = REPLY_BUFFER_BYTES};
    (void)sl_rdma_send_burst(&victim()->conn->base, &offered, 1);
}

/* The device completes work requests of the victim, which say what the peer likes: nothing is
 * moved. */
static void complete(uint32_t count)
{
    struct rdma_wire_end *end = victim();
    for (; count > 0 && end->done != end->posted && !is_over(); count--) {
        const struct rdma_wire_request *request = &end->requests[end->done++ % RDMA_WIRE_REQUESTS];
        uint32_t number = request->id >> 18 & 0xfffff;
        if ((request->flags & IBV_SEND_SIGNALED) == 0) {
            continue;
        }
        if (request->opcode == IBV_WR_RDMA_READ) {
            sl_rdma_receive_read_done(end->conn, number);
        } else {
            sl_rdma_send_completed(end->conn, number);
        }
    }
}

static void release_some(uint32_t count)
{
    for (; count > 0 && victim()->released < victim()->received; count--) {
        rdma_wire_release(victim(), victim()->released);
    }
}

static void step(struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    switch (what % 8) {
    case 0:
    case 1:
        say_anything(input);
        break;
    case 2:
        say_frame(input);
        break;
    case 3:
        ask(input);
        break;
    case 4:
        victim()->sink = what / 8 % 2 == 0 ? sink : NULL;
        break;
    case 5:
        complete(1 + what / 8U);
        break;
    case 6:
        release_some(what / 8U);
        rdma_wire_turn(&wire);
        break;
    default:
        if (what / 8 == 31) {
            sl_rdma_conn_disconnect(&victim()->conn->base);
        } else {
            rdma_wire_turn(&wire);
            (void)rdma_wire_carry(mad(), 1 + what / 8U);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    rdma_wire_init(&wire);
    sl_log_setup(SL_LOG_OFF, "fuzz");
    sl_assert(
        sl_shared_create("reply buffer", REPLY_BUFFER_BYTES, SL_SHARED_WRITE, &reply_buffer) == 0);
    sl_assert(
        sl_rdma_memory_register(&wire.fake.rdma.base, reply_buffer.base, reply_buffer.bytes) == 0);
    victim()->hold = true;
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    for (uint32_t i = 0; i < STEPS_MAX && fuzz_input_has_more(&input); i++) {
        step(&input);
    }
    release_some(UINT32_MAX);
    sl_rdma_memory_unregister(&wire.fake.rdma.base, reply_buffer.base);
    rdma_wire_fini(&wire);
    sl_shared_destroy(&reply_buffer);
    return 0;
}
