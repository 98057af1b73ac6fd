#include "conformance.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void raw_write(int fd, const void *from, size_t bytes)
{
    const uint8_t *at = from;
    while (bytes > 0) {
        ssize_t written = send(fd, at, bytes, MSG_NOSIGNAL);
        assert_true(written > 0);
        at += written;
        bytes -= (size_t)written;
    }
}

void raw_read(int fd, void *to, size_t bytes)
{
    uint8_t *at = to;
    while (bytes > 0) {
        ssize_t got = TEMP_FAILURE_RETRY(recv(fd, at, bytes, 0));
        assert_true(got > 0);
        at += got;
        bytes -= (size_t)got;
    }
}

void raw_make_frame(uint8_t *to, uint32_t number, uint32_t payload_bytes)
{
    struct sl_frame header = {.type = type_of(number),
                              .payload_bytes = payload_bytes,
                              .request_id = number,
                              .budget_us = 1};
    sl_frame_encode(&header, to);
    memcpy(to + SL_FRAME_HEADER_BYTES, content_of(number, payload_bytes), payload_bytes);
}

struct raw raw_open(struct world *world)
{
    struct raw raw = {.world = world};
    if (conformance_target->connect_raw == NULL) {
        world_close(world);
        skip();
    }
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    raw.fd = conformance_target->connect_raw(&world->nodes[0].bound);
    assert_true(raw.fd >= 0);
    raw.accepted = node_peer(&world->nodes[0], 0);
    raw.bystander = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(raw.bystander->open);
    (void)node_peer(&world->nodes[0], 1);
    return raw;
}

void raw_close(struct raw *raw)
{
    uint32_t size = 100;
    uint32_t before = raw->bystander->received;
    peer_send_from_test(raw->bystander, &size, 1);
    WAIT_UNTIL(raw->bystander->received == before + 1);
    if (raw->fd >= 0) {
        close(raw->fd);
    }
    world_close(raw->world);
}
