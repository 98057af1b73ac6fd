#include "programs/serve/gateway_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "config/number.h"
#include "config/reload.h"
#include "config/settings_cli.h"
#include "core/end_signals.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "core/notify.h"
#include "core/rlimit.h"
#include "net/tcp/tls.h"
#include "net/transfer/async.h"
#include "net/transfer/engine.h"
#include "programs/serve/http/http_routes.h"
#include "programs/serve/http/settings.h"
#include "reactor/reactor.h"

#define LENGTH(of)   (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define REPLIES_NS   (2 * SL_CLOCK_NS_PER_S) /* for the last replies to leave */
#define POLL_NS      (2 * SL_CLOCK_NS_PER_MS)
#define PATIENCE_NS  (2 * SL_CLOCK_NS_PER_S) /* then the log says what is waited for */
#define MEMORY_LEAST (SL_SERVE_BODY_BYTES_MAX + 64)

static struct {
    struct sl_serve_http_flags http;
    const char *listen;
    int strategy; /* index of "basic|cost" */
    size_t memory_bytes;
} flags = {.strategy = SL_SERVE_COST};

static struct sl_settings settings;

static bool parse_memory(const char *text, void *target)
{
    size_t *bytes = target;
    return sl_number_parse_size(text, bytes) && *bytes >= MEMORY_LEAST;
}

static const struct sl_cli_option options[] = {
    SL_SERVE_HTTP_OPTIONS(&flags.http),
    SL_CLI_OPTION(STRING, &flags.listen, .name = "listen", .metavar = "HOST:PORT",
                  .preset = "127.0.0.1:9090",
                  .help = "Address that workers join. Port 0: any free port."),
    SL_CLI_OPTION(CHOICE, &flags.strategy, .name = "strategy", .choices = "basic|cost",
                  .help = "How a worker is chosen. basic: an idle one whose host holds the model, "
                          "any idle one, else one with few requests. cost: the least expected "
                          "finish, of queue, load and compute."),
    SL_CLI_OPTION(PARSED, &flags.memory_bytes, .name = "memory", .parse = parse_memory,
                  .accepts = "a number of bytes above 64M, such as 500M or 64G", .metavar = "BYTES",
                  .help = "Memory for the inputs of requests. Default: 256M."),
};

static struct run {
    struct sl_serve_http_settings http;
    struct sl_transfer *transfer;
    struct sl_objects *objects;
    struct sl_serve_gateway *gateway;
    struct sl_transfer_call call; /* of the main thread to the reactor: start or drain */
    struct sl_reason reason;
    /* The reactor's. */
    struct sl_reactor *reactor; /* the engine's first */
    struct sl_serve_http_routes *routes;
    struct sl_timer waiting, replies;
    uint64_t drained_ns;
    const char *missing; /* what the log has said that it waits for */
} run;

/* ---- On the reactor -------------------------------------------------------------------------- */

static void tell_waiting(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(run.gateway, &stats);
    const char *missing = !stats.has_models    ? "catalogue"
                          : stats.workers == 0 ? "worker"
                                               : "nothing";
    const bool is_new = missing != run.missing;
    run.missing = missing;
    if (is_new && !stats.has_models) {
        sl_log_warn("waiting for the catalogue%s%s",
                    settings.objects.catalogue != NULL ? " at " : "",
                    settings.objects.catalogue != NULL ? settings.objects.catalogue : "");
    } else if (is_new && stats.workers == 0) {
        sl_log_warn("waiting for a worker: starling-serve worker --gateway %s",
                    sl_transfer_name(run.transfer));
    }
    sl_reactor_arm(run.reactor, timer, PATIENCE_NS);
}

static void gateway_run_start_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    run.reactor = io->reactor;
    int err = sl_serve_http_routes_create(run.reactor, run.gateway, &run.http.listen, &run.routes,
                                          &run.reason);
    err = err != 0 ? err : sl_serve_gateway_start(run.gateway, &run.reason);
    if (err == 0) {
        run.waiting.run = tell_waiting;
        sl_reactor_arm(run.reactor, &run.waiting, PATIENCE_NS);
    } else {
        sl_serve_http_routes_destroy(&run.routes);
    }
    sl_transfer_io_answer(call, err, "started");
}

static void gateway_run_stopped(void *ctx)
{
    sl_transfer_io_answer(&run.call, 0, "stopped");
}

static void look_at_replies(struct sl_timer *timer, uint64_t now_ns)
{
    const uint32_t calls = sl_http_server_call_count(sl_serve_http_routes_server(run.routes));
    if ((calls > 0 && now_ns - run.drained_ns < REPLIES_NS) ||
        !sl_serve_gateway_is_idle(run.gateway)) {
        sl_reactor_arm(run.reactor, timer, POLL_NS);
        return;
    }
    sl_serve_http_routes_destroy(&run.routes);
    sl_reactor_disarm(run.reactor, &run.waiting);
    sl_serve_gateway_stop(run.gateway, gateway_run_stopped, NULL);
}

static void gateway_run_drained(void *ctx)
{
    sl_http_server_quiesce(sl_serve_http_routes_server(run.routes));
    run.drained_ns = sl_reactor_now_ns(run.reactor);
    run.replies.run = look_at_replies;
    sl_reactor_arm(run.reactor, &run.replies, 0);
}

static void gateway_run_drain_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_serve_gateway_drain(run.gateway, gateway_run_drained, NULL);
}

/* ---- Main thread ----------------------------------------------------------------------------- */

static bool is_on_loopback(const char *address)
{
    struct sl_endpoint endpoint;
    struct sl_reason reason;
    return address != NULL && sl_endpoint_parse(address, &endpoint, &reason) == 0 &&
           sl_endpoint_is_loopback(&endpoint);
}

/* A catalogue on another host cannot reach an engine on loopback: then the node has its own. */
static int start_engine(struct sl_transfer_options engine)
{
    const bool has_own =
        is_on_loopback(flags.listen) && !is_on_loopback(settings.objects.catalogue);
    engine.name = flags.listen;
    int err = sl_transfer_create(&engine, &run.transfer);
    if (err != 0) {
        return sl_reason_fail(&run.reason, err, "--listen %s: %s", flags.listen,
                              sl_transfer_last_error());
    }
    engine.name = NULL;
    const struct sl_objects_options node = {.struct_size = sizeof node,
                                            .engine = has_own ? NULL : run.transfer,
                                            .engine_options = &engine,
                                            .catalogue = settings.objects.catalogue,
                                            .agent = "off"};
    err = sl_objects_create(&node, &run.objects);
    return err == 0 ? 0 : sl_reason_fail(&run.reason, err, "%s", sl_objects_last_error());
}

static int start(void)
{
    const struct sl_serve_gateway_options gateway = {.transfer = run.transfer,
                                                     .objects = run.objects,
                                                     .strategy =
                                                         (enum sl_serve_strategy)flags.strategy,
                                                     .memory_bytes = flags.memory_bytes};
    const int err = sl_serve_gateway_create(&gateway, &run.gateway, &run.reason);
    run.call.run = gateway_run_start_here;
    return err != 0 ? err : sl_transfer_io_call(&run.transfer->ios[0], &run.call);
}

static void serve(const sigset_t *signals)
{
    int number;
    (void)printf("%s is joined by workers, and serves http%s://%s:%u\n",
                 sl_transfer_name(run.transfer), run.http.listen.key != NULL ? "s" : "",
                 run.http.http.endpoint.host,
                 sl_http_server_port(sl_serve_http_routes_server(run.routes)));
    (void)fflush(stdout);
    (void)sl_notify_send("READY=1\nSTATUS=is joined at: %s", sl_transfer_name(run.transfer));
    (void)sigwait(signals, &number);
    (void)sl_notify_send("STOPPING=1\nSTATUS=drains");
    (void)pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends it at once */
    run.call.run = gateway_run_drain_here;
    (void)sl_transfer_io_call(&run.transfer->ios[0], &run.call);
}

static void end(void)
{
    if (run.gateway != NULL) {
        sl_serve_gateway_destroy(&run.gateway);
    }
    sl_objects_destroy(&run.objects);
    if (run.transfer != NULL) {
        sl_transfer_destroy(&run.transfer);
    }
    sl_serve_http_settings_fini(&run.http);
}

static const struct sl_cli own = {.program = "starling-serve gateway",
                                  .summary = "Serves models over HTTP, by workers that join.",
                                  .usage = "[options]",
                                  .options = options,
                                  .option_count = LENGTH(options)};

static int parse(int argc, char **argv, struct sl_transfer_options *engine)
{
    static struct sl_settings_cli all;
    sl_settings_cli_init(SL_PROGRAM_GATEWAY, 1, &own, &settings, &all);
    int err = sl_cli_parse(&all.cli, argc, argv, &run.reason);
    if (err != 0) {
        return err;
    }
    sl_settings_log_setup(&settings, "gateway");
    if (settings.objects.catalogue == NULL && settings.objects.metadata == NULL) {
        return sl_reason_fail(&run.reason, SL_ERR_INVALID,
                              "--catalogue is missing: the address that starling-objects serve "
                              "prints, or --metadata with the etcd that knows it");
    }
    err = sl_reload_start(&all.cli, &settings, sl_tcp_tls_reload, &run.reason);
    err = err != 0 ? err : sl_settings_cli_engine(&settings, engine, &run.reason);
    return err != 0 ? err
                    : sl_serve_http_settings_resolve(&flags.http, settings.insecure, &run.http,
                                                     &run.reason);
}

int sl_serve_gateway_run(int argc, char **argv)
{
    struct sl_transfer_options engine;
    int err = parse(argc, argv, &engine);
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&own, err, &run.reason);
    }
    sl_rlimit_raise(RLIMIT_NOFILE); /* a connection is a descriptor */
    sl_rlimit_raise(RLIMIT_MEMLOCK);
    const sigset_t signals = sl_end_signals_mask(SIG_BLOCK); /* for all threads */
    err = start_engine(engine);
    explicit_bzero(&settings.security, sizeof settings.security);
    err = err != 0 ? err : start();
    if (err == 0) {
        serve(&signals);
    }
    end();
    sl_settings_fini(&settings);
    return sl_cli_end(&own, err, &run.reason);
}
