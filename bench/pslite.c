/* starling-bench pslite: the arguments, environment and figures of ps-lite's test_benchmark, as the
 * role that DMLC_ROLE says, or all roles at once. */
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "bench/options.h"
#include "bench/pslite_job.h"
#include "bench/pslite_keep.h"
#include "bench/pslite_options.h"
#include "bench/pslite_worker.h"
#include "bench/quiet.h"
#include "bench/report_parts.h"
#include "core/log.h"

#define REASON_BYTES   512
#define SETTING_BYTES  384
#define JOB_TIMEOUT_MS (3600U * 1000)

struct command {
    struct sl_bench_pslite_load load;
    bool local;
    int over;
    uint64_t workers, servers;
    int handler, client;
    struct sl_bench_common common; /* its cores and files */
};

/* What a worker needs, and where it leaves what it has found. */
struct board {
    struct command command;
    struct sl_bench_pslite_found found[SL_BENCH_PSLITE_WORKERS_MAX];
    bool was_disturbed; /* of a local job: other programs took processor time */
};

/* ---- Reports --------------------------------------------------------------------------------- */

static void add_samples(struct sl_bench_report *report, const char *name, const char *quantity,
                        const char *unit, const char *transport, const double *samples,
                        uint32_t count)
{
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, quantity, unit);
    sl_bench_figure_over(figure, transport);
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_figure_sample(figure, samples[i]);
    }
}

static void add_one(struct sl_bench_report *report, const char *name, const char *quantity,
                    const char *unit, const char *transport, double value)
{
    add_samples(report, name, quantity, unit, transport, &value, 1);
}

static void add_worker(struct sl_bench_report *report, const struct command *command,
                       const struct sl_bench_pslite_found *found)
{
    char name[SL_BENCH_NAME_BYTES];
    const char *transport = sl_bench_over_names[command->over];
    (void)snprintf(name, sizeof name, "worker %u", found->rank);
    if (command->load.mode == SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        const double keys = (double)command->load.repeat * found->key_count;
        add_one(report, name, "push, total", "ms", transport, found->push_ms);
        add_one(report, name, "pull, total", "ms", transport, found->pull_ms);
        add_one(report, name, "push of a key", "us", transport, found->push_ms * 1e3 / keys);
        add_one(report, name, "pull of a key", "us", transport, found->pull_ms * 1e3 / keys);
        return;
    }
    add_samples(report, name, "goodput", "Gb/s", transport, found->goodput, found->report_count);
    add_samples(report, name, "time per key", "us", transport, found->key_us, found->report_count);
}

static void add_all(struct sl_bench_report *report, const struct board *board)
{
    const struct sl_bench_pslite_load *load = &board->command.load;
    double goodput = 0;
    for (uint32_t i = 0; i < board->command.workers; i++) {
        add_worker(report, &board->command, &board->found[i]);
        goodput += board->found[i].all_goodput;
    }
    if (load->mode != SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        const char *transport = sl_bench_over_names[board->command.over];
        add_one(report, "all workers", "goodput", "Gb/s", transport, goodput);
        add_one(report, "all workers", "keys", "1/s", transport,
                goodput * 1e9 / 8 / (double)load->len);
    }
}

/* `print`: the table too; a worker of a job that is not local has said all before. */
static int finish(const struct board *board, bool print)
{
    const struct command *command = &board->command;
    char of_load[SETTING_BYTES];
    char setting[SETTING_BYTES + 128];
    struct sl_bench_report *report = NULL;
    sl_bench_pslite_options_setting(&command->load, of_load, sizeof of_load);
    (void)snprintf(setting, sizeof setting, "%s; %s; the worker's connections are served by %s",
                   of_load, sl_bench_over_names[command->over],
                   command->client == 0 ? "its own thread" : "a second thread");
    int err = sl_bench_report_create("pslite", setting, &report);
    if (err == 0) {
        add_all(report, board);
        sl_bench_report_disturbed(report, board->was_disturbed ? 1 : 0, false);
        if (print) {
            sl_bench_report_print(report, &command->common, stdout);
        }
        if (command->common.json != NULL) {
            err = sl_bench_report_write_json(report, &command->common, command->common.json);
        }
    }
    sl_bench_report_destroy(&report);
    return err;
}

/* ---- Roles ----------------------------------------------------------------------------------- */

static int run_worker(void *ctx, uint32_t index)
{
    struct board *board = ctx;
    const struct sl_bench_pslite_worker worker = {
        .load = &board->command.load,
        .driven = board->command.client == 0,
    };
    return sl_bench_pslite_worker_run(&worker, &board->found[index]);
}

static int run_server(const struct sl_kv_handler *handler)
{
    static char program[] = "starling-bench";
    char *argv[] = {program, NULL};
    return sl_kv_serve(1, argv, handler);
}

static int run_role(struct board *board, enum sl_kv_role role, const struct sl_kv_handler *handler)
{
    if (board->command.over == SL_BENCH_OVER_TCP && setenv("STARLING_SHM", "0", 1) != 0) {
        return 1;
    }
    if (role != SL_KV_WORKER) {
        return run_server(role == SL_KV_SERVER ? handler : NULL);
    }
    board->command.workers = 1; /* this one */
    const int status = run_worker(board, 0);
    return status != 0 || finish(board, false) == 0 ? status : 1;
}

static int run_local(struct board *board, const struct sl_kv_handler *handler)
{
    const struct command *command = &board->command;
    const struct sl_bench_pslite_job_options options = {
        .workers = (uint32_t)command->workers,
        .servers = (uint32_t)command->servers,
        .server_core = command->common.server_core,
        .worker_core = command->common.client_core,
        .no_shm = command->over == SL_BENCH_OVER_TCP,
        .handler = handler,
        .work = run_worker,
        .ctx = board,
    };
    struct sl_bench_pslite_job job = {0};
    struct sl_bench_quiet quiet;
    sl_bench_quiet_begin(&quiet);
    int err = sl_bench_pslite_job_start(&options, &job);
    if (err == 0) {
        err = sl_bench_pslite_job_wait(&job, JOB_TIMEOUT_MS);
        sl_bench_pslite_job_stop(&job);
    }
    board->was_disturbed = sl_bench_quiet_was_disturbed(&quiet);
    return err == 0 && finish(board, true) == 0 ? 0 : 1;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

static int parse_flags(struct command *command, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        {.kind = SL_CLI_FLAG,
         .name = "local",
         .target = &command->local,
         .help = "Starts the scheduler, the servers and the workers by itself, on this machine. "
                 "Without it DMLC_ROLE says which of them this is."},
        sl_bench_number("workers", &command->workers, 1, SL_BENCH_PSLITE_WORKERS_MAX,
                        "With --local: how many, all on the client's core."),
        sl_bench_number("servers", &command->servers, 1, SL_BENCH_PSLITE_SERVERS_MAX,
                        "With --local: how many, all on the server's core."),
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
            "ps-lite's test_benchmark: goodput of pushes and pulls of whole arrays by key. LEN "
            "bytes of each key (1024000), REPEAT rounds (10), MODE 0 push then pull, 1 push_pull "
            "(the default), 2 push, 3 pull; NUM_KEY_PER_SERVER (40), LOG_DURATION (10 rounds "
            "between two reports), TOTAL_DURATION (rounds, in place of REPEAT).",
        .usage = "[LEN [REPEAT [MODE]]] [options]",
        .is_one_run = true,
    };
    return sl_bench_parse_program(&program, own, sizeof own / sizeof own[0], &command->common, argc,
                                  argv);
}

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
static int parse(struct command *command, enum sl_kv_role *role, int argc, char **argv)
{
    char reason[REASON_BYTES];
    int taken = 0;
    int err = sl_bench_pslite_options_arguments(&command->load, argc, argv, &taken, reason,
                                                sizeof reason);
    if (err == 0) {
        err = sl_bench_pslite_options_environment(&command->load, reason, sizeof reason);
    }
    if (err == 0) {
        argv[taken] = argv[0];
        const int parsed = parse_flags(command, argc - taken, argv + taken);
        if (parsed != SL_CLI_RUN) {
            return parsed;
        }
        command->load.handler = (enum sl_bench_pslite_handler)command->handler;
        err = sl_bench_pslite_options_check(&command->load, reason, sizeof reason);
    }
    const char *named = getenv("DMLC_ROLE");
    if (err == 0 && command->local && named != NULL) {
        (void)snprintf(reason, sizeof reason,
                       "--local starts every role, but DMLC_ROLE=%.64s names one: leave out one "
                       "of the two",
                       named);
        err = SL_ERR_INVALID;
    }
    if (err == 0 && !command->local && named == NULL) {
        (void)snprintf(reason, sizeof reason,
                       "accepts --local, or a role in DMLC_ROLE: scheduler, server, worker");
        err = SL_ERR_INVALID;
    }
    if (err != 0) {
        (void)fprintf(stderr, "starling-bench pslite: %s\n", reason);
        return err;
    }
    return command->local ? SL_CLI_RUN : sl_kv_role(role);
}

static int run(struct board *board, enum sl_kv_role role)
{
    struct sl_bench_pslite_keep *keep = NULL;
    if (sl_bench_pslite_keep_create(&keep) != 0) {
        sl_log_error("no memory for the benchmark");
        return 1;
    }
    const struct sl_kv_handler handler = sl_bench_pslite_keep_handler(keep);
    const struct sl_kv_handler *of_servers =
        board->command.load.handler == SL_BENCH_PSLITE_KEEP ? &handler : NULL;
    const int status =
        board->command.local ? run_local(board, of_servers) : run_role(board, role, of_servers);
    sl_bench_pslite_keep_destroy(&keep);
    return status;
}

int sl_bench_pslite_run(int argc, char **argv)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        sl_log_error("no memory for the benchmark");
        return 1;
    }
    board->command = (struct command){
        .load = sl_bench_pslite_options_defaults(),
        .workers = 1,
        .servers = 1,
        .common = {.server_core = -1, .client_core = -1},
    };
    enum sl_kv_role role = SL_KV_WORKER;
    const int parsed = parse(&board->command, &role, argc, argv);
    const int status = parsed < 0 ? 2 : parsed == SL_CLI_RUN ? run(board, role) : 0;
    (void)munmap(board, sizeof *board);
    return status;
}
