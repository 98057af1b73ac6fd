/* A peer that is no transport of ours: what it sends can end its connection, and nothing else. */
#include "conformance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The peer's end of the stream: orderly, or since it threw away what we sent. */
static void expect_end(int fd)
{
    uint8_t byte;
    assert_true(TEMP_FAILURE_RETRY(recv(fd, &byte, 1, 0)) <= 0);
}

/* One good frame, then `bytes` bytes that must end the connection with `err`. */
static void expect_refused(const uint8_t *bad, size_t bytes, int err)
{
    struct raw raw = raw_open(world_open(2, NULL));
    uint8_t good[FRAME_BYTES(24)], answer[FRAME_BYTES(24)];
    raw_make_frame(good, 1, 24);
    raw_write(raw.fd, good, sizeof good);
    raw_read(raw.fd, answer, sizeof answer);
    raw_write(raw.fd, bad, bytes);
    WAIT_UNTIL(raw.accepted->closed == 1);
    assert_int_equal(raw.accepted->close_err, err);
    assert_int_equal(raw.accepted->received, 1);
    expect_end(raw.fd);
    raw_close(&raw);
}

SL_CASE(header__not_ours)
{
    static const char http[] = "GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n";
    expect_refused((const uint8_t *)http, sizeof http - 1, SL_ERR_PROTOCOL);
}

SL_CASE(header__random_bytes)
{
    uint8_t bytes[4096];
    memcpy(bytes, content_of(1, sizeof bytes), sizeof bytes);
    bytes[4] = 0; /* by no chance our magic */
    expect_refused(bytes, sizeof bytes, SL_ERR_PROTOCOL);
}

SL_CASE(header__unknown_type)
{
    uint8_t frame[FRAME_BYTES(8)];
    raw_make_frame(frame, 2, 8);
    frame[offsetof(struct sl_frame, type)] = 99;
    expect_refused(frame, sizeof frame, SL_ERR_PROTOCOL);
}

SL_CASE(header__payload_over_the_limit)
{
    uint8_t frame[FRAME_BYTES(8)];
    raw_make_frame(frame, 2, 8);
    uint32_t bytes = SL_LIMIT_FRAME_PAYLOAD_BYTES + 1;
    memcpy(frame, &bytes, sizeof bytes);
    expect_refused(frame, sizeof frame, SL_ERR_TOO_LARGE);
}

SL_CASE(header__other_version_and_long)
{
    uint8_t frame[FRAME_BYTES(8)];
    raw_make_frame(frame, 2, 8);
    uint32_t bytes = SL_LIMIT_INLINE_PAYLOAD_BYTES + 1;
    memcpy(frame, &bytes, sizeof bytes);
    frame[offsetof(struct sl_frame, version)] = SL_FRAME_PROTOCOL_VERSION + 1;
    expect_refused(frame, sizeof frame, SL_ERR_VERSION);
}

/* A short frame of another version reaches the upper layer, which alone can answer in words. */
SL_CASE(header__other_version_is_delivered)
{
    struct raw raw = raw_open(world_open(2, NULL));
    uint8_t frame[FRAME_BYTES(24)], answer[FRAME_BYTES(24)];
    raw_make_frame(frame, 1, 24);
    frame[offsetof(struct sl_frame, version)] = SL_FRAME_PROTOCOL_VERSION + 1;
    raw_write(raw.fd, frame, sizeof frame);
    raw_read(raw.fd, answer, sizeof answer);
    assert_int_equal(raw.accepted->received, 1);
    raw_close(&raw);
}

/* The end comes in the middle of a header, of a short payload, of a long one. */
SL_CASE(stream__ends_inside_a_frame)
{
    static const uint32_t payloads[] = {24, 3000, 100000};
    static const uint32_t cuts[] = {10, FRAME_BYTES(1000), FRAME_BYTES(70000)};
    for (size_t i = 0; i < 3; i++) {
        struct raw raw = raw_open(world_open(2, NULL));
        uint8_t *frame = malloc(FRAME_BYTES(100000));
        raw_make_frame(frame, 1, payloads[i]);
        raw_write(raw.fd, frame, cuts[i]);
        shutdown(raw.fd, SHUT_WR);
        WAIT_UNTIL(raw.accepted->closed == 1);
        assert_int_equal(raw.accepted->close_err, SL_ERR_CLOSED);
        assert_int_equal(raw.accepted->received, 0);
        expect_end(raw.fd);
        free(frame);
        raw_close(&raw);
    }
}

/* A reset, with frames of ours on their way. */
SL_CASE(stream__is_reset)
{
    struct raw raw = raw_open(world_open(2, NULL));
    uint32_t sizes[] = {4000000, 4000000, 64};
    peer_send_from_test(raw.accepted, sizes, 3);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(raw.fd);
    WAIT_UNTIL(raw.accepted->closed == 1);
    assert_int_equal(raw.accepted->close_err, SL_ERR_CLOSED);
    raw.fd = -1;
    raw_close(&raw);
}

/* Byte by byte, so that every boundary falls between two receives. */
SL_CASE(stream__trickles)
{
    struct raw raw = raw_open(world_open(2, NULL));
    uint8_t frames[2 * FRAME_BYTES(40)], answer[FRAME_BYTES(40)];
    raw_make_frame(frames, 1, 40);
    raw_make_frame(frames + FRAME_BYTES(40), 2, 40);
    for (size_t i = 0; i < sizeof frames; i++) {
        raw_write(raw.fd, frames + i, 1);
        if (i % 16 == 0) {
            usleep(200);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        raw_read(raw.fd, answer, sizeof answer);
        assert_memory_equal(answer, frames + i * FRAME_BYTES(40), sizeof answer);
    }
    raw_close(&raw);
}

/* Who does not read fills the transport's queue, and no more: what the transport holds is bounded.
 * Once he reads, everything is there. */
SL_CASE(stream__slow_reader)
{
    enum { FRAMES = 4000, PAYLOAD = 16000 };
    struct raw raw = raw_open(world_open(2, NULL));
    static uint32_t sizes[FRAMES];
    for (uint32_t i = 0; i < FRAMES; i++) {
        sizes[i] = PAYLOAD;
    }
    peer_send_from_test(raw.accepted, sizes, FRAMES);
    WAIT_UNTIL(raw.accepted->shorts > 0);
    usleep(50000);
    assert_true(raw.accepted->taken < FRAMES);
    uint8_t *frame = malloc(FRAME_BYTES(PAYLOAD));
    for (uint32_t i = 1; i <= FRAMES; i++) {
        raw_read(raw.fd, frame, FRAME_BYTES(PAYLOAD));
        assert_memory_equal(frame + SL_FRAME_HEADER_BYTES, content_of(i, PAYLOAD), PAYLOAD);
    }
    free(frame);
    WAIT_UNTIL(raw.accepted->sent == FRAMES);
    raw_close(&raw);
}

/* What a peer sent before it closed in anger is read, although we cannot send to it any more. */
SL_CASE(stream__last_words_are_read)
{
    struct raw raw = raw_open(world_open(2, NULL));
    uint8_t frame[FRAME_BYTES(40)];
    raw_make_frame(frame, 1, 40);
    raw_write(raw.fd, frame, sizeof frame);
    shutdown(raw.fd, SHUT_WR);
    WAIT_UNTIL(raw.accepted->closed == 1);
    assert_int_equal(raw.accepted->received, 1);
    assert_int_equal(raw.accepted->close_err, SL_ERR_CLOSED);
    raw_close(&raw);
}

const char conformance_raw_cases;
