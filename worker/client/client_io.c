#include "worker/client/client_io.h"

#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "net/session/message_spec.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/control.h"
#include "worker/client/shard_conn_connect.h"

#define CLOSE_LOOK_NS SL_CLOCK_NS_PER_MS

static void client_io_retry(struct sl_timer *timer, uint64_t now_ns)
{
    const struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, retry);
    for (struct sl_reactor_conn *conn = io->reactors; conn != NULL; conn = conn->next) {
        sl_reactor_conn_pump(conn);
    }
}

/* Control operations */

void sl_client_io_start(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    io->retry = (struct sl_timer){.run = client_io_retry};
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

static bool may_use_rdma(const struct sl_client_io *io)
{
    for (const struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        const struct sl_reactor_address *address = &conn->address;
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
    if (io->options->uses_devices && io->own != NULL) {
        sl_reactor_excuse_turn(io->reactor);
        (void)sl_client_io_transport(io, SL_ENDPOINT_DPDK, &ignored);
    }
}

void sl_client_io_connect(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    io->conns = op->conns;
    io->shard_count = op->shard_count;
    uint32_t conn_count = 0;
    for (uint32_t shard = io->shard_count; shard-- > 0;) {
        struct sl_shard_conn *conn = &io->conns[shard];
        if (conn->io == io) {
            conn->next_of_io = io->own;
            io->own = conn;
            conn_count++;
        }
    }
    op->left = conn_count + 1;
    op->payload_bytes_max = UINT32_MAX;
    op->uses_tcp = false;
    op->clock.counts = true;
    if (conn_count > 0 && take_buffers(io, conn_count) != 0) {
        sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for receive buffers");
        sl_control_op_answer(op);
        return;
    }
    share_devices(io);
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        sl_shard_conn_open(conn, op);
    }
    sl_control_op_answer_one(op);
}

/* A request to one shard. */
struct asked {
    struct sl_list_link link; /* of op->asked */
    struct sl_control_op *op;
    struct sl_shard_conn *conn;
};

/* Returns whether the shard accepted the request; else records the error. */
static bool client_io_take_answer(struct asked *asked, int err, const char *reason)
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
    sl_list_remove(&asked->link);
    free(asked);
    sl_control_op_answer_one(op);
}

/* Sends a request to one shard; adds one answer to op->left. */
static void client_io_ask(struct sl_shard_conn *conn, struct sl_control_op *op,
                          struct sl_message *message, sl_session_answer_fn *answer)
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
    sl_list_append(&op->asked, &asked->link);
    message->id = sl_frame_id(conn->shard, 0);
    sl_session_request(conn->reactor->session, message,
                       sl_client_io_time_left(conn->io, op->deadline_ns), answer, asked);
}

static void client_io_table_opened(void *ctx, const struct sl_message *answer, int err,
                                   const char *reason)
{
    struct asked *asked = ctx;
    struct sl_control_op *op = asked->op;
    struct sl_reason unknown;
    if (client_io_take_answer(asked, err, reason)) {
        op->table.knows = answer->knows < op->table.knows ? answer->knows : op->table.knows;
        if (answer->table_id != op->table.id) {
            sl_control_op_fail(op, SL_ERR_PROTOCOL, "%s: it opened another table",
                               asked->conn->name);
        } else if (sl_message_check_known(op->spec, answer, &unknown) != 0) {
            sl_control_op_fail(op, SL_ERR_VERSION, "%s: %s", asked->conn->name, unknown.text);
        } else if (sl_control_add_table(op->io, op->table.id, op->spec) != 0) {
            sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for one more table");
        }
    }
    finish_answer(asked);
}

static void client_io_open_table(struct sl_control_op *op, sl_session_answer_fn *answer)
{
    struct sl_client_io *io = op->io;
    op->left = 1;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = *op->spec;
        message.table_open.table_id = op->table.id;
        client_io_ask(conn, op, &message, answer);
    }
    sl_control_op_answer_one(op);
}

void sl_client_io_table_open(struct sl_control_op *op)
{
    op->table.knows = UINT32_MAX;
    client_io_open_table(op, client_io_table_opened);
}

/* A shard that has dropped the table refuses to open it. */
static void client_io_drop_checked(void *ctx, const struct sl_message *answer, int err,
                                   const char *reason)
{
    struct asked *asked = ctx;
    if (err == 0 || err == SL_ERR_EXISTS) {
        asked->op->count++;
        asked->op->conns = asked->conn;
    } else if (err != SL_ERR_NOT_FOUND) {
        (void)client_io_take_answer(asked, err, reason);
    }
    finish_answer(asked);
}

void sl_client_io_table_drop_check(struct sl_control_op *op)
{
    client_io_open_table(op, client_io_drop_checked);
}

/* Statistics of a table */

static void add_table(struct sl_table_info *sum, const struct sl_message_table_stats *part)
{
    if (part->rows > 0 && (sum->rows == 0 || part->steps < sum->steps)) {
        sum->steps = part->steps;
    }
    sum->rows += part->rows;
    sum->bytes += part->bytes;
    sum->pulled_rows += part->pulled_rows;
    sum->pushed_rows += part->pushed_rows;
    sum->evicted_ttl += part->evicted_ttl;
    sum->evicted_count += part->evicted_count;
    sum->evicted_l2 += part->evicted_l2;
    sum->evicted_room += part->evicted_room;
    sum->rows_created += part->rows_created;
    sum->rows_erased += part->rows_erased;
    sum->admitted += part->admitted;
    sum->refused += part->refused;
    sum->waiting += part->waiting;
    sum->bytes_rows += part->bytes_rows;
    sum->bytes_index += part->bytes_index;
    sum->bytes_admission += part->bytes_admission;
}

static void table_counted(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct asked *asked = ctx;
    if (client_io_take_answer(asked, err, reason)) {
        for (uint32_t i = 0; i < answer->stats.table_count; i++) {
            const struct sl_message_table_stats *part = &answer->stats.tables[i];
            if (strcmp(part->name, asked->op->name) == 0) {
                add_table(asked->op->sum, part);
            }
        }
    }
    finish_answer(asked);
}

void sl_client_io_table_stats(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    op->left = 1;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        struct sl_message message = {.kind = SL_MESSAGE_STATS_GET};
        client_io_ask(conn, op, &message, table_counted);
    }
    sl_control_op_answer_one(op);
}

/* The first clock */

static void client_io_joined(void *ctx, const struct sl_message *answer, int err,
                             const char *reason)
{
    struct asked *asked = ctx;
    if (client_io_take_answer(asked, err, reason)) {
        struct sl_shard_conn *conn = asked->conn;
        conn->clock.is_counted = answer->clock == asked->op->clock.asked;
        conn->clock.at_shard = answer->clock;
        sl_control_op_take_clock(asked->op, conn->clock.is_counted, answer->clock);
    }
    finish_answer(asked);
}

void sl_client_io_join(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    op->left = 1;
    op->clock.counts = true;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        struct sl_message message = {.kind = SL_MESSAGE_JOIN, .clock = op->clock.asked};
        client_io_ask(conn, op, &message, client_io_joined);
    }
    sl_control_op_answer_one(op);
}

void sl_client_io_begin(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        sl_shard_conn_set_clock(conn, op->clock.asked);
    }
    sl_control_op_answer(op);
}

void sl_client_io_cancel(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        sl_shard_conn_cancel(conn, op);
    }
    SL_LIST_EACH (struct asked, asked, link, &op->asked) {
        sl_session_cancel(asked->conn->reactor->session, asked);
    }
    sl_control_cancel(op);
}

/* Closing */

static uint64_t connections_left(const struct sl_client_io *io)
{
    uint64_t connections = 0;
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
    bool is_quiet = connections_left(io) == 0 || now_ns >= io->closing.op->deadline_ns;
    if (is_quiet && io->mails_out == 0) {
        finish_closing(io);
    } else {
        sl_reactor_arm(io->reactor, timer, CLOSE_LOOK_NS);
    }
}

void sl_client_io_close(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        sl_shard_conn_close(conn);
    }
    sl_control_leave(io);
    sl_reactor_disarm(io->reactor, &io->retry);
    uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    io->closing.op = op;
    io->closing.timer = (struct sl_timer){.run = check_closed};
    check_closed(&io->closing.timer, now_ns);
}
