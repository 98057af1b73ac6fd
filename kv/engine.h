/* What carries out the calls of the key-value interface: a client that its caller drives, a queue
 * of calls by priority, and what is known of each. Either it has one thread of its own, which makes
 * the client and alone uses it, while application threads hand it calls under a lock and wake it;
 * or the thread that made it is that thread, in turns, and there is nothing to lock.
 *
 * A call is queued, then a step of the client, then over: its callback has run and its waiters were
 * told. Of what failed the last SL_KV_RESULTS results are kept. */
#ifndef SL_KV_ENGINE_H
#define SL_KV_ENGINE_H

#include <starling_kv.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kv/join.h"
#include "reactor/mailbox.h"
#include "worker/client_internal.h"

/* A table, as its user has it. */
struct sl_kv {
    struct sl_engine *engine;
    struct sl_table *table;
    uint32_t timeout_ms;
    bool is_first; /* owns the engine */

    /* Under the lock. */
    uint32_t outstanding;             /* calls that are not over */
    struct sl_engine_waiter *drained; /* waits until there are none */
};

/* A thread that waits. It sleeps on a mailbox of its own, into which the engine has a lane. */
struct sl_engine_waiter {
    struct sl_engine_waiter *next; /* of the same call, or free */
    struct sl_mailbox *mailbox;
    struct sl_mailbox_lane *lane;
    bool over; /* set by the mail, on the waiting thread, like the next */
    int err;
};

struct sl_engine_call {
    /* Set by the beginning thread. */
    struct sl_kv *kv;
    uint64_t timestamp;
    uint64_t deadline_ns;
    struct sl_kv_call said;
    uint32_t *lengths; /* the call asks for lengths: where they go; else NULL */
    void *copy;        /* of the caller's arrays, where they are copied */
    size_t copy_bytes;

    /* Under the lock. */
    struct sl_engine_call *next_of_bucket;
    struct sl_engine_waiter *waiters;

    /* The driving thread's; `next` also of the free ones, under the lock. */
    struct sl_engine_call *next;
    struct sl_step *step;
    int err;
};

struct sl_engine_list {
    struct sl_engine_call *first, *last;
};

/* Something else than a call that the driving thread carries out: opening a table, a barrier. */
struct sl_engine_job {
    /* AGAIN until it is over, then its result. Does not block. The driving thread. */
    int (*poll)(struct sl_engine *engine, struct sl_engine_job *job);
    struct sl_engine_job *next;
    struct sl_engine_waiter *waiter;
};

#define SL_ENGINE_BUCKETS    1024U
#define SL_ENGINE_TEXT_BYTES 256

/* A call that is over keeps the memory of its copy, up to this, for the next one. */
#define SL_ENGINE_COPY_BYTES (64U << 10)

struct sl_engine_failures {
    uint64_t timestamps[SL_KV_RESULTS];
    int errs[SL_KV_RESULTS];
    char texts[SL_KV_RESULTS][SL_ENGINE_TEXT_BYTES];
    uint32_t count; /* since the beginning; the next one's place is this modulo SL_KV_RESULTS */
};

struct sl_engine {
    bool has_thread;
    pthread_t thread; /* then */
    struct sl_client *client;

    pthread_mutex_t lock;         /* taken when there is a thread; of all down to the blank line */
    struct sl_engine_call **heap; /* queued calls: the first is the next */
    uint32_t heap_count, heap_capacity;
    struct sl_engine_call *buckets[SL_ENGINE_BUCKETS]; /* calls that are not over, by timestamp */
    uint32_t outstanding;
    uint64_t last_timestamp;
    struct sl_engine_call *free_calls;
    struct sl_engine_waiter *free_waiters;
    struct sl_engine_job *new_jobs;
    struct sl_mailbox_lane *lane; /* into the mailbox of the driven reactor */
    bool knocked;                 /* a mail is on its way through it */
    bool stopping;
    struct sl_engine_failures failures;

    /* The driving thread's. */
    struct sl_thread_ctx *port;
    bool woken;      /* the mail came */
    bool is_running; /* inside sl_engine_progress: what its callbacks begin is taken in there */
    bool backlog;    /* calls were left in the queue, since too many steps are out */
    struct sl_engine_list ended;
    struct sl_engine_job *jobs;
};

/* Makes the client and, unless caller-driven, the thread for it; logged. *out is owned by the
 * caller. Errors: those of sl_client_create. */
int sl_engine_create(const struct sl_join *join, bool caller_driven, struct sl_engine **out);

/* No call is outstanding, no other thread is in a function of it. Nulls *engine. */
void sl_engine_destroy(struct sl_engine **engine);

/* Queues a call. `said` and what it points to are copied as far as it says; lengths: see the call.
 * Errors: INVALID, NO_MEMORY, CLOSED. Any thread, unless caller-driven: so are the next ones. */
int sl_engine_begin(struct sl_kv *kv, const struct sl_kv_call *said, uint32_t *lengths,
                    uint64_t *timestamp);

/* The call's result. Errors besides: INVALID (no such call, or in a callback), NO_MEMORY. */
int sl_engine_wait(struct sl_engine *engine, uint64_t timestamp);

/* The call was begun, and is over. */
bool sl_engine_done(struct sl_engine *engine, uint64_t timestamp);

/* Waits until no call of the table is outstanding. */
void sl_engine_drain(struct sl_kv *kv);

/* The result of a call that is over; text, of text_bytes, may be NULL. */
int sl_engine_result(struct sl_engine *engine, uint64_t timestamp, char *text, size_t text_bytes);

/* Carries the job out and waits for its result. Errors besides: INVALID (in a callback), NO_MEMORY,
 * CLOSED. */
int sl_engine_run_job(struct sl_engine *engine, struct sl_engine_job *job);

/* Wakes the driving thread where there is one, unless it was since it last looked. Under the lock.
 */
void sl_engine_knock(struct sl_engine *engine);

/* ---- The driving thread's */

/* Takes calls from the queue as far as there is room for steps, ends those that are complete,
 * callbacks included, and polls the jobs. Never blocks. */
void sl_engine_progress(struct sl_engine *engine);

/* Drives the client until there is something for sl_engine_progress, asleep when need be. */
void sl_engine_rest(struct sl_engine *engine);

/* ---- engine_queue.c: all under the lock */

static inline void sl_engine_lock(struct sl_engine *engine)
{
    if (engine->has_thread) {
        pthread_mutex_lock(&engine->lock);
    }
}

static inline void sl_engine_unlock(struct sl_engine *engine)
{
    if (engine->has_thread) {
        pthread_mutex_unlock(&engine->lock);
    }
}

/* A call to be filled, with the memory of a copy, if that is kept; NULL: out of memory. */
struct sl_engine_call *sl_engine_take_call(struct sl_engine *engine);
/* Back to the free ones; a copy of more than SL_ENGINE_COPY_BYTES is freed. */
void sl_engine_give_call(struct sl_engine *engine, struct sl_engine_call *call);

/* Gives the call its timestamp and puts it into the queue. Errors: NO_MEMORY. */
int sl_engine_enqueue(struct sl_engine *engine, struct sl_engine_call *call);

/* The next of the queue, NULL when it is empty. */
struct sl_engine_call *sl_engine_dequeue(struct sl_engine *engine);

/* A call that is not over; NULL: none has this timestamp. */
struct sl_engine_call *sl_engine_find(const struct sl_engine *engine, uint64_t timestamp);

/* It is over: not found any more. */
void sl_engine_forget(struct sl_engine *engine, struct sl_engine_call *call);

/* NULL: out of memory. */
struct sl_engine_waiter *sl_engine_take_waiter(struct sl_engine *engine);
void sl_engine_give_waiter(struct sl_engine *engine, struct sl_engine_waiter *waiter);

/* Keeps a failure; text may be "". */
void sl_engine_note_failure(struct sl_engine *engine, uint64_t timestamp, int err,
                            const char *text);

/* Frees what the queue has; no lock any more. */
void sl_engine_free_queue(struct sl_engine *engine);

#endif
