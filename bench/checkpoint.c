/* starling-bench checkpoint: what checkpoints cost a ps that serves, what is in them, and how fast
 * a ps begins from one. */
#include "bench/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"

#define TIMEOUT_MS 60000

enum part { PART_ALL, PART_SERVING, PART_RESTORE };
#define PART_CHOICES "all|serving|restore"

/* ---- For the parts --------------------------------------------------------------------------- */

int sl_bench_checkpoint_start(const struct sl_bench_checkpoint *bench,
                              const struct sl_bench_ps_options *checkpoints,
                              struct sl_bench_ps **out)
{
    struct sl_bench_ps_options options = *checkpoints;
    options.reactors = 1;
    options.first_core = bench->options->common.server_core;
    options.polling = bench->options->polling != 0;
    return sl_bench_ps_start(&options, out);
}

int sl_bench_checkpoint_connect(const struct sl_bench_checkpoint *bench,
                                const struct sl_bench_ps *ps, struct sl_client **client,
                                struct sl_table **table)
{
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = sl_bench_ps_coordinator(ps),
                                              .task_index = -1};
    const struct sl_table_spec spec =
        sl_bench_rows_table("checkpoint", bench->options->dim, SL_OPTIMIZER_ADAGRAD);
    int err = sl_client_create(&options, client);
    if (err != 0) {
        return err;
    }
    err = sl_client_table_open(*client, &spec, TIMEOUT_MS, table);
    if (err != 0) {
        sl_client_destroy(client);
    }
    return err;
}

int sl_bench_checkpoint_ask(struct sl_client *client, uint64_t *number, double *seconds)
{
    const uint64_t from_ns = sl_bench_now_ns();
    int err = sl_client_checkpoint(client, TIMEOUT_MS, number);
    if (err != 0) {
        sl_log_error("no checkpoint is made: %s", sl_err_name(err));
        return err;
    }
    *seconds = sl_bench_seconds(sl_bench_now_ns() - from_ns);
    return 0;
}

int sl_bench_checkpoint_value(const struct sl_bench_checkpoint *bench, struct sl_client *client,
                              struct sl_table *table, float *value)
{
    const uint64_t key = sl_bench_workload_key(0);
    float *row = calloc(bench->options->dim, sizeof *row);
    int err =
        row == NULL ? SL_ERR_NO_MEMORY : sl_client_pull(client, table, &key, 1, row, TIMEOUT_MS);
    if (err == 0) {
        *value = row[0];
    } else {
        sl_log_error("a row cannot be pulled: %s", sl_err_name(err));
    }
    free(row);
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int measure(struct sl_bench_checkpoint *bench)
{
    const enum part part = (enum part)bench->options->part;
    struct sl_bench_checkpoint_files files[SL_BENCH_CHECKPOINT_LEVELS];
    int err = part == PART_RESTORE ? 0 : sl_bench_checkpoint_measure_serving(bench);
    if (err != 0 || part == PART_SERVING) {
        return err;
    }
    err = sl_bench_checkpoint_measure_files(bench, files);
    return err != 0 ? err : sl_bench_checkpoint_measure_restore(bench, files);
}

static int start(struct sl_bench_checkpoint *bench)
{
    const struct sl_bench_checkpoint_options *o = bench->options;
    char setting[320], loop[64] = "closed loop";
    if (o->pull_rate > 0) {
        (void)snprintf(loop, sizeof loop, "%g pulls/s and %g pushes/s", o->pull_rate, o->push_rate);
    }
    (void)snprintf(setting, sizeof setting,
                   "one ps reactor, %llu rows of dim %llu with adagrad; pulls and pushes of %llu "
                   "keys, %llu connections x %llu each, %s; %s mode; what compresses and writes "
                   "has the reactor's core",
                   (unsigned long long)o->rows, (unsigned long long)o->dim,
                   (unsigned long long)o->keys, (unsigned long long)o->connections,
                   (unsigned long long)o->depth, loop, o->polling ? "polling" : "event");
    bench->report = sl_bench_report_create("checkpoint", setting);
    return sl_bench_scratch_init(&bench->scratch, o->dir, "checkpoint");
}

static int parse(int argc, char **argv, struct sl_bench_checkpoint_options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_choice("part", &o->part, PART_CHOICES, "What is measured."),
        sl_bench_number("rows", &o->rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_text("dir", &o->dir, "DIR",
                      "Where a folder for the checkpoints is made, and removed at the end; not "
                      "given: $TMPDIR or /tmp."),
        sl_bench_real(
            "touched", &o->touched, 0.000001, 1,
            "Share of the rows that is pushed to between a full checkpoint and one that adds "
            "to it."),
        {.kind = SL_CLI_SECTION, .name = "The load beside checkpoints"},
        sl_bench_number("keys", &o->keys, 1, 8192, "Of a pull, and of a push."),
        sl_bench_number("connections", &o->connections, 1, 1024,
                        "Of the pulls, and as many of the pushes."),
        sl_bench_number("depth", &o->depth, 1, 128, "Requests under way on each, at most."),
        sl_bench_real(
            "pull-rate", &o->pull_rate, 0, 1e9,
            "Pulls a second, due at fixed intervals whatever the server does, with latency "
            "counted from when they were due; 0: each reply lets the next go."),
        sl_bench_real("push-rate", &o->push_rate, 0, 1e9, "The same of the pushes."),
        sl_bench_choice("polling", &o->polling, "false|true",
                        "Whether the ps spins when it is idle."),
    };
    return sl_bench_parse("checkpoint",
                          "What checkpoints cost a ps that serves, what they hold, and how fast a "
                          "ps begins from one.",
                          table, sizeof table / sizeof table[0], &o->common, argc, argv);
}

int sl_bench_checkpoint_run(int argc, char **argv)
{
    struct sl_bench_checkpoint_options options = {
        .common = sl_bench_common_defaults(),
        .rows = 2000000,
        .dim = 16,
        .keys = 10,
        .connections = 8,
        .depth = 8,
        .pull_rate = 20000,
        .push_rate = 5000,
        .touched = 0.1,
    };
    const int parsed = parse(argc, argv, &options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct sl_bench_checkpoint bench = {.options = &options};
    int err = start(&bench);
    err = err != 0 ? err : measure(&bench);
    err = err != 0 ? err : sl_bench_report_finish(bench.report, &options.common);
    sl_bench_scratch_fini(&bench.scratch);
    sl_bench_report_destroy(&bench.report);
    return err == 0 ? 0 : 1;
}
