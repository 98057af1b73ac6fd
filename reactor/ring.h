/* The io_uring of a reactor thread: single issuer, deferred task running. Init probes each feature
 * and has a fallback. Only ring.h, ring.c, net/tcp and net/shm include <liburing.h>. Owner reactor,
 * except init and fini. */
#ifndef SL_REACTOR_RING_H
#define SL_REACTOR_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* An operation in flight; the submission's user_data points to it. Storage of its owner until the
 * last completion (without IORING_CQE_F_MORE) is delivered. `complete` may free it then, and may
 * call all functions below except sl_ring_fini. */
struct sl_ring_op {
    void (*complete)(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags);
};

struct sl_ring;

/* Wakes the ring when a descriptor becomes readable. */
struct sl_ring_watch {
    struct sl_ring_op op;
    struct sl_ring *ring;
    void (*readable)(struct sl_ring_watch *watch);
    int fd;
    bool multishot; /* one submission for all wake-ups; else one each */
    bool in_flight;
    bool ending;
};

struct sl_ring {
    struct io_uring uring;
    bool deferred_taskrun;      /* probed: completions run only on request */
    bool multishot_recv;        /* probed: kernel 6.0 */
    bool provided_buffer_rings; /* probed: kernel 5.19 */
    uint16_t buffer_groups;     /* number of the next group of provided buffers */
    uint64_t submit_calls;      /* system calls */
    uint64_t completions;
};

/* Features requested from the kernel, best first. */
enum sl_ring_setup {
    /* 6.1: completions run only when this thread enters the kernel for them; only this thread
     * submits. */
    SL_RING_DEFERRED,
    /* 5.19: completions do not interrupt this thread; any entry into the kernel runs them. */
    SL_RING_COOPERATIVE,
    SL_RING_PLAIN,
};

/* entries: size of the submission queue; the completion queue is four times as large. Call init and
 * fini on the thread that uses the ring (single issuer). Errors: UNSUPPORTED (no io_uring; logs the
 * kernel needed), NO_MEMORY, IO (no descriptor left; logged). */
int sl_ring_init(struct sl_ring *ring, uint32_t entries);

/* Like init, but requests at most `best`: tests the fallbacks on newer kernels. */
int sl_ring_init_at_best(struct sl_ring *ring, uint32_t entries, enum sl_ring_setup best);

void sl_ring_fini(struct sl_ring *ring);

/* Returns a free submission entry with `op` set (NULL: the completion is ignored). If the queue is
 * full, submits it to make room: never fails. Fill the entry with an io_uring_prep_* function,
 * which keeps the op. */
struct io_uring_sqe *sl_ring_sqe(struct sl_ring *ring, struct sl_ring_op *op);

/* Whether sl_ring_submit would have an effect. */
bool sl_ring_has_to_submit(const struct sl_ring *ring);

/* Submits queued entries without waiting, and runs deferred work. */
void sl_ring_submit(struct sl_ring *ring);

/* Delivers up to `budget` available completions; returns the number. Makes a system call only if
 * the kernel announces deferred work or an overflow. */
uint32_t sl_ring_reap(struct sl_ring *ring, uint32_t budget);

/* Submits, and sleeps until a completion arrives or `timeout_ns` has passed. */
void sl_ring_wait(struct sl_ring *ring, uint64_t timeout_ns);

/* Asks the kernel to cancel an operation; its completion still comes. */
void sl_ring_cancel(struct sl_ring *ring, struct sl_ring_op *op);

/* Watches fd, usually an eventfd; `readable` runs from sl_ring_reap and must read it empty. */
void sl_ring_watch(struct sl_ring *ring, struct sl_ring_watch *watch, int fd,
                   void (*readable)(struct sl_ring_watch *watch));

/* As above, but one submission for each event: `readable` may leave something to read, and runs
 * again. */
void sl_ring_watch_level(struct sl_ring *ring, struct sl_ring_watch *watch, int fd,
                         void (*readable)(struct sl_ring_watch *watch));

/* Ends the watch, unless it has never begun: delivers completions until its last one. */
void sl_ring_watch_end(struct sl_ring_watch *watch);

#endif
