#include <stdio.h>
#include <stdlib.h>

#include "bench/checkpoint.h"
#include "bench/contest.h"
#include "bench/load.h"
#include "bench/now.h"
#include "bench/workload.h"

#define P99_MOST    1.3 /* of pulls beside a checkpoint / without */
#define MEMORY_MOST 1.1 /* of the ps in its course / before */
#define ADDS_MAX    63  /* in a row: as many as a ps takes */

/* A ps, and the load on it: pulls and pushes of one thread. It is parked between its turns. */
struct site {
    const struct sl_bench_checkpoint *bench;
    char dir[SL_BENCH_PATH_BYTES];
    struct sl_bench_ps *ps;
    struct sl_bench_load *pulls, *pushes;
    uint64_t resident; /* before the first checkpoint */
    uint64_t log_at;
};

/* A contestant: `seconds` of a site's load, with or without checkpoints, one after the other. */
struct window {
    struct site *site;
    bool has_checkpoints;
    uint64_t count; /* checkpoints of one run */
    double took_s;  /* all of them together */
    struct sl_bench_load_result pulled, pushed;
    struct sl_metric_histogram latency; /* of all runs */
};

enum quantity { P50, P99, P999, PULLS, PEAK, STALLS, LONGEST, TOOK, QUANTITIES };

static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [P50] = {"p50", "us"},
    [P99] = {"p99", "us"},
    [P999] = {"p99.9", "us"},
    [PULLS] = {"pulls", "1/s"},
    [PEAK] = {"peak memory", "B"},
    [STALLS] = {"stalls", ""},
    [LONGEST] = {"longest stall", "ms"},
    [TOOK] = {"a checkpoint", "s"},
};

/* ---- The load -------------------------------------------------------------------------------- */

static int open_load(const struct site *site, enum sl_bench_operation operation, double rate,
                     struct sl_bench_load *host, struct sl_bench_load **out)
{
    const struct sl_bench_checkpoint_options *options = site->bench->options;
    const struct sl_bench_load_options load = {
        .coordinator = sl_bench_ps_coordinator(site->ps),
        .table = sl_bench_rows_table("checkpoint", options->dim, SL_OPTIMIZER_ADAGRAD),
        .operation = operation,
        .connections = (uint32_t)options->connections,
        .depth = (uint32_t)options->depth,
        .keys = (uint32_t)options->keys,
        .distribution = SL_BENCH_UNIFORM,
        .rows = options->rows,
        .seed = 1 + (uint64_t)operation,
        .rate = rate,
        .core = options->common.client_core,
        .host = host,
    };
    return sl_bench_load_open(&load, out);
}

static int run_checkpoints(struct window *window, struct sl_client *client, uint64_t until_ns)
{
    int err = 0;
    while (err == 0 && sl_bench_now_ns() < until_ns) {
        uint64_t number;
        double seconds = 0;
        err = sl_bench_checkpoint_ask(client, &number, &seconds);
        window->count += err == 0 ? 1 : 0;
        window->took_s += seconds;
    }
    return err;
}

/* Both loads for the same time, and checkpoints in all of it. */
static int run_loads(struct window *window, const struct sl_bench_common *common,
                     struct sl_client *client)
{
    struct site *site = window->site;
    const uint64_t until_ns = sl_bench_now_ns() + sl_bench_ns(common->warm_up + common->seconds);
    int err = sl_bench_load_begin(site->pulls, common->warm_up, common->seconds);
    if (err != 0) {
        return err;
    }
    err = sl_bench_load_begin(site->pushes, common->warm_up, common->seconds);
    if (err == 0) {
        err = client == NULL ? 0 : run_checkpoints(window, client, until_ns);
        const int pushed = sl_bench_load_wait(site->pushes, &window->pushed);
        err = err != 0 ? err : pushed;
    }
    const int pulled = sl_bench_load_wait(site->pulls, &window->pulled);
    return err != 0 ? err : pulled;
}

/* ---- A turn ---------------------------------------------------------------------------------- */

static int measure(struct window *window, const struct sl_bench_common *common,
                   struct sl_bench_ps_memory *memory)
{
    struct site *site = window->site;
    struct sl_client *client = NULL;
    struct sl_table *table;
    window->count = 0;
    window->took_s = 0;
    int err = 0;
    if (window->has_checkpoints) {
        err = sl_bench_checkpoint_connect(site->bench, site->ps, &client, &table);
    }
    err = err != 0 ? err : sl_bench_ps_forget_peak(site->ps);
    err = err != 0 ? err : run_loads(window, common, client);
    err = err != 0 ? err : sl_bench_ps_memory(site->ps, memory);
    if (client != NULL) {
        sl_client_destroy(&client);
    }
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct window *window = ctx;
    struct site *site = window->site;
    struct sl_bench_ps_memory memory = {0};
    sl_bench_ps_unpark(site->ps);
    (void)sl_bench_ps_stalls(site->ps, &site->log_at);
    int err = measure(window, common, &memory);
    if (err != 0) {
        sl_bench_ps_show_log(site->ps);
        return err;
    }
    const struct sl_bench_ps_stalls stalls = sl_bench_ps_stalls(site->ps, &site->log_at);
    sl_bench_ps_park(site->ps);
    const struct sl_bench_load_result *pulled = &window->pulled;
    values[P50] = (double)sl_metric_quantile(&pulled->latency, 0.5) / 1e3;
    values[P99] = (double)sl_metric_quantile(&pulled->latency, 0.99) / 1e3;
    values[P999] = (double)sl_metric_quantile(&pulled->latency, 0.999) / 1e3;
    values[PULLS] = (double)pulled->requests / pulled->seconds;
    values[PEAK] = (double)memory.peak;
    values[STALLS] = (double)stalls.count;
    values[LONGEST] = stalls.longest_ms;
    if (window->has_checkpoints) {
        values[TOOK] = window->took_s / (double)window->count;
    }
    sl_metric_merge(&window->latency, &pulled->latency);
    return 0;
}

static struct sl_bench_contestant contestant(const char *name, struct window *window)
{
    return (struct sl_bench_contestant){
        .name = name,
        .quantities = quantities,
        .quantity_count = window->has_checkpoints ? QUANTITIES : TOOK,
        .run = run,
        .ctx = window,
    };
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The first checkpoint, which is full wherever the others add. */
static int make_first(struct site *site)
{
    struct sl_client *client;
    struct sl_table *table;
    uint64_t number;
    double seconds;
    int err = sl_bench_checkpoint_connect(site->bench, site->ps, &client, &table);
    if (err == 0) {
        err = sl_bench_checkpoint_ask(client, &number, &seconds);
        sl_client_destroy(&client);
    }
    return err;
}

static int open_site(const struct sl_bench_checkpoint *bench, const char *name, uint32_t adds,
                     struct site *site)
{
    const struct sl_bench_checkpoint_options *options = bench->options;
    site->bench = bench;
    (void)snprintf(site->dir, sizeof site->dir, "%s/%s", bench->scratch.path, name);
    const struct sl_bench_ps_options checkpoints = {
        .checkpoint_dir = site->dir, .checkpoint_adds = adds, .checkpoint_level = 1};
    int err = sl_bench_checkpoint_start(bench, &checkpoints, &site->ps);
    err = err != 0 ? err : open_load(site, SL_BENCH_PULL, options->pull_rate, NULL, &site->pulls);
    if (err == 0) {
        err = open_load(site, SL_BENCH_PUSH, options->push_rate, site->pulls, &site->pushes);
    }
    struct sl_bench_ps_memory memory = {0};
    err = err != 0 ? err : sl_bench_ps_memory(site->ps, &memory);
    site->resident = memory.resident;
    err = err != 0 ? err : make_first(site);
    if (err != 0 && site->ps != NULL) {
        sl_bench_ps_show_log(site->ps);
    } else if (err == 0) {
        sl_bench_ps_park(site->ps);
    }
    return err;
}

static void close_site(struct site *site)
{
    if (site->ps != NULL) {
        sl_bench_ps_unpark(site->ps);
    }
    sl_bench_load_close(&site->pushes);
    sl_bench_load_close(&site->pulls);
    sl_bench_ps_kill(&site->ps);
}

static void conclude_site(struct sl_bench_report *report, const struct site *site,
                          const struct sl_bench_contestant *without,
                          const struct sl_bench_contestant *with, const char *what)
{
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "p50 of pulls beside %s / without", what);
    sl_bench_report_ratio(report, name, with->figures[P50], without->figures[P50], 0, 0);
    (void)snprintf(name, sizeof name, "p99 of pulls beside %s / without", what);
    sl_bench_report_ratio(report, name, with->figures[P99], without->figures[P99], 0, P99_MOST);
    (void)snprintf(name, sizeof name, "before the first of %s", what);
    struct sl_bench_figure *before = sl_bench_report_figure(report, name, "memory", "B");
    for (uint32_t i = 0; i < with->figures[PEAK]->count; i++) {
        sl_bench_figure_sample(before, (double)site->resident);
    }
    (void)snprintf(name, sizeof name, "memory in %s / before", what);
    sl_bench_report_ratio(report, name, with->figures[PEAK], before, 0, MEMORY_MOST);
}

enum { FULL, ADDS, SITES };

static int compare(struct sl_bench_checkpoint *bench, struct site *sites, struct window *windows)
{
    static const char *const names[] = {"no checkpoint", "full checkpoints",
                                        "no checkpoint, among adding ones", "adding checkpoints"};
    struct sl_bench_contestant contestants[2 * SITES];
    for (uint32_t i = 0; i < 2 * SITES; i++) {
        windows[i].site = &sites[i / 2];
        windows[i].has_checkpoints = i % 2 == 1;
        sl_metric_init(&windows[i].latency);
        contestants[i] = contestant(names[i], &windows[i]);
    }
    int err = sl_bench_contest_run(contestants, 2 * SITES, &bench->options->common, bench->report);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < 2 * SITES; i++) {
        sl_bench_report_histogram(bench->report, names[i], &windows[i].latency);
    }
    for (uint32_t i = 0; i < SITES; i++) {
        conclude_site(bench->report, &sites[i], &contestants[2 * i], &contestants[2 * i + 1],
                      names[2 * i + 1]);
    }
    return 0;
}

int sl_bench_checkpoint_measure_serving(struct sl_bench_checkpoint *bench)
{
    struct site *sites = calloc(SITES, sizeof *sites);
    struct window *windows = calloc(2 * SITES, sizeof *windows);
    int err = SL_ERR_NO_MEMORY;
    if (sites != NULL && windows != NULL) {
        err = open_site(bench, "full", 0, &sites[FULL]);
        err = err != 0 ? err : open_site(bench, "adds", ADDS_MAX, &sites[ADDS]);
        err = err != 0 ? err : compare(bench, sites, windows);
        close_site(&sites[FULL]);
        close_site(&sites[ADDS]);
    }
    free(windows);
    free(sites);
    return err;
}
