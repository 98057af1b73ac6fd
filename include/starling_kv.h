/* The key-value interface, for programs written for ps-lite: docs/ps-lite.md maps its calls to
 * these. A process is a worker, a server or the scheduler, as DMLC_ROLE says; a worker pushes and
 * pulls arrays by ascending u64 keys, asynchronously, and waits by timestamps; on a server the
 * pushes are added up, or go to a handler of the program's own.
 *
 * Functions return 0 or a negative enum sl_err. Outputs are written only on success. */
#ifndef STARLING_KV_H
#define STARLING_KV_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Roles ----------------------------------------------------------------------------------- */

enum sl_kv_role { SL_KV_SCHEDULER, SL_KV_SERVER, SL_KV_WORKER };

/* What DMLC_ROLE says. Errors: NOT_FOUND (not set), INVALID; logged. Any thread. */
SL_API int sl_kv_role(enum sl_kv_role *out);

/* ---- Worker ---------------------------------------------------------------------------------- */

struct sl_kv;

struct sl_kv_options {
    const char *name;     /* of the table: those who name it share its keys; NULL: "kv" */
    uint32_t value_bytes; /* 4: f32, or 1: bytes; 0: 4 */
    uint32_t timeout_ms;  /* of every push and pull; 0: 60000 */
    /* No thread of its own: the thread that creates it is the only one that uses it, and serves its
     * connections whenever it waits, or asks whether something is done; so with sl_client_options.
     * What was begun before leaves then as one, by priority; dozens of calls leave at once. */
    bool manual_progress;
};

/* Programs link libstarling_kv, which has all of libstarling in it, instead of that.
 *
 * Joins the cluster that the environment names (DMLC_*, else as starling-worker without flags) and
 * opens the table. Other variables count as for starling-worker. *out is owned by the caller.
 * Errors: INVALID, DEADLINE, REFUSED, EXISTS (the table, with values of another width), NO_MEMORY:
 * logged. */
SL_API int sl_kv_create(const struct sl_kv_options *options, struct sl_kv **out);

/* Waits for what is outstanding, what its callbacks begin included, says goodbye, frees everything.
 * No other thread is in a function of it. Nulls *kv. */
SL_API void sl_kv_destroy(struct sl_kv **kv);

/* Another table of the same worker, over the same connections and with the same thread; their
 * timestamps are of one sequence, and may be waited for with either. Destroyed before the first.
 * Errors: as create. */
SL_API int sl_kv_open(struct sl_kv *kv, const struct sl_kv_options *options, struct sl_kv **out);

/* Called once, when the operation is complete, with its result; on the thread that serves the
 * connections. It may begin others, but neither wait nor ask for what waits (barriers, tables,
 * buffers): that is INVALID. */
typedef void sl_kv_done_fn(void *ctx, uint64_t timestamp, int err);

struct sl_kv_call {
    struct sl_kv_batch batch; /* pushes, pulls, or both: starling.h */
    int32_t priority;         /* the greater goes first */
    bool copy_inputs;         /* keys, lens and what is pushed may go when the call has returned */
    sl_kv_done_fn *done;      /* or NULL */
    void *ctx;
};

/* Begins; *timestamp, above all earlier ones, is what to wait for. Without copy_inputs all arrays
 * are used in place (ps-lite's ZPush, ZPull and ZPushPull) and must stay as they are until it is
 * complete; in memory of sl_kv_buffer_create a server on this machine uses them where they are, and
 * so does RDMA there and in memory of sl_kv_buffer_register. Its time runs from here. Once a server
 * was started again without the values that it had, every operation fails with CORRUPT. Errors:
 * INVALID, NO_MEMORY, CLOSED. Any thread, unless manual_progress. */
SL_API int sl_kv_begin(struct sl_kv *kv, const struct sl_kv_call *call, uint64_t *timestamp);

/* Waits until the operation is complete, callback included; its result. The results of the last
 * SL_KV_RESULTS operations that failed are kept; older ones count as done. Errors besides: INVALID
 * (never begun, or in a callback), NO_MEMORY. */
#define SL_KV_RESULTS 1024
SL_API int sl_kv_wait(struct sl_kv *kv, uint64_t timestamp);

/* Whether the operation is complete, callback included; false of what was never begun. Never
 * blocks. Of a caller-driven one: serves the connections once. */
SL_API bool sl_kv_done(struct sl_kv *kv, uint64_t timestamp);

/* Why the operation failed, into text; "" when it did not, or that is forgotten. */
SL_API void sl_kv_error(struct sl_kv *kv, uint64_t timestamp, char *text, size_t text_bytes);

/* Begin and wait; keys ascend; lens may be NULL: starling.h. */
SL_API int sl_kv_push(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                      const uint32_t *lens, const void *values, uint64_t value_count);
SL_API int sl_kv_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                      const uint32_t *lens, void *values, uint64_t value_count);
SL_API int sl_kv_push_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                           const uint32_t *lens, const void *push, void *pull,
                           uint64_t value_count);
/* The number of values of each key, 0 where nobody has pushed it. */
SL_API int sl_kv_lengths(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                         uint32_t *lens);

/* sl_client_buffer_create and free. Not in a callback. */
SL_API int sl_kv_buffer_create(struct sl_kv *kv, size_t bytes, void **out);
SL_API void sl_kv_buffer_free(struct sl_kv *kv, void **buffer);

/* sl_client_buffer_register and unregister. Not in a callback. */
SL_API int sl_kv_buffer_register(struct sl_kv *kv, void *base, size_t bytes);
SL_API void sl_kv_buffer_unregister(struct sl_kv *kv, void *base);

/* All workers. Errors: DEADLINE, CLOSED. */
SL_API int sl_kv_barrier(struct sl_kv *kv, const char *name, uint32_t timeout_ms);

/* This worker's rank, from 0; how many there are; and how many servers: each is one shard, so that
 * a process that serves with several cores counts as several. */
SL_API uint32_t sl_kv_rank(const struct sl_kv *kv);
SL_API uint32_t sl_kv_worker_count(const struct sl_kv *kv);
SL_API uint32_t sl_kv_server_count(const struct sl_kv *kv);

/* The keys of a server: first to last, both included. server < sl_kv_server_count. */
SL_API void sl_kv_server_range(const struct sl_kv *kv, uint32_t server, uint64_t *first,
                               uint64_t *last);

/* The client that it stands on, for tables of other kinds. Of a kv that is not caller-driven it
 * belongs to the kv's own thread: then NULL. */
SL_API struct sl_client *sl_kv_client(struct sl_kv *kv);

/* ---- Server ---------------------------------------------------------------------------------- */

/* A request as it came, or a part of one that was too long for a message (struct sl_kv_batch). */
struct sl_kv_request {
    const char *table;
    uint32_t server; /* this shard, of the cluster's server_count */
    uint32_t server_count;
    int32_t worker;   /* the sender's rank; -1: it has none */
    uint32_t command; /* the sender's */
    uint32_t value_bytes;
    uint32_t key_count;
    const uint64_t *keys; /* as they came: whether they ascend is the sender's business */
    const uint32_t *lens; /* [key_count]; or NULL: value_count / key_count each */
    uint64_t value_count;
    const void *push; /* values; NULL: no push. May lie in memory of the sender's, who may be mad:
                       * what is checked in it must be copied before. Aligned to 8. */
    void *pull;       /* to be filled with the values asked for; NULL: no pull. Aligned to 8. */
    /* With pull: may be set to the values asked for, aligned to 8, in memory that the handler never
     * frees, instead of filling `pull`: they are sent from there. What changes there while they are
     * on their way may or may not reach the receiver. */
    const void **reply;
    /* Of a piece of an array that was too long for a message (key_count 1): where it begins, and
     * the values in the whole array; else 0. */
    uint64_t chunk_start, array_length;
};

struct sl_kv_handler {
    /* In place of the sum, for every request to a KV table. Runs on the reactor that owns the
     * shard: requests of one server come one after the other, different servers' at the same time
     * on other threads; it must not block. Returns 0: done, `pull` is filled, or `answer`
     * set; SL_ERR_AGAIN: not yet, ask again with the same request later, at the latest when another
     * one of this server's has been done (until then nothing may have been changed for it); or
     * another error, which the sender gets. A push is shown once, also when its connection breaks
     * and it is sent again; a push_pull whose answer was lost is then shown with push NULL. Memory
     * named in the request is its sender's when this returns. */
    int (*handle)(void *ctx, const struct sl_kv_request *request);
    /* How many values a key has, 0: none: what sl_kv_lengths asks. NULL: always 0. */
    uint32_t (*length)(void *ctx, const char *table, uint64_t key);
    void *ctx;
};

/* Runs this process as starling-ps, with its flags and environment: a server, or the scheduler when
 * DMLC_ROLE says so. handler: NULL, or outlives the call. Returns the exit status: 0 when the job
 * has ended or the process was told to (SIGTERM, SIGINT), 2 after a bad flag or variable, else 1,
 * also of a scheduler that was told to before all workers had left, or whose job has lost some
 * process; the reason is printed. The main thread. */
SL_API int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler);

#ifdef __cplusplus
}
#endif
#endif
