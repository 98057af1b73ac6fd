#include "net/dpdk/module/memif_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/bytes.h"

#define VERSION      0x0200U
#define QUEUES_MAX   255U
#define REGIONS_MAX  255U
#define LOG_RING_MAX 14U
#define BACKLOG      64

/* ---- Sockets ----------------------------------------------------------------------------------
 */

/* An abstract name is as long as it is, a path ends with a zero. */
static socklen_t fill(const struct sl_module_memif_address *address, struct sockaddr_un *out)
{
    const size_t bytes = strlen(address->path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + address->is_abstract, address->path, bytes);
    return address->is_abstract ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)
                                : (socklen_t)sizeof *out;
}

static int open_socket(void)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 ? fd : -errno;
}

int sl_module_memif_socket_dial(const struct sl_module_memif_address *address)
{
    struct sockaddr_un to;
    const socklen_t bytes = fill(address, &to);
    const int fd = open_socket();
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, bytes) != 0) {
        const int code = errno;
        (void)close(fd);
        return -code;
    }
    return fd;
}

/* Of a process that was killed. */
static bool is_left_behind(const struct sl_module_memif_address *address)
{
    const int fd = sl_module_memif_socket_dial(address);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd == -ECONNREFUSED;
}

int sl_module_memif_socket_listen(const struct sl_module_memif_address *address)
{
    struct sockaddr_un at;
    const socklen_t bytes = fill(address, &at);
    const int fd = open_socket();
    if (fd < 0) {
        return fd;
    }
    int code = bind(fd, (struct sockaddr *)&at, bytes) == 0 ? 0 : errno;
    if (code == EADDRINUSE && !address->is_abstract && is_left_behind(address) &&
        unlink(address->path) == 0) {
        code = bind(fd, (struct sockaddr *)&at, bytes) == 0 ? 0 : errno;
    }
    if (code == 0 && listen(fd, BACKLOG) != 0) {
        code = errno;
    }
    if (code != 0) {
        (void)close(fd);
        return -code;
    }
    return fd;
}

int sl_module_memif_socket_accept(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

void sl_module_memif_socket_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* ---- Messages over them -----------------------------------------------------------------------
 */

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int sl_module_memif_socket_receive(int fd, struct sl_module_memif_message *out)
{
    union control control;
    struct iovec part = {.iov_base = out->bytes, .iov_len = sizeof out->bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_LEN(sizeof(int))}; /* no room for a second */
    const ssize_t bytes = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    out->fd = -1;
    struct cmsghdr *with = bytes >= 0 ? CMSG_FIRSTHDR(&header) : NULL;
    if (with != NULL && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS) {
        memcpy(&out->fd, CMSG_DATA(with), sizeof out->fd);
    }
    if (bytes != (ssize_t)sizeof out->bytes) {
        sl_module_memif_socket_close(&out->fd);
        return -1;
    }
    return 1;
}

int sl_module_memif_socket_send(int fd, struct sl_module_memif_message *message)
{
    union control control = {0};
    struct iovec part = {.iov_base = message->bytes, .iov_len = sizeof message->bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (message->fd >= 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &message->fd, sizeof message->fd);
    }
    if (sendmsg(fd, &header, MSG_NOSIGNAL) == (ssize_t)sizeof message->bytes) {
        sl_module_memif_socket_close(&message->fd);
        return 1;
    }
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS ? 0 : -1;
}

/* ---- What they say ----------------------------------------------------------------------------
 */

static struct sl_bytes after(const struct sl_module_memif_message *message, size_t bytes)
{
    struct sl_bytes cursor = sl_bytes_over(message->bytes, sizeof message->bytes);
    (void)sl_bytes_take(&cursor, bytes);
    return cursor;
}

uint16_t sl_module_memif_socket_kind(const struct sl_module_memif_message *message)
{
    struct sl_bytes cursor = after(message, 0);
    return sl_bytes_u16(&cursor);
}

/* After the kind, and the version. */
uint32_t sl_module_memif_socket_id(const struct sl_module_memif_message *init)
{
    struct sl_bytes cursor = after(init, 4);
    return sl_bytes_u32(&cursor);
}

bool sl_module_memif_socket_is_c2s(const struct sl_module_memif_message *add_ring)
{
    struct sl_bytes cursor = after(add_ring, 2);
    return (sl_bytes_u16(&cursor) & 1U) != 0;
}

uint32_t sl_module_memif_socket_ring(const struct sl_module_memif_message *add_ring)
{
    struct sl_bytes cursor = after(add_ring, 4);
    return sl_bytes_u16(&cursor);
}

/* After the kind, and a number that nobody uses. A peer's text goes into a log: printable only. */
void sl_module_memif_socket_reason(const struct sl_module_memif_message *disconnect,
                                   char out[SL_MODULE_MEMIF_REASON_BYTES])
{
    struct sl_bytes cursor = after(disconnect, 6);
    sl_bytes_copy(&cursor, out, SL_MODULE_MEMIF_REASON_BYTES);
    out[SL_MODULE_MEMIF_REASON_BYTES - 1] = '\0';
    for (char *at = out; *at != '\0'; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
}

static void put_u16(struct sl_bytes_writer *writer, uint16_t value)
{
    sl_bytes_put(writer, &value, sizeof value);
}

void sl_module_memif_socket_say(int fd, enum sl_module_memif_kind ack_or_hello)
{
    struct sl_module_memif_message message = {.fd = -1};
    struct sl_bytes_writer writer = sl_bytes_writer_over(message.bytes, sizeof message.bytes);
    put_u16(&writer, (uint16_t)ack_or_hello);
    if (ack_or_hello == SL_MODULE_MEMIF_HELLO) {
        const char name[32] = "Starling";
        const uint8_t log_ring = LOG_RING_MAX;
        sl_bytes_put(&writer, name, sizeof name);
        put_u16(&writer, VERSION);
        put_u16(&writer, VERSION);
        put_u16(&writer, REGIONS_MAX);
        put_u16(&writer, QUEUES_MAX - 1); /* the last ring's index, each way */
        put_u16(&writer, QUEUES_MAX - 1);
        sl_bytes_put(&writer, &log_ring, sizeof log_ring);
    }
    (void)sl_module_memif_socket_send(fd, &message);
}

void sl_module_memif_socket_refuse(int fd, const char *reason)
{
    struct sl_module_memif_message message = {.fd = -1};
    struct sl_bytes_writer writer = sl_bytes_writer_over(message.bytes, sizeof message.bytes);
    const uint32_t code = 0;
    const size_t bytes = strnlen(reason, SL_MODULE_MEMIF_REASON_BYTES - 1);
    put_u16(&writer, SL_MODULE_MEMIF_DISCONNECT);
    sl_bytes_put(&writer, &code, sizeof code);
    sl_bytes_put(&writer, reason, bytes);
    (void)sl_module_memif_socket_send(fd, &message);
}
