#include "shm_raw.h"

#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define FDS_MAX 8

struct shm_raw shm_raw_dial(const struct sl_endpoint *endpoint)
{
    struct shm_raw raw = {.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    struct timeval patience = {.tv_sec = WAIT_S};
    setsockopt(raw.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct sockaddr_un address;
    socklen_t bytes;
    sl_shm_socket_address(endpoint, &address, &bytes);
    assert_int_equal(connect(raw.fd, (struct sockaddr *)&address, bytes), 0);
    return raw;
}

struct shm_raw shm_raw_connect(const struct sl_endpoint *endpoint)
{
    struct shm_raw raw = shm_raw_dial(endpoint);
    assert_int_equal(
        sl_shared_create("raw", sizeof(struct sl_shm_segment), SL_SHARED_WRITE, &raw.memory), 0);
    raw.segment = (struct sl_shm_segment *)raw.memory.base;
    struct sl_shm_ctrl_msg hello = {.kind = SL_SHM_CTRL_MSG_HELLO, .bytes = raw.memory.bytes},
                           answer;
    assert_true(shm_raw_note(&raw, hello, raw.memory.fd));
    /* Who was stopped meanwhile hears of it here, since the socket has a timeout. */
    assert_int_equal(TEMP_FAILURE_RETRY(recv(raw.fd, &answer, sizeof answer, 0)), sizeof answer);
    assert_int_equal(answer.kind, SL_SHM_CTRL_MSG_ACCEPT);
    return raw;
}

bool shm_raw_say(const struct shm_raw *raw, const void *packet, size_t bytes, const int *fds,
                 uint32_t fd_count)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    sl_assert(fd_count <= FDS_MAX);
    if (fd_count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    return sendmsg(raw->fd, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

bool shm_raw_note(const struct shm_raw *raw, struct sl_shm_ctrl_msg note, int fd)
{
    note.magic = SL_SHM_CTRL_MSG_MAGIC;
    note.version = SL_SHM_CTRL_MSG_VERSION;
    return shm_raw_say(raw, &note, sizeof note, &fd, fd >= 0 ? 1 : 0);
}

uint32_t shm_raw_await_end(const struct shm_raw *raw)
{
    struct sl_shm_ctrl_msg note;
    uint32_t count = 0;
    while (TEMP_FAILURE_RETRY(recv(raw->fd, &note, sizeof note, 0)) > 0) {
        count++;
    }
    return count;
}

struct sl_shm_slot shm_raw_slot(uint32_t number, uint32_t payload_bytes)
{
    sl_assert(payload_bytes <= SL_SHM_INLINE_BYTES);
    struct sl_shm_slot slot = {.kind = SL_SHM_INLINE};
    uint8_t frame[FRAME_BYTES(SL_SHM_INLINE_BYTES)];
    raw_make_frame(frame, number, payload_bytes);
    memcpy(slot.header, frame, SL_FRAME_HEADER_BYTES);
    memcpy(slot.inlined, frame + SL_FRAME_HEADER_BYTES, payload_bytes);
    return slot;
}

void shm_raw_put(struct shm_raw *raw, const struct sl_shm_slot *slot)
{
    struct sl_shm_slot *to = &raw->segment->rings[0][raw->sent % SL_SHM_SLOTS];
    memcpy((uint8_t *)to + sizeof to->sequence, (const uint8_t *)slot + sizeof slot->sequence,
           sizeof *to - sizeof to->sequence);
    sl_shm_slot_publish(to, raw->sent);
    raw->sent++;
}

void shm_raw_publish(struct shm_raw *raw, const struct sl_shm_slot *slot)
{
    shm_raw_put(raw, slot);
    (void)shm_raw_note(raw, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_WAKE}, -1);
}

void shm_raw_close(struct shm_raw *raw)
{
    close(raw->fd);
    sl_shared_destroy(&raw->memory);
}
