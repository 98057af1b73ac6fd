/* The key-value interface for programs written for ps-lite; docs/ps-lite.md maps ps-lite's calls to
 * these. DMLC_ROLE makes a process a worker, a server or the scheduler. A worker pushes and pulls
 * arrays by ascending u64 keys, asynchronously, and waits for timestamps. A server adds pushes up,
 * or passes requests to a handler of the program.
 *
 * Functions return 0 or a negative enum sl_err; sl_last_error has the reason of a failure. Outputs
 * are written only on success. */
#ifndef STARLING_KV_H
#define STARLING_KV_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Roles */

enum sl_kv_role { SL_KV_SCHEDULER, SL_KV_SERVER, SL_KV_WORKER, SL_KV_JOINT };

/* Reads DMLC_ROLE. SL_KV_JOINT: a server and a worker in one process. Errors: NOT_FOUND (not set),
 * INVALID. Any thread. */
SL_API int sl_kv_role(enum sl_kv_role *out);

/* Worker */

struct sl_kv;
struct sl_kv_server;

/* For sl_kv_options.value_bytes: values of 2 bytes, IEEE 754 binary16 or the upper half of an f32,
 * to which pushes are added, in f32, rounded to the nearest. */
#define SL_KV_F16  0x102U
#define SL_KV_BF16 0x202U

struct sl_kv_options {
    const char *name; /* table name: workers that use the same name share its keys; NULL: "kv" */
    uint32_t value_bytes; /* 4: f32; SL_KV_F16, SL_KV_BF16; 1: bytes, which pushes replace; 0: 4 */
    uint32_t timeout_ms;  /* of every push and pull; 0: 60000 */
    /* No I/O thread: only the thread that creates the kv may use it, and it drives the connections
     * inside sl_kv_wait and sl_kv_done (see sl_client_options). Operations begun in between are
     * sent together, by priority, in the next such call or as soon as 8 are queued. */
    bool manual_progress;
    /* Pulls of keys that no worker has pushed give zeros; else they are NOT_FOUND. Handlers get
     * such pulls anyway. Errors: VERSION (older servers). */
    bool zeros;
    /* "NAME=VALUE", which count in place of the environment's variables; ends with NULL. NULL:
     * none. */
    const char *const *variables;
    /* A server or scheduler of this process: joins its job as a client, not as a worker, with its
     * role and rank, for barriers and messages. `variables` are then the server's. Opens no table,
     * so that a push, pull or encoding is INVALID; sl_kv_open does. At most one for each server.
     * NULL: a worker. */
    const struct sl_kv_server *beside;
};

/* Joins the cluster that the environment names (DMLC_*; otherwise like starling-worker without
 * flags) and opens the table. Other variables apply as for starling-worker. The caller owns *out.
 * Errors: INVALID, DEADLINE, REFUSED, EXISTS (the table has other values), VERSION (SL_KV_F16 and
 * SL_KV_BF16 need newer servers), NO_MEMORY.
 *
 * Link libstarling_kv only: it includes libstarling. */
SL_API int sl_kv_create(const struct sl_kv_options *options, struct sl_kv **out);

/* Waits for outstanding operations and those that their callbacks begin, disconnects, and frees the
 * kv. No other thread may be inside a function of this kv. Sets *kv to NULL. */
SL_API void sl_kv_destroy(struct sl_kv **kv);

/* Opens another table of the same worker, with the same connections and thread. Both share one
 * sequence of timestamps: either can wait for them. Destroy it before the first kv. Errors: as
 * sl_kv_create. */
SL_API int sl_kv_open(struct sl_kv *kv, const struct sl_kv_options *options, struct sl_kv **out);

/* Sets the precisions in which the table's f32 values travel: F32, F16 or BF16 in pulls, and also
 * INT8 in pushes. The caller's arrays stay f32. Values that are pushed are rounded randomly, the
 * others to the nearest. Operations that are not complete may travel either way. A push of INT8
 * fails with INVALID if a value is not finite. Not in a callback. Errors: INVALID (values other
 * than f32; the precision), VERSION (a server does not know encodings). Any thread, unless
 * manual_progress. */
SL_API int sl_kv_set_encoding(struct sl_kv *kv, enum sl_precision pull, enum sl_precision push);

/* For a pull whose lengths only the servers know: called once when all values have arrived, on the
 * thread that drives the connections, with the length of each key (0: none), valid during the call.
 * Returns memory of value_count values, which lie there when the operation is complete; NULL: it
 * fails with NO_MEMORY. */
typedef void *sl_kv_place_fn(void *ctx, const uint32_t *lens, uint64_t value_count);

/* Completion callback: called once, with the result, on the thread that drives the connections. The
 * callback may begin operations. It must not wait or call a blocking function (barriers, tables,
 * buffers): these return INVALID. */
typedef void sl_kv_done_fn(void *ctx, uint64_t timestamp, int err);

struct sl_kv_call {
    struct sl_kv_batch batch; /* push, pull, or both: starling.h */
    int32_t priority;         /* a higher priority goes first */
    bool copy_inputs; /* copy keys, lens and pushed values: the caller may free them after the call
                       */
    sl_kv_done_fn *done; /* or NULL */
    void *ctx;
    /* With batch.push, pull and lens NULL and value_count 0: a pull of lengths that only the
     * servers know. Keys that no worker has pushed have length 0, with sl_kv_options.zeros 1.
     * Arrays longer than those before are asked for twice. A server that is older: VERSION. NULL:
     * none */
    sl_kv_place_fn *place;
};

/* Begins an operation; wait for *timestamp, which ascends. The timeout counts from this call.
 * Without copy_inputs all arrays are used in place (as ZPush, ZPull and ZPushPull of ps-lite) and
 * must stay unmodified until the operation is complete. A server on this machine reads and writes
 * memory of sl_kv_buffer_create directly; RDMA also uses memory of sl_kv_buffer_register. After a
 * server restarted without its parameters, every operation fails with CORRUPT. Errors: INVALID,
 * NO_MEMORY, CLOSED. Any thread, unless manual_progress. */
SL_API int sl_kv_begin(struct sl_kv *kv, const struct sl_kv_call *call, uint64_t *timestamp);

/* Waits until the operation and its callback are complete; returns its result. The last
 * SL_KV_RESULTS failures are kept; older ones count as success. Other errors: INVALID (never begun,
 * or called from a callback), NO_MEMORY. */
#define SL_KV_RESULTS 1024
SL_API int sl_kv_wait(struct sl_kv *kv, uint64_t timestamp);

/* Returns whether the operation and its callback are complete; false for a timestamp never begun.
 * Never blocks. With manual_progress: drives the connections once. */
SL_API bool sl_kv_done(struct sl_kv *kv, uint64_t timestamp);

/* Writes why the operation failed to text; "" if it did not fail or the failure is no longer
 * kept. */
SL_API void sl_kv_error(struct sl_kv *kv, uint64_t timestamp, char *text, size_t text_bytes);

/* Begin an operation and wait. Keys ascend; lens may be NULL (starling.h). */
SL_API int sl_kv_push(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                      const uint32_t *lens, const void *values, uint64_t value_count);
SL_API int sl_kv_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                      const uint32_t *lens, void *values, uint64_t value_count);
SL_API int sl_kv_push_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                           const uint32_t *lens, const void *push, void *pull,
                           uint64_t value_count);
/* Writes the array length of each key, in values; 0: never pushed. */
SL_API int sl_kv_lengths(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                         uint32_t *lens);

/* As sl_client_buffer_create and free. Not in a callback. */
SL_API int sl_kv_buffer_create(struct sl_kv *kv, size_t bytes, void **out);
SL_API void sl_kv_buffer_free(struct sl_kv *kv, void **buffer);

/* As sl_client_buffer_register and unregister. Not in a callback. */
SL_API int sl_kv_buffer_register(struct sl_kv *kv, void *base, size_t bytes);
SL_API void sl_kv_buffer_unregister(struct sl_kv *kv, void *base);

/* Waits for all workers. Errors: DEADLINE, CLOSED. */
SL_API int sl_kv_barrier(struct sl_kv *kv, const char *name, uint32_t timeout_ms);

/* Bits: the processes of a role. */
#define SL_KV_SCHEDULER_GROUP 1U
#define SL_KV_SERVER_GROUP    2U
#define SL_KV_WORKER_GROUP    4U

/* Waits for every process of the groups, which this one must be in. Errors: DEADLINE, which names
 * the missing ones; CLOSED, which names one that has left or expired; INVALID (other groups than
 * those of the others at this name); VERSION (an older scheduler). */
SL_API int sl_kv_barrier_of(struct sl_kv *kv, const char *name, uint32_t groups,
                            uint32_t timeout_ms);

/* Messages between processes of the job. They go through the scheduler: use them for control, a few
 * per second. Each arrives once, or its sender gets an error. */

#define SL_KV_MESSAGE_BYTES (64U << 10) /* of a body */

struct sl_kv_message {
    enum sl_kv_role role; /* the sender's */
    uint32_t rank;
    int32_t head;
    uint32_t bytes;
    const void *body; /* until the function returns */
    uint64_t id;      /* for the answer; 0: this is an answer */
};

/* Called on the thread that drives the connections, like sl_kv_done_fn. */
typedef void sl_kv_message_fn(void *ctx, const struct sl_kv_message *message);

/* Sets the functions for messages of others, and for their answers to messages of this process;
 * NULL: answers are dropped. Until then up to 64 messages wait; their senders wait, too. Any
 * thread, unless manual_progress, here and below. */
SL_API void sl_kv_messages(struct sl_kv *kv, sl_kv_message_fn *request, sl_kv_message_fn *answer,
                           void *ctx);

struct sl_kv_node {
    enum sl_kv_role role;
    uint32_t rank;
};

/* Sends a message to a node, or, if it is NULL, to every process of the groups, and copies the
 * body. sl_kv_wait(*timestamp) waits until all have answered and their answers were passed to
 * `answer`. The kv's timeout applies. Errors: INVALID, NO_MEMORY, CLOSED. Errors of the wait:
 * CLOSED (a receiver has left, expired, or lost its connection: it may have got the message),
 * DEADLINE, NO_MEMORY (more than 1024 without an answer), UNSUPPORTED (a receiver takes no
 * messages), VERSION (an older scheduler); the text names the receiver. */
SL_API int sl_kv_message_send(struct sl_kv *kv, uint32_t groups, const struct sl_kv_node *node,
                              int32_t head, const void *body, uint32_t bytes, uint64_t *timestamp);

/* Answers a message of another process, once. An answer that is too late is dropped. Errors:
 * INVALID, NO_MEMORY, CLOSED. */
SL_API int sl_kv_message_answer(struct sl_kv *kv, const struct sl_kv_message *request, int32_t head,
                                const void *body, uint32_t bytes);

/* Rank of this worker, from 0, or of the server beside; number of workers; number of servers. A
 * server is one shard: a process with several reactors counts as several servers. */
SL_API uint32_t sl_kv_rank(const struct sl_kv *kv);
SL_API uint32_t sl_kv_worker_count(const struct sl_kv *kv);
SL_API uint32_t sl_kv_server_count(const struct sl_kv *kv);

/* First and last key of a server, both inclusive. server < sl_kv_server_count. */
SL_API void sl_kv_server_range(const struct sl_kv *kv, uint32_t server, uint64_t *first,
                               uint64_t *last);

/* With manual_progress: the underlying client, for Starling's tables that are not key-value. Else
 * NULL: the client belongs to the kv's own thread. */
SL_API struct sl_client *sl_kv_client(struct sl_kv *kv);

/* Server */

/* A request as received, or one part of a request that was too long for a message (struct
 * sl_kv_batch). */
struct sl_kv_request {
    const char *table;
    uint32_t server; /* index of this shard, below server_count */
    uint32_t server_count;
    int32_t worker;   /* rank of the sender; -1: none */
    uint32_t command; /* from struct sl_kv_batch */
    uint32_t value_bytes;
    uint32_t key_count;
    const uint64_t *keys; /* not validated: a sender may send keys that do not ascend */
    const uint32_t *lens; /* [key_count]; NULL: value_count / key_count each */
    uint64_t value_count;
    /* Pull only: the sender does not know the lengths, and has room for value_count / key_count
     * values of each key. An answer by sl_kv_reply may have other lengths; the sender asks again,
     * with `lens`, if an array does not fit. */
    bool lens_wanted;
    const void
        *push; /* values; NULL: no push. Aligned to 8. May point into memory shared with the sender.
                * A malicious sender can change it at any time: copy it before validating it. */
    void *pull; /* fill it with the requested values; NULL: no pull. Aligned to 8. */
    /* Pull only: instead of filling `pull`, the handler may set *reply to the requested values,
     * aligned to 8, in memory that it never frees. They are sent from there; a change during the
     * transfer may or may not reach the receiver. */
    const void **reply;
    /* One chunk of an array that was too long for a message (key_count 1): its first value and the
     * values of the whole array; else 0. */
    uint64_t chunk_start, array_length;
    /* For a handler that returns SL_KV_LATER. NULL: this request cannot be kept (no memory, or one
     * of several operations that were sent together). */
    struct sl_kv_token *token;
};

/* Result of a handler that has kept request->token, to answer by sl_kv_reply. Until then the
 * request waits; it holds up no other request, of its sender either. All other memory of the
 * request is invalid after the return: copy what you keep. */
#define SL_KV_LATER 1

struct sl_kv_answer {
    int err;              /* 0, or an sl_err that the sender gets */
    const void *values;   /* pulled values, aligned to 8 or they are copied; NULL without a pull */
    uint64_t value_count; /* with a pull: as asked; with lens_wanted any number */
    const uint32_t *lens; /* with lens_wanted: [key_count]; else, or NULL: the same for each key */
    /* Called once, when `values` and `lens` are no longer read: on the server's reactor, or in
     * sl_kv_reply if the server has stopped. Must not block. NULL: `values` is never freed. */
    void (*sent)(void *ctx);
    void *ctx;
};

/* Answers a request that was kept: exactly once for each token, also while the handler has not
 * returned SL_KV_LATER yet. Copies *answer. The answer is dropped, and `sent` called, if nobody
 * waits for it any more: the sender's deadline has passed (it gets DEADLINE), the sender has left
 * or is expired, the table was dropped, or the server stops (CANCELLED). A sender that has lost its
 * connection, and comes back in time, gets it. A second answer is an error of the program, which is
 * detected within the next 256 tokens and ends the process. Any thread, also in `handle`. */
SL_API void sl_kv_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer);

struct sl_kv_handler {
    /* Handles every request to a KV table, in place of adding pushes up. Runs on the reactor that
     * owns the shard and must not block. Requests of one server are sequential; different servers
     * run concurrently on other threads. Results:
     * - 0: done; `pull` is filled or *reply is set
     * - SL_ERR_AGAIN: not yet; the handler must not have changed anything. The same request is
     * passed again later, at the latest after another request of this server is done.
     * - SL_KV_LATER: request->token will be answered
     * - another error: sent to the client
     *
     * A retransmitted push is passed only once, and a retransmission of a kept request not at all:
     * both get the one answer. A retransmitted pull or push-pull whose reply was lost is passed
     * again, with push NULL. Memory of the request is invalid after the return. */
    int (*handle)(void *ctx, const struct sl_kv_request *request);
    /* An array that is too long for a message is passed whole, as one request with array_length 0:
     * a push when its last chunk has come, a pull once for all chunks. Bytes of the longest one; a
     * longer one is refused with TOO_LARGE. Its memory counts for --memory-limit. Operations of a
     * worker on one key with different priorities must not overlap then. 0: in chunks. */
    uint64_t whole_bytes;
    /* Returns the number of values of a key, 0: none, for sl_kv_lengths. NULL: always 0. */
    uint32_t (*length)(void *ctx, const char *table, uint64_t key);
    void *ctx;
};

/* Runs this process as starling-ps, with its flags and environment: a server, or the scheduler if
 * DMLC_ROLE says so. handler: NULL, or must outlive the call. The main thread only. Returns the
 * exit status; prints the reason of a failure:
 * - 0: the job ended, or SIGTERM or SIGINT stopped the process
 * - 2: invalid flag or variable
 * - 1: other failures; also a scheduler that was stopped before all workers left, or whose job has
 *   an expired process */
SL_API int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler);

/* A server or the scheduler beside other work of a program, on threads of its own. The program
 * keeps its signals, stdout, limits of descriptors and exit; the log is set up by the first worker
 * or server of the process. A program may have several. */
struct sl_kv_server_options {
    /* "NAME=VALUE", which count in place of the environment's variables; ends with NULL. NULL:
     * none. */
    const char *const *variables;
    const char *const *flags; /* of starling-ps, ends with NULL; NULL: none */
    /* NULL: pushes are added up. Copied; what its ctx points to must live until sl_kv_server_stop.
     */
    const struct sl_kv_handler *handler;
    bool handler_later; /* requests wait until sl_kv_server_handle; `handler` is NULL */
};

/* Starts a server, or the scheduler if DMLC_ROLE says so ("joint": a server). A server
 * returns when the scheduler has registered it, the scheduler when it listens. Copies
 * the options. The caller owns *out. Errors: INVALID, NOT_FOUND (DMLC_ROLE), DEADLINE (of
 * --start-timeout), IN_USE, IO, NO_MEMORY, and others of a start. Any thread. */
SL_API int sl_kv_server_start(const struct sl_kv_server_options *options,
                              struct sl_kv_server **out);

/* Sets the handler of a server that was started with handler_later, once; the requests that have
 * come go to it. NULL: pushes are added up. Errors: INVALID. Any thread. */
SL_API int sl_kv_server_handle(struct sl_kv_server *server, const struct sl_kv_handler *handler);

/* Index of the process among the servers; 0: the scheduler. */
SL_API uint32_t sl_kv_server_rank(const struct sl_kv_server *server);

/* Waits until the job has ended, or the server has failed. Errors: DEADLINE. Any thread, but no
 * handler. */
SL_API int sl_kv_server_wait(struct sl_kv_server *server, uint32_t timeout_ms);

/* Stops the server, if it has not ended, as SIGTERM does; a scheduler ends its job. Requests that
 * were kept fail with CANCELLED. Frees the server, and returns the exit status of sl_kv_serve. Sets
 * *server to NULL. No other thread may be inside a function of this server. */
SL_API int sl_kv_server_stop(struct sl_kv_server **server);

#ifdef __cplusplus
}
#endif
#endif
