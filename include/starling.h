/* Starling's public header: the client API of libstarling, and the vocabulary (errors, table
 * specifications) that every folder of the source tree shares.
 *
 * A client connects one worker process to every shard of a parameter server cluster. All work is
 * done in steps: a step gathers operations on any number of tables, is submitted once, and
 * completes once, within its deadline. Any thread may begin a step; from then until sl_step_destroy
 * the step belongs to that thread. Memory named in an operation belongs to the caller throughout,
 * but must stay valid and unmodified from sl_step_submit until sl_step_wait has returned.
 *
 * Functions return 0 or a negative enum sl_err. Outputs are written only on success. */
#ifndef STARLING_H
#define STARLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SL_API __attribute__((visibility("default")))
#else
#define SL_API
#endif

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The values travel on the wire (as their absolute value): never renumber, only append. */
enum sl_err {
    SL_OK = 0,
    SL_ERR_INVALID = -1,      /* an argument, option or message field is outside what is accepted */
    SL_ERR_NO_MEMORY = -2,    /* a configured memory limit or the system's is reached */
    SL_ERR_DEADLINE = -3,     /* the deadline passed before the answer came */
    SL_ERR_CLOSED = -4,       /* the connection or the object is closed */
    SL_ERR_REFUSED = -5,      /* nobody listens there, or the peer refused the hello */
    SL_ERR_PROTOCOL = -6,     /* the peer broke the protocol */
    SL_ERR_VERSION = -7,      /* the peer speaks another protocol version */
    SL_ERR_NOT_FOUND = -8,    /* no such table, host, file or variable */
    SL_ERR_EXISTS = -9,       /* it exists already, with other properties */
    SL_ERR_WRONG_SHARD = -10, /* the key belongs to another shard */
    SL_ERR_AGAIN = -11,       /* a queue or a credit is full: try again later */
    SL_ERR_IO = -12,          /* the operating system reported an error */
    SL_ERR_IN_USE = -13,      /* the address is in use */
    SL_ERR_UNSUPPORTED = -14, /* not built in, or not possible on this machine */
    SL_ERR_TOO_LARGE = -15,   /* larger than the limit */
    SL_ERR_CORRUPT = -16,     /* a checksum does not match */
    SL_ERR_CANCELLED = -17,   /* given up because the process is shutting down */
};

/* The error's short name in lower case, "deadline" for SL_ERR_DEADLINE; "unknown error" for a value
 * that is none. Static storage. Any thread. */
SL_API const char *sl_err_name(int err);

/* ---- Tables ---------------------------------------------------------------------------------- */

enum sl_optimizer_kind {
    SL_OPTIMIZER_SUM = 0, /* w += g: what ps-lite's servers do */
    SL_OPTIMIZER_SGD = 1,
    SL_OPTIMIZER_MOMENTUM = 2,
    SL_OPTIMIZER_ADAGRAD = 3,
    SL_OPTIMIZER_ADAGRAD_DECAY = 4,
    SL_OPTIMIZER_RMSPROP = 5,
    SL_OPTIMIZER_ADAM = 6,
    SL_OPTIMIZER_ADAMW = 7,
    SL_OPTIMIZER_ADAM_ASYNC = 8,
    SL_OPTIMIZER_FTRL = 9,        /* per coordinate */
    SL_OPTIMIZER_FTRL_GROUP = 10, /* by row group */
};
#define SL_OPTIMIZER_KIND_COUNT 11

/* Hyper-parameters; each optimizer reads those it names in ps/optimizer/opt_*.c and ignores the
 * rest. All must be finite. */
struct sl_optimizer_spec {
    enum sl_optimizer_kind kind;
    float lr;                  /* learning rate, > 0 */
    float momentum;            /* [0, 1): momentum, RMSProp */
    float rho;                 /* [0, 1]: RMSProp's decay; AdagradDecay's rho */
    float beta1, beta2;        /* [0, 1): the Adam family */
    float epsilon;             /* > 0: the Adam family, RMSProp; >= 0: Adagrad and AdagradDecay, of
                                * which epsilon and initial_accumulator are not both 0 */
    float weight_decay;        /* >= 0: AdamW, decoupled */
    float initial_accumulator; /* >= 0: Adagrad, AdagradDecay, FTRL's n */
    float l1, l2;              /* >= 0: FTRL */
    float lr_power;            /* <= 0: FTRL's -q; -0.5 is the square root */
    uint32_t decay_steps;      /* > 0: AdagradDecay's T */
    float decay_baseline;      /* > 0: AdagradDecay's floor under the accumulator */
};

/* The optimizer's documented defaults. Any thread. */
SL_API struct sl_optimizer_spec sl_optimizer_defaults(enum sl_optimizer_kind kind);

enum sl_initializer_kind {
    SL_INITIALIZER_ZEROS = 0,
    SL_INITIALIZER_CONSTANT = 1, /* a */
    SL_INITIALIZER_UNIFORM = 2,  /* [a, b), a < b */
    SL_INITIALIZER_NORMAL = 3,   /* mean a, standard deviation b >= 0; |a| + 9 b is finite */
    SL_INITIALIZER_TRUNCATED_NORMAL = 4, /* the same, redrawn beyond two standard deviations */
};
#define SL_INITIALIZER_KIND_COUNT 5

/* A row's first value is a pure function of (seed, key, column): the same whatever the number of
 * shards and the order of arrival. */
struct sl_initializer_spec {
    enum sl_initializer_kind kind;
    float a, b;
    uint64_t seed;
};

enum sl_consistency_mode {
    SL_CONSISTENCY_ASP = 0, /* pulls never wait */
    SL_CONSISTENCY_BSP = 1, /* pulls of step c see exactly the pushes of the steps before c */
    SL_CONSISTENCY_SSP = 2, /* pulls of step c wait until every worker has finished c - staleness */
};
#define SL_CONSISTENCY_MODE_COUNT 3

struct sl_consistency_spec {
    enum sl_consistency_mode mode;
    uint32_t staleness;    /* steps; SSP only, else 0 */
    uint32_t worker_count; /* workers whose clocks count: tasks 0 to worker_count - 1; 0 in ASP */
};

enum sl_table_kind {
    SL_TABLE_SPARSE = 0, /* u64 key -> row of dim f32 */
    SL_TABLE_DENSE = 1,  /* one named array of length f32, sharded by contiguous blocks */
    SL_TABLE_KV = 2,     /* u64 key -> array of values, sharded by ranges of keys: ps-lite's */
};
#define SL_TABLE_KIND_COUNT 3

#define SL_TABLE_NAME_BYTES 64 /* with the terminating NUL */

struct sl_table_spec {
    char name[SL_TABLE_NAME_BYTES]; /* 1 to 63 bytes of printable ASCII without spaces */
    enum sl_table_kind kind;
    uint32_t dim;    /* sparse: columns of a row, 1 to 4096; dense: 0; KV: bytes of a value, 4: f32,
                      * to which pushes are added, or 1: a byte, which pushes replace */
    uint64_t length; /* dense: elements, 1 to 2^36; else 0 */
    struct sl_optimizer_spec optimizer;
    struct sl_initializer_spec initializer; /* dense: the key is the element's index; KV: zeros */
    struct sl_consistency_spec consistency; /* KV: ASP; its optimizer is SUM */
};

/* ---- Client ---------------------------------------------------------------------------------- */

struct sl_client;
struct sl_table; /* a table opened by a client; valid until the client is destroyed */
struct sl_step;

/* How a step travels, by StarServer's names. The first is what most clients want, and what options
 * of zeros say. */
enum sl_protocol {
    SL_PROTOCOL_STAR_SERVER_LITE = 0, /* all that one step sends to a shard in one message */
    SL_PROTOCOL_STAR_SERVER = 1,      /* one message per operation and shard */
};

#define SL_CLIENT_ANY_TASK (-2)

struct sl_client_options {
    /* Control endpoint of ps task 0, or of a scheduler: "host:port", "tcp://host:port". With a
     * cluster store, those of all processes that may host the coordinator, with commas between. */
    const char *coordinator;
    int32_t task_index;     /* this worker's index; SL_CLIENT_ANY_TASK: one that the coordinator
                             * chooses; or -1: a client that has no clock */
    uint32_t server_count;  /* ps processes to wait for; 0: as many as the coordinator expects */
    uint32_t worker_count;  /* workers of the job, as this process was told: another number than
                             * the coordinator's is an error INVALID; 0: not said */
    uint32_t reactor_count; /* threads for the connections; 0: 1 */
    bool polling;           /* reactors spin instead of sleeping when idle */
    /* The connections to the shards have no thread of their own (reactor_count 0 or 1): the thread
     * that creates the client is the only one that may use it, and serves them whenever it is in
     * one of these functions, sl_step_submit and sl_step_done included. That saves handing each
     * step to another thread and back: for the shortest latency, and where clients have few cores.
     * While it is elsewhere, what has arrived waits, what is longer than the sockets hold stops,
     * and a connection that broke is not made again. When it is back, what has arrived is taken in
     * first, and only then do steps whose deadline has passed fail. A shard whose connection broke
     * forgets a client that does not come back within the lease, as if it were lost: writes that it
     * had not answered fail then, and under BSP and SSP the others may have gone on without this
     * worker. So the thread should come by well within the lease, and not wait for one such client
     * while another of its own has something to do. A second thread, which sleeps, sends the
     * coordinator its signs of life, however long the first is away. */
    bool manual_progress;
    bool pin_cores; /* reactors are pinned, from the last core downwards */
    bool checksum;  /* CRC32C on every frame */
    enum sl_protocol protocol;
    uint32_t start_timeout_ms;      /* how long create may wait for the cluster; 0: 60000 */
    const char *congestion_control; /* of TCP, by name, such as "cubic"; NULL: the system's */
    bool join_running; /* comes to a running job: task_index may be beyond the job's worker count */
    const void *secret; /* the cluster's, 16 to 1024 bytes; NULL: it has none. Copied. */
    size_t secret_bytes;
    /* TLS 1.3 over TCP, all three or none: files in PEM. Copied. */
    const char *tls_certificate, *tls_key, *tls_authority;
    const char
        *tls_peer_name; /* that the certificate of every ps must have; NULL: its host. Copied */
    /* Shards of the same machine, network namespace and user are reached over TCP too, instead of
     * shared memory. */
    bool disable_shm;
    /* How often the coordinator hears of this client; 0, or not below the cluster's lease: four
     * times a lease. */
    uint32_t heartbeat_ms;
    /* Shards that can be reached over RDMA and over TCP are reached over TCP. */
    bool disable_rdma;
    /* Of RDMA: names of devices, with commas between, such as "mlx5_0,mlx5_1"; NULL: whichever
     * reaches the shard. Copied. */
    const char *rdma_device;
    /* Of RDMA: the entry, counted from 1, of the GID table of the first of those devices whose
     * address is used (what tools call index 3 is 4 here); 0: the endpoint's address decides. */
    uint32_t rdma_gid;
    /* Of DPDK: this process's devices, "DEVICE[,ARGUMENTS]?addr=A[/PREFIX][&gateway=G][&mtu=N]
     * [&queues=N]", with ';' between; NULL: none, and shards are reached over TCP where they can
     * be. A device has one client of a process, and is polled, or looked at from time to time,
     * while that client exists. Copied. */
    const char *dpdk_device;
};

/* A client whose connection breaks connects again, with back-off, and sends again what was not
 * answered; a shard that remembers the client carries no push out twice. It remembers for as long
 * as the cluster's lease, and the last 256 requests that failed. Beyond that (the ps was restarted,
 * or the client was away for longer) pushes in flight fail with CLOSED: they may or may not have
 * been carried out. Until the connection is back, steps wait, and end by their deadline.
 *
 * Starts the reactors, registers with the coordinator, waits for every ps, connects to every shard.
 * While it waits it logs whom it waits for. On failure the reason is logged. *out is owned by the
 * caller. Errors: INVALID, DEADLINE (names the missing peers), REFUSED, VERSION, NO_MEMORY.
 * Any thread; a client belongs to the process, not to the thread. */
SL_API int sl_client_create(const struct sl_client_options *options, struct sl_client **out);

/* Tells the shards that this worker's clock no longer counts, says goodbye, stops the reactors and
 * frees everything. No step may be outstanding. Nulls *client. */
SL_API void sl_client_destroy(struct sl_client **client);

/* The same for a worker that ends before it has finished: a process with its task index goes on
 * behind the last iteration that it ticked, and so does a job that is restored from a checkpoint.
 */
SL_API void sl_client_leave(struct sl_client **client);

/* Creates the table on every shard, or checks that it exists with the same specification; an error
 * EXISTS is logged with the first property that differs. *out is owned by the client.
 * Errors: INVALID, EXISTS, DEADLINE, CLOSED. Any thread. */
SL_API int sl_client_table_open(struct sl_client *client, const struct sl_table_spec *spec,
                                uint32_t timeout_ms, struct sl_table **out);

/* Waits until `count` clients have come to the barrier of this name; with count 0, every worker of
 * the job that has neither left nor is lost. Errors: DEADLINE (names how
 * many are missing), CLOSED. Any thread. */
SL_API int sl_client_barrier(struct sl_client *client, const char *name, uint32_t count,
                             uint32_t timeout_ms);

/* Has every ps write a checkpoint of all tables that holds at least what was acknowledged before
 * this call, waits until it is complete, and writes its number. Training goes on meanwhile. Several
 * that ask at one time may get the same. On failure the reason is logged. Errors: UNSUPPORTED (a ps
 * has no folder for checkpoints), DEADLINE (names the ps that it waits for; the checkpoint may
 * still become complete), CLOSED (a ps was lost or restarted meanwhile, or the job has ended), or
 * what a ps met: IO (its disk), NO_MEMORY. Any thread. */
SL_API int sl_client_checkpoint(struct sl_client *client, uint32_t timeout_ms, uint64_t *number);

/* The iteration that this worker begins with: 0 in a job that starts; in the place of a worker that
 * was lost, or in a job that runs, the first one in which the others have not gone ahead;
 * UINT32_MAX when the one in whose place it is had finished. Any thread. */
SL_API uint32_t sl_client_clock(const struct sl_client *client);

/* The task of a ps that was started again without the values that it had, and -1 while there is
 * none: what the job has trained is not whole any more, and its checkpoints are refused. Any
 * thread.
 */
SL_API int32_t sl_client_values_lost(const struct sl_client *client);

/* This worker's index, the one that was chosen included; -1: none. Any thread. */
SL_API int32_t sl_client_task_index(const struct sl_client *client);

/* Shards in the cluster, for diagnosis. Any thread. */
SL_API uint32_t sl_client_shard_count(const struct sl_client *client);

/* Counters since creation, summed over reactors; exact only while no step is outstanding. */
struct sl_client_stats {
    uint64_t bytes_sent, bytes_received; /* on the wire, headers included */
    uint64_t requests, replies, failures;
};
SL_API void sl_client_stats(const struct sl_client *client, struct sl_client_stats *out);

/* Memory that a ps on this machine, or the device where RDMA leads to the ps, reads and writes
 * where it lies: steps whose arrays are in it move no byte between two processes that go through
 * shared memory, and none by a processor over RDMA; but what is short, or has to be sorted by
 * shards, is copied all the same. In any other case it is memory like any other. bytes: at least 1;
 * page-aligned; zeros. The client's, until freed or destroyed. A step that pulled into it fails
 * only when nobody writes there any more: a ps that says nothing by the deadline has 50 ms to do
 * so, and is then disconnected from. One on this machine that does not notice within another 100 ms
 * loses the buffer: it gets other pages with the same contents at the same address, and what goes
 * through shared memory is copied from then on. A log line says so. Errors: NO_MEMORY, TOO_LARGE
 * (SL_CLIENT_BUFFERS_MAX exist, or were registered). Any thread; not on the data path. */
#define SL_CLIENT_BUFFERS_MAX 64
SL_API int sl_client_buffer_create(struct sl_client *client, size_t bytes, void **out);
/* No step that names it may be outstanding. Nulls *buffer. */
SL_API void sl_client_buffer_free(struct sl_client *client, void **buffer);

/* Makes memory that the caller has already, of any alignment, such a buffer for RDMA; a ps on this
 * machine has no way to it, and what goes through shared memory is copied. The caller keeps it
 * mapped as it is until it is unregistered or the client is destroyed. Pages that were used stay in
 * memory, as far as the process's soft limit allows (ulimit -l, which the library does not raise);
 * beyond that, and without RDMA, it is memory like any other. Over RDMA, long arrays in any other
 * memory are copied once. Errors: EXISTS (it overlaps a buffer of this client), NO_MEMORY,
 * TOO_LARGE (as above). Any thread; not on the data path. */
SL_API int sl_client_buffer_register(struct sl_client *client, void *base, size_t bytes);
/* As it was registered. No step that names it may be outstanding. */
SL_API void sl_client_buffer_unregister(struct sl_client *client, void *base);

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Begins an empty step of iteration `clock` (0 for a client without a clock: no pull waits).
 * Errors: NO_MEMORY, CLOSED, INVALID (of a caller-driven client, on another thread). */
SL_API int sl_step_begin(struct sl_client *client, uint32_t clock, struct sl_step **out);

/* rows[key_count][dim], row-major f32, in the order of keys; a key that no one has pushed or pulled
 * before is created by the table's initializer. Keys may repeat. key_count 0 is allowed. */
SL_API int sl_step_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows);

enum sl_pooling { SL_POOLING_NONE = 0, SL_POOLING_SUM = 1, SL_POOLING_MEAN = 2 };

/* Bag i is keys[bag_ends[i-1] .. bag_ends[i]) (bag 0 starts at 0; bag_ends ascends and its last
 * element is key_count). pooled[bag_count][dim]: the sum or mean of the bag's rows, zero for an
 * empty bag. Reduced on the ps: one row per bag and shard travels. */
SL_API int sl_step_pull_pooled(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                               uint32_t key_count, const uint32_t *bag_ends, uint32_t bag_count,
                               enum sl_pooling pooling, float *pooled);

/* gradients[key_count][dim]. Duplicate keys are summed first: each row is visited once. */
SL_API int sl_step_push(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, const float *gradients);

/* As push, then the rows as they are after it: one trip. */
SL_API int sl_step_push_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                             uint32_t key_count, const float *gradients, float *rows);

/* Elements [start, start + count) of a dense table. */
SL_API int sl_step_dense_pull(struct sl_step *step, struct sl_table *table, uint64_t start,
                              uint64_t count, float *values);
SL_API int sl_step_dense_push(struct sl_step *step, struct sl_table *table, uint64_t start,
                              uint64_t count, const float *gradients);
SL_API int sl_step_dense_push_pull(struct sl_step *step, struct sl_table *table, uint64_t start,
                                   uint64_t count, const float *gradients, float *values);

/* Arrays of a KV table, key by key: `values` has lens[0] values of keys[0], then those of keys[1]
 * and so on, value_count in all; without lens each key has value_count / key_count. Keys ascend and
 * do not repeat. An array has the length with which it was pushed first; another is an error
 * INVALID, a pull of a key that nobody has pushed NOT_FOUND. What is longer than a message goes in
 * several, in order, cut between keys, or within the array of one. */
struct sl_kv_batch {
    const uint64_t *keys;
    const uint32_t *lens; /* [key_count], each at least 1; or NULL */
    uint32_t key_count;
    uint32_t command; /* for the handler of the ps (starling_kv.h) */
    uint64_t value_count;
    const void *push; /* values to push; or NULL: none */
    void *pull;       /* where the values go, after the push; or NULL: none. May be `push`. */
};
SL_API int sl_step_kv(struct sl_step *step, struct sl_table *table,
                      const struct sl_kv_batch *batch);

/* The number of values of each key, 0 where nobody has pushed it. */
SL_API int sl_step_kv_lengths(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                              uint32_t key_count, uint32_t *lens);

/* Where requests wait for their turn on a connection, those of steps with a greater priority go
 * first; within one priority in the order of submission. 0 without this. Not with a tick or finish.
 */
SL_API int sl_step_set_priority(struct sl_step *step, int32_t priority);

/* This worker has finished the step's iteration `clock`. Operations that are added after the tick,
 * and later steps, are of clock + 1: one step can push, tick, and pull for the next iteration. In
 * BSP the pushes of an iteration take effect once every worker has ticked it. Once in a step. */
SL_API int sl_step_tick(struct sl_step *step);

/* This worker will push no more: its clock no longer holds anybody up, whatever comes. Later steps
 * of it may still pull. Instead of a tick, once in a client's life; sl_client_destroy does it when
 * it was not done. */
SL_API int sl_step_finish(struct sl_step *step);

/* Sends the step; returns without waiting. timeout_ms, 1 to 4294967, is its deadline, enforced on
 * both sides. Errors: INVALID (empty step or bad operation), CLOSED, AGAIN (too many steps
 * outstanding). */
SL_API int sl_step_submit(struct sl_step *step, uint32_t timeout_ms);

/* The same by a caller who goes on with this client at once, submitting more steps or waiting: a
 * step of a caller-driven client may stay until then, so that several leave as one. Nothing else
 * differs: its deadline counts from this call, a step that it ended may or may not have been
 * carried out, never twice, and it must be complete before the client is destroyed. */
SL_API int sl_step_submit_deferred(struct sl_step *step, uint32_t timeout_ms);

/* True once the step is complete. Never blocks. */
SL_API bool sl_step_done(struct sl_step *step);

/* Waits until the step is complete and returns its result. A step submitted always completes, by
 * its deadline at the latest. After an error the contents of output buffers are undefined; nothing
 * writes to them any more. Errors: DEADLINE (sl_step_error names what kept it), CLOSED (for good,
 * or of what a ps may have carried out before it was restarted), REFUSED, NOT_FOUND, WRONG_SHARD,
 * NO_MEMORY, TOO_LARGE (a ps was restarted that takes less at once), PROTOCOL. */
SL_API int sl_step_wait(struct sl_step *step);

/* After a failed wait: which ps and shard failed and why; else "". Valid until sl_step_destroy. */
SL_API const char *sl_step_error(const struct sl_step *step);

/* The greatest staleness, in steps, of what this step pulled: its clock minus the clock that every
 * worker had finished when the shard answered. 0 where nothing was pulled. After wait. */
SL_API uint32_t sl_step_staleness(const struct sl_step *step);

/* Frees a step that is not outstanding (never submitted, or waited for). Nulls *step. */
SL_API void sl_step_destroy(struct sl_step **step);

/* Blocking conveniences, each one step of one operation. */
SL_API int sl_client_pull(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                          uint32_t key_count, float *rows, uint32_t timeout_ms);
SL_API int sl_client_push(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                          uint32_t key_count, const float *gradients, uint32_t timeout_ms);
SL_API int sl_client_push_pull(struct sl_client *client, struct sl_table *table,
                               const uint64_t *keys, uint32_t key_count, const float *gradients,
                               float *rows, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
