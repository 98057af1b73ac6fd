/* The engine executes the operations of the key-value interface: it owns a client with
 * manual_progress and a priority queue of calls. The driving thread is the only thread that uses
 * the client. It is either the engine's own thread, to which application threads pass calls under a
 * lock, or the thread that created the engine; then nothing is locked. An operation is a call in
 * the queue, then a step of the client, then over: its callback has run and its waiters are woken.
 * The last SL_KV_RESULTS failures are kept. */
#ifndef SL_WORKER_KV_ENGINE_H
#define SL_WORKER_KV_ENGINE_H

#include <starling_kv.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"
#include "reactor/mailbox.h"
#include "worker/client/client_internal.h"
#include "worker/client/relay.h"
#include "worker/kv/join.h"

/* A table, for its user. */
struct sl_kv {
    struct sl_engine *engine;
    struct sl_table *table;
    uint32_t timeout_ms;
    bool zeros;       /* of the options */
    uint32_t room;    /* the driving thread's: values of the longest array of pulls with `place` */
    bool owns_engine; /* the first table of its engine: closing it destroys the engine */

    /* Under the lock. */
    uint32_t outstanding;             /* calls that are not over */
    struct sl_engine_waiter *drained; /* waits until outstanding is 0; or NULL */
};

/* A waiting thread. It sleeps on its own mailbox, into which the engine has a lane. */
struct sl_engine_waiter {
    struct sl_engine_waiter *next; /* of the same call, or of the free list */
    struct sl_mailbox *mailbox;
    struct sl_mailbox_lane *lane;
    bool over; /* this and err: set by the mail, on the waiting thread */
    int err;
};

struct sl_engine_call;

/* Other work of the driving thread, such as opening a table or a barrier. */
struct sl_engine_job {
    /* Called on the driving thread; must not block. Returns AGAIN until the job is over, then its
     * result. */
    int (*poll)(struct sl_engine *engine, struct sl_engine_job *job);
    struct sl_engine_job *next;
    struct sl_engine_waiter *waiter; /* NULL: no thread waits */
    struct sl_reason reason;         /* of a failure, for the thread that waits */
};

/* A message to other processes, which is a call without a step. */
struct sl_engine_send {
    struct sl_engine_job job; /* must be first */
    struct sl_engine_call *call;
    struct sl_relay *relay; /* owned */
    bool posted;
};

/* Functions of the program for messages. */
struct sl_engine_messages {
    sl_kv_message_fn *request, *answer; /* NULL: not set */
    void *ctx;
};

struct sl_engine_call {
    /* Set by the thread that begins the call. */
    struct sl_kv *kv;
    uint64_t timestamp;
    uint64_t deadline_ns;
    struct sl_kv_call request;
    uint32_t *lengths;             /* lengths call: receives the lengths; else NULL */
    struct sl_engine_send *send;   /* message: owned; else NULL */
    struct sl_engine_place *place; /* place.h; NULL: not begun, or no such pull */
    void *copy;                    /* copies of the caller's arrays; or NULL */
    size_t copy_bytes;

    /* Under the lock. */
    struct sl_engine_call *next_of_bucket;
    struct sl_engine_waiter *waiters;

    /* The driving thread's. Under the lock, `next` also links free calls. */
    struct sl_engine_call *next;
    struct sl_step *step;
    int err;
};

struct sl_engine_list {
    struct sl_engine_call *first, *last;
};

#define SL_ENGINE_BUCKETS    1024U
#define SL_ENGINE_TEXT_BYTES 256

/* Messages of this process that are sent and have no answer; further ones wait. */
#define SL_ENGINE_SENDS_MAX  64

/* A free call keeps its copy buffer up to this size. */
#define SL_ENGINE_COPY_BYTES (64U << 10)

struct sl_engine_failures {
    uint64_t timestamps[SL_KV_RESULTS];
    int errs[SL_KV_RESULTS];
    char texts[SL_KV_RESULTS][SL_ENGINE_TEXT_BYTES];
    uint32_t count; /* since creation; the next index is this modulo SL_KV_RESULTS */
};

struct sl_engine {
    bool has_thread;
    pthread_t thread; /* if has_thread */
    struct sl_client *client;
    struct sl_relay_inbox inbox;

    pthread_mutex_t lock;         /* if has_thread: protects the fields up to `failures` */
    struct sl_engine_call **heap; /* queued calls: a binary heap, next call first */
    uint32_t heap_count, heap_capacity;
    struct sl_engine_call *buckets[SL_ENGINE_BUCKETS]; /* calls that are not over, by timestamp */
    uint32_t outstanding;
    uint64_t last_timestamp;
    struct sl_engine_call *free_calls;
    struct sl_engine_waiter *free_waiters;
    struct sl_engine_job *new_jobs;
    struct sl_mailbox_lane *lane; /* into the mailbox of the driven reactor */
    bool wake_pending;            /* a wake-up mail is in flight */
    bool stopping;
    struct sl_engine_messages messages;
    struct sl_engine_failures failures;

    /* The driving thread's. */
    struct {
        struct sl_port *port; /* to the client's reactors */
        bool woken;           /* the wake-up mail has arrived */
        bool is_running; /* inside sl_engine_progress, which also admits its callbacks' calls */
        bool backlog;    /* calls stay queued because too many steps are out */
        struct sl_engine_list ended;
        struct sl_engine_job *jobs;
        uint32_t sends_out;
        struct sl_engine_messages messages; /* a copy */
    } driver;
};

/* Creates the client, beside a process of the job (SL_MESSAGE_BESIDE_...) or as a worker (0), and,
 * unless caller_drives, its thread. The caller owns *out. Errors: as sl_client_create. */
int sl_engine_create(const struct sl_client_options *options, uint32_t beside, bool caller_drives,
                     struct sl_engine **out);

/* No call may be outstanding and no other thread inside a function of the engine. Sets *engine to
 * NULL. */
void sl_engine_destroy(struct sl_engine **engine);

/* Queues a call. Copies `request`, and its arrays if copy_inputs is set; lengths: see
 * sl_engine_call. Errors: INVALID, NO_MEMORY, CLOSED. Any thread, unless caller_drives, here and
 * below. */
int sl_engine_begin(struct sl_kv *kv, const struct sl_kv_call *request, uint32_t *lengths,
                    uint64_t *timestamp);

/* Queues a message with its targets; owns it, also after an error. Errors: NO_MEMORY, CLOSED. */
int sl_engine_begin_send(struct sl_kv *kv, struct sl_relay *relay, uint64_t *timestamp);

/* Waits for the call and returns its result. Other errors: INVALID (no such call, or in a
 * callback), NO_MEMORY. */
int sl_engine_wait(struct sl_engine *engine, uint64_t timestamp);

/* Returns whether the call was begun and is over. */
bool sl_engine_done(struct sl_engine *engine, uint64_t timestamp);

/* Waits until no call of this table is outstanding. */
void sl_engine_drain(struct sl_kv *kv);

/* Returns the result of a call that is over. text (text_bytes) may be NULL. */
int sl_engine_result(struct sl_engine *engine, uint64_t timestamp, char *text, size_t text_bytes);

/* Runs a job and returns its result. Other errors: INVALID (in a callback), NO_MEMORY, CLOSED. */
int sl_engine_run_job(struct sl_engine *engine, struct sl_engine_job *job);

/* Wakes the driving thread, if the engine has one and no wake-up is in flight. Under the lock. */
void sl_engine_wake(struct sl_engine *engine);

/* Driving thread only */

/* `poll` of a message. */
int sl_engine_poll_send(struct sl_engine *engine, struct sl_engine_job *job);

/* Admits queued calls while steps are available, completes calls with their callbacks, and polls
 * the jobs. Never blocks. */
void sl_engine_progress(struct sl_engine *engine);

/* Drives the client, asleep if idle, until sl_engine_progress has work. */
void sl_engine_rest(struct sl_engine *engine);

/* The lock: without a thread there is nothing to lock. */

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

/* engine_queue.c: under the lock */

/* Takes a call, with its copy buffer if one is kept; NULL: out of memory. */
struct sl_engine_call *sl_engine_take_call(struct sl_engine *engine);
/* Returns a call to the free list; frees its message, and a copy buffer larger than
 * SL_ENGINE_COPY_BYTES. */
void sl_engine_give_call(struct sl_engine *engine, struct sl_engine_call *call);

/* Queues the call and sets its timestamp. Errors: NO_MEMORY. */
int sl_engine_enqueue(struct sl_engine *engine, struct sl_engine_call *call);

/* Takes the next call; NULL: the queue is empty. */
struct sl_engine_call *sl_engine_dequeue(struct sl_engine *engine);

/* Finds a call that is not over, or NULL. */
struct sl_engine_call *sl_engine_find(const struct sl_engine *engine, uint64_t timestamp);

/* Marks the call as over: sl_engine_find no longer returns it. */
void sl_engine_forget(struct sl_engine *engine, struct sl_engine_call *call);

/* NULL: out of memory. */
struct sl_engine_waiter *sl_engine_take_waiter(struct sl_engine *engine);
void sl_engine_give_waiter(struct sl_engine *engine, struct sl_engine_waiter *waiter);

/* Records a failure; text may be "". */
void sl_engine_note_failure(struct sl_engine *engine, uint64_t timestamp, int err,
                            const char *text);

/* Frees the queue; no lock needed any more. */
void sl_engine_free_queue(struct sl_engine *engine);

#endif
