/* starling-bench replicas: what a backup of each shard costs those who push. Two clusters of two ps
 * each, one with --replicas 1 and one without, have the same pushes in turns, through TCP and
 * through shared memory. */
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"

#define TIMEOUT_MS 60000
#define DEPTH_MAX  128
#define FILL_KEYS  1000

enum { PS = 2 };
enum replicas { WITHOUT, WITH, CLUSTERS };
enum way { TCP, SHM, WAYS };
static const char *const way_names[WAYS] = {"tcp", "shm"};

enum shape { ONE, MANY, LONG, SHAPES };

struct options {
    struct sl_bench_common common;
    uint64_t rows, dim, keys, depth, long_keys, long_depth;
    int64_t second_core;
    int polling;
    const char *congestion;
};

struct bench;

struct cluster {
    struct sl_bench_ps *ps[PS];
    struct sl_client *clients[WAYS];
    struct sl_table *tables[WAYS];
};

/* A contestant: pushes of one shape, one way, to one of the clusters. */
struct entry {
    struct bench *bench;
    enum replicas replicas;
    enum way way;
    enum shape shape;
};

/* A push under way. */
struct flight {
    struct sl_step *step;
    uint64_t from_ns;
};

#define ENTRIES (CLUSTERS * WAYS * SHAPES)

struct bench {
    struct options options;
    struct cluster clusters[CLUSTERS];
    struct entry entries[ENTRIES];
    struct sl_bench_contest contest;
    uint64_t *keys;   /* of each push that can be under way, one behind the other */
    float *gradients; /* of the longest push */
    struct flight flights[DEPTH_MAX];
};

enum quantity { PUSHES, ROWS, BYTES, P50, P99, QUANTITIES };

static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [PUSHES] = {"pushes", "1/s"}, [ROWS] = {"rows", "1/s"}, [BYTES] = {"bytes", "B/s"},
    [P50] = {"p50", "us"},        [P99] = {"p99", "us"},
};

static uint32_t keys_of(const struct options *options, enum shape shape)
{
    return (uint32_t)(shape == LONG ? options->long_keys : options->keys);
}

static uint32_t depth_of(const struct options *options, enum shape shape)
{
    return (uint32_t)(shape == ONE ? 1 : shape == MANY ? options->depth : options->long_depth);
}

/* ---- Pushes ---------------------------------------------------------------------------------- */

static int begin_push(struct bench *bench, const struct cluster *cluster, enum way way,
                      const uint64_t *keys, uint32_t count, struct flight *out)
{
    struct flight flight = {.from_ns = sl_bench_now_ns()};
    int err = sl_step_begin(cluster->clients[way], 0, &flight.step);
    if (err != 0) {
        return err;
    }
    err = sl_step_push(flight.step, cluster->tables[way], keys, count, bench->gradients);
    err = err != 0 ? err : sl_step_submit(flight.step, TIMEOUT_MS);
    if (err != 0) {
        sl_log_error("a push cannot be sent: %s", sl_err_name(err));
        sl_step_destroy(&flight.step);
        return err;
    }
    *out = flight;
    return 0;
}

static int end_push(struct flight *flight, uint64_t *took_ns)
{
    const int err = sl_step_wait(flight->step);
    *took_ns = sl_bench_now_ns() - flight->from_ns;
    if (err != 0) {
        sl_log_error("a push has failed: %s: %s", sl_err_name(err), sl_step_error(flight->step));
    }
    sl_step_destroy(&flight->step);
    return err;
}

/* The oldest is waited for, and another begun in its place, until the time is over. */
static int push_for(const struct entry *entry, double seconds, struct sl_metric_histogram *latency,
                    double *took_s)
{
    struct bench *bench = entry->bench;
    const struct cluster *cluster = &bench->clusters[entry->replicas];
    const uint32_t count = keys_of(&bench->options, entry->shape);
    const uint32_t depth = depth_of(&bench->options, entry->shape);
    const uint64_t begun_ns = sl_bench_now_ns();
    const uint64_t until_ns = begun_ns + sl_bench_ns(seconds);
    uint64_t begun = 0, ended = 0, now_ns = begun_ns, took_ns;
    int err = 0;
    while (err == 0 && (now_ns < until_ns || ended < begun)) {
        if (now_ns < until_ns && begun - ended < depth) {
            const uint64_t *keys = bench->keys + (begun % depth) * count;
            err =
                begin_push(bench, cluster, entry->way, keys, count, &bench->flights[begun % depth]);
            begun += err == 0;
            continue;
        }
        err = end_push(&bench->flights[ended % depth], &took_ns);
        ended++;
        now_ns = sl_bench_now_ns();
        sl_metric_record(latency, took_ns);
    }
    for (; ended < begun; ended++) {
        (void)end_push(&bench->flights[ended % depth], &took_ns);
    }
    *took_s = sl_bench_seconds(now_ns - begun_ns);
    return err;
}

/* ---- A turn ---------------------------------------------------------------------------------- */

static void park(const struct cluster *cluster, bool parks)
{
    for (uint32_t i = 0; i < PS; i++) {
        if (cluster->ps[i] != NULL) {
            (parks ? sl_bench_ps_park : sl_bench_ps_unpark)(cluster->ps[i]);
        }
    }
}

static void show_logs(const struct cluster *cluster)
{
    for (uint32_t i = 0; i < PS; i++) {
        if (cluster->ps[i] != NULL) {
            sl_bench_ps_show_log(cluster->ps[i]);
        }
    }
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    const struct options *options = &entry->bench->options;
    const struct cluster *cluster = &entry->bench->clusters[entry->replicas];
    const double keys = keys_of(options, entry->shape);
    struct sl_metric_histogram latency;
    double took_s;
    sl_metric_init(&latency);
    park(cluster, false);
    int err = push_for(entry, common->warm_up, &latency, &took_s);
    if (err == 0) {
        sl_metric_init(&latency);
        err = push_for(entry, common->seconds, &latency, &took_s);
    }
    if (err != 0) {
        show_logs(cluster);
        return err;
    }
    park(cluster, true);
    values[PUSHES] = (double)latency.count / took_s;
    values[ROWS] = values[PUSHES] * keys;
    values[BYTES] = values[ROWS] * (double)(sizeof(uint64_t) + options->dim * sizeof(float));
    values[P50] = (double)sl_metric_quantile(&latency, 0.5) / 1e3;
    values[P99] = (double)sl_metric_quantile(&latency, 0.99) / 1e3;
    return 0;
}

/* ---- Clusters -------------------------------------------------------------------------------- */

static int start_ps(const struct options *options, enum replicas replicas, struct cluster *cluster)
{
    uint16_t ports[PS];
    char hosts[64];
    int err = sl_bench_ps_ports(PS, ports);
    (void)snprintf(hosts, sizeof hosts, "127.0.0.1:%u,127.0.0.1:%u", ports[0], ports[1]);
    for (uint32_t i = 0; i < PS && err == 0; i++) {
        const int core = i == 1 && options->second_core >= 0 ? (int)options->second_core
                                                             : options->common.server_core;
        const struct sl_bench_ps_options ps = {
            .reactors = 1,
            .first_core = core,
            .polling = options->polling != 0,
            .congestion = options->congestion,
            .hosts = hosts,
            .port = ports[i],
            .task_index = i,
            .replicas = replicas == WITH ? 1 : 0,
        };
        err = sl_bench_ps_start(&ps, &cluster->ps[i]);
    }
    return err;
}

static int connect_client(const struct options *options, enum way way, struct cluster *cluster)
{
    const struct sl_client_options client = {
        .struct_size = sizeof client,
        .coordinator = sl_bench_ps_coordinator(cluster->ps[0]),
        .task_index = -1,
        .manual_progress = true,
        .disable_shm = way == TCP,
        .congestion_control = options->congestion,
    };
    const struct sl_table_spec spec =
        sl_bench_rows_table("replicas", options->dim, SL_OPTIMIZER_ADAGRAD);
    int err = sl_client_create(&client, &cluster->clients[way]);
    return err != 0 ? err
                    : sl_client_table_open(cluster->clients[way], &spec, TIMEOUT_MS,
                                           &cluster->tables[way]);
}

/* All rows are there before anything is timed. */
static int fill(struct bench *bench, const struct cluster *cluster)
{
    const uint64_t rows = bench->options.rows;
    uint64_t keys[FILL_KEYS], took_ns;
    int err = 0;
    for (uint64_t rank = 0; err == 0 && rank < rows;) {
        uint32_t count = 0;
        while (count < FILL_KEYS && count < bench->options.long_keys && rank < rows) {
            keys[count++] = sl_bench_workload_key(rank++);
        }
        struct flight flight;
        err = begin_push(bench, cluster, TCP, keys, count, &flight);
        err = err != 0 ? err : end_push(&flight, &took_ns);
    }
    return err;
}

static int open_cluster(struct bench *bench, enum replicas replicas)
{
    struct cluster *cluster = &bench->clusters[replicas];
    int err = start_ps(&bench->options, replicas, cluster);
    for (int way = 0; way < WAYS && err == 0; way++) {
        err = connect_client(&bench->options, (enum way)way, cluster);
    }
    err = err != 0 ? err : fill(bench, cluster);
    if (err != 0) {
        show_logs(cluster);
    }
    park(cluster, true);
    return err;
}

static void close_cluster(struct cluster *cluster)
{
    park(cluster, false);
    for (int way = 0; way < WAYS; way++) {
        if (cluster->clients[way] != NULL) {
            sl_client_destroy(&cluster->clients[way]);
        }
    }
    for (uint32_t i = PS; i-- > 0;) {
        sl_bench_ps_kill(&cluster->ps[i]);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Keys that are drawn before anything is timed, and gradients that change a row for good. */
static int draw(struct bench *bench)
{
    const struct options *o = &bench->options;
    const uint64_t depth = o->depth > o->long_depth ? o->depth : o->long_depth;
    const uint64_t most = o->keys > o->long_keys ? o->keys : o->long_keys;
    struct sl_bench_workload workload;
    bench->keys = malloc(depth * most * sizeof *bench->keys);
    bench->gradients = malloc(most * o->dim * sizeof *bench->gradients);
    if (bench->keys == NULL || bench->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, o->rows, 1, 1);
    for (uint64_t i = 0; i < depth * most; i++) {
        bench->keys[i] = sl_bench_workload_next(&workload);
    }
    for (uint64_t i = 0; i < most * o->dim; i++) {
        bench->gradients[i] = (i % 2 == 0 ? 1.0F : -1.0F) / 64;
    }
    return 0;
}

/* Those that are compared stand side by side. */
static void add_entries(struct bench *bench)
{
    const struct options *options = &bench->options;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct entry *entry = &bench->entries[i];
        *entry = (struct entry){.bench = bench,
                                .replicas = (enum replicas)(i % CLUSTERS),
                                .way = (enum way)(i / CLUSTERS % WAYS),
                                .shape = (enum shape)(i / CLUSTERS / WAYS)};
        const struct sl_bench_contestant contestant = {.quantities = quantities,
                                                       .quantity_count = QUANTITIES,
                                                       .transport = way_names[entry->way],
                                                       .run = run,
                                                       .ctx = entry};
        (void)sl_bench_contest_add(&bench->contest, &contestant, "%s, %u keys x %u, replicas %d",
                                   way_names[entry->way], keys_of(options, entry->shape),
                                   depth_of(options, entry->shape), entry->replicas == WITH);
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    static const enum quantity compared[] = {BYTES, P50, P99};
    const struct bench *bench = ctx;
    const struct sl_bench_contestant *all = bench->contest.contestants;
    char name[SL_BENCH_NAME_BYTES];
    for (uint32_t i = 0; i < ENTRIES; i += CLUSTERS) {
        const struct entry *entry = &bench->entries[i];
        for (size_t q = 0; q < sizeof compared / sizeof compared[0]; q++) {
            (void)snprintf(name, sizeof name, "%s, %u keys x %u: %s with a backup / without",
                           way_names[entry->way], keys_of(&bench->options, entry->shape),
                           depth_of(&bench->options, entry->shape), quantities[compared[q]].name);
            sl_bench_report_ratio(report, name, all[i + WITH].figures[compared[q]],
                                  all[i + WITHOUT].figures[compared[q]], 0, 0);
        }
    }
}

static int measure(struct bench *bench, const char *setting)
{
    int err = draw(bench);
    for (int replicas = 0; replicas < CLUSTERS && err == 0; replicas++) {
        err = open_cluster(bench, (enum replicas)replicas);
    }
    if (err == 0) {
        add_entries(bench);
        err = sl_bench_contest_report(&bench->contest, "replicas", setting, conclude, bench,
                                      &bench->options.common);
    }
    for (int replicas = 0; replicas < CLUSTERS; replicas++) {
        close_cluster(&bench->clusters[replicas]);
    }
    free(bench->keys);
    free(bench->gradients);
    return err;
}

static int report(struct bench *bench)
{
    const struct options *o = &bench->options;
    char setting[320];
    (void)snprintf(
        setting, sizeof setting,
        "two ps with a reactor each, on %s, %llu rows of dim %llu with adagrad; pushes "
        "of a client that drives its own connections; %s mode; TCP %s",
        o->second_core < 0 || o->second_core == o->common.server_core ? "one core" : "two cores",
        (unsigned long long)o->rows, (unsigned long long)o->dim, o->polling ? "polling" : "event",
        o->congestion == NULL ? "as the system has it" : o->congestion);
    cpu_set_t before;
    int err = sl_bench_pin_begin(o->common.client_core, &before);
    err = err != 0 ? err : measure(bench, setting);
    sl_bench_pin_end(&before);
    return err;
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_number("rows", &o->rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys", &o->keys, 1, 8192, "Of a short push."),
        sl_bench_number("depth", &o->depth, 1, DEPTH_MAX,
                        "Short pushes under way; one at a time is measured too."),
        sl_bench_number("long-keys", &o->long_keys, 1, 8192, "Of a long push."),
        sl_bench_number("long-depth", &o->long_depth, 1, DEPTH_MAX, "Long pushes under way."),
        sl_bench_core("second-core", &o->second_core,
                      "The core of the second ps; -1: the server's, as the first one's."),
        sl_bench_choice("polling", &o->polling, "false|true",
                        "Whether a ps spins when it is idle."),
        sl_bench_congestion(&o->congestion),
    };
    return sl_bench_parse("replicas", "What a backup of each shard costs those who push.", table,
                          sizeof table / sizeof table[0], &o->common, argc, argv);
}

int sl_bench_replicas_run(int argc, char **argv)
{
    static struct bench bench;
    bench.options = (struct options){
        .common = sl_bench_common_defaults(),
        .rows = 100000,
        .dim = 16,
        .keys = 10,
        .depth = 32,
        .long_keys = 1000,
        .long_depth = 8,
        .second_core = -1,
        .congestion = "cubic",
    };
    const int parsed = parse(argc, argv, &bench.options);
    int status = parsed < 0 ? 2 : 0;
    if (parsed == SL_CLI_RUN) {
        status = report(&bench) == 0 ? 0 : 1;
    }
    return status;
}
