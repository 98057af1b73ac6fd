/* The load `table`: one shard's sparse table in this process, without any network: its growth,
 * while rows that exist are read; its memory; lookups, reads and updates of rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/hash.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "ps/optimizer/optimizer.h"
#include "ps/table/sparse_table.h"

#define GROUP_ROWS    256 /* created between two looks at the processor time */
/* Of what the memory's records take: index, directory and slack at most. */
#define MEMORY_FACTOR 1.4

#define DISTRIBUTIONS 2

struct options {
    struct sl_bench_common common;
    uint64_t rows, dim, operations, batch, seed;
    double exponent;              /* of Zipf's law */
    int optimizer, values, slots; /* the latter: sl_precision */
};

static const char *const distribution_names[DISTRIBUTIONS] = {"uniform", "zipf"};

enum phase { PHASE_LOOKUP, PHASE_GATHER, PHASE_UPDATE, PHASE_PULL, PHASE_PUSH, PHASE_COUNT };
static const char *const phase_names[PHASE_COUNT] = {"lookup", "gather", "update", "lookup-gather",
                                                     "lookup-update"};

/* Creations that took longer than a reactor's turn may. Those of our own making are told from those
 * in which the system ran something else by the processor time of the group around them. */
struct pauses {
    uint64_t count, own_count, own_max_ns;
};

/* Keys of one distribution, and where their rows are. */
struct drawn {
    uint64_t *keys;    /* [operations]; NULL: not yet */
    uint32_t *records; /* [operations] */
    uint64_t at;       /* of the next batch */
};

struct bench {
    struct options options;
    struct sl_sparse_table *store;
    struct sl_optimizer_push push;
    struct drawn drawn[DISTRIBUTIONS];
    uint32_t *found;  /* [batch] */
    float *values;    /* [batch][dim] */
    float *gradients; /* [batch][dim] */
    uint64_t random;
    struct sl_metric_histogram create; /* ns of one creation */
    struct sl_metric_histogram serve;  /* ns of a batch that is read between creations */
    struct pauses pauses;
    struct sl_bench_turns turns;
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
        sl_metric_record(&bench->create, took_ns);
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
    const uint32_t count = (uint32_t)bench->options.batch;
    uint64_t keys[SL_LIMIT_TURN_COST];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = sl_bench_workload_key(sl_hash_random(&bench->random) % row_count);
    }
    const uint64_t before = sl_clock_now_ns(clock);
    sl_sparse_table_find(bench->store, keys, count, bench->found);
    sl_sparse_table_gather(bench->store, bench->found, count, SL_PRECISION_F32, bench->values);
    sl_metric_record(&bench->serve, sl_clock_now_ns(clock) - before);
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
    for (uint64_t first = 0; first < bench->options.rows; first += GROUP_ROWS) {
        const uint64_t left = bench->options.rows - first;
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

static void run_batch(struct bench *bench, enum phase phase, const uint64_t *keys,
                      const uint32_t *records, uint32_t count)
{
    switch (phase) {
    case PHASE_LOOKUP:
        sl_sparse_table_find(bench->store, keys, count, bench->found);
        break;
    case PHASE_GATHER:
        sl_sparse_table_gather(bench->store, records, count, SL_PRECISION_F32, bench->values);
        break;
    case PHASE_UPDATE:
        bench->push.step++;
        sl_sparse_table_apply(bench->store, records, count, bench->gradients, &bench->push);
        break;
    case PHASE_PULL:
        sl_sparse_table_find(bench->store, keys, count, bench->found);
        sl_sparse_table_gather(bench->store, bench->found, count, SL_PRECISION_F32, bench->values);
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
static double run_for(struct bench *bench, enum phase phase, struct drawn *drawn, double seconds)
{
    const struct sl_clock *clock = sl_clock_system();
    const struct options *options = &bench->options;
    const uint64_t before = sl_clock_now_ns(clock);
    const uint64_t wanted_ns = sl_bench_ns(seconds);
    uint64_t took_ns;
    uint64_t keys = 0;
    do {
        const uint64_t left = options->operations - drawn->at;
        const uint32_t count = (uint32_t)(left < options->batch ? left : options->batch);
        run_batch(bench, phase, drawn->keys + drawn->at, drawn->records + drawn->at, count);
        keys += count;
        drawn->at = (drawn->at + count) % options->operations;
        took_ns = sl_clock_now_ns(clock) - before;
    } while (took_ns < wanted_ns);
    return (double)took_ns / (double)keys;
}

static int draw_keys(struct bench *bench, enum sl_bench_distribution distribution)
{
    const struct options *options = &bench->options;
    struct drawn *drawn = &bench->drawn[distribution];
    struct sl_bench_workload workload;
    drawn->keys = calloc(options->operations, sizeof *drawn->keys);
    drawn->records = calloc(options->operations, sizeof *drawn->records);
    if (drawn->keys == NULL || drawn->records == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_workload_init(&workload, distribution, options->rows, options->exponent,
                           options->seed);
    for (uint64_t i = 0; i < options->operations; i++) {
        drawn->keys[i] = sl_bench_workload_next(&workload);
    }
    sl_sparse_table_find(bench->store, drawn->keys, (uint32_t)options->operations, drawn->records);
    return 0;
}

/* ---- Turns ----------------------------------------------------------------------------------- */

enum quantity { A_KEY, RECORD, ALL, OVERHEAD, CREATED, PAUSES, OWN, LONGEST, LATE, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [A_KEY] = {"per key", "ns"},
    [RECORD] = {"record", "B"},
    [ALL] = {"all, per row", "B"},
    [OVERHEAD] = {"all / records", ""},
    [CREATED] = {"rows created", "1/s"},
    [PAUSES] = {"pauses over 1 ms", ""},
    [OWN] = {"those of our own making", ""},
    [LONGEST] = {"longest of our own", "us"},
    [LATE] = {"late chunks", ""}};

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
    const double records =
        (double)bench->options.rows * (double)sl_sparse_table_record_bytes(bench->store);
    const double available = available_bytes();
    return available == 0 || records * MEMORY_FACTOR <= available;
}

/* Creates the rows; if they do not fit into the memory, there is no measurement. */
static int grow(struct bench *bench, double *values)
{
    if (!fits(bench)) {
        return 0;
    }
    const int err = create_rows(bench);
    const double rows = (double)sl_sparse_table_row_count(bench->store);
    values[RECORD] = (double)sl_sparse_table_record_bytes(bench->store);
    values[ALL] = (double)sl_sparse_table_memory_bytes(bench->store) / rows;
    values[OVERHEAD] = values[ALL] / values[RECORD];
    values[CREATED] = 1e9 * (double)bench->create.count / (double)bench->create.sum;
    values[PAUSES] = (double)bench->pauses.count;
    values[OWN] = (double)bench->pauses.own_count;
    values[LONGEST] = (double)bench->pauses.own_max_ns / 1e3;
    values[LATE] = (double)sl_sparse_table_chunks_late(bench->store);
    return err;
}

static int measure_phase(struct bench *bench, const char *words,
                         const struct sl_bench_common *common, double *a_key)
{
    int phase = 0, distribution = 0;
    while (phase < PHASE_COUNT && !sl_bench_turns_word(&words, phase_names[phase])) {
        phase++;
    }
    while (distribution < DISTRIBUTIONS &&
           !sl_bench_turns_word(&words, distribution_names[distribution])) {
        distribution++;
    }
    if (phase == PHASE_COUNT || distribution == DISTRIBUTIONS) {
        return SL_ERR_INVALID;
    }
    struct drawn *drawn = &bench->drawn[distribution];
    int err = drawn->keys != NULL ? 0 : draw_keys(bench, (enum sl_bench_distribution)distribution);
    if (err == 0) {
        (void)run_for(bench, (enum phase)phase, drawn, common->warm_up);
        *a_key = run_for(bench, (enum phase)phase, drawn, common->seconds);
    }
    return err;
}

/* Words of a turn: "grow", first; "growth" and "reads" for the times of that; or what is done with
 * keys, and how they are drawn. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct bench *bench = ctx;
    const char *words = common->words;
    bench->turns.times = NULL;
    if (sl_bench_turns_word(&words, "grow")) {
        bench->turns.times = &bench->create;
        return grow(bench, values);
    }
    if (sl_bench_turns_word(&words, "reads")) {
        bench->turns.times = &bench->serve;
        values[PAUSES] = 0;
        return 0;
    }
    /* Only meanwhile: the thread that prepares the table's memory runs where ours may. */
    cpu_set_t before;
    int err = sl_bench_pin_begin(common->server_core, &before);
    err = err != 0 ? err : measure_phase(bench, words, common, &values[A_KEY]);
    sl_bench_pin_end(&before);
    return err;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int bench_init(struct bench *bench)
{
    const struct options *options = &bench->options;
    const struct sl_table_spec spec = {
        .name = "bench",
        .kind = SL_TABLE_SPARSE,
        .dim = (uint32_t)options->dim,
        .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)options->optimizer),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -0.05F, .high = 0.05F, .seed = 1},
        .values = (enum sl_precision)options->values,
        .slots = (enum sl_precision)options->slots,
    };
    bench->random = options->seed;
    sl_optimizer_state_init(&spec.optimizer, &bench->push.state);
    bench->push.rate = 1;
    sl_metric_init(&bench->create);
    sl_metric_init(&bench->serve);
    bench->found = calloc(options->batch, sizeof *bench->found);
    bench->values = calloc(options->batch * options->dim, sizeof *bench->values);
    bench->gradients = calloc(options->batch * options->dim, sizeof *bench->gradients);
    if (bench->found == NULL || bench->values == NULL || bench->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < options->batch * options->dim; i++) {
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
}

int sl_bench_table_run(int argc, char **argv)
{
    static struct bench bench;
    struct options *o = &bench.options;
    *o = (struct options){.common = sl_bench_common_defaults(),
                          .rows = 1000000,
                          .dim = 16,
                          .optimizer = SL_OPTIMIZER_ADAGRAD,
                          .operations = 2000000,
                          .batch = 256,
                          .seed = 1,
                          .exponent = 1.05};
    const struct sl_cli_option table[] = {
        sl_bench_number("rows", &o->rows, 1, 4e9, "Rows that the table holds."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row."),
        sl_bench_choice("optimizer", &o->optimizer, SL_BENCH_OPTIMIZER_CHOICES, "Of the table."),
        sl_bench_choice("values", &o->values, SL_BENCH_PRECISION_CHOICES, "As stored."),
        sl_bench_choice("slots", &o->slots, "f32|f16|bf16", "As stored."),
        sl_bench_exponent("exponent", &o->exponent),
        sl_bench_number("operations", &o->operations, 1, 1e9, "Keys drawn."),
        sl_bench_number("batch", &o->batch, 1, SL_LIMIT_TURN_COST, "Keys of one call."),
        sl_bench_number("seed", &o->seed, 0, 0, "Seed of the keys drawn."),
    };
    const int parsed =
        sl_bench_parse_load("table", table, sizeof table / sizeof table[0], &o->common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    int status = bench_init(&bench) == 0 ? 0 : 1;
    if (status == 0) {
        bench.turns = (struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &bench};
        status = sl_bench_turns_serve(&bench.turns, &o->common);
    }
    bench_fini(&bench);
    return status;
}
