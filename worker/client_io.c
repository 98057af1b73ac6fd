#include "worker/client_io.h"

#include <assert.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/list.h"
#include "core/log.h"
#include "worker/client_io_memory.h"
#include "worker/control.h"
#include "worker/shard_conn_connect.h"
#include "worker/shard_conn_restore.h"

#define RETRY_NS         SL_CLOCK_NS_PER_MS
#define CLOSE_TIMEOUT_NS (2 * SL_CLOCK_NS_PER_S)
#define CLOSE_LOOK_NS    SL_CLOCK_NS_PER_MS

static_assert(SL_ENDPOINT_DPDK + 1 == SL_CLIENT_IO_SCHEMES, "one slot for each scheme");

uint64_t sl_client_io_time_left(const struct sl_client_io *io, uint64_t deadline_ns)
{
    uint64_t soonest_ns = sl_reactor_now_ns(io->reactor) + SL_CLOCK_NS_PER_MS;
    return deadline_ns > soonest_ns ? deadline_ns - soonest_ns + SL_CLOCK_NS_PER_MS
                                    : SL_CLOCK_NS_PER_MS;
}

/* Shared memory needs no TLS: it stays on one machine and belongs to one user. RDMA and DPDK are
 * not used with TLS at all: shard_conn_connect.c. */
static struct sl_transport_options options_for(const struct sl_client_io *io,
                                               enum sl_endpoint_scheme scheme)
{
    struct sl_transport_options options = io->options->transport;
    options.tls = scheme == SL_ENDPOINT_SHM ? NULL : options.tls;
    return options;
}

int sl_client_io_transport(struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                           struct sl_transport **out)
{
    sl_assert(scheme < SL_CLIENT_IO_SCHEMES);
    struct sl_transport **slot = &io->transports[scheme];
    if (*slot == NULL) {
        const struct sl_transport_ops *ops = io->options->find_transport(scheme);
        if (ops == NULL) {
            return SL_ERR_UNSUPPORTED;
        }
        if (scheme == SL_ENDPOINT_DPDK && io->devices_err != 0) {
            return io->devices_err;
        }
        const struct sl_transport_options options = options_for(io, scheme);
        int err = sl_transport_open(ops, io->reactor, &options, slot);
        if (err != 0) {
            io->devices_err = scheme == SL_ENDPOINT_DPDK ? err : io->devices_err;
            return err;
        }
        sl_client_io_register_memory(io, scheme);
    }
    *out = *slot;
    return 0;
}

const char *sl_client_io_last_error(enum sl_endpoint_scheme scheme, int err)
{
    const char *missing = err == SL_ERR_UNSUPPORTED ? sl_builtin_missing(scheme) : NULL;
    return missing != NULL ? missing : sl_err_name(err);
}

/* Logs once per client. Missing RDMA is common, hence only INFO. */
static void log_missing(struct sl_client_io *io, enum sl_endpoint_scheme scheme, int err)
{
    const bool is_shm = scheme == SL_ENDPOINT_SHM;
    if (io->options->log_owner[scheme] == io->index && !io->has_logged_missing[scheme]) {
        io->has_logged_missing[scheme] = true;
        sl_log_write(scheme == SL_ENDPOINT_RDMA ? SL_LOG_INFO : SL_LOG_WARN,
                     "client: not %s %s: %s; over TCP", is_shm ? "through" : "over",
                     sl_endpoint_scheme_name(scheme), sl_client_io_last_error(scheme, err));
    }
}

bool sl_client_io_may_open(const struct sl_client_io_options *options,
                           enum sl_endpoint_scheme scheme)
{
    const struct sl_transport_ops *ops = options->find_transport(scheme);
    const bool is_systems = ops == sl_builtin_find(scheme);
    return ops != NULL && !(is_systems && sl_builtin_missing(scheme) != NULL);
}

struct sl_transport *sl_client_io_preferred_transport(struct sl_client_io *io,
                                                      enum sl_endpoint_scheme scheme)
{
    struct sl_transport *transport = NULL;
    if (io->is_missing[scheme]) {
        return NULL;
    }
    int err = sl_client_io_transport(io, scheme, &transport);
    if (err != 0) {
        io->is_missing[scheme] = err == SL_ERR_UNSUPPORTED; /* other errors may be temporary */
        log_missing(io, scheme, err);
    }
    return transport;
}

struct sl_outbox *sl_client_io_outbox(struct sl_client_io *io, enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_SHM && io->memory.has_shared_outbox ? &io->memory.shared_outbox
                                                                     : &io->memory.outbox;
}

static void retry(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, retry);
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        sl_shard_conn_pump(&io->conns[shard]);
    }
}

void sl_client_io_retry_later(struct sl_client_io *io)
{
    if (!sl_timer_armed(&io->retry)) {
        sl_reactor_arm(io->reactor, &io->retry, RETRY_NS);
    }
}

/* Control operations */

void sl_client_io_start(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    io->retry = (struct sl_timer){.run = retry};
    sl_reactor_excuse_turn(io->reactor);
    int err =
        sl_outbox_init(&io->memory.outbox, SL_CLIENT_IO_OUTBOX_BYTES, io->options->hello.checksum);
    if (err != 0) {
        sl_control_op_fail(op, err, "no memory for outgoing frames");
    } else {
        io->memory.has_outbox = true;
    }
    sl_control_op_answer(op);
}

static uint32_t conns_of(const struct sl_client_io *io)
{
    return io->first_shard < io->shard_count
               ? (io->shard_count - io->first_shard - 1) / io->shard_stride + 1
               : 0;
}

static bool may_use_rdma(const struct sl_client_io *io)
{
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        const struct sl_shard_address *address = &io->conns[shard].address;
        if (address->endpoint.scheme == SL_ENDPOINT_RDMA ||
            (address->has_preferred && address->preferred.scheme == SL_ENDPOINT_RDMA)) {
            return sl_client_io_may_open(io->options, SL_ENDPOINT_RDMA);
        }
    }
    return false;
}

static int take_buffers(struct sl_client_io *io, uint32_t conn_count)
{
    uint32_t count = conn_count < SL_CLIENT_IO_BUFFERS_MAX ? conn_count : SL_CLIENT_IO_BUFFERS_MAX;
    count *= may_use_rdma(io) ? 2 : 1;
    int err = sl_pool_init(&io->memory.buffers, SL_LIMIT_FRAME_PAYLOAD_BYTES, count);
    io->memory.has_buffers = err == 0;
    return err;
}

/* A DPDK device spreads received packets over the queues of all client_ios with shards: each must
 * poll its own queue, even if it uses another transport. Errors are logged by the code that needs
 * the transport. */
static void share_devices(struct sl_client_io *io)
{
    struct sl_transport *ignored;
    if (io->options->uses_devices && conns_of(io) > 0) {
        sl_reactor_excuse_turn(io->reactor);
        (void)sl_client_io_transport(io, SL_ENDPOINT_DPDK, &ignored);
    }
}

void sl_client_io_connect(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    io->conns = op->conns;
    io->shard_count = op->shard_count;
    uint32_t conn_count = conns_of(io);
    op->left = conn_count + 1;
    op->payload_bytes_max = UINT32_MAX;
    op->counts = true;
    if (conn_count > 0 && take_buffers(io, conn_count) != 0) {
        sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for receive buffers");
        sl_control_op_answer(op);
        return;
    }
    share_devices(io);
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        sl_shard_conn_open(&io->conns[shard], op);
    }
    sl_control_op_answer_one(op);
}

/* The shard that an answer comes from. */
struct asked {
    struct sl_control_op *op;
    struct sl_shard_conn *conn;
};

/* Returns whether the shard accepted the request; else records the error. */
static bool take_answer(struct asked *asked, int err, const char *reason)
{
    if (err != 0) {
        const char *name = asked->conn->name;
        sl_control_op_fail(asked->op, err, "%s: %s", name, sl_control_op_reason(name, reason));
    }
    return err == 0;
}

static void finish_answer(struct asked *asked)
{
    struct sl_control_op *op = asked->op;
    free(asked);
    sl_control_op_answer_one(op);
}

/* Sends a request to one shard; adds one answer to op->left. */
static void ask(struct sl_shard_conn *conn, struct sl_control_op *op, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    bool down = sl_shard_conn_is_down(conn);
    struct asked *asked = malloc(sizeof *asked);
    op->left++;
    if (asked == NULL || down) {
        sl_control_op_fail(op, down ? SL_ERR_CLOSED : SL_ERR_NO_MEMORY, "%s: %s", conn->name,
                           down ? conn->reason : "out of memory");
        free(asked);
        sl_control_op_answer_one(op);
        return;
    }
    *asked = (struct asked){.op = op, .conn = conn};
    sl_session_request(conn->session, message, sl_client_io_time_left(conn->io, op->deadline_ns),
                       answer, asked);
}

static void table_opened(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct asked *asked = ctx;
    struct sl_control_op *op = asked->op;
    if (take_answer(asked, err, reason)) {
        if (answer->table_id != op->table_id) {
            sl_control_op_fail(op, SL_ERR_PROTOCOL, "%s: it opened another table",
                               asked->conn->name);
        } else if (sl_client_io_add_table(op->io, op->table_id, op->spec) != 0) {
            sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for one more table");
        }
    }
    finish_answer(asked);
}

void sl_client_io_table_open(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    op->left = 1;
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = *op->spec;
        message.table_open.table_id = op->table_id;
        ask(&io->conns[shard], op, &message, table_opened);
    }
    sl_control_op_answer_one(op);
}

int sl_client_io_add_table(struct sl_client_io *io, uint32_t id, const struct sl_table_spec *spec)
{
    for (uint32_t i = 0; i < io->tables.count; i++) {
        if (io->tables.items[i].id == id) {
            return 0;
        }
    }
    if (io->tables.count == io->tables.capacity) {
        uint32_t capacity = io->tables.capacity == 0 ? 8 : 2 * io->tables.capacity;
        struct sl_client_io_table *grown = realloc(io->tables.items, capacity * sizeof *grown);
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        io->tables.items = grown;
        io->tables.capacity = capacity;
    }
    io->tables.items[io->tables.count++] = (struct sl_client_io_table){.id = id, .spec = *spec};
    return 0;
}

/* The first clock */

static void joined(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct asked *asked = ctx;
    if (take_answer(asked, err, reason)) {
        struct sl_shard_conn *conn = asked->conn;
        conn->clock.is_counted = answer->clock == asked->op->clock_asked;
        conn->clock.at_shard = answer->clock;
        sl_control_op_take_clock(asked->op, conn->clock.is_counted, answer->clock);
    }
    finish_answer(asked);
}

void sl_client_io_join(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    op->left = 1;
    op->counts = true;
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        struct sl_message message = {.kind = SL_MESSAGE_JOIN, .clock = op->clock_asked};
        ask(&io->conns[shard], op, &message, joined);
    }
    sl_control_op_answer_one(op);
}

void sl_client_io_begin(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        sl_shard_conn_set_clock(&io->conns[shard], op->clock_asked);
    }
    sl_control_op_answer(op);
}

void sl_client_io_stats(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    *op->stats = (struct sl_client_stats){
        .requests = io->stats.requests,
        .replies = io->stats.replies,
        .failures = io->stats.failures,
    };
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (io->transports[scheme] != NULL) {
            struct sl_transport_stats stats;
            sl_transport_get_stats(io->transports[scheme], &stats);
            op->stats->bytes_sent += stats.bytes_sent;
            op->stats->bytes_received += stats.bytes_received;
        }
    }
    sl_control_op_answer(op);
}

/* Closing */

static uint32_t connections_left(const struct sl_client_io *io)
{
    uint32_t connections = 0;
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (io->transports[scheme] != NULL) {
            struct sl_transport_stats stats;
            sl_transport_get_stats(io->transports[scheme], &stats);
            connections += stats.connections;
        }
    }
    return connections;
}

static void finish_closing(struct sl_client_io *io)
{
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (io->transports[scheme] != NULL) {
            sl_transport_close(&io->transports[scheme]);
        }
    }
    if (io->memory.has_outbox) {
        sl_outbox_fini(&io->memory.outbox);
    }
    if (io->memory.has_shared_outbox) {
        sl_outbox_fini(&io->memory.shared_outbox);
    }
    if (io->memory.has_buffers) {
        sl_pool_fini(&io->memory.buffers);
    }
    free(io->tables.items);
    sl_control_op_answer(io->closing.op);
}

/* Polls: the transport sends the goodbyes before it closes, and reports no end of the last
 * connection. */
static void check_closed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, closing.timer);
    bool is_quiet = connections_left(io) == 0 || now_ns >= io->closing.until_ns;
    if (is_quiet && io->mails_out == 0) {
        finish_closing(io);
    } else {
        sl_reactor_arm(io->reactor, timer, CLOSE_LOOK_NS);
    }
}

void sl_client_io_close(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        sl_shard_conn_close(&io->conns[shard]);
    }
    sl_control_leave(io);
    sl_reactor_disarm(io->reactor, &io->retry);
    uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    io->closing.op = op;
    io->closing.until_ns = now_ns + CLOSE_TIMEOUT_NS;
    io->closing.timer = (struct sl_timer){.run = check_closed};
    check_closed(&io->closing.timer, now_ns);
}
