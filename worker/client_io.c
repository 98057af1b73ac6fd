#include "worker/client_io.h"

#include <assert.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/control.h"

#define RETRY_NS         SL_CLOCK_NS_PER_MS
#define CLOSE_TIMEOUT_NS (2 * SL_CLOCK_NS_PER_S)
#define CLOSE_LOOK_NS    SL_CLOCK_NS_PER_MS

static_assert(SL_ENDPOINT_DPDK + 1 == SL_CLIENT_IO_SCHEMES, "one slot for each scheme");

#define HUB_OF(timer_pointer, member)                                                              \
    ((struct sl_client_io *)(void *)((uint8_t *)(timer_pointer)-offsetof(struct sl_client_io,      \
                                                                         member)))

uint64_t sl_client_io_time_left(const struct sl_client_io *hub, uint64_t deadline_ns)
{
    uint64_t soonest_ns = sl_reactor_now_ns(hub->reactor) + SL_CLOCK_NS_PER_MS;
    return deadline_ns > soonest_ns ? deadline_ns - soonest_ns + SL_CLOCK_NS_PER_MS
                                    : SL_CLOCK_NS_PER_MS;
}

/* Shared memory is of one machine and one user: there is nobody to hide it from. Over RDMA and DPDK
 * nothing goes when there should be TLS: link_connection.c. */
static struct sl_transport_options options_for(const struct sl_client_io *hub,
                                               enum sl_endpoint_scheme scheme)
{
    struct sl_transport_options options = hub->options->transport;
    options.tls = scheme == SL_ENDPOINT_SHM ? NULL : options.tls;
    return options;
}

int sl_client_io_transport(struct sl_client_io *hub, enum sl_endpoint_scheme scheme,
                           struct sl_transport **out)
{
    sl_assert(scheme < SL_CLIENT_IO_SCHEMES);
    struct sl_transport **slot = &hub->transports[scheme];
    if (*slot == NULL) {
        const struct sl_transport_ops *ops = hub->options->find_transport(scheme);
        if (ops == NULL) {
            return SL_ERR_UNSUPPORTED;
        }
        if (scheme == SL_ENDPOINT_DPDK && hub->devices_err != 0) {
            return hub->devices_err;
        }
        const struct sl_transport_options options = options_for(hub, scheme);
        int err = sl_transport_open(ops, hub->reactor, &options, slot);
        if (err != 0) {
            hub->devices_err = scheme == SL_ENDPOINT_DPDK ? err : hub->devices_err;
            return err;
        }
        sl_client_io_share(hub, scheme);
    }
    *out = *slot;
    return 0;
}

const char *sl_client_io_obstacle(enum sl_endpoint_scheme scheme, int err)
{
    const char *missing = err == SL_ERR_UNSUPPORTED ? sl_builtin_missing(scheme) : NULL;
    return missing != NULL ? missing : sl_err_name(err);
}

/* One of the client's reactors is enough, and once. That there is no RDMA is nothing unusual. */
static void say_missing(struct sl_client_io *hub, enum sl_endpoint_scheme scheme, int err)
{
    const bool is_shm = scheme == SL_ENDPOINT_SHM;
    if (hub->options->spokesman[scheme] == hub->index && !hub->has_said_missing[scheme]) {
        hub->has_said_missing[scheme] = true;
        sl_log_write(scheme == SL_ENDPOINT_RDMA ? SL_LOG_INFO : SL_LOG_WARN,
                     "client: not %s %s: %s; over TCP", is_shm ? "through" : "over",
                     sl_endpoint_scheme_name(scheme), sl_client_io_obstacle(scheme, err));
    }
}

bool sl_client_io_may_open(const struct sl_client_io_options *options,
                           enum sl_endpoint_scheme scheme)
{
    const struct sl_transport_ops *ops = options->find_transport(scheme);
    const bool is_systems = ops == sl_builtin_find(scheme);
    return ops != NULL && !(is_systems && sl_builtin_missing(scheme) != NULL);
}

struct sl_transport *sl_client_io_near_transport(struct sl_client_io *hub,
                                                 enum sl_endpoint_scheme scheme)
{
    struct sl_transport *transport = NULL;
    if (hub->is_missing[scheme]) {
        return NULL;
    }
    int err = sl_client_io_transport(hub, scheme, &transport);
    if (err != 0) {
        hub->is_missing[scheme] = err == SL_ERR_UNSUPPORTED; /* what else there is may pass */
        say_missing(hub, scheme, err);
    }
    return transport;
}

struct sl_outbox *sl_client_io_outbox(struct sl_client_io *hub, enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_SHM && hub->has_shared_outbox ? &hub->shared_outbox : &hub->outbox;
}

static void retry(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_client_io *hub = HUB_OF(timer, retry);
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        sl_shard_conn_pump(&hub->links[shard]);
    }
}

void sl_client_io_retry_later(struct sl_client_io *hub)
{
    if (!sl_timer_armed(&hub->retry)) {
        sl_timer_arm(sl_reactor_timers(hub->reactor), &hub->retry,
                     sl_reactor_now_ns(hub->reactor) + RETRY_NS);
    }
}

/* ---- Calls */

void sl_client_io_start(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    hub->retry = (struct sl_timer){.run = retry};
    sl_reactor_excuse_turn(hub->reactor);
    int err = sl_outbox_init(&hub->outbox, SL_CLIENT_IO_OUTBOX_BYTES, hub->options->hello.checksum);
    if (err != 0) {
        sl_control_op_fail(call, err, "no memory for outgoing frames");
    } else {
        hub->has_outbox = true;
    }
    sl_control_op_answer(call);
}

static uint32_t links_of(const struct sl_client_io *hub)
{
    return hub->first_shard < hub->shard_count
               ? (hub->shard_count - hub->first_shard - 1) / hub->shard_step + 1
               : 0;
}

static bool may_use_rdma(const struct sl_client_io *hub)
{
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        const struct sl_shard_address *place = &hub->links[shard].place;
        if (place->endpoint.scheme == SL_ENDPOINT_RDMA ||
            (place->has_near && place->near.scheme == SL_ENDPOINT_RDMA)) {
            return sl_client_io_may_open(hub->options, SL_ENDPOINT_RDMA);
        }
    }
    return false;
}

static int take_buffers(struct sl_client_io *hub, uint32_t link_count)
{
    uint32_t count = link_count < SL_CLIENT_IO_BUFFERS_MAX ? link_count : SL_CLIENT_IO_BUFFERS_MAX;
    count *= may_use_rdma(hub) ? 2 : 1;
    int err = sl_pool_init(&hub->buffers, SL_LIMIT_FRAME_PAYLOAD_BYTES, count);
    hub->has_buffers = err == 0;
    return err;
}

/* What a device receives, it spreads over the queues of all hubs that have links: each must look at
 * its own, whether or not its shards are reached so. That it cannot is said where it is needed. */
static void share_devices(struct sl_client_io *hub)
{
    struct sl_transport *ignored;
    if (hub->options->uses_devices && links_of(hub) > 0) {
        sl_reactor_excuse_turn(hub->reactor);
        (void)sl_client_io_transport(hub, SL_ENDPOINT_DPDK, &ignored);
    }
}

void sl_client_io_connect(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    hub->links = call->links;
    hub->shard_count = call->shard_count;
    uint32_t link_count = links_of(hub);
    call->left = link_count + 1;
    call->payload_bytes_max = UINT32_MAX;
    call->counts = true;
    if (link_count > 0 && take_buffers(hub, link_count) != 0) {
        sl_control_op_fail(call, SL_ERR_NO_MEMORY, "no memory for receive buffers");
        sl_control_op_answer(call);
        return;
    }
    share_devices(hub);
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        sl_shard_conn_open(&hub->links[shard], call);
    }
    sl_control_op_answer_one(call);
}

/* Whom an answer comes from. */
struct asked {
    struct sl_control_op *call;
    struct sl_shard_conn *link;
};

/* True when the shard has done what it was asked for. */
static bool take_answer(struct asked *asked, int err, const char *reason)
{
    if (err != 0) {
        const char *name = asked->link->name;
        sl_control_op_fail(asked->call, err, "%s: %s", name, sl_control_op_reason(name, reason));
    }
    return err == 0;
}

static void finish_answer(struct asked *asked)
{
    struct sl_control_op *call = asked->call;
    free(asked);
    sl_control_op_answer_one(call);
}

/* Asks one shard; counted into call->left, and answered when it has. */
static void ask(struct sl_shard_conn *link, struct sl_control_op *call, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    bool down = sl_shard_conn_is_down(link);
    struct asked *asked = malloc(sizeof *asked);
    call->left++;
    if (asked == NULL || down) {
        sl_control_op_fail(call, down ? SL_ERR_CLOSED : SL_ERR_NO_MEMORY, "%s: %s", link->name,
                           down ? link->reason : "out of memory");
        free(asked);
        sl_control_op_answer_one(call);
        return;
    }
    *asked = (struct asked){.call = call, .link = link};
    sl_session_request(link->session, message, sl_client_io_time_left(link->hub, call->deadline_ns),
                       answer, asked);
}

static void table_opened(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct asked *asked = ctx;
    struct sl_control_op *call = asked->call;
    if (take_answer(asked, err, reason)) {
        if (answer->table_id != call->table_id) {
            sl_control_op_fail(call, SL_ERR_PROTOCOL, "%s: it opened another table",
                               asked->link->name);
        } else if (sl_client_io_note_table(call->hub, call->table_id, call->spec) != 0) {
            sl_control_op_fail(call, SL_ERR_NO_MEMORY, "no memory for one more table");
        }
    }
    finish_answer(asked);
}

void sl_client_io_table_open(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    call->left = 1;
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = *call->spec;
        message.table_open.table_id = call->table_id;
        ask(&hub->links[shard], call, &message, table_opened);
    }
    sl_control_op_answer_one(call);
}

int sl_client_io_note_table(struct sl_client_io *hub, uint32_t id, const struct sl_table_spec *spec)
{
    for (uint32_t i = 0; i < hub->table_count; i++) {
        if (hub->tables[i].id == id) {
            return 0;
        }
    }
    if (hub->table_count == hub->table_capacity) {
        uint32_t capacity = hub->table_capacity == 0 ? 8 : 2 * hub->table_capacity;
        struct sl_client_io_table *grown = realloc(hub->tables, capacity * sizeof *grown);
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        hub->tables = grown;
        hub->table_capacity = capacity;
    }
    hub->tables[hub->table_count++] = (struct sl_client_io_table){.id = id, .spec = *spec};
    return 0;
}

/* ---- The clock to begin with */

static void joined(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct asked *asked = ctx;
    if (take_answer(asked, err, reason)) {
        struct sl_shard_conn *link = asked->link;
        link->counts = answer->clock == asked->call->clock_asked;
        link->clock_told = answer->clock;
        sl_control_op_take_clock(asked->call, link->counts, answer->clock);
    }
    finish_answer(asked);
}

void sl_client_io_join(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    call->left = 1;
    call->counts = true;
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        struct sl_message message = {.kind = SL_MESSAGE_JOIN, .clock = call->clock_asked};
        ask(&hub->links[shard], call, &message, joined);
    }
    sl_control_op_answer_one(call);
}

void sl_client_io_begin(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        sl_shard_conn_begin(&hub->links[shard], call->clock_asked);
    }
    sl_control_op_answer(call);
}

void sl_client_io_stats(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    *call->stats = (struct sl_client_stats){
        .requests = hub->stats.requests,
        .replies = hub->stats.replies,
        .failures = hub->stats.failures,
    };
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (hub->transports[scheme] != NULL) {
            struct sl_transport_stats stats;
            sl_transport_get_stats(hub->transports[scheme], &stats);
            call->stats->bytes_sent += stats.bytes_sent;
            call->stats->bytes_received += stats.bytes_received;
        }
    }
    sl_control_op_answer(call);
}

/* ---- The end */

static uint32_t connections_left(const struct sl_client_io *hub)
{
    uint32_t connections = 0;
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (hub->transports[scheme] != NULL) {
            struct sl_transport_stats stats;
            sl_transport_get_stats(hub->transports[scheme], &stats);
            connections += stats.connections;
        }
    }
    return connections;
}

static void finish_closing(struct sl_client_io *hub)
{
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if (hub->transports[scheme] != NULL) {
            sl_transport_close(&hub->transports[scheme]);
        }
    }
    if (hub->has_outbox) {
        sl_outbox_fini(&hub->outbox);
    }
    if (hub->has_shared_outbox) {
        sl_outbox_fini(&hub->shared_outbox);
    }
    if (hub->has_buffers) {
        sl_pool_fini(&hub->buffers);
    }
    free(hub->tables);
    sl_control_op_answer(hub->closing);
}

/* The transport sends the goodbyes before it closes; nobody tells when the last is closed. */
static void look_if_closed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *hub = HUB_OF(timer, closing_timer);
    bool is_quiet = connections_left(hub) == 0 || now_ns >= hub->closing_until_ns;
    if (is_quiet && hub->moves_out == 0) {
        finish_closing(hub);
    } else {
        sl_timer_arm(sl_reactor_timers(hub->reactor), timer, now_ns + CLOSE_LOOK_NS);
    }
}

void sl_client_io_close(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    for (uint32_t shard = hub->first_shard; shard < hub->shard_count; shard += hub->shard_step) {
        sl_shard_conn_close(&hub->links[shard]);
    }
    sl_control_leave(hub);
    if (sl_timer_armed(&hub->retry)) {
        sl_timer_disarm(sl_reactor_timers(hub->reactor), &hub->retry);
    }
    uint64_t now_ns = sl_reactor_now_ns(hub->reactor);
    hub->closing = call;
    hub->closing_until_ns = now_ns + CLOSE_TIMEOUT_NS;
    hub->closing_timer = (struct sl_timer){.run = look_if_closed};
    look_if_closed(&hub->closing_timer, now_ns);
}
