/* starling-bench staleness: how old the parameters are that workers use; SRL's benchmark, with its
 * flags and its lines. */
#include "bench/staleness.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/staleness_trainer.h"

#define WORKERS_MAX 400

/* By enum of --mode. */
static const struct sl_bench_staleness_mode *const modes[] = {
    &sl_bench_staleness_files, &sl_bench_staleness_multicast, &sl_bench_staleness_server};

static bool parse_log_level(const char *text, void *target)
{
    return sl_log_parse_level(text, target);
}

static int parse(int argc, char **argv, struct sl_bench_staleness_options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_choice("mode", &o->mode, "filesystem|multicast|server",
                        "The way from the trainer to the workers."),
        sl_bench_real("push_frequency", &o->push_frequency, 0.0001, 3600,
                      "Seconds between two pushes."),
        sl_bench_number("data_size", &o->data_size, 1, 65536, "MiB of a version."),
        sl_bench_real("pull_frequency", &o->pull_frequency, 0.0001, 3600,
                      "Seconds between two looks for a newer version."),
        sl_bench_real("post_frequency", &o->post_frequency, 0.001, 3600,
                      "Seconds between two posts of a worker."),
        sl_bench_real("step_frequency", &o->step_frequency, 0.0001, 3600,
                      "Seconds between two steps of a worker."),
        sl_bench_number("max_version", &o->max_version, 1, 1e8, "The last version."),
        sl_bench_real("max_time", &o->max_time, 0.01, 86400, "Seconds after which it ends."),
        sl_bench_number("workers", &o->workers, 1, WORKERS_MAX, "Processes that pull."),
        sl_bench_number("workers-per-node", &o->workers_per_node, 0, WORKERS_MAX,
                        "In an allocation of Slurm, where srun starts the workers; 0: all."),
        sl_bench_number("nworkers-per-node", &o->workers_per_node, 0, WORKERS_MAX, "The same."),
        SL_CLI_OPTION(BOOL, &o->subscribe, .name = "subscribe",
                      .help = "server: workers are notified, and do not poll."),
        sl_bench_real(
            "changed", &o->changed, 0, 1,
            "server: share of the elements (bf16) that a step changes, to any value; 0: a word "
            "a page."),
        SL_CLI_OPTION(BOOL, &o->delta, .name = "delta",
                      .help = "server: versions are published with deltas."),
        SL_CLI_OPTION(BOOL, &o->tcp, .name = "tcp", .help = "server: over TCP also on one host."),
        sl_bench_number("rate", &o->rate, 0, 1e12,
                        "server: bytes per second that the trainer's node sends; 0: any."),
        sl_bench_real("loss", &o->loss, 0, 0.9, "multicast: share of datagrams that get lost."),
        sl_bench_text("dir", &o->dir, "DIR",
                      "filesystem: a folder of all hosts. Default: $TMPDIR or /tmp."),
        sl_bench_text("trial_name", &o->trial_name, "NAME", "In the report, and of folders."),
        SL_CLI_OPTION(PARSED, &o->log_level, .name = "LOGLEVEL", .parse = parse_log_level,
                      .accepts = "DEBUG, INFO, WARN, ERROR or OFF", .metavar = "LEVEL",
                      .help = "Least level of log lines."),
        sl_bench_text("trainer", &o->trainer, "HOST:PORT",
                      "Of a worker, which the trainer starts."),
    };
    const struct sl_bench_program program = {
        .name = "staleness",
        .summary = "How old the parameters are that workers use. Frequencies are intervals.",
        .usage = "[options]"};
    return sl_bench_parse_program(&program, table, sizeof table / sizeof table[0], &o->common, argc,
                                  argv);
}

static void add_times(struct sl_bench_report *report, const char *name,
                      const struct sl_metric_histogram *times)
{
    static const struct {
        const char *quantity;
        double share;
    } shares[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}};
    const double mean_ns = times->count > 0 ? (double)times->sum / (double)times->count : 0;
    sl_bench_report_add(report, name, "mean", "s", mean_ns / (double)SL_CLOCK_NS_PER_S);
    for (uint32_t i = 0; i < 3; i++) {
        sl_bench_report_add(report, name, shares[i].quantity, "s",
                            sl_bench_seconds(sl_metric_quantile(times, shares[i].share)));
    }
    sl_bench_report_times(report, name, times);
}

static void add_versions(struct sl_bench_report *report, const struct sl_metric_histogram *behind)
{
    static const char *const NAME = "difference at every step";
    const double count = behind->count > 0 ? (double)behind->count : 1;
    sl_bench_report_add(report, NAME, "mean", "versions", (double)behind->sum / count);
    static const double shares[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"p50", "p90", "p99", "most"};
    for (uint32_t i = 0; i < 4; i++) {
        sl_bench_report_add(report, NAME, names[i], "versions",
                            (double)sl_metric_quantile(behind, shares[i]));
    }
    uint64_t upper;
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        const uint64_t in = sl_metric_bucket(behind, i, &upper);
        if (in > 0) {
            const double share = (double)in / count;
            sl_bench_report_figure(report,
                                   &(struct sl_bench_figure){.name = "steps",
                                                             .quantity = "share",
                                                             .unit = "",
                                                             .x_name = "versions behind, at most",
                                                             .x = (double)upper,
                                                             .samples = &share,
                                                             .count = 1});
        }
    }
}

static int report(const struct sl_bench_staleness *run,
                  const struct sl_bench_staleness_found *found)
{
    const struct sl_bench_staleness_options *o = &run->options;
    char setting[512];
    (void)snprintf(setting, sizeof setting,
                   "%s: %s%s, %llu workers, %llu MiB pushed every %g s, pulls every %g s, posts "
                   "every %g s, steps every %g s, loss %g%s%s, changed %g, rate %llu B/s",
                   o->trial_name, run->mode->name, o->subscribe ? " with --subscribe" : "",
                   (unsigned long long)o->workers, (unsigned long long)o->data_size,
                   o->push_frequency, o->pull_frequency, o->post_frequency, o->step_frequency,
                   o->loss, o->delta ? ", with deltas" : "", o->tcp ? ", over TCP" : "", o->changed,
                   (unsigned long long)o->rate);
    struct sl_bench_report *report = sl_bench_report_create("staleness", setting);
    sl_bench_report_add(report, "difference at posts, as SRL", "mean", "versions", found->average);
    add_versions(report, &found->behind);
    add_times(report, "behind at every step", &found->behind_time);
    add_times(report, "commit to visible", &found->visible);
    add_times(report, "begin of push to visible", &found->delivered);
    sl_bench_report_add(report, "push", "mean", "s", found->push_seconds);
    sl_bench_report_add(report, "pushes", "versions", "", (double)found->pushes);
    sl_bench_report_add(report, "pulls", "versions", "", (double)found->pulls);
    sl_bench_report_add(report, "torn reads", "pulls", "", (double)found->torn);
    sl_bench_report_add(report, "sent by the trainer's host", "bytes", "B",
                        (double)found->sent_bytes);
    if (found->pushes > SL_BENCH_STALENESS_FIRST) {
        sl_bench_report_add(report, "sent for a later version", "bytes", "B",
                            (double)(found->sent_bytes - found->first_bytes) /
                                (double)(found->pushes - SL_BENCH_STALENESS_FIRST));
    }
    return sl_bench_report_finish(&report, &o->common);
}

int sl_bench_staleness_run(int argc, char **argv)
{
    static struct sl_bench_staleness run;
    static struct sl_bench_staleness_found found;
    run.options = (struct sl_bench_staleness_options){.common = sl_bench_common_defaults(),
                                                      .push_frequency = 0.2,
                                                      .data_size = 10,
                                                      .pull_frequency = 0.2,
                                                      .post_frequency = 2,
                                                      .step_frequency = 0.005,
                                                      .max_version = 500,
                                                      .max_time = 60,
                                                      .workers = 4,
                                                      .trial_name = "staleness",
                                                      .log_level = SL_LOG_INFO};
    const int parsed = parse(argc, argv, &run.options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    sl_log_setup(run.options.log_level, "bench");
    run.mode = modes[run.options.mode];
    run.bytes = run.options.data_size << 20;
    if (run.options.trainer != NULL) {
        return sl_bench_staleness_work(&run);
    }
    run.is_distributed = getenv("SLURM_JOB_ID") != NULL;
    int err = sl_bench_staleness_train(&run, argc, argv, &found);
    err = err != 0 ? err : report(&run, &found);
    return err == 0 ? 0 : 1;
}
