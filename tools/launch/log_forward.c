#include "tools/launch/log_forward.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIPE_READS_MAX 256 /* 1 MiB, the most that a pipe may hold */
#define ASK_MS         50  /* how often `waits_on` is asked */

void sl_log_forward_init(struct sl_log_forward *relay, int from, int to, int copy, const char *name)
{
    relay->from = from;
    relay->to = to;
    relay->copy = copy;
    relay->waits_on = NULL;
    relay->ctx = NULL;
    relay->start = 0;
    if (name != NULL) {
        relay->start = (size_t)snprintf(relay->line, sizeof relay->line, "[%s] ", name);
    }
    relay->used = relay->start;
    fcntl(from, F_SETFL, O_NONBLOCK);
}

/* Whether a write of a line to fd, PIPE_BUF bytes at most, does not block. */
static bool wait_for_room(const struct sl_log_forward *relay, int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int ready = poll(&polled, 1, 0);
    while (ready == 0 || (ready < 0 && errno == EINTR)) {
        if (relay->waits_on != NULL && !relay->waits_on(relay->ctx)) {
            return false;
        }
        ready = poll(&polled, 1, ASK_MS);
    }
    return true;
}

/* A write that fails does not end the job. A reader or a terminal that has gone wants no more; any
 * other failure has lost output, and is remembered. */
static void write_all(struct sl_log_forward *relay, int fd, const char *bytes, size_t count)
{
    while (count > 0 && wait_for_room(relay, fd)) {
        const ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            const bool has_gone = errno == EPIPE || errno == EIO;
            relay->lost_errno = has_gone || relay->lost_errno != 0 ? relay->lost_errno : errno;
            return;
        }
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
}

/* Writes out `end` bytes of the buffer as one line; what follows them becomes the next. */
static void write_line(struct sl_log_forward *relay, size_t end)
{
    write_all(relay, relay->to, relay->line, end);
    if (relay->copy >= 0) {
        write_all(relay, relay->copy, relay->line + relay->start, end - relay->start);
    }
    memmove(relay->line + relay->start, relay->line + end, relay->used - end);
    relay->used -= end - relay->start;
}

/* Writes out the complete lines; `fresh` is where the bytes begin that have not been looked at. */
static void write_lines(struct sl_log_forward *relay, size_t fresh)
{
    char *newline;
    while ((newline = memchr(relay->line + fresh, '\n', relay->used - fresh)) != NULL) {
        write_line(relay, (size_t)(newline - relay->line) + 1);
        fresh = relay->start;
    }
    if (relay->used == sizeof relay->line - 1) {
        relay->line[relay->used++] = '\n';
        write_line(relay, relay->used);
    }
}

enum sl_log_forward_result sl_log_forward_pump(struct sl_log_forward *relay)
{
    const size_t fresh = relay->used;
    /* One byte stays free for the newline that breaks a line too long. */
    const ssize_t got = read(relay->from, relay->line + fresh, sizeof relay->line - 1 - fresh);
    if (got > 0) {
        relay->used += (size_t)got;
        write_lines(relay, fresh);
        return SL_LOG_FORWARD_MORE;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? SL_LOG_FORWARD_IDLE
                                                          : SL_LOG_FORWARD_END;
}

void sl_log_forward_fini(struct sl_log_forward *relay)
{
    if (relay->from < 0) {
        return;
    }
    /* A full pipe gives this many reads; a grandchild could give endlessly many. */
    for (int i = 0; i < PIPE_READS_MAX && sl_log_forward_pump(relay) == SL_LOG_FORWARD_MORE; i++) {
    }
    if (relay->used > relay->start) {
        relay->line[relay->used++] = '\n';
        write_line(relay, relay->used);
    }
    close(relay->from);
    relay->from = -1;
}
