/* starling-bench table: one shard's sparse table in this process, without any network: its growth,
 * while rows that exist are read; its memory; lookups, reads and updates of rows in turns. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/workload.h"
#include "config/cli.h"
#include "core/hash.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "ps/optimizer/optimizer.h"
#include "ps/table/sparse_table.h"
#include "reactor/topology.h"

#define GROUP_ROWS    256 /* created between two looks at the processor time */
/* Of what the memory's records take: index, directory and slack at most. */
#define MEMORY_FACTOR 1.4

#define LIST_MAX      8 /* values of --rows or --dim */
#define DISTRIBUTIONS 2

/* A table is made for each of rows, optimizers and dims. */
struct options {
    struct sl_bench_common common;
    uint64_t rows[LIST_MAX], dims[LIST_MAX];
    enum sl_optimizer_kind optimizers[SL_OPTIMIZER_KIND_COUNT];
    uint32_t row_counts, dim_counts, optimizer_counts;
    bool distributions[DISTRIBUTIONS]; /* by enum sl_bench_distribution */
    uint64_t operations, batch, seed;
    double exponent; /* of Zipf's law */
};

/* Lists from the command line, not parsed yet. */
struct texts {
    const char *rows, *dims, *optimizers;
    int keys;
    bool all;
};

#define KEYS_BOTH "both"
enum { KEYS_OF_BOTH = 2 };

/* "adagrad,adam" or "all". */
static int read_optimizers(const char *text, struct options *o)
{
    const bool all = strcmp(text, "all") == 0;
    char name[32];
    for (int i = 0; all && i < SL_OPTIMIZER_KIND_COUNT; i++) {
        o->optimizers[o->optimizer_counts++] = (enum sl_optimizer_kind)i;
    }
    while (!all && text != NULL) {
        const int length = (int)strcspn(text, ",");
        (void)snprintf(name, sizeof name, "%.*s", length, text);
        if (o->optimizer_counts == SL_OPTIMIZER_KIND_COUNT ||
            sl_optimizer_kind_from_name(name, &o->optimizers[o->optimizer_counts]) != 0) {
            (void)fprintf(stderr,
                          "starling-bench table: --optimizer: \"%s\": accepts all, or of these "
                          "with commas between them: sum sgd momentum adagrad adagrad_decay "
                          "rmsprop adam adamw adam_async ftrl ftrl_group\n",
                          name);
            return SL_ERR_INVALID;
        }
        o->optimizer_counts++;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return 0;
}

static int read_lists(const struct texts *texts, struct options *o)
{
    o->distributions[SL_BENCH_UNIFORM] = texts->keys != SL_BENCH_ZIPF;
    o->distributions[SL_BENCH_ZIPF] = texts->keys != SL_BENCH_UNIFORM;
    int err = sl_bench_list("table", "rows", texts->rows, 1, 4000000000, o->rows, LIST_MAX,
                            &o->row_counts);
    err = err != 0 ? err
                   : sl_bench_list("table", "dim", texts->dims, 1, SL_LIMIT_DIM, o->dims, LIST_MAX,
                                   &o->dim_counts);
    return err != 0 ? err : read_optimizers(texts->optimizers, o);
}

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
static int parse(int argc, char **argv, struct options *o)
{
    struct texts texts = {NULL, NULL, NULL, KEYS_OF_BOTH, false};
    *o = (struct options){.common = sl_bench_common_defaults(),
                          .operations = 2000000,
                          .batch = 256,
                          .seed = 1,
                          .exponent = 1.05};
    o->common.seconds = 0.1;
    o->common.warm_up = 0.02;
    const struct sl_cli_option table[] = {
        sl_bench_text("rows", &texts.rows, "LIST",
                      "Rows that the table holds, \"1M,20M\"; 1M unless given."),
        sl_bench_text("dim", &texts.dims, "LIST", "Columns of a row; 16,64,128 unless given."),
        sl_bench_text("optimizer", &texts.optimizers, "LIST",
                      "Optimizers of the table, or all; adagrad unless given."),
        {.kind = SL_CLI_BOOL,
         .name = "all",
         .target = &texts.all,
         .help = "What is not given as a list is 1M,20M rows and all optimizers; what does not fit "
                 "into memory is left out. About 20 minutes."},
        sl_bench_choice("keys", &texts.keys, SL_BENCH_DISTRIBUTION_CHOICES "|" KEYS_BOTH,
                        "How keys are drawn."),
        sl_bench_exponent("exponent", &o->exponent),
        sl_bench_number("operations", &o->operations, 1, 1e9,
                        "Keys drawn, which each measurement goes through again and again."),
        sl_bench_number("batch", &o->batch, 1, SL_LIMIT_TURN_COST, "Keys of one call."),
        sl_bench_number("seed", &o->seed, 0, 0, "Seed of the keys drawn."),
    };
    const int result = sl_bench_parse("table", "Measures sparse tables in this process.", table,
                                      sizeof table / sizeof table[0], &o->common, argc, argv);
    if (result != SL_CLI_RUN) {
        return result;
    }
    texts.rows = texts.rows != NULL ? texts.rows : texts.all ? "1M,20M" : "1M";
    texts.dims = texts.dims != NULL ? texts.dims : "16,64,128";
    texts.optimizers = texts.optimizers != NULL ? texts.optimizers : texts.all ? "all" : "adagrad";
    return read_lists(&texts, o);
}

static const char *const distribution_names[DISTRIBUTIONS] = {"uniform", "zipf"};

/* Contestants of each round. */
enum phase { PHASE_LOOKUP, PHASE_GATHER, PHASE_UPDATE, PHASE_PULL, PHASE_PUSH, PHASE_COUNT };
static const char *const phase_names[PHASE_COUNT] = {"lookup", "gather", "update",
                                                     "lookup and gather", "lookup and update"};

/* Creations that took longer than a reactor's turn may. Those of our own making are told from those
 * in which the system ran something else by the processor time of the group around them. */
struct pauses {
    uint64_t count, own_count, own_max_ns;
};

/* Keys of one distribution, and where their rows are. */
struct drawn {
    uint64_t *keys;    /* [operations] */
    uint32_t *records; /* [operations] */
    uint64_t at;       /* of the next batch */
};

/* One table: its rows, columns and optimizer. */
struct bench {
    const struct options *options;
    uint64_t rows;
    uint32_t dim;
    struct sl_sparse_table *store;
    struct sl_optimizer_push push;
    struct drawn drawn[DISTRIBUTIONS];
    uint32_t *found;  /* [batch] */
    float *values;    /* [batch][dim] */
    float *gradients; /* [batch][dim] */
    uint64_t random;
    struct sl_metric_histogram *create; /* ns of one creation */
    struct sl_metric_histogram *serve;  /* ns of a batch that is read between creations */
    struct pauses pauses;
};

/* ---- Growth ---------------------------------------------------------------------------------- */

/* Creates the rows of `count` ranks. Every creation is timed by itself, so that a pause is seen
 * with the key that met it. */
static int create_group(struct bench *bench, uint64_t first, uint64_t count, uint64_t *longest_ns)
{
    const struct sl_clock *clock = sl_clock_system();
    uint64_t before = sl_clock_now_ns(clock);
    *longest_ns = 0;
    for (uint64_t rank = first; rank < first + count; rank++) {
        const uint64_t key = sl_bench_workload_key(rank);
        uint32_t record;
        const int err = sl_sparse_table_find_or_create(bench->store, &key, 1, &record);
        if (err != 0) {
            sl_log_error("row %" PRIu64 " cannot be created: %s", rank, sl_err_name(err));
            return err;
        }
        const uint64_t now = sl_clock_now_ns(clock);
        const uint64_t took_ns = now - before;
        sl_metric_record(bench->create, took_ns);
        bench->pauses.count += took_ns > SL_LIMIT_TURN_STALL_NS;
        *longest_ns = took_ns > *longest_ns ? took_ns : *longest_ns;
        before = now;
    }
    return 0;
}

/* Reads a batch of rows that exist, as somebody does who is served meanwhile. */
static void serve(struct bench *bench, uint64_t row_count)
{
    const struct sl_clock *clock = sl_clock_system();
    const uint32_t count = (uint32_t)bench->options->batch;
    uint64_t keys[SL_LIMIT_TURN_COST];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = sl_bench_workload_key(sl_hash_random(&bench->random) % row_count);
    }
    const uint64_t before = sl_clock_now_ns(clock);
    sl_sparse_table_find(bench->store, keys, count, bench->found);
    sl_sparse_table_gather(bench->store, bench->found, count, bench->values);
    sl_metric_record(bench->serve, sl_clock_now_ns(clock) - before);
}

/* A group has at most one pause worth the name, and all the time that its thread did not run is
 * taken to have been then. */
static void count_own_pause(struct pauses *pauses, uint64_t longest_ns, uint64_t wall_ns,
                            uint64_t ran_ns)
{
    const uint64_t away_ns = wall_ns > ran_ns ? wall_ns - ran_ns : 0;
    const uint64_t own_ns = longest_ns > away_ns ? longest_ns - away_ns : 0;
    if (own_ns > SL_LIMIT_TURN_STALL_NS) {
        pauses->own_count++;
        pauses->own_max_ns = own_ns > pauses->own_max_ns ? own_ns : pauses->own_max_ns;
    }
}

static int create_rows(struct bench *bench)
{
    const struct sl_clock *clock = sl_clock_system();
    for (uint64_t first = 0; first < bench->rows; first += GROUP_ROWS) {
        const uint64_t left = bench->rows - first;
        const uint64_t count = left < GROUP_ROWS ? left : GROUP_ROWS;
        const uint64_t wall_before = sl_clock_now_ns(clock);
        const uint64_t processor_before = sl_bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        uint64_t longest_ns;
        const int err = create_group(bench, first, count, &longest_ns);
        if (err != 0) {
            return err;
        }
        if (longest_ns > SL_LIMIT_TURN_STALL_NS) {
            count_own_pause(&bench->pauses, longest_ns, sl_clock_now_ns(clock) - wall_before,
                            sl_bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID) - processor_before);
        }
        serve(bench, first + count);
    }
    return 0;
}

/* ---- Phases ---------------------------------------------------------------------------------- */

/* A contestant: one phase over keys of one distribution. */
struct turn {
    struct bench *bench;
    struct drawn *drawn;
    enum phase phase;
    char name[SL_BENCH_NAME_BYTES];
};

static void run_batch(struct bench *bench, enum phase phase, const uint64_t *keys,
                      const uint32_t *records, uint32_t count)
{
    switch (phase) {
    case PHASE_LOOKUP:
        sl_sparse_table_find(bench->store, keys, count, bench->found);
        break;
    case PHASE_GATHER:
        sl_sparse_table_gather(bench->store, records, count, bench->values);
        break;
    case PHASE_UPDATE:
        bench->push.step++;
        sl_sparse_table_apply(bench->store, records, count, bench->gradients, &bench->push);
        break;
    case PHASE_PULL:
        sl_sparse_table_find(bench->store, keys, count, bench->found);
        sl_sparse_table_gather(bench->store, bench->found, count, bench->values);
        break;
    case PHASE_PUSH:
        sl_sparse_table_find(bench->store, keys, count, bench->found);
        bench->push.step++;
        sl_sparse_table_apply(bench->store, bench->found, count, bench->gradients, &bench->push);
        break;
    case PHASE_COUNT:
        break;
    }
}

/* Batches of the drawn keys, again and again, for so long; ns a key. */
static double run_for(struct turn *turn, double seconds)
{
    const struct sl_clock *clock = sl_clock_system();
    const struct options *options = turn->bench->options;
    struct drawn *drawn = turn->drawn;
    const uint64_t before = sl_clock_now_ns(clock);
    const uint64_t wanted_ns = sl_bench_ns(seconds);
    uint64_t took_ns;
    uint64_t keys = 0;
    do {
        const uint64_t left = options->operations - drawn->at;
        const uint32_t count = (uint32_t)(left < options->batch ? left : options->batch);
        run_batch(turn->bench, turn->phase, drawn->keys + drawn->at, drawn->records + drawn->at,
                  count);
        keys += count;
        drawn->at = (drawn->at + count) % options->operations;
        took_ns = sl_clock_now_ns(clock) - before;
    } while (took_ns < wanted_ns);
    return (double)took_ns / (double)keys;
}

static int run_turn(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct turn *turn = ctx;
    (void)run_for(turn, common->warm_up);
    values[0] = run_for(turn, common->seconds);
    return 0;
}

/* ---- Report ---------------------------------------------------------------------------------- */

static bool rows_on_axis(const struct bench *bench)
{
    return bench->options->row_counts > 1 && bench->options->dim_counts == 1;
}

/* "gather, uniform keys, adagrad, 1000000 rows, dim 16"; of a curve without what stands on its
 * axis. */
static void write_name(const struct bench *bench, const char *what, bool on_curve,
                       char name[SL_BENCH_NAME_BYTES])
{
    char rows[32] = "";
    char dim[32] = "";
    if (!on_curve || !rows_on_axis(bench)) {
        (void)snprintf(rows, sizeof rows, ", %" PRIu64 " rows", bench->rows);
    }
    if (!on_curve || rows_on_axis(bench)) {
        (void)snprintf(dim, sizeof dim, ", dim %u", bench->dim);
    }
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "%s, %s%s%s", what,
                   sl_sparse_table_optimizer(bench->store)->name, rows, dim);
}

static void put_on_axis(const struct bench *bench, struct sl_bench_figure *figure)
{
    if (rows_on_axis(bench)) {
        sl_bench_figure_at(figure, "rows", (double)bench->rows);
    } else {
        sl_bench_figure_at(figure, "dim", bench->dim);
    }
}

static void add(const struct bench *bench, struct sl_bench_report *report, const char *what,
                const char *quantity, const char *unit, double value)
{
    char name[SL_BENCH_NAME_BYTES];
    write_name(bench, what, false, name);
    (void)sl_bench_report_add(report, name, quantity, unit, value);
}

static void report_memory(const struct bench *bench, struct sl_bench_report *report)
{
    const double record = (double)sl_sparse_table_record_bytes(bench->store);
    const double bytes = (double)sl_sparse_table_memory_bytes(bench->store);
    const double per_row = bytes / (double)sl_sparse_table_row_count(bench->store);
    add(bench, report, "memory", "record", "B", record);
    add(bench, report, "memory", "all, per row", "B", per_row);
    add(bench, report, "memory", "all / records", "", per_row / record);
}

static void report_spread(const struct bench *bench, struct sl_bench_report *report,
                          const char *what, const struct sl_metric_histogram *histogram)
{
    char name[SL_BENCH_NAME_BYTES];
    write_name(bench, what, false, name);
    sl_bench_report_histogram(report, name, histogram);
}

static void report_growth(const struct bench *bench, struct sl_bench_report *report)
{
    const struct sl_metric_histogram *create = bench->create;
    const struct pauses *pauses = &bench->pauses;
    add(bench, report, "growth", "rows created", "1/s",
        1e9 * (double)create->count / (double)create->sum);
    add(bench, report, "growth", "pauses over 1 ms", "", (double)pauses->count);
    add(bench, report, "growth", "those of our own making", "", (double)pauses->own_count);
    add(bench, report, "growth", "longest of our own", "us", (double)pauses->own_max_ns / 1e3);
    add(bench, report, "growth", "late chunks", "",
        (double)sl_sparse_table_chunks_late(bench->store));
    report_spread(bench, report, "creation of a row", create);
    report_spread(bench, report, "read of a batch between creations", bench->serve);
}

/* Each phase over each distribution, in turns. */
struct contest {
    struct sl_bench_contestant contestants[PHASE_COUNT * DISTRIBUTIONS];
    struct turn turns[PHASE_COUNT * DISTRIBUTIONS];
    uint32_t count;
};

static void enter_all(struct contest *contest, struct bench *bench)
{
    static const struct sl_bench_quantity quantity = {"per key", "ns"};
    char what[48];
    contest->count = 0;
    for (uint32_t i = 0; i < PHASE_COUNT * DISTRIBUTIONS; i++) {
        const uint32_t distribution = i / PHASE_COUNT;
        struct turn *turn = &contest->turns[contest->count];
        if (bench->options->distributions[distribution]) {
            turn->bench = bench;
            turn->drawn = &bench->drawn[distribution];
            turn->phase = (enum phase)(i % PHASE_COUNT);
            (void)snprintf(what, sizeof what, "%s, %s keys", phase_names[turn->phase],
                           distribution_names[distribution]);
            write_name(bench, what, true, turn->name);
            contest->contestants[contest->count++] =
                (struct sl_bench_contestant){.name = turn->name,
                                             .quantities = &quantity,
                                             .quantity_count = 1,
                                             .run = run_turn,
                                             .ctx = turn};
        }
    }
}

static int report_phases(struct bench *bench, struct sl_bench_report *report)
{
    const struct sl_bench_common *common = &bench->options->common;
    struct contest contest;
    cpu_set_t cores;
    enter_all(&contest, bench);
    /* Only meanwhile: the thread that prepares the next table's memory runs where ours may. */
    const bool pinned = sched_getaffinity(0, sizeof cores, &cores) == 0 &&
                        sl_topology_pin_thread(common->server_core) == 0;
    const int err = sl_bench_contest_run(contest.contestants, contest.count, common, report);
    if (pinned) {
        (void)sched_setaffinity(0, sizeof cores, &cores);
    }
    for (uint32_t i = 0; err == 0 && i < contest.count; i++) {
        put_on_axis(bench, contest.contestants[i].figures[0]);
    }
    return err;
}

/* ---- One table ------------------------------------------------------------------------------- */

static int allocate(struct bench *bench)
{
    const struct options *options = bench->options;
    bool all = true;
    for (uint32_t i = 0; i < DISTRIBUTIONS; i++) {
        struct drawn *drawn = &bench->drawn[i];
        drawn->keys = calloc(options->operations, sizeof *drawn->keys);
        drawn->records = calloc(options->operations, sizeof *drawn->records);
        all = all && drawn->keys != NULL && drawn->records != NULL;
    }
    bench->found = calloc(options->batch, sizeof *bench->found);
    bench->values = calloc(options->batch * bench->dim, sizeof *bench->values);
    bench->gradients = calloc(options->batch * bench->dim, sizeof *bench->gradients);
    bench->create = malloc(sizeof *bench->create);
    bench->serve = malloc(sizeof *bench->serve);
    return all && bench->found != NULL && bench->values != NULL && bench->gradients != NULL &&
                   bench->create != NULL && bench->serve != NULL
               ? 0
               : SL_ERR_NO_MEMORY;
}

static int bench_init(struct bench *bench, const struct options *options, uint64_t rows,
                      uint64_t dim, enum sl_optimizer_kind optimizer)
{
    const struct sl_table_spec spec = {
        .name = "bench",
        .kind = SL_TABLE_SPARSE,
        .dim = (uint32_t)dim,
        .optimizer = sl_optimizer_defaults(optimizer),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -0.05F, .high = 0.05F, .seed = 1},
    };
    *bench = (struct bench){
        .options = options, .rows = rows, .dim = (uint32_t)dim, .random = options->seed};
    sl_optimizer_state_init(&spec.optimizer, &bench->push.state);
    bench->push.rate = 1;
    if (allocate(bench) != 0) {
        sl_log_error("no memory for the benchmark");
        return SL_ERR_NO_MEMORY;
    }
    sl_metric_init(bench->create);
    sl_metric_init(bench->serve);
    for (uint64_t i = 0; i < options->batch * dim; i++) {
        bench->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    const int err = sl_sparse_table_create(&spec, 0, &bench->store);
    if (err != 0) {
        sl_log_error("the table cannot be made: %s", sl_err_name(err));
    }
    return err;
}

static void bench_fini(struct bench *bench)
{
    sl_sparse_table_destroy(&bench->store);
    for (uint32_t i = 0; i < DISTRIBUTIONS; i++) {
        free(bench->drawn[i].keys);
        free(bench->drawn[i].records);
    }
    free(bench->found);
    free(bench->values);
    free(bench->gradients);
    free(bench->create);
    free(bench->serve);
}

/* Memory available without swapping; 0: unknown. */
static double available_bytes(void)
{
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            kib = strtod(line + 13, NULL);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return kib * 1024;
}

static bool fits(const struct bench *bench)
{
    const double records = (double)bench->rows * (double)sl_sparse_table_record_bytes(bench->store);
    const double needed = records * MEMORY_FACTOR;
    const double available = available_bytes();
    if (available > 0 && needed > available) {
        sl_log_warn("left out: %" PRIu64 " rows of dim %u with %s take %.1f GB, %.1f GB are free",
                    bench->rows, bench->dim, sl_sparse_table_optimizer(bench->store)->name,
                    needed / 1e9, available / 1e9);
        return false;
    }
    return true;
}

static void draw_keys(struct bench *bench, enum sl_bench_distribution distribution)
{
    const struct options *options = bench->options;
    struct drawn *drawn = &bench->drawn[distribution];
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, distribution, bench->rows, options->exponent, options->seed);
    for (uint64_t i = 0; i < options->operations; i++) {
        drawn->keys[i] = sl_bench_workload_next(&workload);
    }
    sl_sparse_table_find(bench->store, drawn->keys, (uint32_t)options->operations, drawn->records);
}

static int measure(struct bench *bench, struct sl_bench_report *report)
{
    if (!fits(bench)) {
        return 0;
    }
    int err = create_rows(bench);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < DISTRIBUTIONS; i++) {
        if (bench->options->distributions[i]) {
            draw_keys(bench, (enum sl_bench_distribution)i);
        }
    }
    report_memory(bench, report);
    report_growth(bench, report);
    return report_phases(bench, report);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int measure_all(const struct options *options, struct sl_bench_report *report)
{
    const uint32_t tables = options->row_counts * options->optimizer_counts * options->dim_counts;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < tables; i++) {
        const uint32_t dim = i % options->dim_counts;
        const uint32_t optimizer = i / options->dim_counts % options->optimizer_counts;
        const uint32_t rows = i / options->dim_counts / options->optimizer_counts;
        struct bench bench;
        err = bench_init(&bench, options, options->rows[rows], options->dims[dim],
                         options->optimizers[optimizer]);
        err = err != 0 ? err : measure(&bench, report);
        bench_fini(&bench);
    }
    return err;
}

static int run(const struct options *options)
{
    char setting[128];
    (void)snprintf(setting, sizeof setting,
                   "one table in this process, batches of %" PRIu64
                   ", kernels %s, Zipf's exponent %g",
                   options->batch, sl_optimizer_best_form_name(), options->exponent);
    struct sl_bench_report *report = sl_bench_report_create("table", setting);
    int err = measure_all(options, report);
    err = err != 0 ? err : sl_bench_report_finish(report, &options->common);
    sl_bench_report_destroy(&report);
    return err;
}

int sl_bench_table_run(int argc, char **argv)
{
    struct options options;
    const int parsed = parse(argc, argv, &options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    return run(&options) == 0 ? 0 : 1;
}
