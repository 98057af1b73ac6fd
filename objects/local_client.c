#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "objects/local.h"

#define GRACE_MS 100 /* after its timeout the agent says so */

uint32_t sl_objects_local_address(const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int bytes = snprintf(out->sun_path + 1, sizeof out->sun_path - 1,
                               "starling-objects/%u/%s", (unsigned)geteuid(), name);
    return (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

/* Waits until the agent's answer is there. */
static int wait_for_answer(int fd, uint32_t timeout_ms, struct sl_reason *reason)
{
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t end_ns = sl_clock_now_ns(clock) + timeout_ms * SL_CLOCK_NS_PER_MS;
    for (;;) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        const uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        const int count = poll(&polled, 1, (int)(left_ns / SL_CLOCK_NS_PER_MS) + (left_ns > 0));
        if (count > 0) {
            return 0;
        }
        if (count == 0 && left_ns == 0) {
            return sl_reason_fail(reason, SL_ERR_DEADLINE,
                                  "the agent does not answer: is its process stopped?");
        }
    }
}

/* Returns how many descriptors came, all of which are in fds. */
static uint32_t take_fds(struct msghdr *message, int fds[SL_OBJECTS_SESSION_FDS_MAX])
{
    const struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
        return 0;
    }
    const size_t bytes = control->cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(control), bytes);
    return (uint32_t)(bytes / sizeof *fds);
}

static int take_answer(int fd, uint32_t kind, struct sl_objects_session_answer *answer,
                       int fds[SL_OBJECTS_SESSION_FDS_MAX], struct sl_reason *reason)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SL_OBJECTS_SESSION_FDS_MAX)];
    } control;
    struct sl_objects_session_answer received;
    struct iovec to = {.iov_base = &received, .iov_len = sizeof received};
    struct msghdr message = {.msg_iov = &to,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes <= 0) {
        return sl_reason_fail(reason, SL_ERR_CLOSED, "the agent has ended the session: %s",
                              bytes == 0 ? "its process has ended, or the request was wrong"
                                         : strerror(errno));
    }
    const uint32_t fd_count = take_fds(&message, fds);
    if (bytes != sizeof received || (message.msg_flags & MSG_TRUNC) != 0 || received.err > 0 ||
        received.kind != kind || received.fd_count != fd_count) {
        for (uint32_t i = 0; i < fd_count; i++) {
            (void)close(fds[i]);
        }
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "the agent's answer is none");
    }
    *answer = received;
    answer->text[sizeof answer->text - 1] = '\0';
    return answer->err == 0 ? 0 : sl_reason_fail(reason, answer->err, "%s", answer->text);
}

int sl_objects_local_call(int fd, const struct sl_objects_session_request *request,
                          struct sl_objects_session_answer *answer,
                          int fds[SL_OBJECTS_SESSION_FDS_MAX], struct sl_reason *reason)
{
    if (send(fd, request, sizeof *request, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof *request) {
        return sl_reason_fail(reason, SL_ERR_CLOSED, "the agent has ended: %s", strerror(errno));
    }
    const int err = wait_for_answer(fd, request->timeout_ms + GRACE_MS, reason);
    return err != 0 ? err : take_answer(fd, request->kind, answer, fds, reason);
}

static int connect_to(int fd, const char *name, uint32_t timeout_ms, struct sl_reason *reason)
{
    struct sockaddr_un address;
    const socklen_t address_bytes = sl_objects_local_address(name, &address);
    const struct timeval timeout = {.tv_sec = timeout_ms / 1000,
                                    .tv_usec = timeout_ms % 1000 * 1000};
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof peer;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
        connect(fd, (const struct sockaddr *)&address, address_bytes) != 0) {
        return errno == EAGAIN
                   ? sl_reason_fail(reason, SL_ERR_DEADLINE, "agent %s does not answer", name)
               : errno == ECONNREFUSED
                   ? sl_reason_fail(reason, SL_ERR_NOT_FOUND,
                                    "no agent %s of this user on this host: start "
                                    "starling-objects serve --agent",
                                    name)
                   : sl_reason_fail(reason, SL_ERR_IO, "cannot connect to agent %s: %s", name,
                                    strerror(errno));
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0 || peer.uid != geteuid()) {
        return sl_reason_fail(reason, SL_ERR_REFUSED, "agent %s is a process of user %u", name,
                              (unsigned)peer.uid);
    }
    return 0;
}

int sl_objects_local_connect(const char *name, const char *catalogue, uint32_t timeout_ms, int *fd,
                             int *board_fd, struct sl_reason *reason)
{
    struct sl_objects_session_request hello = {.kind = SL_OBJECTS_SESSION_HELLO,
                                               .timeout_ms = timeout_ms,
                                               .version = SL_OBJECTS_SESSION_MAGIC};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    (void)snprintf(hello.name, sizeof hello.name, "%s", catalogue);
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0) {
        return sl_reason_fail(reason, SL_ERR_IO, "no socket for the agent: %s", strerror(errno));
    }
    int err = connect_to(made, name, timeout_ms, reason);
    err = err != 0 ? err : sl_objects_local_call(made, &hello, &answer, fds, reason);
    if (err == 0 && answer.fd_count != 1) {
        err = sl_reason_fail(reason, SL_ERR_PROTOCOL, "agent %s has sent no board", name);
    }
    if (err != 0) {
        (void)close(made);
        return err;
    }
    *fd = made;
    *board_fd = fds[0];
    return 0;
}
