/* A client's half on one worker reactor: its transports, the memory of what is sent and received,
 * and the links to its shards: the hubs take the shards in turn. Hub 0 also speaks with the
 * coordinator (control.h), and does only that when it is apart.
 *
 * Created and destroyed by an application thread, before the first call is posted and after the
 * last was answered; everything else by its reactor. All memory is taken by sl_client_io_start. */
#ifndef SL_WORKER_CLIENT_IO_H
#define SL_WORKER_CLIENT_IO_H

#include <starling.h>

#include <stdatomic.h>

#include "core/pool.h"
#include "core/shared.h"
#include "net/outbox.h"
#include "net/shm/shm.h"
#include "worker/control_op.h"
#include "worker/shard_conn.h"

/* Frames that are built and not yet sent. Long bodies are sent from the steps' memory, so that a
 * frame here is a header and at most a few KiB. */
#define SL_CLIENT_IO_OUTBOX_BYTES (32U << 20)

/* Long replies that are being received: a link needs at most one at a time. Where RDMA may lead to
 * a shard as many again, and those that a link does not need, for replies that land before they are
 * scattered: the shard may write there from the request on. */
#define SL_CLIENT_IO_BUFFERS_MAX  32

#define SL_CLIENT_IO_SCHEMES      4 /* of enum sl_endpoint_scheme */

/* Memory of this process that peers may be given to read and write: a buffer of the client's. */
struct sl_client_io_buffer {
    uint8_t *base;
    size_t bytes;
    bool is_shared;   /* processes of this machine can map it: core/shared.h */
    uint8_t known_to; /* bits, by scheme: the transports that it is registered with */
};

/* The same for all hubs of a client; owned by it. */
struct sl_send_arena;
struct sl_dpdk_device_list;
struct sl_client_io_options {
    /* As sl_builtin_find; a simulation has its own. */
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    struct sl_transport_options transport;
    char congestion_control[16]; /* what transport.congestion_control points to; TCP_CA_NAME_MAX */
    char rdma_device[256];       /* what transport.rdma_device points to */
    struct sl_transport_tls tls; /* what transport.tls points to; its strings are the client's */
    struct sl_secret secret;
    struct sl_message_hello hello; /* without purpose and shard */
    char host[SL_SHM_HOST_BYTES];  /* shards with the same are reached through shared memory; "":
                                    * none */
    bool disable_rdma;             /* where TCP leads to the same shard */
    /* What transport.dpdk points to; NULL: this process has no device for it. Owned. */
    struct sl_dpdk_device_list *devices;
    bool uses_devices; /* some shard may be reached by them; set before the hubs connect */
    struct sl_endpoint coordinator;
    struct sl_endpoint *others; /* where it may be, too; owned */
    uint32_t other_count;
    char coordinator_name[SL_LIMIT_ENDPOINT_BYTES + 16]; /* "coordinator (tcp://…)" */
    uint32_t ps_count, worker_count;                     /* expected; 0: unknown */
    uint64_t heartbeat_ns; /* wanted between two; 0: a quarter of the lease */
    /* What long bodies of steps are sent from, for transports that share or register, when there
     * may be one; set before the hubs connect. */
    struct sl_send_arena *wire;
    /* The hub that says, for all, that a transport for near ways is missing: one whose shards are
     * reached that way; set before the hubs connect. */
    uint32_t log_owner[SL_CLIENT_IO_SCHEMES];
};

/* A table that this client has opened: for a shard or a coordinator that has forgotten it. */
struct sl_client_io_table {
    uint32_t id;
    struct sl_table_spec spec;
};

/* The hubs of a client are one array. */
struct sl_client_io {
    struct sl_reactor *reactor;
    uint32_t index, io_count;
    /* Its shards are first_shard, and every shard_stride-th behind it; first_shard UINT32_MAX:
     * none.
     */
    uint32_t first_shard, shard_stride;
    const struct sl_client_io_options *options;

    struct sl_transport *transports[SL_CLIENT_IO_SCHEMES];
    bool is_missing[SL_CLIENT_IO_SCHEMES]; /* that transport, for near ways: it cannot be opened */
    int devices_err; /* of opening that of DPDK, which takes long, and is not tried again; 0: none
                      */
    bool has_said_missing[SL_CLIENT_IO_SCHEMES]; /* in the log */
    struct sl_outbox outbox;
    struct sl_outbox shared_outbox; /* for a transport that shares, once there is one */
    struct sl_pool buffers;         /* of SL_LIMIT_FRAME_PAYLOAD_BYTES each */
    bool has_outbox, has_shared_outbox, has_buffers;
    struct sl_client_io_buffer lent[SL_CLIENT_BUFFERS_MAX];
    uint32_t lent_count;
    struct sl_timer retry;

    struct sl_shard_conn *conns; /* of all hubs, by shard; since sl_client_io_connect */
    uint32_t shard_count;

    struct sl_client_io_table *tables;
    uint32_t table_count, table_capacity;

    /* Hub 0's conversation with the coordinator. */
    struct sl_session *coordinator;
    struct sl_control_op *joining; /* the call that waits for the coordinator's first welcome */
    uint64_t coordinator_incarnation;
    bool registering;      /* again: an answer is awaited */
    bool listening;        /* likewise, to a heartbeat */
    bool coordinator_lost; /* for good */
    char coordinator_reason[SL_MESSAGE_TEXT_BYTES];
    struct sl_timer heartbeat;
    uint64_t heartbeat_ns; /* between two */
    uint64_t silence_ns;   /* before another is looked for */
    uint32_t moves_out;    /* mail to other hubs that has not come back: move.h */
    /* 1 + the task of a ps that came back without its values; 0: none. Any thread reads it. */
    _Atomic uint32_t values_lost;

    struct sl_control_op *closing;
    uint64_t closing_until_ns;
    struct sl_timer closing_timer;

    struct {
        uint64_t requests, replies, failures;
    } stats;
};

/* Any thread. */
static inline uint32_t sl_client_io_values_lost(const struct sl_client_io *io)
{
    return atomic_load_explicit(&io->values_lost, memory_order_relaxed);
}

/* ---- Run functions of calls */

/* Takes the memory. Errors: NO_MEMORY. */
void sl_client_io_start(struct sl_control_op *op);

/* Connects this hub's of call->links, one for each of call->shard_count shards. Writes
 * call->payload_bytes_max, and for a worker call->counts and call->clock. Errors: as
 * sl_shard_conn_open.
 */
void sl_client_io_connect(struct sl_control_op *op);

/* Asks every shard to let this worker's clock count from call->clock_asked on; writes call->counts
 * and, as the greatest that one of them answered, call->clock. Errors: DEADLINE, CLOSED, what a
 * shard says. */
void sl_client_io_join(struct sl_control_op *op);

/* The shards agree on call->clock_asked for this worker; UINT32_MAX: it had finished. No error. */
void sl_client_io_begin(struct sl_control_op *op);

/* Opens table call->table_id with call->spec on this hub's shards. */
void sl_client_io_table_open(struct sl_control_op *op);

/* Lends the memory [call->memory, + call->memory_bytes), of a client's buffer, to the peers by
 * every transport that registers, or shares when it is shared memory, also by those to come; and
 * takes it back. No error: what a transport cannot take so is copied. */
void sl_client_io_export(struct sl_control_op *op);
void sl_client_io_unexport(struct sl_control_op *op);

/* Writes *call->stats. */
void sl_client_io_stats(struct sl_control_op *op);

/* Says goodbye on every connection, waits until all are closed, a second at most, and gives back
 * what sl_client_io_start took. No error. */
void sl_client_io_close(struct sl_control_op *op);

/* ---- For links, parts and control */

static inline struct sl_shard_conn *sl_client_io_link(const struct sl_client_io *io, uint32_t shard)
{
    return &io->conns[shard];
}

/* Keeps what a table is, unless it is known. Errors: NO_MEMORY. */
int sl_client_io_note_table(struct sl_client_io *io, uint32_t id, const struct sl_table_spec *spec);

/* Whether this process has what a transport of the scheme needs, as far as is known before one is
 * opened. Looks at the system's devices. Any thread. */
bool sl_client_io_may_open(const struct sl_client_io_options *options,
                           enum sl_endpoint_scheme scheme);

/* The transport of a scheme, opened at its first use. Errors: UNSUPPORTED, NO_MEMORY. */
int sl_client_io_transport(struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                           struct sl_transport **out);

/* The same for a way that there is another beside: NULL, said once by the client, when the
 * transport cannot be opened; it is not tried again where this process has none (UNSUPPORTED). */
struct sl_transport *sl_client_io_near_transport(struct sl_client_io *io,
                                                 enum sl_endpoint_scheme scheme);

/* Why the transport of this scheme could not be opened, with that error. Static storage. */
const char *sl_client_io_obstacle(enum sl_endpoint_scheme scheme, int err);

/* The outbox for connections of a scheme whose transport is open. */
struct sl_outbox *sl_client_io_outbox(struct sl_client_io *io, enum sl_endpoint_scheme scheme);

/* hub_share.c: the transport of this scheme has been opened. It is told of all memory that it, or
 * its peers, can use where it lies. */
void sl_client_io_share(struct sl_client_io *io, enum sl_endpoint_scheme scheme);

/* Whether the transport of this scheme has all this memory registered: lent by the client, or of
 * options->wire. */
bool sl_client_io_has_registered(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                                 const void *at, uint64_t bytes);

/* Whether all this memory is lent to the peers that are reached by this scheme. */
bool sl_client_io_lends(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                        const void *at, uint64_t bytes);

/* Until the deadline, and at least a millisecond. */
uint64_t sl_client_io_time_left(const struct sl_client_io *io, uint64_t deadline_ns);

/* The outbox had no room: pumps every link a little later. */
void sl_client_io_retry_later(struct sl_client_io *io);

#endif
