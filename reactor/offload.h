/* What blocks (a disk, a compression) beside a reactor: jobs, one after the other, on a thread of
 * the aside's own, which is made with the first; that a job is done comes back through the
 * reactor's mailbox. The thread has no core of its own: a pinned reactor that made it keeps its
 * core. In a stepped reactor there is no thread: a job runs in a later turn, after as long as the
 * reactor's options say, and is said to be done in a turn behind that one.
 *
 * A job is its caller's storage, untouched by him from the post until `done`. Allocates when it is
 * created and with the first job, and no more. Owner reactor. */
#ifndef SL_REACTOR_OFFLOAD_H
#define SL_REACTOR_OFFLOAD_H

#include "reactor/reactor.h"

#define SL_OFFLOAD_NAME_BYTES 16

struct sl_offload;

struct sl_offload_job {
    void (*work)(struct sl_offload_job *job); /* on the thread; may block, may not touch what a
                                               * reactor owns */
    void (*done)(struct sl_offload_job *job); /* on the reactor, in the order of posting, in a later
                                               * turn; the job is the caller's again */
    bool allocates; /* work may take locks that reactors take: of the allocator, of the address
                     * space. In SL_OFFLOAD_PRIORITY_IDLE such a job runs behind reactors, not below
                     * all: a thread that gets no core would keep the lock */
    struct sl_offload_job *next; /* the aside's */
    int err; /* set before `done`: 0: `work` has run; NO_MEMORY: there is no thread; CANCELLED: the
              * aside was destroyed before */
};

/* `name` is the thread's, "ps0.3-disk": cut to what a thread's name has room for. Errors:
 * NO_MEMORY, IO (no eventfd), TOO_LARGE (SL_LIMIT_LANES into the reactor). */
int sl_offload_create(struct sl_reactor *reactor, const char *name, struct sl_offload **out);

/* Where the thread stands among those that want a core. */
enum sl_offload_place {
    SL_OFFLOAD_PRIORITY_LOW, /* behind reactors, which still leave it its part: nice; the default */
    SL_OFFLOAD_PRIORITY_NORMAL, /* as a reactor: the reactor, and others beside it, have nothing to
                                 * do but to wait for the jobs, and may spin meanwhile */
    SL_OFFLOAD_PRIORITY_IDLE,   /* jobs have what others leave of the cores (reactor/idle_thread.h),
                                 * so that a reactor   that wakes has its own back at once; where its
                                 * own reactor leaves nothing, a   tenth of that one's core
                                 * (reactor/cpu_yield.h); and where nobody does, they are   behind.
                                 * For   what computes, and what nobody waits for */
};

/* Before the first post. */
void sl_offload_set_place(struct sl_offload *offload, enum sl_offload_place place);

/* Cannot fail: without a thread `done` follows with an error. */
void sl_offload_post(struct sl_offload *offload, struct sl_offload_job *job);

/* Jobs whose `done` has not been called. */
uint32_t sl_offload_count(const struct sl_offload *offload);

/* Jobs that have not begun are done at once, CANCELLED; the one in progress, and those before it
 * whose `done` was on its way, without. Waits up to timeout_ns for the one in progress. False: that
 * did not end (a disk that hangs); then the thread is left to itself, until the process ends; the
 * jobs that it has must stay in memory and are never done. Nulls *aside. Owner, or after the
 * reactor was joined; not from `done`. */
bool sl_offload_destroy(struct sl_offload **offload, uint64_t timeout_ns);

#endif
