#include <starling.h>
#include <starling_rows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/reason.h"
#include "core/struct_size.h"
#include "reactor/topology.h"
#include "worker/client/client_internal.h"
#include "worker/client/control.h"
#include "worker/client/start.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_opening.h"
#include "worker/client/wait.h"

#define SPIN_US           20
#define FINISH_TIMEOUT_MS 2000

/* Reactors */

/* With manual_progress: one reactor for the coordinator, one driven by the caller. */
enum { CONTROL = 0, DRIVEN = 1, DRIVEN_CLIENT_REACTORS = 2 };

static int create_reactor(const struct sl_client_options *options, uint32_t index,
                          struct sl_reactor **out)
{
    bool is_control = options->manual_progress && index == CONTROL;
    struct sl_reactor_options reactor = {
        .index = index,
        .core = -1,
        .polling = options->polling && !is_control,
        .spin_us = is_control ? 0 : SPIN_US,
    };
    snprintf(reactor.name, sizeof reactor.name, "client.%u", index % SL_LIMIT_REACTORS);
    if (options->pin_cores && !options->manual_progress &&
        sl_topology_core_for(index, true, &reactor.core) != 0) {
        sl_log_warn("client: reactor %u: no core left to pin it to", index);
        reactor.core = -1;
    }
    return sl_reactor_create(&reactor, out);
}

static void stop_reactors(struct sl_reactor **reactors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_reactor_stop(reactors[i]);
        sl_reactor_join(reactors[i]);
        sl_reactor_detach(reactors[i]);
    }
}

static void client_destroy_reactors(struct sl_reactor **reactors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (reactors[i] != NULL) {
            sl_reactor_destroy(&reactors[i]);
        }
    }
    free(reactors);
}

static int create_reactors(const struct sl_client_options *options, uint32_t count,
                           struct sl_reactor **reactors)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = create_reactor(options, i, &reactors[i]);
    }
    return err == 0 ? sl_reactor_connect(reactors, count) : err;
}

static int start_reactor(const struct sl_client_options *options, uint32_t index,
                         struct sl_reactor *reactor)
{
    return options->manual_progress && index == DRIVEN ? sl_reactor_attach(reactor)
                                                       : sl_reactor_start(reactor, NULL, NULL);
}

static int start_reactors(const struct sl_client_options *options, uint32_t count,
                          struct sl_reactor ***out)
{
    struct sl_reactor **reactors = calloc(count, sizeof(struct sl_reactor *));
    if (reactors == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "client: no memory for %u reactors", count);
    }
    int err = create_reactors(options, count, reactors);
    uint32_t started = 0;
    while (err == 0 && started < count) {
        err = start_reactor(options, started, reactors[started]);
        started += err == 0 ? 1 : 0;
    }
    if (err != 0) {
        stop_reactors(reactors, started);
        client_destroy_reactors(reactors, count);
        return sl_reason_report(err, "client: cannot start reactor %u: %s", started,
                                sl_err_name(err));
    }
    *out = reactors;
    return 0;
}

/* Creation and destruction */

static struct sl_port *port_of_caller(struct sl_client *client)
{
    struct sl_port *port;
    return sl_port_here(client->ports, &port) == 0 ? port : NULL;
}

static void client_close_and_free(struct sl_client **client)
{
    struct sl_client *closing = *client;
    struct sl_port *port = port_of_caller(closing);
    sl_assert(port != NULL); /* out of memory for a thread's first call */
    sl_start_close_begin(closing);
    while (!sl_start_close_poll(closing)) {
        sl_port_wait(port);
    }
    struct sl_reactor **reactors = closing->own_reactors;
    uint32_t reactor_count = closing->own_reactor_count;
    stop_reactors(reactors, reactor_count);
    sl_start_free(client);
    client_destroy_reactors(reactors, reactor_count);
}

static int wait_for_start(struct sl_client *client)
{
    struct sl_port *port = port_of_caller(client);
    int err;
    while ((err = sl_start_poll(client)) == SL_ERR_AGAIN) {
        err = sl_wait_ops(client, port, client->ops, client->op_count);
        if (err != 0) {
            return sl_reason_report(err, "client: interrupted");
        }
    }
    return err;
}

static int create(const struct sl_client_options *options, const struct sl_client_place *place,
                  struct sl_client **out)
{
    uint32_t count = options->reactor_count == 0 ? 1 : options->reactor_count;
    if (count > SL_LIMIT_REACTORS || (options->manual_progress && count > 1)) {
        return sl_reason_report(SL_ERR_INVALID, "client: reactor_count %u: at most %d", count,
                                options->manual_progress ? 1 : SL_LIMIT_REACTORS);
    }
    count = options->manual_progress ? DRIVEN_CLIENT_REACTORS : count;
    char host[SL_SHM_HOST_BYTES];
    sl_shm_host(host);
    struct sl_client_setup setup = {
        .reactor_count = count, .find_transport = sl_builtin_find, .host = host, .place = *place};
    if (getrandom(&setup.client_id, sizeof setup.client_id, 0) != sizeof setup.client_id) {
        return sl_reason_report(SL_ERR_IO, "client: the system gives no random number");
    }
    struct sl_reactor **reactors;
    int err = start_reactors(options, count, &reactors);
    if (err != 0) {
        return err;
    }
    setup.reactors = reactors;
    setup.control_apart = options->manual_progress;
    setup.driven = options->manual_progress ? reactors[DRIVEN] : NULL;
    struct sl_client *client;
    err = sl_start_begin(options, &setup, &client);
    if (err != 0) {
        stop_reactors(reactors, count);
        client_destroy_reactors(reactors, count);
        return err;
    }
    client->own_reactors = reactors;
    client->own_reactor_count = count;
    err = wait_for_start(client);
    if (err != 0) {
        client_close_and_free(&client);
        return err;
    }
    *out = client;
    return 0;
}

int sl_client_create(const struct sl_client_options *options, struct sl_client **out)
{
    return sl_client_create_at(options, &(struct sl_client_place){0}, out);
}

int sl_client_create_at(const struct sl_client_options *options,
                        const struct sl_client_place *place, struct sl_client **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    struct sl_reason reason;
    struct sl_client_options own;
    int err = sl_struct_size_read(options, &own, sizeof own, "SL_CLIENT_OPTIONS_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "client: %s", reason.text);
    }
    return create(&own, place, out);
}

/* Sends a finish, so that no other worker waits for this clock. */
static void finish_clock(struct sl_client *client)
{
    struct sl_step *step;
    if (sl_step_begin(client, 0, &step) != 0) {
        return;
    }
    int err = sl_step_finish(step);
    err = err != 0 ? err : sl_step_submit(step, FINISH_TIMEOUT_MS);
    err = err != 0 ? err : sl_step_wait_through(step);
    if (err != 0) {
        sl_log_warn("client: a shard was not told that this worker has finished: %s",
                    sl_step_error(step)[0] == '\0' ? sl_err_name(err) : sl_step_error(step));
    }
    sl_step_destroy(&step);
}

/* In a forked child: leaves the memory as it is, since the parent's threads were changing it. */
static bool drop_forked(struct sl_client **client)
{
    const bool is_forked = sl_port_set_is_forked((*client)->ports);
    *client = is_forked ? NULL : *client;
    return is_forked;
}

void sl_client_destroy(struct sl_client **client)
{
    sl_assert(client != NULL);
    if (*client == NULL || drop_forked(client)) {
        return;
    }
    bool counts = (*client)->task_index >= 0 && (*client)->start_clock != SL_REQUEST_CLOCK_FINISHED;
    if (counts && !(*client)->finished) {
        finish_clock(*client);
    }
    client_close_and_free(client);
}

void sl_client_leave(struct sl_client **client)
{
    sl_assert(client != NULL);
    if (*client != NULL && !drop_forked(client)) {
        client_close_and_free(client);
    }
}

/* Control */

static int client_read_spec(const struct sl_table_spec *spec, struct sl_table_spec *own)
{
    sl_assert(spec != NULL);
    struct sl_reason reason;
    int err = sl_struct_size_read(spec, own, sizeof *own, "SL_TABLE_SPEC_INIT", &reason);
    return err == 0 ? 0 : sl_reason_report(err, "table: %s", reason.text);
}

int sl_client_table_check(const struct sl_table_spec *spec)
{
    struct sl_table_spec own;
    const int err = client_read_spec(spec, &own);
    return err == 0 ? sl_table_opening_check(&own) : err;
}

int sl_client_table_open(struct sl_client *client, const struct sl_table_spec *spec,
                         uint32_t timeout_ms, struct sl_table **out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    struct sl_table_spec own;
    int err = client_read_spec(spec, &own);
    if (err != 0) {
        return err;
    }
    struct sl_table_opening opening;
    err = sl_table_opening_begin(&opening, client, &own, timeout_ms);
    if (err != 0) {
        return err;
    }
    struct sl_port *port = port_of_caller(client);
    while ((err = sl_table_opening_poll(&opening, out)) == SL_ERR_AGAIN) {
        err = sl_wait_ops(client, port, opening.ops, opening.op_count);
        if (err != 0) {
            free(opening.shards);
            return sl_reason_report(err, "table %s: interrupted", own.name);
        }
    }
    return err;
}

/* Runs an operation; reports its error after `what`. */
static int run_op(struct sl_client *client, struct sl_port *port, struct sl_control_op *op,
                  const char *what)
{
    sl_control_op_post(op, port);
    int err = sl_wait_ops(client, port, op, 1);
    if (err != 0) {
        return sl_reason_report(err, "%s: interrupted", what);
    }
    return op->err == 0 ? 0 : sl_reason_report(op->err, "%s: %s", what, op->text);
}

int sl_client_ask_coordinator(struct sl_client *client, struct sl_control_op *op,
                              uint32_t timeout_ms, const char *what)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    if (err != 0) {
        return err;
    }
    op->io = &client->ios[0];
    op->deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS;
    return run_op(client, port, op, what);
}

int sl_client_barrier(struct sl_client *client, const char *name, uint32_t count,
                      uint32_t timeout_ms)
{
    sl_assert(client != NULL);
    sl_assert(name != NULL);
    size_t name_bytes = strlen(name);
    if (name_bytes == 0 || name_bytes >= SL_MESSAGE_NAME_BYTES) {
        return sl_reason_report(SL_ERR_INVALID, "barrier %.*s: accepts names of 1 to %d bytes",
                                SL_MESSAGE_NAME_BYTES, name, SL_MESSAGE_NAME_BYTES - 1);
    }
    char what[SL_MESSAGE_NAME_BYTES + 16];
    snprintf(what, sizeof what, "barrier %s", name);
    struct sl_control_op op = {.run = sl_control_barrier, .name = name, .count = count};
    return sl_client_ask_coordinator(client, &op, timeout_ms, what);
}

int sl_client_checkpoint(struct sl_client *client, uint32_t timeout_ms, uint64_t *number)
{
    sl_assert(client != NULL);
    sl_assert(number != NULL);
    struct sl_control_op op = {.run = sl_control_checkpoint};
    int err = sl_client_ask_coordinator(client, &op, timeout_ms, "no checkpoint");
    if (err == 0) {
        *number = op.number;
    }
    return err;
}

static int sum_table(struct sl_client *client, struct sl_table *table, uint32_t timeout_ms,
                     struct sl_table_info *sum)
{
    sl_assert(client != NULL);
    sl_assert(table != NULL);
    sl_assert(table->client == client);
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    const uint64_t deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS;
    char what[SL_TABLE_NAME_BYTES + 32];
    snprintf(what, sizeof what, "statistics of table %s", table->spec.name);
    for (uint32_t i = 0; err == 0 && i < client->io_count; i++) {
        struct sl_control_op op = {.io = &client->ios[i],
                                   .run = sl_client_io_table_stats,
                                   .deadline_ns = deadline_ns,
                                   .name = table->spec.name,
                                   .sum = sum};
        err = run_op(client, port, &op, what);
    }
    return err;
}

int sl_client_table_stats(struct sl_client *client, struct sl_table *table, uint32_t timeout_ms,
                          struct sl_table_stats *out)
{
    sl_assert(out != NULL);
    struct sl_table_info sum = SL_TABLE_INFO_INIT;
    const int err = sum_table(client, table, timeout_ms, &sum);
    if (err == 0) {
        *out = (struct sl_table_stats){.rows = sum.rows,
                                       .bytes = sum.bytes,
                                       .pulled_rows = sum.pulled_rows,
                                       .pushed_rows = sum.pushed_rows,
                                       .steps = sum.steps};
    }
    return err;
}

int sl_client_table_info(struct sl_client *client, struct sl_table *table, uint32_t timeout_ms,
                         struct sl_table_info *out)
{
    sl_assert(out != NULL);
    struct sl_reason reason;
    struct sl_table_info sum = {0};
    int err = sl_struct_size_read(out, &sum, sizeof sum, "SL_TABLE_INFO_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "statistics of a table: %s", reason.text);
    }
    sum = (struct sl_table_info)SL_TABLE_INFO_INIT;
    err = sum_table(client, table, timeout_ms, &sum);
    if (err == 0) {
        sl_struct_size_write(&sum, out, sizeof sum);
    }
    return err;
}

const char *sl_client_coordinator_http(const struct sl_client *client)
{
    sl_assert(client != NULL);
    return client->ios[0].coordinator.http;
}

int32_t sl_client_task_index(const struct sl_client *client)
{
    return client->task_index;
}

int32_t sl_client_values_lost(const struct sl_client *client)
{
    sl_assert(client != NULL);
    return (int32_t)sl_client_io_values_lost(&client->ios[0]) - 1;
}

uint32_t sl_client_clock(const struct sl_client *client)
{
    sl_assert(client != NULL);
    return client->start_clock;
}

uint32_t sl_client_shard_count(const struct sl_client *client)
{
    sl_assert(client != NULL);
    return client->shard_count;
}

void sl_client_stats(const struct sl_client *client, struct sl_client_stats *out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    struct sl_client_stats sum = {0};
    for (uint32_t i = 0; i < client->io_count; i++) {
        const struct sl_client_io *io = &client->ios[i];
        for (uint32_t kind = 0; kind < SL_REQUEST_KINDS; kind++) {
            sum.requests += sl_cell_get(&io->cells.requests[kind]);
        }
        sum.replies += sl_cell_get(&io->cells.replies);
        sum.failures += sl_cell_get(&io->cells.failures);
        for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
            sum.bytes_sent += sl_cell_get(&io->transport_cells[scheme].bytes_sent);
            sum.bytes_received += sl_cell_get(&io->transport_cells[scheme].bytes_received);
        }
    }
    *out = sum;
}

/* Blocking calls */

static int run_rows(struct sl_client *client, enum sl_request_op op, struct sl_table *table,
                    const uint64_t *keys, uint32_t key_count, const float *gradients, float *rows,
                    uint32_t timeout_ms)
{
    struct sl_step *step;
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = sl_step_add_rows(step, op, table, keys, key_count, gradients, rows);
    err = err != 0 ? err : sl_step_submit_deferred(step, timeout_ms); /* sent by the wait */
    err = err != 0 ? err : sl_step_wait_through(step);
    sl_step_destroy(&step);
    return err;
}

int sl_client_pull(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, float *rows, uint32_t timeout_ms)
{
    return run_rows(client, SL_REQUEST_PULL, table, keys, key_count, NULL, rows, timeout_ms);
}

int sl_client_push(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, const float *gradients, uint32_t timeout_ms)
{
    return run_rows(client, SL_REQUEST_PUSH, table, keys, key_count, gradients, NULL, timeout_ms);
}

int sl_client_push_pull(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, const float *gradients, float *rows,
                        uint32_t timeout_ms)
{
    return run_rows(client, SL_REQUEST_PUSH_PULL, table, keys, key_count, gradients, rows,
                    timeout_ms);
}
