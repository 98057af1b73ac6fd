/* starling-bench pslite: the arguments, environment and figures of ps-lite's test_benchmark, as the
 * role that DMLC_ROLE says. ipc.c measures the same keys and handler on one machine. */
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/options.h"
#include "bench/pslite_keep.h"
#include "bench/pslite_options.h"
#include "bench/pslite_worker.h"
#include "bench/report.h"
#include "core/log.h"

#define SETTING_BYTES 384

struct command {
    struct sl_bench_pslite_load load;
    int over, handler, client;
    struct sl_bench_common common; /* its cores and files */
};

/* ---- Reports --------------------------------------------------------------------------------- */

static void add(struct sl_bench_report *report, const struct command *command, uint32_t rank,
                const char *quantity, const char *unit, const double *samples, uint32_t count)
{
    char name[32];
    (void)snprintf(name, sizeof name, "worker %u", rank);
    sl_bench_report_figure(
        report, &(struct sl_bench_figure){.name = name,
                                          .quantity = quantity,
                                          .unit = unit,
                                          .transport = sl_bench_over_names[command->over],
                                          .samples = samples,
                                          .count = count});
}

static int finish(const struct command *command, const struct sl_bench_pslite_found *found)
{
    char of_load[SETTING_BYTES];
    char setting[SETTING_BYTES + 128];
    sl_bench_pslite_options_setting(&command->load, of_load, sizeof of_load);
    (void)snprintf(setting, sizeof setting, "%s; %s; the worker's connections are served by %s",
                   of_load, sl_bench_over_names[command->over],
                   command->client == 0 ? "its own thread" : "a second thread");
    struct sl_bench_report *report = sl_bench_report_create("pslite", setting);
    if (command->load.mode == SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        const double keys = (double)command->load.repeat * found->key_count;
        add(report, command, found->rank, "push, total", "ms", &found->push_ms, 1);
        add(report, command, found->rank, "pull, total", "ms", &found->pull_ms, 1);
        add(report, command, found->rank, "push of a key", "us",
            &(double){found->push_ms * 1e3 / keys}, 1);
        add(report, command, found->rank, "pull of a key", "us",
            &(double){found->pull_ms * 1e3 / keys}, 1);
    } else {
        add(report, command, found->rank, "goodput", "Gb/s", found->goodput, found->report_count);
        add(report, command, found->rank, "time per key", "us", found->key_us, found->report_count);
    }
    return sl_bench_report_finish(&report, &command->common);
}

/* ---- Roles ----------------------------------------------------------------------------------- */

static int run_server(const struct command *command, bool is_scheduler)
{
    static char program[] = "starling-bench";
    char *argv[] = {program, NULL};
    struct sl_bench_pslite_keep *keep = NULL;
    if (sl_bench_pslite_keep_create(&keep) != 0) {
        sl_log_error("no memory for the benchmark");
        return 1;
    }
    const struct sl_kv_handler handler = sl_bench_pslite_keep_handler(keep);
    const bool keeps = !is_scheduler && command->load.handler == SL_BENCH_PSLITE_KEEP;
    const int status = sl_kv_serve(1, argv, keeps ? &handler : NULL);
    sl_bench_pslite_keep_destroy(&keep);
    return status;
}

/* The worker prints its figures: a report needs Python, which a cluster may not have. */
static int run_worker(const struct command *command)
{
    static struct sl_bench_pslite_found found;
    const struct sl_bench_pslite_worker worker = {.load = &command->load,
                                                  .driven = command->client == 0};
    const int status = sl_bench_pslite_worker_run(&worker, &found);
    return status != 0 || command->common.json == NULL || finish(command, &found) == 0 ? status : 1;
}

static int run(const struct command *command, enum sl_kv_role role)
{
    if (command->over == SL_BENCH_OVER_TCP && setenv("STARLING_SHM", "0", 1) != 0) {
        return 1;
    }
    return role == SL_KV_WORKER ? run_worker(command)
                                : run_server(command, role == SL_KV_SCHEDULER);
}

/* ---- Flags ----------------------------------------------------------------------------------- */

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
static int parse(struct command *command, enum sl_kv_role *role, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_choice("handler", &command->handler, "keep|sum",
                        "What a server does with pushes: as test_benchmark's own it keeps the "
                        "first of each key and acknowledges the others; or it adds up f32."),
        sl_bench_choice("client", &command->client, "caller|reactor",
                        "Who serves a worker's connections: its own thread or another."),
        sl_bench_over(&command->over),
    };
    static const struct sl_bench_program program = {
        .name = "pslite",
        .summary =
            "ps-lite's test_benchmark: goodput of pushes and pulls of whole arrays by key, in the "
            "role of DMLC_ROLE. LEN bytes of each key (1024000), REPEAT rounds (10), MODE 0 push "
            "then pull, 1 push_pull (the default), 2 push, 3 pull; NUM_KEY_PER_SERVER (40), "
            "LOG_DURATION (10 rounds between two reports), TOTAL_DURATION (rounds, in place of "
            "REPEAT). `ipc` measures the same on one machine.",
        .usage = "[LEN [REPEAT [MODE]]] [options]",
    };
    int taken;
    const int parsed =
        sl_bench_pslite_options_parse(&program, own, sizeof own / sizeof own[0], &command->common,
                                      &command->handler, &command->load, &taken, argc, argv);
    if (parsed == SL_CLI_RUN && getenv("DMLC_ROLE") == NULL) {
        (void)fprintf(stderr, "starling-bench pslite: accepts a role in DMLC_ROLE: scheduler, "
                              "server, worker; on one machine use starling-bench ipc\n");
        return SL_ERR_INVALID;
    }
    const int err = parsed == SL_CLI_RUN ? sl_kv_role(role) : 0;
    if (err != 0) {
        (void)fprintf(stderr, "starling-bench pslite: %s\n", sl_last_error());
    }
    return err != 0 ? err : parsed;
}

int sl_bench_pslite_run(int argc, char **argv)
{
    struct command command = {.load = sl_bench_pslite_options_defaults(),
                              .common = {.server_core = -1, .client_core = -1}};
    enum sl_kv_role role = SL_KV_WORKER;
    const int parsed = parse(&command, &role, argc, argv);
    return parsed < 0 ? 2 : parsed == SL_CLI_RUN ? run(&command, role) : 0;
}
