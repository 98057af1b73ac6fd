#include "ps/run.h"

#include <starling_kv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/reload.h"
#include "config/settings_cli.h"
#include "core/log.h"
#include "net/dpdk/device_list.h"
#include "net/tcp/tls.h"
#include "net/trace.h"
#include "ps/process/embedding.h"
#include "ps/run_endpoints.h"
#include "ps/run_options.h"
#include "ps/server/token.h"
#include "reactor/topology.h"

static void name_log(const struct sl_settings *settings)
{
    const struct sl_cluster *cluster = &settings->cluster;
    char name[32] = "ps";
    if (cluster->role == SL_CLUSTER_SCHEDULER) {
        (void)snprintf(name, sizeof name, "scheduler");
    } else if (cluster->task != SL_CLUSTER_TASK_ANY) {
        (void)snprintf(name, sizeof name, "ps/%u", cluster->task_index);
    }
    sl_settings_log_setup(settings, name);
    sl_settings_log(settings);
    sl_trace_set(settings->dmlc.trace);
}

static int read_settings(const struct sl_ps_run_options *given, const char *program,
                         struct sl_settings *settings, struct sl_reason *reason)
{
    const struct sl_cli cli = {
        .program = program,
        .summary = "Holds shards of the parameters and serves them to workers.",
        .usage = "[options] | doctor [options] | agent [options]",
        .variables = given->variables,
    };
    return sl_settings_cli_read(SL_PROGRAM_PS, sl_topology_core_count(), cli, given->argc,
                                given->argv, settings, reason);
}

/* Fills the options, which point into *run. */
static int configure(const struct sl_ps_run_options *given, struct sl_run *run,
                     struct sl_process_options *options, struct sl_reason *reason)
{
    if (given->embedding == NULL) {
        name_log(&run->settings);
    }
    int err = sl_run_endpoints_fill(run, options, reason);
    if (err == 0) {
        sl_run_options_fill(run, options);
        err = sl_run_endpoints_check(run, options, reason);
    }
    if (err == 0 && run->settings.objects.name != NULL &&
        (given->extend == NULL || given->embedding != NULL)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "--objects is a flag of starling-ps only");
    }
    if (err == 0 && given->extend != NULL) {
        err = given->extend(run, options, reason);
    }
    return err != 0 ? err : sl_run_options_check(run, options, reason);
}

static void warn(const struct sl_process_options *options)
{
    const uint32_t cores = sl_topology_core_count();
    if (options->reactors.count > cores) {
        sl_log_warn(
            "--reactors is %u, but this process may use %u core%s%s", options->reactors.count,
            cores, sl_log_plural(cores),
            options->reactors.polling ? ": reactors that poll take the cores from each other" : "");
    }
    sl_run_endpoints_warn(options);
    if (options->kv_handler != NULL && options->checkpoint.directory != NULL) {
        sl_log_warn("--checkpoint-dir: checkpoints do not contain what the request handler keeps");
    }
}

static void fini(struct sl_run *run)
{
    sl_settings_fini(&run->settings);
    sl_dpdk_device_list_destroy(&run->devices);
    if (run->directory_lock >= 0) {
        (void)close(run->directory_lock);
    }
}

/* Exit status of a failed start: usage errors differ from failures that a retry may pass. */
static int exit_status(int err)
{
    switch (err) {
    case SL_ERR_DEADLINE:
    case SL_ERR_IN_USE:
    case SL_ERR_NO_MEMORY:
    case SL_ERR_IO:
        return EXIT_FAILURE;
    default:
        return SL_CLI_EXIT_USAGE;
    }
}

static struct sl_process_embedding embedding_of(const struct sl_ps_embedding *embedding)
{
    return (struct sl_process_embedding){.fd = embedding->fd,
                                         .woken = embedding->woken,
                                         .registered = embedding->registered,
                                         .ctx = embedding->ctx};
}

int sl_ps_run(const struct sl_ps_run_options *given)
{
    struct sl_reason reason;
    struct sl_run run = {.directory_lock = -1};
    struct sl_process_embedding embedding;
    struct sl_process_options options = {.kv_handler = given->handler};
    const bool is_program = given->extend != NULL && given->embedding == NULL; /* starling-ps */
    const char *path = given->argc > 0 ? given->argv[0] : "starling-ps";
    const char *slash = strrchr(path, '/');
    const char *program = slash == NULL ? path : slash + 1;
    int result = read_settings(given, program, &run.settings, &reason);
    int status = EXIT_SUCCESS;
    if (result == SL_CLI_RUN) {
        result = configure(given, &run, &options, &reason);
    }
    if (result == SL_CLI_RUN && is_program) {
        result = sl_reload_start(NULL, &run.settings, sl_tcp_tls_reload, &reason);
    }
    if (result == SL_CLI_EXIT_OK && given->embedding != NULL) {
        result = sl_reason_fail(&reason, SL_ERR_INVALID, "--help and the like: not in a program");
    }
    if (result < 0 && given->embedding != NULL) {
        *given->embedding->reason = reason;
        given->embedding->err = result;
        status = exit_status(result);
    } else if (result < 0) {
        (void)fprintf(stderr, "%s: %s\n", program, reason.text);
        status = exit_status(result);
    } else if (result == SL_CLI_RUN && given->embedding != NULL) {
        warn(&options);
        embedding = embedding_of(given->embedding);
        options.embedding = &embedding;
        status = sl_process_run(&options);
        given->embedding->err = embedding.err;
    } else if (result == SL_CLI_RUN) {
        warn(&options);
        status = sl_process_run(&options);
    }
    fini(&run);
    return status;
}

void sl_ps_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer)
{
    sl_server_token_reply(token, answer);
}

void sl_ps_stop(struct sl_process *process)
{
    sl_process_embedding_stop(process);
}

void sl_ps_handle(struct sl_process *process, const struct sl_kv_handler *handler)
{
    sl_process_embedding_handle(process, handler);
}
