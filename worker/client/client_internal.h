/* sl_client is the client object of the public API, for the files of the client. start.h starts and
 * closes one. */
#ifndef SL_WORKER_CLIENT_CLIENT_INTERNAL_H
#define SL_WORKER_CLIENT_CLIENT_INTERNAL_H

#include "worker/client/client_io.h"
#include "worker/client/operation.h"
#include "worker/client/thread_ctx.h"

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
    uint64_t deadline_ns; /* of the start, then of the close */
    uint32_t start_clock; /* requested, finally agreed: sl_client_clock */
    bool finished;
    struct {
        bool (*is_set)(void *ctx); /* of the options */
        void *ctx;
    } interrupt;

    struct sl_metrics metrics; /* cells of the client_ios and of the application threads */
    struct sl_port_set *ports; /* each in a struct sl_thread_ctx */
    struct sl_client_io *ios;
    uint32_t io_count;
    uint32_t first_io;         /* first with shards: 1 with control_apart, else 0 */
    struct sl_control_op *ops; /* one per client_io, for start and close */
    uint32_t op_count;         /* of the stage */

    struct sl_message_cluster cluster;
    struct sl_shard_conn *conns;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* smallest of all shards */
    bool uses_tcp;              /* some shard was reached over TCP at the start */

    struct sl_table *tables[SL_LIMIT_TABLES]; /* by id; under the lock of ports */

    struct sl_client_buffer buffers[SL_CLIENT_BUFFERS_MAX]; /* likewise */

    /* The reactors that sl_client_create created. */
    struct sl_reactor **own_reactors;
    uint32_t own_reactor_count;
};

/* What a client is to other processes of the job, for programs with the key-value interface. */
struct sl_client_place {
    uint32_t beside;              /* SL_MESSAGE_BESIDE_...; 0: of no process but itself */
    struct sl_relay_inbox *inbox; /* for their messages; NULL: it takes none */
};

/* As sl_client_create. */
int sl_client_create_at(const struct sl_client_options *options,
                        const struct sl_client_place *place, struct sl_client **out);

/* Runs an operation of client_io 0; reports its error after `what`. Blocks. Any thread. */
int sl_client_ask_coordinator(struct sl_client *client, struct sl_control_op *op,
                              uint32_t timeout_ms, const char *what);

#endif
