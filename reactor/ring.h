/* The core's io_uring: one per reactor thread, single issuer, deferred task running; each feature
 * is probed at init and has a fall-back. This file, ring.c, net/tcp and net/shm are the only ones
 * that see <liburing.h>. Owner reactor, except init and fini. */
#ifndef SL_REACTOR_RING_H
#define SL_REACTOR_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* An operation in flight: the submission's user_data points to it. It lives in its owner's object
 * until its last completion (the one without IORING_CQE_F_MORE) has been delivered. `complete` may
 * free it then, and may call everything below but sl_ring_fini. */
struct sl_ring_op {
    void (*complete)(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags);
};

struct sl_ring;

/* A descriptor whose becoming readable is to wake the ring, an eventfd above all. `readable` must
 * read what is there. Lives as long as the ring. */
struct sl_ring_watch {
    struct sl_ring_op op;
    struct sl_ring *ring;
    void (*readable)(struct sl_ring_watch *watch);
    int fd;
    bool multishot; /* one submission for all wake-ups; else one for each */
};

struct sl_ring {
    struct io_uring uring;
    bool deferred_taskrun;      /* probed: completions are run only when we ask for them */
    bool registered_fd;         /* probed */
    bool multishot_recv;        /* probed: kernel 6.0 */
    bool provided_buffer_rings; /* probed: kernel 5.19 */
    bool send_zero_copy;        /* probed: kernel 6.0 */
    bool taskrun_flag;          /* probed: the kernel says in shared memory that work is pending */
    uint16_t buffer_groups;     /* groups of provided buffers given out: the next one's number */
    uint64_t submit_calls;      /* system calls made */
    uint64_t completions;
};

/* What the ring asks the kernel for, from the best on. */
enum sl_ring_setup {
    /* 6.1: completions are worked on only when this thread enters the kernel for it, and only this
     * thread submits. */
    SL_RING_DEFERRED,
    /* 5.19: completions do not interrupt this thread; any entry into the kernel works on them. */
    SL_RING_COOPERATIVE,
    SL_RING_PLAIN,
};

/* entries: submission queue size; the completion queue is four times as large. Must be called on
 * the thread that will use it (single issuer), and so must fini. Errors: UNSUPPORTED (no io_uring,
 * with a log line that says which kernel is needed), NO_MEMORY, IO (no descriptor left; logged). */
int sl_ring_init(struct sl_ring *ring, uint32_t entries);

/* The same with `best` as the best that is asked for: how older kernels are tested on newer ones.
 */
int sl_ring_init_at_best(struct sl_ring *ring, uint32_t entries, enum sl_ring_setup best);

void sl_ring_fini(struct sl_ring *ring);

/* A free submission entry with `op` set (NULL: its completion is ignored); submits what is queued
 * to make room when full, so it never fails. Fill it with an
 * io_uring_prep_* function, which leaves the op as it is. */
struct io_uring_sqe *sl_ring_sqe(struct sl_ring *ring, struct sl_ring_op *op);

/* Whether sl_ring_submit would do anything. */
bool sl_ring_has_to_submit(const struct sl_ring *ring);

/* Submits what is queued, without waiting, and lets deferred work run. */
void sl_ring_submit(struct sl_ring *ring);

/* Delivers up to `budget` completions that are there; returns how many. Makes no system call unless
 * the kernel says that deferred work or an overflow is pending. */
uint32_t sl_ring_reap(struct sl_ring *ring, uint32_t budget);

/* Submits and sleeps until a completion is there or `timeout_ns` has passed. */
void sl_ring_wait(struct sl_ring *ring, uint64_t timeout_ns);

/* Watches fd from now on, until the ring ends; `readable` runs from sl_ring_reap. */
void sl_ring_watch(struct sl_ring *ring, struct sl_ring_watch *watch, int fd,
                   void (*readable)(struct sl_ring_watch *watch));

#endif
