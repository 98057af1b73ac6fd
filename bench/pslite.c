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
#include "bench/report.h"
#include "core/log.h"

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

/* Input and results of one worker. */
struct board {
    struct command command;
    struct sl_bench_pslite_found found[SL_BENCH_PSLITE_WORKERS_MAX];
    bool was_disturbed; /* of a local job: other programs took processor time */
};

/* ---- Reports --------------------------------------------------------------------------------- */

/* The samples of worker `rank`, or of all of them (-1). */
static void add(struct sl_bench_report *report, int64_t rank, const char *quantity,
                const char *unit, const char *transport, const double *samples, uint32_t count)
{
    char name[SL_BENCH_NAME_BYTES] = "all workers";
    if (rank >= 0) {
        (void)snprintf(name, sizeof name, "worker %lld", (long long)rank);
    }
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, quantity, unit);
    sl_bench_figure_over(figure, transport);
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_figure_sample(figure, samples[i]);
    }
}

static void add_all(struct sl_bench_report *report, const struct board *board)
{
    const struct sl_bench_pslite_load *load = &board->command.load;
    const char *over = sl_bench_over_names[board->command.over];
    const bool is_blocking = load->mode == SL_BENCH_PSLITE_PUSH_THEN_PULL;
    double goodput = 0;
    for (uint32_t i = 0; i < board->command.workers; i++) {
        const struct sl_bench_pslite_found *found = &board->found[i];
        const uint32_t reports = found->report_count;
        if (is_blocking) {
            const double keys = (double)load->repeat * found->key_count;
            add(report, found->rank, "push, total", "ms", over, &found->push_ms, 1);
            add(report, found->rank, "pull, total", "ms", over, &found->pull_ms, 1);
            add(report, found->rank, "push of a key", "us", over,
                &(double){found->push_ms * 1e3 / keys}, 1);
            add(report, found->rank, "pull of a key", "us", over,
                &(double){found->pull_ms * 1e3 / keys}, 1);
        } else {
            add(report, found->rank, "goodput", "Gb/s", over, found->goodput, reports);
            add(report, found->rank, "time per key", "us", over, found->key_us, reports);
        }
        goodput += found->all_goodput;
    }
    if (!is_blocking) {
        add(report, -1, "goodput", "Gb/s", over, &goodput, 1);
        add(report, -1, "keys", "1/s", over, &(double){goodput * 1e9 / 8 / (double)load->len}, 1);
    }
}

static int finish(const struct board *board)
{
    const struct command *command = &board->command;
    char of_load[SETTING_BYTES];
    char setting[SETTING_BYTES + 128];
    sl_bench_pslite_options_setting(&command->load, of_load, sizeof of_load);
    (void)snprintf(setting, sizeof setting, "%s; %s; the worker's connections are served by %s",
                   of_load, sl_bench_over_names[command->over],
                   command->client == 0 ? "its own thread" : "a second thread");
    struct sl_bench_report *report = sl_bench_report_create("pslite", setting);
    add_all(report, board);
    sl_bench_report_disturbed(report, board->was_disturbed ? 1 : 0, false);
    const int err = sl_bench_report_finish(report, &command->common);
    sl_bench_report_destroy(&report);
    return err;
}

/* ---- Roles ----------------------------------------------------------------------------------- */

static int run_worker(void *ctx, uint32_t index)
{
    struct board *board = ctx;
    const struct sl_bench_pslite_worker worker = {.load = &board->command.load,
                                                  .driven = board->command.client == 0};
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
    /* The worker has printed its figures: a report needs Python, which a cluster may not have. */
    const int status = run_worker(board, 0);
    return status != 0 || board->command.common.json == NULL || finish(board) == 0 ? status : 1;
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
    return err == 0 && finish(board) == 0 ? 0 : 1;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
static int parse(struct command *command, enum sl_kv_role *role, int argc, char **argv)
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
    int taken;
    const int parsed =
        sl_bench_pslite_options_parse(&program, own, sizeof own / sizeof own[0], &command->common,
                                      &command->handler, &command->load, &taken, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed;
    }
    const char *named = getenv("DMLC_ROLE");
    if (command->local && named != NULL) {
        (void)fprintf(stderr,
                      "starling-bench pslite: --local starts every role, but DMLC_ROLE=%.64s names "
                      "one: leave out one of the two\n",
                      named);
        return SL_ERR_INVALID;
    }
    if (!command->local && named == NULL) {
        (void)fprintf(stderr, "starling-bench pslite: accepts --local, or a role in DMLC_ROLE: "
                              "scheduler, server, worker\n");
        return SL_ERR_INVALID;
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
