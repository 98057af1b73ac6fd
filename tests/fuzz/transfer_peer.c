/* A hostile peer of a transfer engine, over TCP: a control connection or a lane, with or without a
 * hello, and any bytes after it. The engine closes the connection or answers, and nothing but
 * memory that peers may write changes. The input: which connection, then a step each. */
#include <arpa/inet.h>
#include <errno.h>
#include <starling_transfer.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "net/rma/wire.h"
#include "net/session/message.h"
#include "net/wire/frame.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX    32
#define SLICES_MAX   4
#define FRAME_BYTES  (64U << 10)
#define MEMORY_BYTES 4096
#define CANARY       0xa5
#define WAIT_S       20

/* One engine, for one input after the other. Peers may read the first memory, read and write the
 * second; the last bytes are not registered. */
static struct {
    struct sl_transfer *transfer;
    uint8_t memory[3][MEMORY_BYTES];
    uint64_t keys[2];
    struct sl_endpoint ends[2]; /* for control connections, for lanes */
} world;

struct peer {
    int fd;
    uint64_t next_id;
    struct sl_rma_wire_slice slices[SLICES_MAX]; /* of the last REQUEST */
    uint64_t first_id;
    uint32_t slice_count, data_count;
};

static int open_socket(const struct sl_endpoint *to)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to->port)};
    const struct timeval wait = {.tv_sec = WAIT_S};
    sl_assert(inet_pton(AF_INET, to->host, &address.sin_addr) == 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sl_assert(fd >= 0);
    sl_assert(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
    sl_assert(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0);
    while (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        sl_assert(errno == EINTR); /* by libFuzzer's timer: the next call waits on */
    }
    return fd;
}

/* Reads what has come, so that no side waits for the other. */
static void drain(int fd)
{
    static uint8_t answers[FRAME_BYTES];
    while (recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0) {
    }
}

static void send_bytes(int fd, const void *bytes, size_t count)
{
    (void)send(fd, bytes, count, MSG_NOSIGNAL); /* the engine may have closed */
}

static void send_frame(int fd, struct sl_frame frame, const void *payload)
{
    static uint8_t bytes[SL_FRAME_HEADER_BYTES + FRAME_BYTES];
    sl_assert(frame.payload_bytes <= FRAME_BYTES);
    sl_frame_encode(&frame, bytes);
    memcpy(&bytes[SL_FRAME_HEADER_BYTES], payload, frame.payload_bytes);
    send_bytes(fd, bytes, SL_FRAME_HEADER_BYTES + frame.payload_bytes);
}

static void send_message(int fd, const struct sl_message *message)
{
    uint8_t payload[8192];
    const struct sl_frame frame = {.type = SL_FRAME_CONTROL,
                                   .payload_bytes = (uint32_t)sl_message_encoded_bytes(message)};
    sl_assert(frame.payload_bytes <= sizeof payload);
    sl_message_encode(message, payload);
    send_frame(fd, frame, payload);
}

static void send_hello(int fd, uint8_t client_id, uint32_t lane, bool checksum)
{
    const struct sl_message hello = {
        .kind = SL_MESSAGE_HELLO,
        .id = 1,
        .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                  .purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                  .role = SL_MESSAGE_ROLE_CLIENT,
                  .client_id = 1U + client_id,
                  .checksum = checksum,
                  .lane = lane,
                  .lane_epoch = lane},
    };
    send_message(fd, &hello);
}

/* Start */

static void read_all(int fd, void *to, size_t bytes)
{
    sl_assert(recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static void read_message(int fd, struct sl_message *out)
{
    uint8_t bytes[FRAME_BYTES];
    struct sl_frame frame;
    read_all(fd, bytes, SL_FRAME_HEADER_BYTES);
    sl_assert(sl_frame_decode(bytes, &frame) == 0);
    sl_assert(frame.payload_bytes <= sizeof bytes);
    read_all(fd, bytes, frame.payload_bytes);
    sl_assert(sl_message_decode(bytes, frame.payload_bytes, out) == 0);
}

/* The keys are random: the engine tells them to its peers. */
static void learn_keys(void)
{
    struct sl_message answer;
    const struct sl_message request = {.kind = SL_MESSAGE_SEGMENT_GET, .id = 2};
    sl_assert(sl_endpoint_parse(sl_transfer_name(world.transfer), &world.ends[0], NULL) == 0);
    int fd = open_socket(&world.ends[0]);
    send_hello(fd, UINT8_MAX, 0, false);
    read_message(fd, &answer);
    sl_assert(answer.kind == SL_MESSAGE_WELCOME);
    sl_message_fini(&answer);
    send_message(fd, &request);
    read_message(fd, &answer);
    sl_assert(answer.kind == SL_MESSAGE_SEGMENT);
    sl_assert(answer.segment.buffers.count == 2);
    sl_assert(answer.segment.endpoint_count >= 1); /* the first is tcp */
    for (int i = 0; i < 2; i++) {
        world.keys[i] = answer.segment.buffers.items[i].key;
    }
    sl_assert(sl_endpoint_parse(answer.segment.endpoints[0].endpoint, &world.ends[1], NULL) == 0);
    sl_message_fini(&answer);
    (void)close(fd);
}

static void stop(void)
{
    sl_transfer_destroy(&world.transfer);
}

static void start(void)
{
    if (world.transfer != NULL) {
        return;
    }
    sl_log_setup(SL_LOG_OFF, "fuzz");
    memset(world.memory, CANARY, sizeof world.memory);
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    const struct sl_transfer_memory memory[2] = {
        {.base = world.memory[0], .bytes = MEMORY_BYTES, .access = SL_TRANSFER_PEERS_READ},
        {.base = world.memory[1],
         .bytes = MEMORY_BYTES,
         .access = SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE},
    };
    sl_assert(sl_transfer_create(&options, &world.transfer) == 0);
    sl_assert(sl_transfer_register(world.transfer, memory, 2) == 0);
    sl_assert(atexit(stop) == 0);
    learn_keys();
}

/* Steps */

static void step_frame(struct peer *peer, struct sl_bytes *input)
{
    struct sl_frame frame = {
        .type = sl_bytes_u8(input) % 8,
        .request_id = sl_bytes_u8(input),
        .budget_us = sl_bytes_u16(input),
        .flags = sl_bytes_u8(input) % 4,
        .status = sl_bytes_u8(input) % 4,
    };
    const struct sl_bytes piece = fuzz_input_piece(input, FRAME_BYTES);
    frame.payload_bytes = (uint32_t)piece.left;
    send_frame(peer->fd, frame, piece.next);
}

static void step_request(struct peer *peer, struct sl_bytes *input)
{
    uint8_t
        payload[sizeof(struct sl_rma_wire_prefix) + SLICES_MAX * sizeof(struct sl_rma_wire_slice)];
    const struct sl_rma_wire_prefix prefix = {.slice_count = 1 + sl_bytes_u8(input) % SLICES_MAX};
    for (uint32_t i = 0; i < prefix.slice_count; i++) {
        const uint8_t how = sl_bytes_u8(input);
        peer->slices[i] = (struct sl_rma_wire_slice){
            .key = how % 4 < 2 ? world.keys[how % 4] : how,
            .offset = (how & 4) == 0 ? sl_bytes_u16(input) : sl_bytes_u64(input),
            .bytes = sl_bytes_u16(input),
            .op = (how & 8) == 0 ? SL_RMA_READ : SL_RMA_WRITE,
        };
    }
    memcpy(payload, &prefix, sizeof prefix);
    memcpy(&payload[sizeof prefix], peer->slices, prefix.slice_count * sizeof peer->slices[0]);
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = sl_rma_wire_request_bytes(prefix.slice_count),
        .request_id = peer->next_id,
        .budget_us = 1 + sl_bytes_u16(input),
    };
    peer->first_id = peer->next_id;
    peer->next_id += prefix.slice_count;
    peer->slice_count = prefix.slice_count;
    peer->data_count = 0;
    send_frame(peer->fd, frame, payload);
}

static const uint8_t zeros[UINT16_MAX];

/* The data of the next WRITE of the last REQUEST. */
static void step_data(struct peer *peer)
{
    while (peer->data_count < peer->slice_count) {
        const uint32_t i = peer->data_count++;
        if (peer->slices[i].op == SL_RMA_WRITE) {
            const struct sl_frame frame = {.type = SL_FRAME_DATA,
                                           .payload_bytes = peer->slices[i].bytes,
                                           .request_id = peer->first_id + i};
            send_frame(peer->fd, frame, zeros);
            return;
        }
    }
}

static void step_message(struct peer *peer, struct sl_bytes *input)
{
    static const enum sl_message_kind KINDS[] = {SL_MESSAGE_SEGMENT_GET, SL_MESSAGE_FENCE,
                                                 SL_MESSAGE_NOTICE, SL_MESSAGE_BUFFER_RELEASED};
    struct sl_message message = {.kind = KINDS[sl_bytes_u8(input) % 4], .id = sl_bytes_u8(input)};
    switch (message.kind) {
    case SL_MESSAGE_SEGMENT_GET:
        message.above = (uintptr_t)world.memory + sl_bytes_u16(input);
        break;
    case SL_MESSAGE_FENCE:
        message.fence.lane = 1U + sl_bytes_u8(input);
        message.fence.epoch = sl_bytes_u8(input);
        break;
    case SL_MESSAGE_NOTICE:
        message.notice = (struct sl_message_notice){.attached = zeros,
                                                    .attached_bytes = sl_bytes_u8(input) * 256U,
                                                    .sequence = 1U + sl_bytes_u8(input),
                                                    .sender = "127.0.0.1:1",
                                                    .name = "n",
                                                    .byte_count = 2};
        break;
    default:
        message.keys.count = 1;
        message.keys.items[0] = world.keys[sl_bytes_u8(input) % 2];
        break;
    }
    send_message(peer->fd, &message);
}

static void step(struct peer *peer, struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input) % 8;
    if (what == 0) {
        const struct sl_bytes piece = fuzz_input_piece(input, FRAME_BYTES);
        send_bytes(peer->fd, piece.next, piece.left);
    } else if (what == 1) {
        step_frame(peer, input);
    } else if (what == 2) {
        send_hello(peer->fd, 0, sl_bytes_u8(input), false);
    } else if (what == 3) {
        step_message(peer, input);
    } else if (what < 6) {
        step_request(peer, input);
    } else {
        step_data(peer);
    }
}

static void wait_for_the_end(int fd)
{
    uint8_t bytes[4096];
    ssize_t got;
    (void)shutdown(fd, SHUT_WR);
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0 || (got < 0 && errno == EINTR)) {
    }
    sl_assert(got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK));
    (void)close(fd);
}

static void check_memory(const uint8_t *memory)
{
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        sl_assert(memory[i] == CANARY);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    start();
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    const uint8_t how = sl_bytes_u8(&input);
    struct peer peer = {.fd = open_socket(&world.ends[how & 1]), .next_id = 1};
    if ((how & 2) != 0) {
        send_hello(peer.fd, how / 16, how & 1, (how & 4) != 0);
    }
    for (int i = 0; i < STEPS_MAX && fuzz_input_has_more(&input); i++) {
        step(&peer, &input);
        drain(peer.fd);
    }
    wait_for_the_end(peer.fd);
    check_memory(world.memory[0]);
    check_memory(world.memory[2]);
    return 0;
}
