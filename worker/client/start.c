#include "worker/client/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/reason.h"
#include "net/dpdk/device_list.h"
#include "worker/client/client_buffer.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/client_metrics.h"
#include "worker/client/control.h"
#include "worker/client/endpoint_list.h"
#include "worker/client/error_feedback.h"
#include "worker/client/failover.h"
#include "worker/client/send_arena.h"
#include "worker/client/shard_conn_connect.h"
#include "worker/client/step_internal.h"

#define START_TIMEOUT_MS 60000
#define CLOSE_TIMEOUT_NS (2 * SL_CLOCK_NS_PER_S)
#define ABORT_TIMEOUT_NS (50 * SL_CLOCK_NS_PER_MS) /* if the start failed or was interrupted */

/* Size of the send arena. Beyond it messages use the heap and are copied. Unused pages take no
 * memory. */
#define SEND_ARENA_BYTES ((size_t)256 << 20)

/* Control operations on all client_ios */

static void call_io(struct sl_client *client, struct sl_port *port, uint32_t index,
                    void (*run)(struct sl_control_op *op))
{
    struct sl_control_op *op = &client->ops[index];
    *op = (struct sl_control_op){
        .io = &client->ios[index],
        .run = run,
        .deadline_ns = client->deadline_ns,
        .cluster = &client->cluster,
        .conns = client->conns,
        .shard_count = client->shard_count,
        .clock.asked = client->start_clock,
    };
    sl_control_op_post(op, port);
}

static void call_ios(struct sl_client *client, struct sl_port *port,
                     void (*run)(struct sl_control_op *op))
{
    client->op_count = client->io_count;
    for (uint32_t i = 0; i < client->io_count; i++) {
        call_io(client, port, i, run);
    }
}

/* Returns AGAIN until the operations of the stage are done, then their first error, reported. */
static int ops_result(const struct sl_client *client)
{
    const struct sl_control_op *failed;
    int err = sl_control_op_results(client->ops, client->op_count, &failed);
    if (err != 0 && err != SL_ERR_AGAIN) {
        return sl_reason_report(err, "client: cannot start: %s", failed->text);
    }
    return err;
}

/* Options */

static bool start_is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static bool is_in_range(const char *name, uint32_t value, uint32_t min, uint32_t max)
{
    bool is_inside = value >= min && value <= max;
    if (!is_inside) {
        sl_reason_set(sl_reason_last(), "client: %s %u is not in %u to %u", name, value, min, max);
    }
    return is_inside;
}

static int check_security(const struct sl_client_options *options)
{
    if (options->secret != NULL && (options->secret_bytes < SL_SECRET_BYTES_MIN ||
                                    options->secret_bytes > SL_SECRET_BYTES_MAX)) {
        return sl_reason_report(SL_ERR_INVALID, "client: a secret of %zu bytes: accepts %d to %d",
                                options->secret_bytes, SL_SECRET_BYTES_MIN, SL_SECRET_BYTES_MAX);
    }
    bool all = start_is_given(options->tls_certificate) && start_is_given(options->tls_key) &&
               start_is_given(options->tls_authority);
    bool none = options->tls_certificate == NULL && options->tls_key == NULL &&
                options->tls_authority == NULL;
    if (!all && !none) {
        return sl_reason_report(
            SL_ERR_INVALID,
            "client: tls_certificate, tls_key and tls_authority: all three or none");
    }
    return 0;
}

static int check_options(const struct sl_client_options *options,
                         const struct sl_client_setup *setup)
{
    if (options->task_index < SL_CLIENT_OPERATOR || options->task_index >= SL_LIMIT_WORKERS) {
        return sl_reason_report(SL_ERR_INVALID, "client: task_index %d is not in %d to %d",
                                options->task_index, SL_CLIENT_OPERATOR, SL_LIMIT_WORKERS - 1);
    }
    if (!is_in_range("server_count", options->server_count, 0, SL_LIMIT_PS) ||
        !is_in_range("worker_count", options->worker_count, 0, SL_LIMIT_WORKERS) ||
        !is_in_range("reactor_count", setup->reactor_count, setup->control_apart ? 2 : 1,
                     SL_LIMIT_REACTORS) ||
        !is_in_range("protocol", options->protocol, SL_PROTOCOL_BATCHED, SL_PROTOCOL_PER_TABLE)) {
        return SL_ERR_INVALID;
    }
    if (options->congestion_control != NULL &&
        strlen(options->congestion_control) >=
            sizeof((struct sl_client_io_options *)0)->congestion_control) {
        return sl_reason_report(SL_ERR_INVALID,
                                "client: congestion_control %s: accepts names of up to 15 bytes",
                                options->congestion_control);
    }
    if (options->rdma_device != NULL &&
        strlen(options->rdma_device) >= sizeof((struct sl_client_io_options *)0)->rdma_device) {
        return sl_reason_report(SL_ERR_INVALID,
                                "client: rdma_device: accepts names of up to 255 bytes in all");
    }
    return check_security(options);
}

static int copy_devices(struct sl_client_io_options *to, const struct sl_client_options *options)
{
    struct sl_reason reason;
    int err = start_is_given(options->dpdk_device)
                  ? sl_dpdk_device_list_create(options->dpdk_device, NULL, &to->devices, &reason)
                  : 0;
    if (err != 0) {
        sl_reason_set(sl_reason_last(), "client: dpdk_device: %s", reason.text);
    }
    to->transport.dpdk = sl_dpdk_device_list_options(to->devices);
    return err;
}

static int copy_coordinator(struct sl_client_io_options *to,
                            const struct sl_client_options *options)
{
    struct sl_reason reason = {.text = "not given"};
    int err = options->coordinator == NULL
                  ? SL_ERR_INVALID
                  : sl_endpoint_list_parse(options->coordinator, &to->coordinator, &to->others,
                                           &to->other_count, &reason);
    if (err != 0) {
        sl_reason_set(sl_reason_last(), "client: coordinator: %s", reason.text);
    }
    return err;
}

static int copy_security(struct sl_client_io_options *to, const struct sl_client_options *options)
{
    if (options->secret != NULL) {
        to->secret.byte_count = (uint32_t)options->secret_bytes;
        memcpy(to->secret.bytes, options->secret, options->secret_bytes);
    }
    if (options->tls_certificate == NULL) {
        return 0;
    }
    const struct {
        const char *from, **to;
    } texts[] = {{options->tls_certificate, &to->tls.certificate},
                 {options->tls_key, &to->tls.key},
                 {options->tls_authority, &to->tls.authority},
                 {options->tls_peer_name, &to->tls.peer_name}};
    to->transport.tls = &to->tls;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].from != NULL && (*texts[i].to = strdup(texts[i].from)) == NULL) {
            return sl_reason_report(SL_ERR_NO_MEMORY, "client: no memory");
        }
    }
    return 0;
}

static void free_owned(struct sl_client_io_options *options)
{
    free((char *)(uintptr_t)options->tls.certificate);
    free((char *)(uintptr_t)options->tls.key);
    free((char *)(uintptr_t)options->tls.authority);
    free((char *)(uintptr_t)options->tls.peer_name);
    free(options->others);
    sl_dpdk_device_list_destroy(&options->devices);
    explicit_bzero(&options->secret, sizeof options->secret);
}

static void fill_io_options(struct sl_client *client, const struct sl_client_options *options,
                            const struct sl_client_setup *setup)
{
    bool any_task = options->task_index == SL_CLIENT_ANY_TASK;
    bool worker = options->task_index >= 0 || any_task;
    struct sl_client_io_options *to = &client->io_options;
    to->find_transport = setup->find_transport;
    to->transport.medium = setup->medium;
    if (options->congestion_control != NULL) {
        snprintf(to->congestion_control, sizeof to->congestion_control, "%s",
                 options->congestion_control);
        to->transport.congestion_control = to->congestion_control;
    }
    if (start_is_given(options->rdma_device)) {
        snprintf(to->rdma_device, sizeof to->rdma_device, "%s", options->rdma_device);
        to->transport.rdma_device = to->rdma_device;
    }
    to->transport.has_rdma_gid_index = options->has_rdma_gid_index;
    to->transport.rdma_gid_index = options->rdma_gid_index;
    to->disable_rdma = options->disable_rdma;
    if (setup->host != NULL && !options->disable_shm) {
        snprintf(to->host, sizeof to->host, "%s", setup->host);
    }
    to->ps_count = options->server_count;
    to->worker_count = options->worker_count;
    to->metrics = &client->metrics;
    to->inbox = setup->place.inbox;
    to->heartbeat_ns = options->heartbeat_ms * SL_CLOCK_NS_PER_MS;
    to->hello = (struct sl_message_hello){
        .role = worker ? SL_MESSAGE_ROLE_WORKER : SL_MESSAGE_ROLE_CLIENT,
        .task_index = worker && !any_task ? (uint32_t)options->task_index : 0,
        .any_task = any_task,
        .client_id = setup->client_id,
        .checksum = options->checksum,
        .join_running = options->join_running,
        .beside = setup->place.beside,
        .secret = options->task_index == SL_CLIENT_OPERATOR ? SL_MESSAGE_SECRET_OPERATOR
                                                            : SL_MESSAGE_SECRET_CLUSTER,
    };
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&to->coordinator, text, sizeof text);
    snprintf(to->coordinator_name, sizeof to->coordinator_name, "coordinator (%s)", text);
}

static int take_ios(struct sl_client *client, const struct sl_client_setup *setup)
{
    client->io_count = setup->reactor_count;
    client->first_io = setup->control_apart ? 1 : 0;
    client->ios = calloc(client->io_count, sizeof *client->ios);
    client->ops = calloc(client->io_count, sizeof *client->ops);
    if (client->ios == NULL || client->ops == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "client: no memory");
    }
    for (uint32_t i = 0; i < client->io_count; i++) {
        client->ios[i].reactor = setup->reactors[i];
        client->ios[i].index = i;
        client->ios[i].io_count = client->io_count;
        client->ios[i].options = &client->io_options;
    }
    sl_client_metrics_init(client);
    return 0;
}

int sl_start_begin(const struct sl_client_options *options, const struct sl_client_setup *setup,
                   struct sl_client **out)
{
    int err = check_options(options, setup);
    if (err != 0) {
        return err;
    }
    struct sl_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "client: no memory");
    }
    client->protocol = options->protocol;
    client->task_index = options->task_index == SL_CLIENT_OPERATOR ? -1 : options->task_index;
    client->interrupt.is_set = options->interrupted;
    client->interrupt.ctx = options->interrupted_ctx;
    client->clock = sl_reactor_clock(setup->reactors[0]);
    uint32_t timeout_ms =
        options->start_timeout_ms == 0 ? START_TIMEOUT_MS : options->start_timeout_ms;
    client->deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS;
    struct sl_port *port;
    err = copy_coordinator(&client->io_options, options);
    if (err == 0) {
        fill_io_options(client, options, setup);
        err = copy_security(&client->io_options, options);
    }
    err = err != 0 ? err : copy_devices(&client->io_options, options);
    if (err == 0) {
        err = sl_port_set_create(setup->reactors, setup->reactor_count, setup->driven,
                                 sizeof(struct sl_thread_ctx), &client->ports);
    }
    if (err != 0) {
        free_owned(&client->io_options);
        free(client);
        return err;
    }
    sl_metrics_init(&client->metrics);
    err = take_ios(client, setup);
    err = err != 0 ? err : sl_port_here(client->ports, &port);
    if (err != 0) {
        sl_start_free(&client);
        return err;
    }
    client->stage = SL_CLIENT_STARTING;
    call_ios(client, port, sl_client_io_start);
    *out = client;
    return 0;
}

/* The stages */

/* Returns the number of reactors of the servers before this task; UINT32_MAX: of all. */
static uint32_t count_reactors(const struct sl_message_cluster *cluster, uint32_t before)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cluster->ps_count && cluster->ps[i].task_index < before; i++) {
        const struct sl_message_ps *ps = &cluster->ps[i];
        count += ps->reactor_count != 0 ? ps->reactor_count : ps->shard_count;
    }
    return count;
}

/* The shards of a reactor are on one client_io. */
static int fill_conn(struct sl_client *client, struct sl_shard_conn *conn)
{
    struct sl_reason reason;
    conn->shard = (uint32_t)(conn - client->conns);
    int err = sl_shard_conn_find_address(&client->io_options, &client->cluster, conn->shard,
                                         &conn->address, &reason);
    if (err != 0) {
        return sl_reason_report(err, "client: data endpoint of ps/%u: %s",
                                client->cluster.placements[conn->shard].primary, reason.text);
    }
    const uint32_t reactor =
        count_reactors(&client->cluster, conn->address.server_task) + conn->address.reactor;
    conn->io = &client->ios[client->first_io + reactor % (client->io_count - client->first_io)];
    sl_shard_conn_set_name(conn);
    return 0;
}

/* Logs once which offered preferred paths this client cannot use. */
static void log_unusable_paths(const struct sl_client *client)
{
    const struct sl_message_cluster *cluster = &client->cluster;
    bool offered[SL_CLIENT_IO_SCHEMES] = {false};
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        struct sl_endpoint bypass;
        if (cluster->ps[i].bypass_endpoint[0] != '\0' &&
            sl_endpoint_parse(cluster->ps[i].bypass_endpoint, &bypass, NULL) == 0) {
            offered[bypass.scheme] = true;
        }
    }
    const bool has_tls = client->io_options.transport.tls != NULL;
    if (has_tls && (offered[SL_ENDPOINT_RDMA] || offered[SL_ENDPOINT_DPDK])) {
        sl_log_info("client: not over %s, which has no TLS; over TCP",
                    offered[SL_ENDPOINT_RDMA] ? "RDMA" : "DPDK");
    } else if (offered[SL_ENDPOINT_DPDK] && client->io_options.devices == NULL) {
        sl_log_info("client: not over DPDK: this process was given no --dpdk-device; over TCP");
    }
}

/* Returns whether some shard may be reached over the scheme. */
static bool reaches_over(const struct sl_client *client, enum sl_endpoint_scheme scheme)
{
    for (uint32_t i = 0; i < client->shard_count; i++) {
        const struct sl_reactor_address *address = &client->conns[i].address;
        if (address->endpoint.scheme == scheme ||
            (address->has_preferred && address->preferred.scheme == scheme)) {
            return true;
        }
    }
    return false;
}

/* Each client_io with shards gets its own queue of every device; the others get none. */
static void share_devices(struct sl_client *client)
{
    struct sl_client_io_options *options = &client->io_options;
    const uint32_t ios = client->io_count - client->first_io;
    const uint32_t reactors = count_reactors(&client->cluster, UINT32_MAX);
    if (options->devices == NULL) {
        return;
    }
    options->uses_devices = reaches_over(client, SL_ENDPOINT_DPDK);
    sl_dpdk_device_list_share(options->devices, client->first_io,
                              (uint16_t)(ios < reactors ? ios : reactors));
}

/* Sets log_owner. Iterates downwards, so that the first shard of each scheme wins. */
static void choose_log_owners(struct sl_client *client)
{
    for (uint32_t i = client->shard_count; i > 0; i--) {
        const struct sl_reactor_address *address = &client->conns[i - 1].address;
        if (address->has_preferred) {
            client->io_options.log_owner[address->preferred.scheme] =
                client->conns[i - 1].io->index;
        }
    }
}

/* Creates the send arena if some shard may be reached over something else than TCP: peers on this
 * machine, or the device, can read it. */
static void make_send_arena(struct sl_client *client)
{
    bool is_wanted = false;
    for (enum sl_endpoint_scheme scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        is_wanted = is_wanted || (scheme != SL_ENDPOINT_TCP && reaches_over(client, scheme) &&
                                  sl_client_io_may_open(&client->io_options, scheme));
    }
    int err =
        is_wanted ? sl_send_arena_create(SEND_ARENA_BYTES, &client->io_options.send_arena) : 0;
    if (err != 0) {
        sl_log_warn("client: what is sent is not in shared memory: %s", sl_err_name(err));
    }
}

/* The cluster is known: makes a connection for every shard. */
static int make_conns(struct sl_client *client)
{
    const uint32_t shard_count = client->cluster.shard_count;
    client->conns = calloc(shard_count, sizeof *client->conns);
    if (client->conns == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "client: no memory");
    }
    for (uint32_t shard = 0; shard < shard_count; shard++) {
        int err = fill_conn(client, &client->conns[shard]);
        if (err != 0) {
            return err;
        }
    }
    log_unusable_paths(client);
    client->shard_count = shard_count;
    choose_log_owners(client);
    share_devices(client);
    make_send_arena(client);
    return 0;
}

/* Called before a client_io sends a hello to a shard; the coordinator's session has its own
 * copy. */
static void take_task(struct sl_client *client)
{
    struct sl_message_hello *hello = &client->io_options.hello;
    if (hello->any_task) {
        hello->any_task = false;
        hello->task_index = client->ops[0].task_index;
        client->task_index = (int32_t)hello->task_index;
    }
}

static void connected(struct sl_client *client)
{
    client->payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    for (uint32_t i = 0; i < client->io_count; i++) {
        if (client->ops[i].payload_bytes_max < client->payload_bytes_max) {
            client->payload_bytes_max = client->ops[i].payload_bytes_max & ~7U;
        }
        client->uses_tcp |= client->ops[i].uses_tcp;
    }
}

/* Finds the largest clock of the shards' answers. Returns whether all shards count this worker from
 * that clock on, or it had finished. */
static bool clocks_agree(struct sl_client *client)
{
    bool counts = true;
    uint32_t clock = 0;
    for (uint32_t i = 0; i < client->io_count; i++) {
        counts = counts && client->ops[i].clock.counts;
        clock = client->ops[i].clock.largest > clock ? client->ops[i].clock.largest : clock;
    }
    bool agree = counts && clock == client->start_clock;
    client->start_clock = clock;
    return agree || clock == SL_REQUEST_CLOCK_FINISHED;
}

/* Asks every shard for the largest clock answered so far, round by round, until all agree. */
static int agree_on_clock(struct sl_client *client, struct sl_port *port)
{
    if (client->task_index < 0) {
        client->stage = SL_CLIENT_RUNNING;
        return 0;
    }
    if (clocks_agree(client)) {
        client->stage = SL_CLIENT_BEGINNING;
        call_ios(client, port, sl_client_io_begin);
        return SL_ERR_AGAIN;
    }
    if (sl_clock_now_ns(client->clock) >= client->deadline_ns) {
        return sl_reason_report(
            SL_ERR_DEADLINE,
            "client: cannot start: the shards do not agree on a clock for this worker");
    }
    client->stage = SL_CLIENT_AGREEING;
    call_ios(client, port, sl_client_io_join);
    return SL_ERR_AGAIN;
}

/* The operations of this stage succeeded. Returns AGAIN if another stage follows. */
static int next_stage(struct sl_client *client, struct sl_port *port)
{
    int err;
    switch (client->stage) {
    case SL_CLIENT_STARTING:
        client->stage = SL_CLIENT_JOINING;
        client->op_count = 1;
        call_io(client, port, 0, sl_control_join);
        return SL_ERR_AGAIN;
    case SL_CLIENT_JOINING:
        take_task(client);
        err = make_conns(client);
        if (err != 0) {
            return err;
        }
        client->stage = SL_CLIENT_CONNECTING;
        call_ios(client, port, sl_client_io_connect);
        return SL_ERR_AGAIN;
    case SL_CLIENT_CONNECTING:
        connected(client);
        return agree_on_clock(client, port);
    case SL_CLIENT_AGREEING:
        return agree_on_clock(client, port);
    case SL_CLIENT_BEGINNING:
        if (client->start_clock == SL_REQUEST_CLOCK_FINISHED) {
            sl_log_info("client: worker/%d had finished: its clock no longer counts",
                        client->task_index);
        } else if (client->start_clock > 0) {
            sl_log_info("client: worker/%d starts at iteration %u", client->task_index,
                        client->start_clock);
        }
        client->stage = SL_CLIENT_RUNNING;
        return 0;
    default:
        return 0;
    }
}

int sl_start_poll(struct sl_client *client)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    if (err != 0) {
        return err;
    }
    sl_port_drain(port);
    err = ops_result(client);
    return err == 0 ? next_stage(client, port) : err;
}

/* Closing */

void sl_start_close_begin(struct sl_client *client)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    sl_assert(err == 0);
    client->deadline_ns =
        sl_clock_now_ns(client->clock) +
        (client->stage == SL_CLIENT_RUNNING ? CLOSE_TIMEOUT_NS : ABORT_TIMEOUT_NS);
    client->stage = SL_CLIENT_CLOSING;
    call_ios(client, port, sl_client_io_close);
}

bool sl_start_close_poll(struct sl_client *client)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    sl_assert(err == 0);
    sl_port_drain(port);
    if (ops_result(client) == SL_ERR_AGAIN) {
        return false;
    }
    client->stage = SL_CLIENT_CLOSED;
    return true;
}

void sl_start_free(struct sl_client **client)
{
    struct sl_client *closing = *client;
    *client = NULL;
    sl_port_set_destroy(&closing->ports, sl_step_free_all);
    sl_send_arena_destroy(&closing->io_options.send_arena);
    sl_client_buffer_destroy_all(closing);
    for (uint32_t id = 0; id < SL_LIMIT_TABLES; id++) {
        if (closing->tables[id] != NULL) {
            sl_error_feedback_destroy(&closing->tables[id]->feedback);
        }
        free(closing->tables[id]);
    }
    sl_failover_free(&closing->cluster);
    free(closing->conns);
    free(closing->ops);
    free(closing->ios);
    sl_metrics_fini(&closing->metrics);
    free_owned(&closing->io_options);
    free(closing);
}
