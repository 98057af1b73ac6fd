#include "programs/launch/completion.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/endpoint.h"
#include "core/log.h"

#define REPEAT_MS   200
#define REPEATS_MAX 50
#define REFUSED_MAX 25 /* 5 s: a worker may end before the launcher of a ps has started */

/* Binds to IPv6 and mapped IPv4, or to IPv4 only if the kernel lacks IPv6. */
static bool bind_any(int *fd, uint16_t port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int off = 0;
    *fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0) {
        return setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
               bind(*fd, (const struct sockaddr *)&six, sizeof six) == 0;
    }
    *fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *fd >= 0 && bind(*fd, (const struct sockaddr *)&four, sizeof four) == 0;
}

int sl_completion_listen(struct sl_completion *completion, uint16_t port, uint32_t worker_count,
                         struct sl_reason *reason)
{
    completion->reported = calloc(worker_count, sizeof *completion->reported);
    if (completion->reported == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    if (!bind_any(&completion->fd, port)) {
        const int failure = errno;
        sl_reason_set(reason, "cannot listen at UDP port %u for the workers' ends: %s", port,
                      strerror(failure));
        return sl_err_from_errno(failure);
    }
    completion->worker_count = completion->workers_left = worker_count;
    return 0;
}

/* Parses a datagram; false: not of this job. */
static bool parse(const struct sl_completion *completion, const char *text, uint32_t *worker,
                  int *status)
{
    char token[sizeof completion->token];
    int end = 0;
    return sscanf(text, "starling-done %47s %9u %9d%n", token, worker, status, &end) == 3 &&
           text[end] == '\0' && strcmp(token, completion->token) == 0 &&
           *worker < completion->worker_count;
}

bool sl_completion_take(struct sl_completion *completion, uint32_t *worker, int *status)
{
    char text[128];
    struct sockaddr_storage from;
    socklen_t from_bytes = sizeof from;
    ssize_t got;
    while (completion->fd >= 0 && (got = recvfrom(completion->fd, text, sizeof text - 1, 0,
                                                  (struct sockaddr *)&from, &from_bytes)) >= 0) {
        text[got] = '\0';
        uint32_t from_worker;
        int its_status;
        if (parse(completion, text, &from_worker, &its_status)) {
            sendto(completion->fd, text, (size_t)got, 0, (const struct sockaddr *)&from,
                   from_bytes);
            if (!completion->reported[from_worker]) {
                completion->reported[from_worker] = 1;
                completion->workers_left--;
                *worker = from_worker;
                *status = its_status;
                return true;
            }
        }
        from_bytes = sizeof from;
    }
    return false;
}

/* Returns a datagram socket connected to the peer, or -1. */
static int connect_to(const char *peer, struct sl_reason *reason)
{
    struct sl_endpoint endpoint;
    struct sockaddr_storage address;
    socklen_t bytes;
    if (sl_endpoint_parse(peer, &endpoint, reason) != 0 ||
        sl_endpoint_resolve(&endpoint, false, &address, &bytes, reason) != 0) {
        return -1;
    }
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, bytes) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        sl_reason_set(reason, "%s", strerror(errno));
    }
    return fd;
}

/* True: the peer has acknowledged, or does not listen for so long that its job is over. */
static bool tell(int fd, const char *text)
{
    char answer[128];
    int refused = 0;
    for (int i = 0; i < REPEATS_MAX && refused < REFUSED_MAX; i++) {
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        ssize_t got = send(fd, text, strlen(text), 0);
        if (got >= 0 && poll(&polled, 1, REPEAT_MS) > 0) {
            got = recv(fd, answer, sizeof answer, 0);
            if (got == (ssize_t)strlen(text) && memcmp(answer, text, (size_t)got) == 0) {
                return true;
            }
        }
        if (got < 0 && errno == ECONNREFUSED) {
            refused++;
            (void)poll(NULL, 0, REPEAT_MS);
        }
    }
    return refused == REFUSED_MAX;
}

void sl_completion_send(const struct sl_completion *completion, int status)
{
    struct sl_reason reason;
    char text[128];
    snprintf(text, sizeof text, "starling-done %s %u %d", completion->token, completion->worker,
             status);
    for (uint32_t i = 0; i < completion->peers.count; i++) {
        const char *peer = completion->peers.items[i];
        sl_reason_set(&reason, "it does not answer");
        const int fd = connect_to(peer, &reason);
        if (fd < 0 || !tell(fd, text)) {
            sl_log_warn("cannot tell the launcher of ps/%u at %s that worker/%u has ended: %s", i,
                        peer, completion->worker, reason.text);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
}

void sl_completion_fini(struct sl_completion *completion)
{
    if (completion->fd >= 0) {
        close(completion->fd);
    }
    free(completion->reported);
    sl_words_fini(&completion->peers);
    *completion = (struct sl_completion)SL_COMPLETION_NONE;
}
