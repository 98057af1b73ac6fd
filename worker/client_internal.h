/* A client, as the files of this folder see it, and a second way to make one: on reactors and
 * transports from outside, without ever blocking, so that a simulation can drive clients and
 * reactors from one thread. sl_client_create and its fellows are wrappers that wait. */
#ifndef SL_WORKER_CLIENT_INTERNAL_H
#define SL_WORKER_CLIENT_INTERNAL_H

#include "worker/client_io.h"
#include "worker/operation.h"
#include "worker/thread_ctx.h"

/* What a client is made on; copied, what it points to must outlive the client. */
struct sl_client_setup {
    struct sl_reactor *const *reactors; /* connected, and started or stepped by the caller */
    uint32_t reactor_count;
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    void *medium;       /* of the transports: net/transport.h */
    const char *host;   /* net/shm/shm.h; NULL or "": this client uses no shared memory. Copied */
    uint64_t client_id; /* random: tells this process from others */
    /* The first reactor speaks with the coordinator only, and there are others for the shards. */
    bool control_apart;
    /* One of the reactors, or NULL: it is attached to the calling thread, which is the only one
     * that uses the client, and drives it while it waits. */
    struct sl_reactor *driven;
};

enum sl_client_stage {
    SL_CLIENT_STARTING,   /* hubs take their memory */
    SL_CLIENT_JOINING,    /* the coordinator knows, or will know, all ps processes */
    SL_CLIENT_CONNECTING, /* to every shard */
    SL_CLIENT_AGREEING,   /* the shards, on the clock that this worker begins with */
    SL_CLIENT_BEGINNING,  /* the links are told that clock */
    SL_CLIENT_RUNNING,
    SL_CLIENT_CLOSING,
    SL_CLIENT_CLOSED
};

/* Memory that sl_client_buffer_create has made, or that was registered. */
struct sl_client_buffer {
    void *base; /* NULL: the slot is free */
    size_t bytes;
    struct sl_shared shared; /* that it is; base NULL: it is memory of this process alone */
    bool is_callers;         /* it was registered, and is not ours to free */
};

struct sl_client {
    enum sl_client_stage stage;
    enum sl_protocol protocol;
    int32_t task_index;
    struct sl_client_io_options io_options;
    const struct sl_clock *clock;
    uint64_t start_deadline_ns;
    uint32_t start_clock; /* that was asked for, and at last agreed on: sl_client_clock */
    bool finished;        /* a step with sl_step_finish was submitted */

    struct sl_thread_ctx_set *thread_ctxs;
    struct sl_client_io *ios;
    uint32_t io_count;
    uint32_t first_io;         /* that has shards: 1 when control is apart, else 0 */
    struct sl_control_op *ops; /* one for each hub: of starting and closing */

    struct sl_message_cluster cluster;
    struct sl_shard_conn *conns;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* the least of all shards' */

    struct sl_table *tables[SL_LIMIT_TABLES]; /* by id, under the ports' lock */

    struct sl_client_buffer buffers[SL_CLIENT_BUFFERS_MAX]; /* under the ports' lock */

    /* Of sl_client_create: the reactors that it made. */
    struct sl_reactor **own_reactors;
    uint32_t own_reactor_count;
};

static inline uint32_t sl_client_hub_of(const struct sl_client *client, uint32_t shard)
{
    return client->first_io + shard % (client->io_count - client->first_io);
}

/* Checks the options and begins to start; on success poll until it says something else than AGAIN.
 * Errors: INVALID, NO_MEMORY. The polling thread is the one that calls this. */
int sl_start_begin(const struct sl_client_options *options, const struct sl_client_setup *setup,
                   struct sl_client **out);

/* AGAIN while the start goes on; 0 when the client is ready; else why it failed, which has been
 * logged: then close it. Never blocks. */
int sl_start_poll(struct sl_client *client);

/* Begins to close, also a client whose start failed; no step and no call may be outstanding. Poll
 * until it is true, then free. */
void sl_start_close_begin(struct sl_client *client);
bool sl_start_close_poll(struct sl_client *client);
void sl_start_free(struct sl_client **client);

/* client_buffer.c. The client's hubs have closed. */
void sl_client_buffer_destroy_all(struct sl_client *client);

/* Opening a table in two stages: the coordinator gives it an id, then every shard makes it. */
struct sl_table_opening {
    struct sl_client *client;
    struct sl_table_spec spec;
    struct sl_control_op coordinator;
    struct sl_control_op *shards; /* one for each hub, once the coordinator has answered */
    struct sl_table *table;
};

/* Never blocks. The opening is the caller's storage, and must stay until poll says something else
 * than AGAIN. Errors: INVALID (logged), NO_MEMORY. */
int sl_table_opening_begin(struct sl_table_opening *opening, struct sl_client *client,
                           const struct sl_table_spec *spec, uint32_t timeout_ms);

/* AGAIN, 0 with *out, or an error, which has been logged. The thread that began it. */
int sl_table_opening_poll(struct sl_table_opening *opening, struct sl_table **out);

#endif
