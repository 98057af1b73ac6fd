#include "programs/serve/worker_run.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <starling_objects.h>

#include "config/number.h"
#include "config/reload.h"
#include "config/settings_cli.h"
#include "core/end_signals.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "core/notify.h"
#include "net/tcp/tls.h"
#include "net/transfer/engine.h"
#include "objects/node/local.h"
#include "programs/serve/base/message.h"
#include "programs/serve/worker/batch.h"
#include "programs/serve/worker/worker.h"

#define PROGRAM    "starling-serve worker"
#define LENGTH(of) (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define HELLO_MS   2000
#define AGENT_MS   100 /* between attempts to reach the agent */

struct schedule {
    enum sl_serve_rule rule;
    size_t bytes;
};

static struct {
    const char *gateways, *agent, *listen, *host;
    uint32_t batch_max;
    int64_t core;
    struct schedule schedule;
} flags = {.agent = SL_OBJECTS_LOCAL_DEFAULT, .batch_max = 32, .core = -1};

static struct sl_settings settings;

static bool parse_schedule(const char *text, void *target)
{
    static const char *const names[] = {
        [SL_SERVE_OPTIMAL] = "optimal", [SL_SERVE_LAYER] = "layer", [SL_SERVE_WHOLE] = "whole"};
    struct schedule *to = target;
    for (uint32_t i = 0; i < LENGTH(names); i++) {
        if (names[i] != NULL && strcmp(names[i], text) == 0) {
            *to = (struct schedule){.rule = (enum sl_serve_rule)i};
            return true;
        }
    }
    to->rule = SL_SERVE_BYTES;
    return sl_number_parse_size(text, &to->bytes) && to->bytes > 0;
}

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(STRING, &flags.gateways, .name = "gateway", .metavar = "HOST:PORT,...",
                  .help = "Gateways that the worker joins, by the addresses that they print. "
                          "Required."),
    SL_CLI_OPTION(STRING, &flags.agent, .name = "agent-name", .variable = "STARLING_OBJECTS_AGENT",
                  .metavar = "NAME",
                  .help = "The agent of this host (starling-objects serve --agent) in whose memory "
                          "models are."),
    SL_CLI_OPTION(STRING, &flags.listen, .name = "listen", .metavar = "HOST:PORT",
                  .help = "Where the worker receives requests; port 0: a free one. Default: on "
                          "loopback if the first gateway is there, else this host's address."),
    SL_CLI_OPTION(STRING, &flags.host, .name = "host", .metavar = "LABEL",
                  .help = "Workers of one label share an agent. Default: the name of this machine, "
                          "and that of the agent."),
    SL_CLI_OPTION(U32, &flags.batch_max, .name = "batch-max", .metavar = "N", .least = 1,
                  .most = SL_SERVE_BATCH_ROWS_MAX,
                  .help = "Rows that are computed together, of requests that wait. Default: 32."),
    SL_CLI_OPTION(PARSED, &flags.schedule, .name = "schedule", .parse = parse_schedule,
                  .accepts = "optimal, layer, whole, or a number of bytes such as 32000000",
                  .metavar = "RULE",
                  .help = "How layers of a model that is not in memory are grouped into transfers: "
                          "optimal: by measured costs; layer: each alone; BYTES: at least so many; "
                          "whole: all before the first is computed. Default: optimal."),
    SL_CLI_OPTION(I64, &flags.core, .name = "core", .metavar = "N", .least = 0, .most = 4095,
                  .help = "The core of the thread that computes. Default: any."),
};

/* One run of the program. */
struct run {
    char names[4096]; /* of the gateways */
    const char *gateways[SL_SERVE_PEERS_MAX];
    uint32_t gateway_count;
    char host[SL_SERVE_LABEL_BYTES];
    int signalled; /* eventfd: SIGINT or SIGTERM has come */
    struct sl_objects *objects;
    struct sl_transfer *transfer;
    struct sl_serve_worker *worker;
    struct sl_transfer_call call; /* of the main thread to the reactor: start or drain */
    struct sl_reason reason;
};

static int check_flags(struct run *run)
{
    char name[32] = "";
    if (flags.gateways == NULL || strlen(flags.gateways) >= sizeof run->names) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "--gateway is missing: the address that " PROGRAM
                              " joins, which starling-serve gateway prints");
    }
    (void)snprintf(run->names, sizeof run->names, "%s", flags.gateways);
    for (char *rest = run->names, *item; (item = strsep(&rest, ",")) != NULL;) {
        if (item[0] == '\0' || run->gateway_count == SL_SERVE_PEERS_MAX) {
            return sl_reason_fail(
                &run->reason, SL_ERR_INVALID,
                "--gateway=%s: accepted are 1 to %d addresses with commas between "
                "them",
                flags.gateways, SL_SERVE_PEERS_MAX);
        }
        run->gateways[run->gateway_count++] = item;
    }
    if (flags.host != NULL && !sl_objects_text_is_valid(flags.host, sizeof run->host)) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "--host=%s: accepted are up to %d characters", flags.host,
                              SL_SERVE_LABEL_BYTES - 1);
    }
    (void)gethostname(name, sizeof name - 1);
    (void)snprintf(run->host, sizeof run->host, "%s/%.31s", name, flags.agent);
    if (flags.host != NULL) {
        (void)snprintf(run->host, sizeof run->host, "%s", flags.host);
    }
    if (!sl_objects_text_is_valid(run->host, sizeof run->host)) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "--agent-name=%s: a name has no control characters", flags.agent);
    }
    return 0;
}

/* ---- Signals --------------------------------------------------------------------------------- */

/* Waits for a signal, at most timeout_ms; -1: as long as it takes. */
static bool is_signalled(const struct run *run, int timeout_ms)
{
    struct pollfd polled = {.fd = run->signalled, .events = POLLIN};
    return poll(&polled, 1, timeout_ms) > 0;
}

/* The computing thread cannot be ended alone. */
static void stuck(void *ctx, const char *model)
{
    sl_log_error("serve: the worker exits: a computation of model \"%s\" does not end, and all its "
                 "deadlines have passed; the model may need more work than one request may cost",
                 model);
    _exit(EXIT_FAILURE);
}

static int signalled = -1;

static void worker_run_on_signal(int number)
{
    const uint64_t one = 1;
    (void)!write(signalled, &one, sizeof one);
}

/* A handler, since OpenBLAS has threads that block no signal. */
static int catch_signals(struct run *run)
{
    run->signalled = signalled = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sl_end_signals_catch(worker_run_on_signal, SA_RESTART);
    return signalled >= 0 ? 0 : sl_reason_fail(&run->reason, SL_ERR_IO, "no eventfd");
}

/* ---- On the reactor -------------------------------------------------------------------------- */

static struct run *run_of(struct sl_transfer_call *call)
{
    return SL_CONTAINER_OF(call, struct run, call);
}

static void worker_run_start_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct run *run = run_of(call);
    sl_transfer_io_answer(call, sl_serve_worker_start(run->worker, &run->reason), "started");
}

static void worker_run_drained(void *ctx)
{
    sl_transfer_io_answer(ctx, 0, "drained");
}

static void worker_run_drain_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_serve_worker_drain(run_of(call)->worker, worker_run_drained, call);
}

/* ---- Run ------------------------------------------------------------------------------------- */

/* False: a signal came first. */
static bool wait_for_agent(struct run *run)
{
    struct sl_reason reason;
    bool has_warned = false;
    int fd, board_fd;
    while (sl_objects_local_connect(flags.agent, "", HELLO_MS, &fd, &board_fd, &reason) != 0) {
        if (!has_warned) {
            sl_log_warn("serve: the worker waits for its agent: %s", reason.text);
            has_warned = true;
        }
        if (is_signalled(run, AGENT_MS)) {
            return false;
        }
    }
    (void)close(fd);
    (void)close(board_fd);
    return true;
}

static int start_engine(struct run *run)
{
    struct sl_transfer_options engine;
    const int err = sl_settings_cli_engine(&settings, &engine, &run->reason);
    if (err != 0) {
        return err;
    }
    struct sl_endpoint gateway;
    const bool is_local = sl_endpoint_parse(run->gateways[0], &gateway, &run->reason) == 0 &&
                          sl_endpoint_is_loopback(&gateway);
    engine.name = flags.listen != NULL ? flags.listen : is_local ? "127.0.0.1:0" : NULL;
    const int failed = sl_transfer_create(&engine, &run->transfer);
    explicit_bzero(&settings.security, sizeof settings.security);
    return failed == 0 ? 0 : sl_reason_fail(&run->reason, failed, "%s", sl_transfer_last_error());
}

static int start(struct run *run)
{
    static const struct sl_engine *const engines[] = {&sl_engine_graph, &sl_engine_lookup,
                                                      &sl_engine_ctr};
    const struct sl_objects_options node = {.struct_size = sizeof node, .agent = flags.agent};
    int err = start_engine(run);
    if (err == 0 && sl_objects_create(&node, &run->objects) != 0) {
        err = sl_reason_fail(&run->reason, SL_ERR_INVALID, "%s", sl_objects_last_error());
    }
    const struct sl_serve_worker_options worker = {.transfer = run->transfer,
                                                   .objects = run->objects,
                                                   .gateways = run->gateways,
                                                   .gateway_count = run->gateway_count,
                                                   .host = run->host,
                                                   .batch_max = flags.batch_max,
                                                   .rule = flags.schedule.rule,
                                                   .rule_bytes = flags.schedule.bytes,
                                                   .engines = engines,
                                                   .engine_count = LENGTH(engines),
                                                   .core = (int)flags.core,
                                                   .stuck = stuck};
    err = err != 0 ? err : sl_serve_worker_create(&worker, &run->worker, &run->reason);
    run->call.run = worker_run_start_here;
    return err != 0 ? err : sl_transfer_io_call(&run->transfer->ios[0], &run->call);
}

static int serve(struct run *run)
{
    const int err = start(run);
    if (err == 0) {
        (void)printf("%s computes models for %s until SIGINT or SIGTERM\n",
                     sl_transfer_name(run->transfer), flags.gateways);
        (void)fflush(stdout);
        (void)sl_notify_send("READY=1\nSTATUS=computes models for: %.200s", flags.gateways);
        while (!is_signalled(run, -1)) {
        }
        (void)sl_notify_send("STOPPING=1\nSTATUS=drains");
        sl_log_info("serve: the worker answers what it has, and ends");
        run->call.run = worker_run_drain_here;
        (void)sl_transfer_io_call(&run->transfer->ios[0], &run->call);
    }
    if (run->worker != NULL) {
        sl_serve_worker_destroy(&run->worker);
    }
    sl_objects_destroy(&run->objects);
    sl_transfer_destroy(&run->transfer);
    return err;
}

int sl_serve_worker_run(int argc, char **argv)
{
    static struct run run;
    static struct sl_settings_cli all;
    const struct sl_cli own = {.program = PROGRAM,
                               .summary = "Computes requests of gateways, on models in the memory "
                                          "of this host's agent.",
                               .usage = "--gateway HOST:PORT [options]",
                               .options = options,
                               .option_count = LENGTH(options)};
    sl_settings_cli_init(SL_PROGRAM_SERVE_WORKER, 1, &own, &settings, &all);
    int err = sl_cli_parse(&all.cli, argc, argv, &run.reason);
    err = err != SL_CLI_RUN ? err : check_flags(&run);
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&own, err, &run.reason);
    }
    sl_settings_log_setup(&settings, PROGRAM);
    err = sl_reload_start(&all.cli, &settings, sl_tcp_tls_reload, &run.reason);
    err = err != 0 ? err : catch_signals(&run);
    err = err == 0 && wait_for_agent(&run) ? serve(&run) : err;
    sl_settings_fini(&settings);
    return sl_cli_end(&own, err, &run.reason);
}
