#include "bench/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/load_internal.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/format.h"
#include "core/log.h"
#include "reactor/mailbox.h"

#define SPIN_US             20 /* as the client library's reactors */
#define CONNECT_TIMEOUT_NS  (60 * SL_CLOCK_NS_PER_S)
#define CLOSE_TIMEOUT_NS    (3 * SL_CLOCK_NS_PER_S)
#define RUN_EXTRA_NS        (60 * SL_CLOCK_NS_PER_S) /* the reactor's own patience is shorter */
#define RECEIVE_BUFFERS_MIN 256
#define RECEIVE_BUFFERS_MAX 4096

/* ---- Between the caller and the reactor ------------------------------------------------------ */

static void take_answer(void *ctx, uint64_t a, uint64_t b)
{
    ((struct sl_bench_load *)ctx)->answered = true;
}

void sl_bench_load_answer(struct sl_bench_load *load)
{
    if (!load->owed) {
        return;
    }
    load->owed = false;
    int err = sl_mailbox_post(load->to_owner, (struct sl_mail){.run = take_answer, .ctx = load});
    sl_assert(err == 0); /* there is one question at a time */
}

void sl_bench_load_fail(struct sl_bench_load *load, int err, const char *format, ...)
{
    if (load->phase == SL_BENCH_LOAD_FAILED || load->phase == SL_BENCH_LOAD_CLOSING) {
        return;
    }
    load->phase = SL_BENCH_LOAD_FAILED;
    load->err = err;
    SL_FORMAT(load->why, format);
    sl_bench_load_answer(load);
}

static int post(struct sl_bench_load *load, sl_mail_fn *run, uint64_t a)
{
    load->answered = false;
    load->owed = true;
    return sl_mailbox_post(load->to_load, (struct sl_mail){.run = run, .ctx = load, .a = a});
}

static bool is_answered(struct sl_bench_load *load, uint64_t timeout_ns)
{
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t end_ns = sl_clock_now_ns(clock) + timeout_ns;
    while (!load->answered) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (now_ns >= end_ns) {
            return false;
        }
        sl_mailbox_wait(load->mailbox, end_ns - now_ns);
        (void)sl_mailbox_drain(load->mailbox, UINT32_MAX);
    }
    return true;
}

/* The answer to what was posted. */
static int await(struct sl_bench_load *load, uint64_t timeout_ns)
{
    if (!is_answered(load, timeout_ns)) {
        sl_log_error("the load's thread does not answer");
        return SL_ERR_DEADLINE;
    }
    if (load->err != 0) {
        sl_log_error("load: %s", load->why);
    }
    return load->err;
}

int sl_bench_load_ask(struct sl_bench_load *load, sl_mail_fn *run, uint64_t a, uint64_t timeout_ns)
{
    int err = post(load, run, a);
    return err != 0 ? err : await(load, timeout_ns);
}

/* ---- The reactor's thread -------------------------------------------------------------------- */

/* A burst of replies may come on every connection at once. */
static uint32_t receive_buffers(const struct sl_bench_load *load)
{
    uint32_t count = RECEIVE_BUFFERS_MIN;
    while (count < 2 * load->connection_count && count < RECEIVE_BUFFERS_MAX) {
        count *= 2;
    }
    return count;
}

static int on_start(void *ctx)
{
    struct sl_bench_load *load = ctx;
    const struct sl_transport_options options = {.congestion_control = load->options.congestion,
                                                 .buffer_count = receive_buffers(load)};
    load->source = sl_bench_load_source;
    sl_reactor_add_source(load->reactor, &load->source); /* before the transport: flushed first */
    int err = sl_transport_open(sl_builtin_find(SL_ENDPOINT_TCP), load->reactor, &options,
                                &load->transport);
    if (err != 0) {
        sl_reactor_remove_source(load->reactor, &load->source);
    }
    return err;
}

static void on_stop(void *ctx)
{
    struct sl_bench_load *load = ctx;
    load->phase = SL_BENCH_LOAD_CLOSING;
    sl_reactor_disarm(load->reactor, &load->timer);
    sl_transport_close(&load->transport);
    sl_reactor_remove_source(load->reactor, &load->source);
}

static int open_mail(struct sl_bench_load *load)
{
    int err = sl_mailbox_create(&load->mailbox);
    err = err != 0 ? err : sl_mailbox_lane_open(sl_reactor_mailbox(load->reactor), &load->to_load);
    return err != 0 ? err : sl_mailbox_lane_open(load->mailbox, &load->to_owner);
}

static int start_reactor(struct sl_bench_load *load)
{
    struct sl_reactor_options options = {.core = load->options.core, .spin_us = SPIN_US};
    (void)snprintf(options.name, sizeof options.name, "load.%d",
                   load->options.core < 0 ? 0 : load->options.core % 10000);
    int err = sl_reactor_create(&options, &load->reactor);
    err = err != 0 ? err : open_mail(load);
    if (err == 0) {
        sl_reactor_on_stop(load->reactor, on_stop, load);
        err = sl_reactor_start(load->reactor, on_start, load);
        load->started = err == 0;
    }
    if (err != 0) {
        sl_log_error("the load's thread cannot be started: %s", sl_err_name(err));
    }
    return err;
}

/* Mail. What this load sends goes out a turn later than what its host sends: its source comes after
 * the transport. */
static void move_in(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    load->source = sl_bench_load_source;
    sl_reactor_add_source(load->reactor, &load->source);
    load->transport = load->options.host->transport;
    sl_bench_load_answer(load);
}

static void move_out(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    struct sl_mailbox_lane *to_owner = load->to_owner;
    load->to_owner = NULL;
    sl_reactor_disarm(load->reactor, &load->timer);
    sl_reactor_remove_source(load->reactor, &load->source);
    /* With the answer the load is its owner's, who frees it; the lane is ours until it is closed.
     */
    int err = sl_mailbox_post(to_owner, (struct sl_mail){.run = take_answer, .ctx = load});
    sl_assert(err == 0);
    sl_mailbox_lane_close(&to_owner);
}

static int join_host(struct sl_bench_load *load)
{
    load->reactor = load->options.host->reactor;
    int err = open_mail(load);
    if (err == 0) {
        err = sl_bench_load_ask(load, move_in, 0, CONNECT_TIMEOUT_NS);
        load->started = err == 0;
    }
    return err;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int check_options(const struct sl_bench_load_options *options)
{
    const bool dense = options->table.kind == SL_TABLE_DENSE;
    const uint32_t keys_max = dense ? SL_LIMIT_FRAME_PAYLOAD_BYTES : SL_BENCH_LOAD_KEYS_MAX;
    if (options->connections == 0 || options->connections > SL_LIMIT_CONNECTIONS ||
        options->depth == 0 || options->depth > SL_BENCH_LOAD_DEPTH_MAX || options->keys == 0 ||
        options->keys > keys_max || options->rate < 0 || (!dense && options->rows == 0)) {
        sl_log_error("a load of %u connections, depth %u, %u keys, %llu rows, rate %g: accepts 1 "
                     "to %u connections, depth 1 to %u, 1 to %u keys",
                     options->connections, options->depth, options->keys,
                     (unsigned long long)options->rows, options->rate, SL_LIMIT_CONNECTIONS,
                     SL_BENCH_LOAD_DEPTH_MAX, keys_max);
        return SL_ERR_INVALID;
    }
    return 0;
}

static int open_connections(struct sl_bench_load *load, struct sl_client *client)
{
    int err = sl_bench_load_shape(load);
    if (err == SL_ERR_NO_MEMORY) {
        sl_log_error("no memory for the load's requests");
    }
    if (err == 0) {
        err = load->options.host != NULL ? join_host(load) : start_reactor(load);
    }
    err = err != 0 ? err : sl_bench_load_ask(load, sl_bench_load_connect, 0, CONNECT_TIMEOUT_NS);
    return err != 0 ? err : sl_bench_load_verify(load, client);
}

int sl_bench_load_open(const struct sl_bench_load_options *options, struct sl_bench_load **out)
{
    int err = check_options(options);
    if (err != 0) {
        return err;
    }
    struct sl_bench_load *load = calloc(1, sizeof *load);
    if (load == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    load->options = *options;
    struct sl_client *client;
    err = sl_bench_load_prepare(load, &client);
    if (err == 0) {
        err = open_connections(load, client);
        sl_client_destroy(&client);
    }
    if (err != 0) {
        sl_bench_load_close(&load);
        return err;
    }
    *out = load;
    return 0;
}

static void free_connections(struct sl_bench_load *load)
{
    for (uint32_t i = 0; load->connections != NULL && i < load->connection_count; i++) {
        free(load->connections[i].since_ns);
        free(load->connections[i].reply_buffer);
    }
    free(load->connections);
    free(load->waiting);
    free(load->memory);
    free(load->captured);
    free(load->gradients);
}

/* The host's connections go on, so nothing but their own end frees those of this load. */
static void leave_host(struct sl_bench_load *load)
{
    if (post(load, sl_bench_load_disconnect, 0) == 0) {
        while (!is_answered(load, CLOSE_TIMEOUT_NS)) {
            sl_log_warn("connections of the load are slow to end");
        }
    }
    if (post(load, move_out, 0) == 0) {
        while (!is_answered(load, CLOSE_TIMEOUT_NS)) {
            sl_log_warn("the load's thread does not answer");
        }
    }
}

static void stop_reactor(struct sl_bench_load *load)
{
    if (post(load, sl_bench_load_disconnect, 0) == 0) {
        (void)is_answered(load, CLOSE_TIMEOUT_NS);
    }
    sl_reactor_stop(load->reactor);
    sl_reactor_join(load->reactor);
}

void sl_bench_load_close(struct sl_bench_load **load)
{
    struct sl_bench_load *gone = *load;
    *load = NULL;
    if (gone == NULL) {
        return;
    }
    if (gone->started && gone->options.host != NULL) {
        leave_host(gone);
    } else if (gone->started) {
        stop_reactor(gone);
    }
    if (gone->to_load != NULL) {
        sl_mailbox_lane_close(&gone->to_load);
    }
    if (gone->to_owner != NULL) {
        sl_mailbox_lane_close(&gone->to_owner);
    }
    if (gone->options.host == NULL) {
        sl_reactor_destroy(&gone->reactor);
    }
    if (gone->mailbox != NULL) {
        sl_mailbox_destroy(&gone->mailbox);
    }
    free_connections(gone);
    for (uint32_t i = 0; i < gone->shard_count; i++) {
        free(gone->shards[i].keys);
    }
    free(gone->shards);
    free(gone);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

int sl_bench_load_begin(struct sl_bench_load *load, double warm_up, double seconds)
{
    sl_assert(warm_up >= 0);
    sl_assert(seconds > 0);
    load->warm_up_ns = sl_bench_ns(warm_up);
    load->measure_ns = sl_bench_ns(seconds);
    return post(load, sl_bench_load_begin_run, 0);
}

int sl_bench_load_wait(struct sl_bench_load *load, struct sl_bench_load_result *out)
{
    int err = await(load, load->warm_up_ns + load->measure_ns + RUN_EXTRA_NS);
    if (err == 0) {
        *out = load->result;
    }
    return err;
}

int sl_bench_load_run(struct sl_bench_load *load, double warm_up, double seconds,
                      struct sl_bench_load_result *out)
{
    int err = sl_bench_load_begin(load, warm_up, seconds);
    return err != 0 ? err : sl_bench_load_wait(load, out);
}
