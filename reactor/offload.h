/* An offload runs blocking or long jobs (disk, compression) of a reactor, in order, on one thread.
 * The first job starts the thread; completions return through the reactor's mailbox. The thread is
 * not pinned, even if its reactor is. A stepped reactor has no thread: a job runs in a later turn,
 * after the delay given by the reactor's options, and completes in the turn after that.
 *
 * The caller owns a job's storage, but must not touch it between the post and `done`. Only create
 * and the first job allocate. Owner reactor. */
#ifndef SL_REACTOR_OFFLOAD_H
#define SL_REACTOR_OFFLOAD_H

#include "reactor/reactor.h"

#define SL_OFFLOAD_NAME_BYTES 16

struct sl_offload;

struct sl_offload_job {
    /* On the thread. May block; must not touch the reactor's state. */
    void (*work)(struct sl_offload_job *job);
    /* On the reactor, in a later turn, in posting order. The job is the caller's again. */
    void (*done)(struct sl_offload_job *job);
    /* `work` may take locks that reactors take: of the allocator or the address space. With
     * SL_OFFLOAD_PRIORITY_IDLE such a job runs at SL_OFFLOAD_PRIORITY_LOW: a thread that gets no
     * core would keep the lock. */
    bool allocates;
    struct sl_offload_job *next; /* private */
    /* Set before `done`. 0: `work` has run; NO_MEMORY: no thread; CANCELLED: destroyed before it
     * ran. */
    int err;
};

/* Creates an offload without its thread. `name`: of the thread, such as "ps0.3-disk"; truncated.
 * Errors: NO_MEMORY, IO (no eventfd), TOO_LARGE (SL_LIMIT_LANES into the reactor). */
int sl_offload_create(struct sl_reactor *reactor, const char *name, struct sl_offload **out);

/* Priority of the thread. */
enum sl_offload_priority {
    /* nice: below reactors, yet not starved by them. The default. */
    SL_OFFLOAD_PRIORITY_LOW,
    /* Like a reactor: for phases in which reactors only wait for these jobs, perhaps spinning. */
    SL_OFFLOAD_PRIORITY_NORMAL,
    /* Jobs run on idle cores only (reactor/idle_thread.h), so a reactor that wakes gets its core at
     * once. If its own reactor is never idle, they get a tenth of its core (reactor/cpu_yield.h);
     * if no core ever is, they run at low priority. For computation that nothing waits for. */
    SL_OFFLOAD_PRIORITY_IDLE,
};

/* Before the first post. */
void sl_offload_set_priority(struct sl_offload *offload, enum sl_offload_priority priority);

/* Cannot fail: without a thread, `done` runs with an error. */
void sl_offload_post(struct sl_offload *offload, struct sl_offload_job *job);

/* Completes all jobs: unstarted jobs with CANCELLED, finished jobs and the job in progress with 0.
 * Waits up to timeout_ns for the job in progress. False: that job did not end (a hanging disk). Its
 * thread then stays until the process ends, and the job must stay in memory and never completes.
 * Nulls *offload. Owner, or any thread after the reactor was joined; not from `done`. */
bool sl_offload_destroy(struct sl_offload **offload, uint64_t timeout_ns);

#endif
