/* Starling's public header declares the client API of libstarling. All folders of the source tree
 * share its error codes and table specifications (starling_table.h). starling_encoding.h has the
 * precisions in which values travel.
 *
 * A client connects one process to every shard of a parameter server cluster. All work is done in
 * steps. A step collects operations on any number of tables, is submitted once, and completes once,
 * by its deadline. Any thread may begin a step; until sl_step_destroy only that thread may use it.
 * Memory passed to an operation stays the caller's. It must stay valid and unmodified from
 * sl_step_submit until sl_step_wait returns.
 *
 * Functions return 0 or a negative enum sl_err; sl_last_error names the reason of a failure.
 * Outputs are written only on success.
 *
 * A forked child creates clients of its own. With an object of its parent a call returns FORKED,
 * and ending it has no effect beyond the pointer; the parent does not notice.
 *
 * Terms: a server is one `starling-ps` process (ps/0, ps/1 ...); each of its reactors owns one
 * shard of all tables. A worker is a client with a clock: the number of iterations that it has
 * finished (ticked). A process that sends the coordinator no heartbeat for one lease expires: the
 * job continues without it. */
#ifndef STARLING_H
#define STARLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "starling_encoding.h"
#include "starling_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. The build reads it here. */
#define SL_VERSION_MAJOR 0
#define SL_VERSION_MINOR 1
#define SL_VERSION_PATCH 0
#define SL_VERSION       "0.1.0"

/* Returns the version of the library, as SL_VERSION. Static storage. Any thread. */
SL_API const char *sl_version(void);

/* Structs that begin with struct_size may get more members at their end. The macros SL_..._INIT set
 * it and zero the rest; so does `{.struct_size = sizeof options, ...}`. Members beyond struct_size
 * have their default, as if 0: a program built for an older header keeps working. With a newer
 * header than the library's, the members that the library lacks must be 0. Else, and if struct_size
 * is 0, the function that takes the struct returns INVALID. */

/* Errors */

/* The absolute values travel on the wire: never renumber, only append. */
enum sl_err {
    SL_OK = 0,
    SL_ERR_INVALID = -1,   /* an argument, option or message field is out of range */
    SL_ERR_NO_MEMORY = -2, /* out of memory, or a configured memory limit is reached */
    SL_ERR_DEADLINE = -3,  /* the deadline passed before the operation completed */
    SL_ERR_CLOSED = -4,    /* the connection or the object is closed */
    SL_ERR_REFUSED = -5, /* no process listens at the address, or the peer refused the connection */
    SL_ERR_PROTOCOL = -6,     /* the peer violated the protocol */
    SL_ERR_VERSION = -7,      /* the peer speaks another protocol version */
    SL_ERR_NOT_FOUND = -8,    /* no such table, host, file or variable */
    SL_ERR_EXISTS = -9,       /* exists already, with other properties */
    SL_ERR_WRONG_SHARD = -10, /* the key belongs to another shard */
    SL_ERR_AGAIN = -11,       /* a queue is full or no credit is left: retry later */
    SL_ERR_IO = -12,          /* the operating system reported an error */
    SL_ERR_IN_USE = -13,      /* the address is in use */
    SL_ERR_UNSUPPORTED = -14, /* not built in, or not possible on this machine */
    SL_ERR_TOO_LARGE = -15,   /* larger than a limit */
    SL_ERR_CORRUPT = -16,     /* a checksum does not match, or parameters were lost */
    SL_ERR_CANCELLED = -17,   /* interrupted by the caller, or by the end of the process */
    SL_ERR_FORKED = -18,      /* the object belongs to the process that this one was forked from */
};

/* Returns the short name of an error in lower case, such as "deadline" for SL_ERR_DEADLINE, or
 * "unknown error". Static storage. Any thread. */
SL_API const char *sl_err_name(int err);

/* Returns the reason of the calling thread's last failure in a function of this header: it names
 * the argument, table or server, and what is accepted. "" before the first failure. A call that
 * succeeds does not change it, and the library does not log an error that it returns. Valid until
 * the thread's next call. Any thread. */
SL_API const char *sl_last_error(void);

/* Log: what no call returns, such as lost connections, retries, and the processes that a call waits
 * for. */

enum sl_log_level { SL_LOG_DEBUG, SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR, SL_LOG_OFF };

/* Receives a line: its text without time, process and newline, valid until the callback returns.
 * Called on any thread, also on threads of the library, one line at a time. It may not block or
 * call the library. */
typedef void sl_log_fn(void *ctx, enum sl_log_level level, const char *line);

/* Sets the lowest level that is logged (before: INFO, or what the program's settings say), and a
 * callback that receives the lines; NULL: standard error. When it returns, the callback before is
 * not called any more. libstarling_transfer and libstarling_objects have logs of their own:
 * sl_transfer_log_set. Any thread. */
SL_API void sl_log_set(enum sl_log_level level, sl_log_fn *callback, void *ctx);

/* Client */

struct sl_client;
struct sl_table; /* table opened by a client; valid until the client is destroyed */
struct sl_step;

/* How the requests of a step are grouped into messages. Zeroed options select the batched protocol,
 * which suits most clients: messages of at most 16 KB, requests and replies alike; a longer
 * operation has its own message. */
enum sl_protocol {
    SL_PROTOCOL_BATCHED = 0,   /* batched: requests of a step to one shard share messages */
    SL_PROTOCOL_PER_TABLE = 1, /* per table: one message per operation and shard */
};

#define SL_CLIENT_ANY_TASK (-2)
#define SL_CLIENT_OPERATOR (-3)

struct sl_client_options {
    size_t struct_size; /* SL_CLIENT_OPTIONS_INIT sets it */
    /* Control endpoint of server 0 or of a scheduler: "host:port" or "tcp://host:port". With a
     * cluster store: a comma-separated list of the endpoints of all processes that may host the
     * coordinator. */
    const char *coordinator;
    int32_t task_index;    /* index of this worker; SL_CLIENT_ANY_TASK: the coordinator assigns one;
                            * -1: a client without a clock; SL_CLIENT_OPERATOR: the same, whose
                            * `secret` is the operator's secret of the cluster */
    uint32_t server_count; /* servers to wait for; 0: as many as the coordinator expects */
    uint32_t worker_count; /* workers of the job, as configured for this process; 0: not configured.
                            * Another number than the coordinator's is an error INVALID. */
    uint32_t reactor_count; /* I/O threads for the connections; 0: 1 */
    bool polling;           /* reactors spin instead of sleeping when idle */
    /* No I/O thread for the shards: the thread that creates the client drives those connections. It
     * is the only thread that may use the client, and it does network I/O only inside calls of this
     * API, including sl_step_submit and sl_step_done. This saves two thread switches a step: use it
     * for the lowest latency, or when clients have few cores. reactor_count must be 0 or 1. Another
     * thread, mostly asleep, serves the coordinator session and sends heartbeats.
     *
     * Between API calls:
     * - received data waits, and a message longer than the socket buffers makes no progress;
     * - a broken connection is not re-established;
     * - deadlines are not checked: the next call first reads received data and then times out
     *   steps.
     *
     * If a connection breaks and the client does not reconnect within the lease, the shard expires
     * the client's session: unacknowledged writes fail, and under BSP and SSP the other workers may
     * have continued without this worker. So call into the client at least once per half lease. Do
     * not block on one such client while another of the same thread has work. */
    bool manual_progress;
    bool pin_cores; /* pin reactors to cores, from the last core downwards */
    bool checksum;  /* CRC-32C on every frame */
    enum sl_protocol protocol;
    uint32_t start_timeout_ms;      /* longest wait of sl_client_create for the cluster; 0: 60000 */
    const char *congestion_control; /* TCP congestion control by name, such as "cubic"; NULL: system
                                     * default */
    bool join_running;  /* join a running job: task_index may be beyond the job's worker count */
    const void *secret; /* shared secret of the cluster, 16 to 1024 bytes; NULL: none. Copied. */
    size_t secret_bytes;
    /* TLS 1.3 over TCP, all three or none: PEM files. Copied. */
    const char *tls_certificate, *tls_key, *tls_authority;
    const char
        *tls_peer_name; /* name required in every server's certificate; NULL: its host. Copied. */
    /* Use TCP instead of shared memory for shards on this machine (same network namespace, same
     * user). */
    bool disable_shm;
    /* Heartbeat interval. 0, or a value not below the cluster's lease: a quarter of the lease. */
    uint32_t heartbeat_ms;
    /* Use TCP for shards that are reachable over both RDMA and TCP. */
    bool disable_rdma;
    /* RDMA devices, comma-separated, such as "mlx5_0,mlx5_1"; NULL: any that reaches the shard.
     * Copied. */
    const char *rdma_device;
    /* Entry of the GID table of the first RDMA device, from 0. Without has_rdma_gid_index the
     * address of the endpoint selects it. */
    bool has_rdma_gid_index;
    uint32_t rdma_gid_index;
    /* DPDK devices of this process, separated by ';', each
     * "DEVICE[,ARGUMENTS]?addr=A[/PREFIX][&gateway=G][&mtu=N][&queues=N]". NULL: none; shards are
     * reached over TCP if possible. Only one client of a process can use a device; it polls the
     * device, continuously or at intervals, as long as the client exists. Copied. */
    const char *dpdk_device;
    struct sl_client_settings *settings; /* of sl_client_options_from_env; else NULL */
    /* Asked at least every 100 ms on a thread that waits in sl_client_create,
     * sl_client_table_open, sl_client_barrier, sl_client_checkpoint, sl_client_table_stats,
     * sl_step_wait or sl_step_wait_for; true ends that call with CANCELLED. It may use the client,
     * as a signal handler of an interpreter does. NULL: never. After CANCELLED the client is
     * usable, and the call may be repeated:
     * - a step continues, and must be waited for again before it is destroyed;
     * - a barrier is left, unless all have reached it meanwhile;
     * - a checkpoint may still complete;
     * - sl_client_create has freed everything.
     *
     * sl_client_pull and the like are not interrupted, since their arrays would stay in use. */
    bool (*interrupted)(void *ctx);
    void *interrupted_ctx;
};
#define SL_CLIENT_OPTIONS_INIT SL_STRUCT_INIT(struct sl_client_options)

/* Fills the options from flags --starling-NAME=VALUE, which are removed from argv, else from the
 * environment: docs/configuration.md has the names and the order of the sources. argc NULL: no
 * flags. `options` needs struct_size, as SL_CLIENT_OPTIONS_INIT sets it, and loses all other
 * members; a program sets its own after this call. They point into argv, into the environment and
 * into memory that sl_client_options_fini frees. A failure leaves options and argv as they were.
 * Errors: INVALID (names flag or variable, value and accepted values), NOT_FOUND (no source has the
 * coordinator, or no such file), IO, TOO_LARGE, NO_MEMORY. Any thread, while no other thread writes
 * the environment. */
SL_API int sl_client_options_from_env(struct sl_client_options *options, int *argc, char **argv);

/* Erases the secret, frees what sl_client_options_from_env has allocated and zeroes the options.
 * Allowed once the client is created. Any thread. */
SL_API void sl_client_options_fini(struct sl_client_options *options);

/* Starts the reactors, registers with the coordinator, waits for all servers and connects to every
 * shard. While waiting, logs which processes are missing. The caller owns *out. Errors: INVALID,
 * DEADLINE (names the missing peers), REFUSED, VERSION, NO_MEMORY. Any thread; a client belongs to
 * the process, not to the thread (except with manual_progress).
 *
 * A broken connection is re-established with back-off, and unacknowledged requests are
 * retransmitted. Meanwhile steps wait, until their deadline at most. A shard keeps the client's
 * session (including its last 256 failed requests) for one lease and applies no retransmitted push
 * twice. After that, or if the server was restarted, pushes in flight fail with CLOSED: the shard
 * may or may not have applied them. */
SL_API int sl_client_create(const struct sl_client_options *options, struct sl_client **out);

/* Finishes the worker's clock on all shards, closes the connections, stops the reactors and frees
 * the client. Every step must have been destroyed. Sets *client to NULL. */
SL_API void sl_client_destroy(struct sl_client **client);

/* The same, for a worker that stops before it has finished. No worker waits for its clock
 * meanwhile. A new process with its task index, or a job restored from a checkpoint, continues
 * after the last iteration that it ticked. */
SL_API void sl_client_leave(struct sl_client **client);

/* Creates the table on every shard, or checks that it exists with the same specification: if not,
 * returns EXISTS, and sl_last_error names the first property that differs. The client owns *out.
 * Errors: INVALID, EXISTS, DEADLINE, CLOSED, TOO_LARGE (too many tables), NO_MEMORY. Any thread. */
SL_API int sl_client_table_open(struct sl_client *client, const struct sl_table_spec *spec,
                                uint32_t timeout_ms, struct sl_table **out);

/* Checks a specification as sl_client_table_open does, without a client. Errors: INVALID. Any
 * thread. */
SL_API int sl_client_table_check(const struct sl_table_spec *spec);

/* Waits until `count` clients have reached the barrier of this name. count 0: all workers of the
 * job, except those that have left or expired. Errors: DEADLINE (names how many are missing),
 * CLOSED. Any thread. */
SL_API int sl_client_barrier(struct sl_client *client, const char *name, uint32_t count,
                             uint32_t timeout_ms);

/* Makes all servers write a checkpoint of all tables, waits until it is complete, and writes its
 * number. The checkpoint includes all writes acknowledged before this call. Training continues
 * meanwhile. Concurrent calls may share a checkpoint. Errors:
 * - UNSUPPORTED: a server has no checkpoint directory
 * - DEADLINE: names the server that is late; the checkpoint may still complete
 * - CLOSED: a server expired or restarted meanwhile, or the job has ended
 * - IO, NO_MEMORY: a server failed to write
 *
 * Any thread. */
SL_API int sl_client_checkpoint(struct sl_client *client, uint32_t timeout_ms, uint64_t *number);

/* Returns the first iteration of this worker. In a new job: 0. For the replacement of an expired
 * worker, or in a running job: the first iteration that the other workers have not passed.
 * UINT32_MAX: the worker with this index had already finished. Any thread. */
SL_API uint32_t sl_client_clock(const struct sl_client *client);

/* Returns the task index of a server that restarted without its parameters, else -1. Then part of
 * the trained parameters is lost and checkpoints are refused. Any thread. */
SL_API int32_t sl_client_values_lost(const struct sl_client *client);

/* Returns the index of this worker, also if the coordinator assigned it; -1: none. Any thread. */
SL_API int32_t sl_client_task_index(const struct sl_client *client);

/* Returns the number of shards in the cluster, for diagnosis. Any thread. */
SL_API uint32_t sl_client_shard_count(const struct sl_client *client);

/* Counters since creation, summed over reactors. Exact only while no step is outstanding. */
struct sl_client_stats {
    uint64_t bytes_sent, bytes_received; /* on the wire, including headers */
    uint64_t requests, replies, failures;
};
SL_API void sl_client_stats(const struct sl_client *client, struct sl_client_stats *out);

/* Writes the client's metrics for Prometheus, in its text format 0.0.4, with NUL: the page /metrics
 * of a program that has an HTTP server. docs/metrics.md lists them. Returns the length of the text
 * without NUL; if that is not below `room`, nothing was written, and the call may be repeated with
 * more room. Errors: NO_MEMORY, FORKED. Any thread; it takes milliseconds and waits for no step. */
SL_API int sl_client_metrics(const struct sl_client *client, char *text, size_t room);

/* Statistics of a table. All but `steps` are sums over the shards. A checkpoint keeps the counters,
 * so a restored table continues them. */
struct sl_table_stats {
    uint64_t rows;                     /* sparse and KV: keys; dense: elements */
    uint64_t bytes;                    /* memory of rows, optimizer slots and index */
    uint64_t pulled_rows, pushed_rows; /* visits: a pull of 10 keys counts 10 */
    /* A shard counts a step for each push that it has applied to its part of the table, with
     * whatever number of keys, and for each other write. This is the least count of the shards that
     * have rows of the table; 0 without rows. A dense table has all its rows from the start, so
     * steps > 0 means that each shard has applied a write. */
    uint64_t steps;
};

/* Asks all shards for a table's statistics; sl_client_table_info has more. Each shard answers of
 * its own moment; a BSP push counts when it is applied. Errors: DEADLINE and CLOSED (a shard does
 * not answer), NO_MEMORY. Any thread; blocks. */
SL_API int sl_client_table_stats(struct sl_client *client, struct sl_table *table,
                                 uint32_t timeout_ms, struct sl_table_stats *out);

/* Allocates memory that peers access directly: a server on this machine through shared memory, an
 * RDMA device by DMA. Operations whose arrays lie in it avoid copies between processes, or by a
 * CPU. Short arrays, and arrays that must be sorted by shard, are copied anyway; without shared
 * memory or RDMA the buffer is ordinary memory. bytes: at least 1. The buffer is page-aligned,
 * zeroed, and owned by the client until freed.
 *
 * If a step pulled into such a buffer times out, the server may
 * still be writing the reply. The step then fails only when no peer writes to the memory any more:
 * 50 ms after its deadline the client disconnects from a server that has not replied. If a server
 * on this machine does not notice within another 100 ms, the client replaces the pages of the
 * buffer (same address, same contents) and logs it; from then on the buffer is copied for shared
 * memory.
 *
 * Errors: NO_MEMORY, TOO_LARGE (SL_CLIENT_BUFFERS_MAX buffers exist). Any thread; not on the data
 * path. */
#define SL_CLIENT_BUFFERS_MAX 64
SL_API int sl_client_buffer_create(struct sl_client *client, size_t bytes, void **out);
/* Frees the buffer and sets *buffer to NULL. No outstanding step may use it. */
SL_API void sl_client_buffer_free(struct sl_client *client, void **buffer);
/* Makes the buffer ordinary memory, which the caller owns and unmaps: munmap(buffer, bytes). For
 * memory that outlives the client. No outstanding step may use it. Any thread. */
SL_API void sl_client_buffer_keep(struct sl_client *client, const void *buffer);

/* Registers the caller's memory, of any alignment, as such a buffer for RDMA. A server on this
 * machine cannot map it, so shared memory copies it. The caller keeps it mapped until it is
 * unregistered or the client is destroyed. Used pages stay pinned, as far as the soft limit of the
 * process allows (ulimit -l; the library does not raise it). Beyond that limit, and without RDMA,
 * it is ordinary memory. Over RDMA, long arrays in ordinary memory are copied once. Errors: EXISTS
 * (overlaps a buffer of this client), NO_MEMORY, TOO_LARGE (as above). Any thread; not on the data
 * path. */
SL_API int sl_client_buffer_register(struct sl_client *client, void *base, size_t bytes);
/* base: as registered. No outstanding step may use the memory. */
SL_API void sl_client_buffer_unregister(struct sl_client *client, void *base);

/* Steps */

/* Begins an empty step of iteration `clock` (0 for a client without a clock: its pulls never wait).
 * Errors: NO_MEMORY, CLOSED, INVALID (manual_progress, and another thread than the client's). */
SL_API int sl_step_begin(struct sl_client *client, uint32_t clock, struct sl_step **out);

/* Pulls rows[key_count][dim], row-major f32, in the order of keys. A key without a row gets the row
 * of the table's initializer. No pull creates a row; pushes and assigns do. Keys may repeat.
 * key_count may be 0. */
SL_API int sl_step_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows);

enum sl_pooling { SL_POOLING_NONE = 0, SL_POOLING_SUM = 1, SL_POOLING_MEAN = 2 };

/* Pulls pooled[bag_count][dim]: the sum or mean of the rows of each bag, zeros for an empty bag.
 * Bag i is keys[bag_ends[i-1] .. bag_ends[i]); bag 0 starts at 0; bag_ends ascends and ends with
 * key_count. The servers pool: one row per bag and shard travels. */
SL_API int sl_step_pull_pooled(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                               uint32_t key_count, const uint32_t *bag_ends, uint32_t bag_count,
                               enum sl_pooling pooling, float *pooled);

/* Pushes gradients[key_count][dim]. The gradients of repeated keys are summed first, so that the
 * optimizer visits each row once. */
SL_API int sl_step_push(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, const float *gradients);

/* Pushes, then pulls the updated rows, in one round trip. */
SL_API int sl_step_push_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                             uint32_t key_count, const float *gradients, float *rows);

/* Replaces rows by rows[key_count][dim], and resets what the optimizer keeps of them to its initial
 * state: a push after it acts as on a new row with these values. Creates missing rows. Of a
 * repeated key the last row counts. Takes effect when it arrives, in every consistency mode; BSP
 * pushes that wait for the end of their iteration follow it. AdamAsync's beta powers, which belong
 * to the table, do not change. Errors: INVALID (not a sparse table of this client; keys or rows
 * NULL). */
SL_API int sl_step_assign(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                          uint32_t key_count, const float *rows);

/* Removes the rows of the keys from a sparse table, with their optimizer slots; a missing key has
 * no effect. A push creates the row again, with the initializer. Takes effect when it reaches the
 * shard, in every consistency mode: BSP pushes of the iteration that are already buffered follow
 * it. Errors: INVALID (a dense or KV table). */
SL_API int sl_step_erase(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                         uint32_t key_count);

/* Pull or push elements [start, start + count) of a dense table. */
SL_API int sl_step_dense_pull(struct sl_step *step, struct sl_table *table, uint64_t start,
                              uint64_t count, float *values);
SL_API int sl_step_dense_push(struct sl_step *step, struct sl_table *table, uint64_t start,
                              uint64_t count, const float *gradients);
SL_API int sl_step_dense_push_pull(struct sl_step *step, struct sl_table *table, uint64_t start,
                                   uint64_t count, const float *gradients, float *values);

/* Replaces these elements by values[count], as sl_step_assign. State that an optimizer keeps for a
 * block of 1024 elements (Adam's count of visits, AdagradDecay's periods) is reset if the range has
 * the whole block. Errors: INVALID (not a dense table of this client; the range; values NULL). */
SL_API int sl_step_dense_assign(struct sl_step *step, struct sl_table *table, uint64_t start,
                                uint64_t count, const float *values);

/* A batch of arrays of a KV table. `values` has lens[0] values of keys[0], then lens[1] values of
 * keys[1] and so on, value_count in all; without lens, value_count / key_count values per key. Keys
 * strictly ascend. The first push of a key sets the length of its array: another length is an error
 * INVALID, and a pull of a key that was never pushed an error NOT_FOUND. A batch longer than a
 * message is split into several, sent in order, between keys or within the array of one key. */
struct sl_kv_batch {
    const uint64_t *keys;
    const uint32_t *lens; /* [key_count], each at least 1; or NULL */
    uint32_t key_count;
    uint32_t command; /* passed to the server's request handler (starling_kv.h) */
    uint64_t value_count;
    const void *push; /* values to push; NULL: no push */
    void *pull;       /* receives the values after the push; NULL: no pull. May equal `push`. */
};
SL_API int sl_step_kv(struct sl_step *step, struct sl_table *table,
                      const struct sl_kv_batch *batch);

/* Pulls the array length of each key: lens[key_count], in values; 0: never pushed. */
SL_API int sl_step_kv_lengths(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                              uint32_t key_count, uint32_t *lens);

/* Multiplies the learning rate of the pushes to sparse and dense tables that are added after this
 * call, for example for a schedule; 1 when a step begins. A push keeps its rate while it waits for
 * the end of its iteration (BSP), in backups and checkpoints. SUM has no learning rate, and ignores
 * it; RMSProp's velocity keeps the rate of each push. Errors: INVALID (not finite and above 0), and
 * then the step cannot be submitted. A push returns the same if the table's lr times the factor is
 * not finite and above 0 in f32. */
SL_API int sl_step_set_rate(struct sl_step *step, float factor);

/* Sets the priority of the step (default 0). Among requests that wait to be sent on a connection, a
 * higher priority goes first, and equal priorities go in order of submission. Not allowed with a
 * tick or finish. */
SL_API int sl_step_set_priority(struct sl_step *step, int32_t priority);

/* Marks iteration `clock` of the step as finished by this worker. Operations added after the tick,
 * and later steps, belong to iteration clock + 1: one step can push, tick, and pull for the next
 * iteration. Under BSP the pushes of an iteration take effect when every worker has ticked it. At
 * most once a step. */
SL_API int sl_step_tick(struct sl_step *step);

/* Marks this worker as finished: it pushes no more, and no worker waits for its clock. Later steps
 * may still pull. Replaces the tick; once in the life of a client. sl_client_destroy does it
 * otherwise. */
SL_API int sl_step_finish(struct sl_step *step);

/* Sends the step and returns without waiting. timeout_ms: 1 to 4294967; client and servers both
 * enforce this deadline. Errors: INVALID (empty step, bad operation or INT8 gradient), NO_MEMORY,
 * AGAIN (too many outstanding steps). */
SL_API int sl_step_submit(struct sl_step *step, uint32_t timeout_ms);

/* The same, for a caller that calls into this client again at once, to submit more steps or to
 * wait. With manual_progress the step may be sent only then, so that several steps leave together.
 * The deadline still counts from this call, a step that timed out is applied at most once, and the
 * step must complete before the client is destroyed. */
SL_API int sl_step_submit_deferred(struct sl_step *step, uint32_t timeout_ms);

/* Returns whether the step is complete. Never blocks. */
SL_API bool sl_step_done(struct sl_step *step);

/* Waits until the step is complete and returns its result. A submitted step always completes, by
 * its deadline at the latest; sl_client_buffer_create describes an exception of up to 150 ms. After
 * an error the contents of output buffers are undefined, and no peer writes to them. Errors:
 * - DEADLINE: sl_step_error names the cause
 * - CLOSED: permanently closed; or a restarted server may or may not have applied a write
 * - TOO_LARGE: a server restarted with a lower message limit
 * - INVALID: never submitted, or a server rejects it, as a KV pull of another length
 * - REFUSED, NOT_FOUND, WRONG_SHARD, NO_MEMORY, PROTOCOL */
SL_API int sl_step_wait(struct sl_step *step);

/* The same for at most timeout_ms; 0 only looks. Errors: also AGAIN: the step is not complete. It
 * continues, and its arrays stay in use. */
SL_API int sl_step_wait_for(struct sl_step *step, uint32_t timeout_ms);

/* After a failed wait: names the server, the shard and the reason; else "". Valid until
 * sl_step_destroy. */
SL_API const char *sl_step_error(const struct sl_step *step);

/* After a wait: returns the largest staleness, in iterations, of the pulls of this step: the clock
 * of the pull minus min_clock, the smallest clock of the active workers, when the shard replied. 0
 * without pulls. */
SL_API uint32_t sl_step_staleness(const struct sl_step *step);

/* Frees a step that is not outstanding (never submitted, or waited for). Sets *step to NULL. */
SL_API void sl_step_destroy(struct sl_step **step);

/* Blocking calls, each one step of one operation. */
SL_API int sl_client_pull(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                          uint32_t key_count, float *rows, uint32_t timeout_ms);
SL_API int sl_client_push(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                          uint32_t key_count, const float *gradients, uint32_t timeout_ms);
SL_API int sl_client_push_pull(struct sl_client *client, struct sl_table *table,
                               const uint64_t *keys, uint32_t key_count, const float *gradients,
                               float *rows, uint32_t timeout_ms);

/* Lists the distinct keys of keys[count] in unique, in the order of first appearance, by a hash:
 * unique[inverse[i]] is keys[i], and counts[u] is the number of appearances of unique[u].
 * unique, inverse and counts are memory of the caller with room for `count` elements; unique may be
 * `keys` itself; inverse and counts may be NULL. No client is needed. The hash is seeded by random
 * numbers, so that no choice of keys is slow. Errors: INVALID (a NULL array), TOO_LARGE (more than
 * UINT32_MAX keys), NO_MEMORY, IO (no random numbers). Any thread. */
SL_API int sl_keys_unique(const uint64_t *keys, size_t count, uint64_t *unique, uint32_t *inverse,
                          uint32_t *counts, size_t *unique_count);

#ifdef __cplusplus
}
#endif
#endif
