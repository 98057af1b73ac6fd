/* sl_client_io is the part of a client that lives on one of its reactors: transports, send and
 * receive memory, and the connections to its shards. Reactors of servers are assigned round-robin
 * to the client_ios, each with its shards. client_io 0 also runs the coordinator session
 * (control.h); with control_apart it has no shards.
 *
 * An application thread creates and destroys client_ios while no control operation is outstanding.
 * All else belongs to the reactor. sl_client_io_start and sl_client_io_connect allocate memory. */
#ifndef SL_WORKER_CLIENT_CLIENT_IO_H
#define SL_WORKER_CLIENT_CLIENT_IO_H

#include <starling_training.h>

#include <stdatomic.h>

#include "core/metrics.h"
#include "core/pool.h"
#include "core/shared.h"
#include "net/outbox.h"
#include "net/shm/shm.h"
#include "worker/client/client_cells.h"
#include "worker/client/control_op.h"
#include "worker/client/shard_conn.h"

/* Frames built and not yet sent. Long bodies are sent from step memory, so a frame here is a header
 * and at most a few KiB. */
#define SL_CLIENT_IO_OUTBOX_BYTES (32U << 20)

/* Receive buffers for long replies: a shard connection needs one at a time. If RDMA may be used,
 * twice as many: a buffer is also reserved for each reply that the shard writes directly and the
 * client scatters later, from the request on. */
#define SL_CLIENT_IO_BUFFERS_MAX  32

/* A client buffer that may be exported to peers. */
struct sl_client_io_buffer {
    uint8_t *base;
    size_t bytes;
    bool is_shared;          /* other processes can map it: core/shared.h */
    uint8_t registered_with; /* bit per scheme: transports where it is registered */
};

/* Shared by all client_ios of a client; owned by the client. */
struct sl_send_arena;
struct sl_relay_inbox;
struct sl_dpdk_device_list;
struct sl_client_io_options {
    /* sl_builtin_find, or a simulation's function. */
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    struct sl_transport_options transport;
    char congestion_control[16]; /* transport.congestion_control points here; TCP_CA_NAME_MAX */
    char rdma_device[256];       /* transport.rdma_device points here */
    struct sl_transport_tls tls; /* transport.tls points here; the client owns its strings */
    struct sl_secret secret;
    struct sl_message_hello hello; /* without purpose and shard */
    char host[SL_SHM_HOST_BYTES];  /* shards with the same value are reached over shared memory; "":
                                    * none */
    bool disable_rdma;             /* if TCP reaches the same shard */
    /* transport.dpdk points to its options; NULL: no DPDK device. Owned. */
    struct sl_dpdk_device_list *devices;
    bool uses_devices; /* some shard may be reached over DPDK; set before connecting */
    struct sl_endpoint coordinator;
    struct sl_endpoint *others; /* further candidate endpoints; owned */
    uint32_t other_count;
    char coordinator_name[SL_LIMIT_ENDPOINT_BYTES + 16]; /* "coordinator (tcp://…)" */
    uint32_t ps_count, worker_count;                     /* expected; 0: unknown */
    uint64_t heartbeat_ns;      /* requested interval; 0: a quarter of the lease */
    struct sl_metrics *metrics; /* of the client; NULL: it sends no reports */
    /* Where messages of other processes wait; outlives the client. NULL: they are refused. */
    struct sl_relay_inbox *inbox;
    /* HOST:PORT of the program's HTTP server, which outlives the client; NULL: none. Set by any
     * thread. */
    _Atomic(const char *) http;
    /* The words of a struct sl_training. Set by an application thread. */
    struct sl_cell training[sizeof(struct sl_training) / sizeof(uint64_t)];
    /* Send arena for long step bodies, if some shard may be reached over shared memory, RDMA or
     * DPDK, else NULL; set before connecting. */
    struct sl_send_arena *send_arena;
    /* By scheme: the client_io that logs, for all, that the transport of a preferred path is
     * missing. It has a shard with such a path. Set before connecting. */
    uint32_t log_owner[SL_CLIENT_IO_SCHEMES];
};

/* A table opened by this client: reopened on a shard or coordinator that lost its state. */
struct sl_client_io_table {
    uint32_t id;
    struct sl_table_spec spec;
};

/* The session to the coordinator: control.h. */
struct sl_client_io_coordinator {
    struct sl_timer report;        /* armed if the coordinator wants reports */
    uint64_t begun_ns;             /* when the first report was due */
    struct sl_cell_copy step_time; /* as of the last report */
    struct sl_session *session;
    struct sl_control_op *joining; /* the operation that waits for the first welcome */
    uint64_t incarnation;
    uint32_t knows;                     /* of the last Welcome */
    uint64_t job;                       /* identity of the job, of the last Cluster; 0: none yet */
    bool registering;                   /* a repeated registration is unanswered */
    bool awaits_heartbeat;              /* a heartbeat with an answer is unanswered */
    char http[SL_LIMIT_ENDPOINT_BYTES]; /* of the first Welcome */
    bool is_lost;                       /* permanently */
    char reason[SL_MESSAGE_TEXT_BYTES]; /* why it was lost */
    struct sl_timer heartbeat;
    uint64_t heartbeat_ns; /* interval */
    uint64_t silence_ns;   /* before another candidate is tried */
    uint64_t lease_ns;
    struct sl_list barriers;   /* operations that wait for other processes of groups */
    struct sl_timer unreached; /* armed while they wait without a connection */
};

/* The client_ios of a client form one array. */
struct sl_client_io {
    struct sl_reactor *reactor;
    uint32_t index, io_count;
    const struct sl_client_io_options *options;

    struct sl_transport *transports[SL_CLIENT_IO_SCHEMES];
    bool is_missing[SL_CLIENT_IO_SCHEMES]; /* a preferred path's transport cannot be opened */
    int devices_err; /* error of opening DPDK, which is slow and not retried; 0: none */
    bool has_logged_missing[SL_CLIENT_IO_SCHEMES]; /* logged */
    struct {
        struct sl_outbox outbox;
        struct sl_outbox shared_outbox; /* for a transport with SL_TRANSPORT_MAPS_MEMORY */
        struct sl_pool buffers;         /* of SL_LIMIT_FRAME_PAYLOAD_BYTES each */
        bool has_outbox, has_shared_outbox, has_buffers;
    } memory;
    struct sl_client_io_buffer exports[SL_CLIENT_BUFFERS_MAX];
    uint32_t export_count;
    struct sl_timer retry;

    struct sl_shard_conn *conns; /* of all client_ios, by shard; set by sl_client_io_connect */
    uint32_t shard_count;
    struct sl_shard_conn *own;        /* a list, linked through next_of_io; NULL: none */
    struct sl_reactor_conn *reactors; /* connections to reactors, a list */

    struct {
        struct sl_client_io_table *items;
        uint32_t count, capacity;
    } tables;

    struct sl_client_io_coordinator coordinator; /* client_io 0 */
    uint32_t mails_out; /* mails to other client_ios that have not returned: failover.h */
    /* 1 + task of a server that restarted without its parameters; 0: none. Read by any thread. */
    _Atomic uint32_t values_lost;

    struct {
        struct sl_control_op *op;
        struct sl_timer timer;
    } closing;

    struct sl_client_io_cells cells;
    struct sl_transport_cells transport_cells[SL_CLIENT_IO_SCHEMES];
    /* Of the cells, in the client's registry. */
    struct sl_metrics_source metrics, transport_metrics[SL_CLIENT_IO_SCHEMES];
};

/* Any thread. */
static inline uint32_t sl_client_io_values_lost(const struct sl_client_io *io)
{
    return atomic_load_explicit(&io->values_lost, memory_order_relaxed);
}

/* A Cluster without a loss may be older than the loss that a shard reported. Owner reactor. */
static inline void sl_client_io_lose_values(struct sl_client_io *io, uint32_t lost)
{
    if (lost != 0) {
        atomic_store_explicit(&io->values_lost, lost, memory_order_relaxed);
    }
}

/* Run functions of control operations */

/* Allocates the memory. Errors: NO_MEMORY. */
void sl_client_io_start(struct sl_control_op *op);

/* Connects this client_io's shards in op->conns, an array of op->shard_count connections. Writes
 * op->payload_bytes_max, op->uses_tcp and, for a worker, op->clock. Errors: as sl_shard_conn_open.
 */
void sl_client_io_connect(struct sl_control_op *op);

/* Asks every shard to count this worker's clock from op->clock.asked on. Writes op->clock.counts,
 * and op->clock.largest. Errors: DEADLINE, CLOSED, errors of a shard. */
void sl_client_io_join(struct sl_control_op *op);

/* Sets the first clock of the shard connections to op->clock.asked, on which the shards agreed;
 * UINT32_MAX: this worker had already finished. No error. */
void sl_client_io_begin(struct sl_control_op *op);

/* Opens table op->table.id with op->spec on this client_io's shards. */
void sl_client_io_table_open(struct sl_control_op *op);

/* Asks this client_io's shards whether they still have table op->table.id of op->spec: op->count is
 * how many have it, op->conns one of them. Errors: of sl_client_io_table_open. */
void sl_client_io_table_drop_check(struct sl_control_op *op);

/* Adds the statistics that the shards have of the table op->name to *op->sum. */
void sl_client_io_table_stats(struct sl_control_op *op);

/* Sends a goodbye on every connection, waits until all are closed or the deadline has passed, and
 * frees what sl_client_io_start allocated. No error. */
void sl_client_io_close(struct sl_control_op *op);

/* Fails the operation with CANCELLED before this returns, unless it is done. Not for
 * sl_client_io_close. */
void sl_client_io_cancel(struct sl_control_op *op);

/* For shard connections, substeps and control */

static inline struct sl_shard_conn *sl_client_io_conn(const struct sl_client_io *io, uint32_t shard)
{
    return &io->conns[shard];
}

/* Time until the deadline, at least 1 ms. */
static inline uint64_t sl_client_io_time_left(const struct sl_client_io *io, uint64_t deadline_ns)
{
    const uint64_t soonest_ns = sl_reactor_now_ns(io->reactor) + SL_CLOCK_NS_PER_MS;
    return (deadline_ns > soonest_ns ? deadline_ns - soonest_ns : 0) + SL_CLOCK_NS_PER_MS;
}

/* Pumps all shard connections after 1 ms: the outbox was full. */
static inline void sl_client_io_retry_later(struct sl_client_io *io)
{
    if (!sl_timer_armed(&io->retry)) {
        sl_reactor_arm(io->reactor, &io->retry, SL_CLOCK_NS_PER_MS);
    }
}

#endif
