#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/base/unix_socket.h"
#include "objects/node/local.h"

#define GRACE_MS 50 /* after its timeout the agent says so */

uint32_t sl_objects_local_address(const char *name, struct sockaddr_un *out)
{
    char text[SL_OBJECTS_LOCAL_NAME_BYTES + 32];
    (void)snprintf(text, sizeof text, "starling-objects/%u/%s", (unsigned)geteuid(), name);
    return sl_unix_socket_address(text, out);
}

/* Waits until a packet is there. False: not in time. */
static bool wait_for_packet(int fd, uint64_t deadline_ns)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    return poll(&polled, 1, (int)(left_ns / SL_CLOCK_NS_PER_MS) + (left_ns > 0)) != 0 ||
           left_ns > 0;
}

int sl_objects_local_call(int fd, const struct sl_objects_session_request *request,
                          struct sl_objects_session_answer *answer,
                          int fds[SL_OBJECTS_SESSION_FDS_MAX], struct sl_reason *reason)
{
    const uint64_t deadline_ns =
        sl_clock_now_ns(sl_clock_system()) + (request->timeout_ms + GRACE_MS) * SL_CLOCK_NS_PER_MS;
    struct sl_objects_session_answer received = {0};
    uint32_t fd_count = 0;
    int err = sl_unix_socket_send(fd, request, sizeof *request, NULL, 0);
    while (err == 0) {
        err = sl_unix_socket_receive(fd, &received, sizeof received, fds,
                                     SL_OBJECTS_SESSION_FDS_MAX, &fd_count);
        if (err != SL_ERR_AGAIN) {
            break;
        }
        err = wait_for_packet(fd, deadline_ns) ? 0 : SL_ERR_DEADLINE;
    }
    if (err == 0 && (received.kind != request->kind || received.fd_count != fd_count)) {
        while (fd_count > 0) {
            (void)close(fds[--fd_count]);
        }
        err = SL_ERR_PROTOCOL;
    }
    if (err != 0) {
        int pid = 0;
        (void)sl_unix_socket_is_ours(fd, &pid);
        return sl_reason_fail(reason, err, "the agent, process %d, %s", pid,
                              err == SL_ERR_DEADLINE ? "does not answer: is it stopped?"
                              : err == SL_ERR_CLOSED ? "has ended"
                                                     : "sends what is no answer");
    }
    *answer = received;
    answer->text[sizeof answer->text - 1] = '\0';
    return answer->err == 0 ? 0 : sl_reason_fail(reason, answer->err, "%s", answer->text);
}

static int connect_to(int fd, const char *name, struct sl_reason *reason)
{
    struct sockaddr_un address;
    const socklen_t address_bytes = sl_objects_local_address(name, &address);
    int pid;
    if (connect(fd, (const struct sockaddr *)&address, address_bytes) != 0) {
        return sl_reason_fail(
            reason, SL_ERR_NOT_FOUND,
            "agent %s cannot be reached: %s: start starling-objects serve --agent", name,
            strerror(errno));
    }
    return sl_unix_socket_is_ours(fd, &pid)
               ? 0
               : sl_reason_fail(reason, SL_ERR_REFUSED, "agent %s is a process of another user",
                                name);
}

int sl_objects_local_connect(const char *name, const char *catalogue, uint32_t timeout_ms, int *fd,
                             int *board_fd, struct sl_reason *reason)
{
    struct sl_objects_session_request hello = {.kind = SL_OBJECTS_SESSION_HELLO,
                                               .timeout_ms = timeout_ms,
                                               .version = SL_OBJECTS_SESSION_MAGIC};
    struct sl_objects_session_answer answer;
    int made, fds[SL_OBJECTS_SESSION_FDS_MAX];
    (void)snprintf(hello.name, sizeof hello.name, "%s", catalogue);
    int err = sl_unix_socket_open(&made);
    if (err != 0) {
        return sl_reason_fail(reason, err, "no socket for agent %s", name);
    }
    err = connect_to(made, name, reason);
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
