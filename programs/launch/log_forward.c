#include "programs/launch/log_forward.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIPE_READS_MAX 256 /* 1 MiB, the maximum size of a pipe */
#define ASK_MS         50  /* interval of `waits_on` calls */

void sl_log_forward_init(struct sl_log_forward *forward, int from, int to, int copy,
                         const char *name)
{
    forward->from = from;
    forward->to = to;
    forward->copy = copy;
    forward->waits_on = NULL;
    forward->reads = NULL;
    forward->ctx = NULL;
    forward->start = 0;
    if (name != NULL) {
        forward->start = (size_t)snprintf(forward->line, sizeof forward->line, "[%s] ", name);
    }
    forward->used = forward->start;
    fcntl(from, F_SETFL, O_NONBLOCK);
}

/* Waits until a write of up to PIPE_BUF bytes does not block; false: drop the line. */
static bool wait_for_room(const struct sl_log_forward *forward, int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int ready = poll(&polled, 1, 0);
    while (ready == 0 || (ready < 0 && errno == EINTR)) {
        if (forward->waits_on != NULL && !forward->waits_on(forward->ctx)) {
            return false;
        }
        ready = poll(&polled, 1, ASK_MS);
    }
    return true;
}

/* A failed write does not end the job. EPIPE and EIO mean that the reader or terminal is gone; any
 * other error has lost output and is recorded. */
static void write_all(struct sl_log_forward *forward, int fd, const char *bytes, size_t count)
{
    while (count > 0 && wait_for_room(forward, fd)) {
        const ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            const bool has_gone = errno == EPIPE || errno == EIO;
            forward->lost_errno =
                has_gone || forward->lost_errno != 0 ? forward->lost_errno : errno;
            return;
        }
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
}

/* Writes `end` bytes of the buffer as one line; the rest starts the next line. */
static void log_forward_write_line(struct sl_log_forward *forward, size_t end)
{
    if (forward->reads != NULL) {
        forward->reads(forward->line + forward->start, end - forward->start);
    }
    write_all(forward, forward->to, forward->line, end);
    if (forward->copy >= 0) {
        write_all(forward, forward->copy, forward->line + forward->start, end - forward->start);
    }
    memmove(forward->line + forward->start, forward->line + end, forward->used - end);
    forward->used -= end - forward->start;
}

/* Writes all complete lines. fresh: offset of the bytes not yet searched. */
static void write_lines(struct sl_log_forward *forward, size_t fresh)
{
    char *newline;
    while ((newline = memchr(forward->line + fresh, '\n', forward->used - fresh)) != NULL) {
        log_forward_write_line(forward, (size_t)(newline - forward->line) + 1);
        fresh = forward->start;
    }
    if (forward->used == sizeof forward->line - 1) {
        forward->line[forward->used++] = '\n';
        log_forward_write_line(forward, forward->used);
    }
}

enum sl_log_forward_result sl_log_forward_pump(struct sl_log_forward *forward)
{
    const size_t fresh = forward->used;
    /* One byte is reserved for the newline that splits a long line. */
    const ssize_t got =
        read(forward->from, forward->line + fresh, sizeof forward->line - 1 - fresh);
    if (got > 0) {
        forward->used += (size_t)got;
        write_lines(forward, fresh);
        return SL_LOG_FORWARD_MORE;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? SL_LOG_FORWARD_IDLE
                                                          : SL_LOG_FORWARD_END;
}

void sl_log_forward_fini(struct sl_log_forward *forward)
{
    if (forward->from < 0) {
        return;
    }
    /* Enough for a full pipe; a grandchild could write without end. */
    for (int i = 0; i < PIPE_READS_MAX && sl_log_forward_pump(forward) == SL_LOG_FORWARD_MORE;
         i++) {
    }
    if (forward->used > forward->start) {
        forward->line[forward->used++] = '\n';
        log_forward_write_line(forward, forward->used);
    }
    close(forward->from);
    forward->from = -1;
}
