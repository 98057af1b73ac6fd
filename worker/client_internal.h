/* sl_client is the client object of the public API. This header also declares a non-blocking way to
 * start and close one, on reactors and transports supplied from outside: a simulation can then
 * drive clients and reactors from one thread. sl_client_create and sl_client_destroy are blocking
 * wrappers. */
#ifndef SL_WORKER_CLIENT_INTERNAL_H
#define SL_WORKER_CLIENT_INTERNAL_H

#include "worker/client_io.h"
#include "worker/operation.h"
#include "worker/thread_ctx.h"

/* The environment of a client. Copied; pointed-to objects must outlive the client. */
struct sl_client_setup {
    struct sl_reactor *const *reactors; /* connected; started or stepped by the caller */
    uint32_t reactor_count;
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    void *medium;       /* of the transports: net/transport.h */
    const char *host;   /* net/shm/shm.h; NULL or "": no shared memory. Copied */
    uint64_t client_id; /* random: identifies this process */
    /* Reactor 0 serves only the coordinator; the shards use the others. */
    bool control_apart;
    /* Manual progress: one of the reactors, attached to the calling thread, which alone uses the
     * client and drives this reactor while it waits. Else NULL. */
    struct sl_reactor *driven;
};

enum sl_client_stage {
    SL_CLIENT_STARTING,   /* client_ios allocate their memory */
    SL_CLIENT_JOINING,    /* registering; waiting until the coordinator has all servers */
    SL_CLIENT_CONNECTING, /* to every shard */
    SL_CLIENT_AGREEING,   /* the shards agree on the first clock of this worker */
    SL_CLIENT_BEGINNING,  /* passing that clock to the shard connections */
    SL_CLIENT_RUNNING,
    SL_CLIENT_CLOSING,
    SL_CLIENT_CLOSED
};

/* A buffer of sl_client_buffer_create or sl_client_buffer_register. */
struct sl_client_buffer {
    void *base; /* NULL: the slot is free */
    size_t bytes;
    struct sl_shared shared; /* base NULL: memory of this process only */
    bool is_callers;         /* registered: the caller frees it */
};

struct sl_client {
    enum sl_client_stage stage;
    enum sl_protocol protocol;
    int32_t task_index;
    struct sl_client_io_options io_options;
    const struct sl_clock *clock;
    uint64_t start_deadline_ns;
    uint32_t start_clock; /* requested, finally agreed: sl_client_clock */
    bool finished;

    struct sl_thread_ctx_set *thread_ctxs;
    struct sl_client_io *ios;
    uint32_t io_count;
    uint32_t first_io;         /* first with shards: 1 with control_apart, else 0 */
    struct sl_control_op *ops; /* one per client_io, for start and close */

    struct sl_message_cluster cluster;
    struct sl_shard_conn *conns;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* smallest of all shards */

    struct sl_table *tables[SL_LIMIT_TABLES]; /* by id; under the lock of thread_ctxs */

    struct sl_client_buffer buffers[SL_CLIENT_BUFFERS_MAX]; /* likewise */

    /* The reactors that sl_client_create created. */
    struct sl_reactor **own_reactors;
    uint32_t own_reactor_count;
};

static inline uint32_t sl_client_io_index(const struct sl_client *client, uint32_t shard)
{
    return client->first_io + shard % (client->io_count - client->first_io);
}

/* Checks the options and begins to start the client. Then call sl_start_poll, on this thread, until
 * it returns something else than AGAIN. Errors: INVALID, NO_MEMORY. */
int sl_start_begin(const struct sl_client_options *options, const struct sl_client_setup *setup,
                   struct sl_client **out);

/* Returns AGAIN while starting, 0 when the client is ready, else an error that was logged: then
 * close the client. Never blocks. */
int sl_start_poll(struct sl_client *client);

/* Begins to close a client, also one that failed to start. No step and no control operation may be
 * outstanding. Poll until true, then free. */
void sl_start_close_begin(struct sl_client *client);
bool sl_start_close_poll(struct sl_client *client);
void sl_start_free(struct sl_client **client);

/* client_buffer.c. Call after the client_ios have closed. */
void sl_client_buffer_destroy_all(struct sl_client *client);

/* Opening a table: the coordinator assigns an id, then every shard creates the table. */
struct sl_table_opening {
    struct sl_client *client;
    struct sl_table_spec spec;
    struct sl_control_op coordinator;
    struct sl_control_op *shards; /* one per client_io, after the coordinator's answer */
};

/* Begins to open a table; never blocks. The caller owns *opening and keeps it until poll returns
 * something else than AGAIN. Errors: INVALID (logged), NO_MEMORY. */
int sl_table_opening_begin(struct sl_table_opening *opening, struct sl_client *client,
                           const struct sl_table_spec *spec, uint32_t timeout_ms);

/* Returns AGAIN, 0 with *out, or an error that was logged. Same thread as begin. */
int sl_table_opening_poll(struct sl_table_opening *opening, struct sl_table **out);

#endif
