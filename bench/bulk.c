/* starling-bench bulk: dense pulls and pushes from 64 KB to 64 MB over one connection, beside bare
 * sockets and iperf3. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/load.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/peers.h"
#include "bench/ps_process.h"
#include "bench/table_applies.h"
#include "bench/workload.h"
#include "core/assert.h"
#include "core/log.h"
#include "reactor/topology.h"

#define SIZES_MAX    8
#define BYTES_MAX    ((uint64_t)256 << 20)
#define PUSH_BYTES   ((uint64_t)16 << 20) /* beside the small pulls */

/* The targets, and the sizes that they are of. */
#define OF_BARE      0.9
#define OF_MODEL     0.9
#define TARGET_LEAST ((uint64_t)1 << 20)
#define P99_BESIDE   3.0 /* of small pulls, beside pushes, to that without */
#define TARGET_MOST  ((uint64_t)16 << 20)

#define DEPTH_MAX    16

/* Dense bytes one way, over the real client library: steps of one table of one size, some of them
 * under way at once, from one thread. */
struct transfer {
    const char *coordinator;
    uint64_t bytes; /* of a step, a multiple of 4 */
    bool push;
    bool polling; /* the client's reactor */
    uint32_t depth;
    enum sl_optimizer_kind optimizer; /* of the table, that pushes go through */
    const char *congestion;
    bool no_shm;   /* TCP, between processes of one machine too */
    float *memory; /* [depth][bytes / 4] */
};

struct transfer_result {
    uint64_t steps;
    double seconds;     /* measured */
    double cpu_seconds; /* of this process in them */
};

#define STEP_TIMEOUT_MS 60000
#define PAGE_BYTES      ((uint64_t)2 << 20)

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Pages that are there, large ones where the system has them; to be freed. NULL: no memory. */
static float *make_memory(uint64_t bytes)
{
    float *memory = aligned_alloc(PAGE_BYTES, whole_pages(bytes));
    if (memory != NULL) {
        (void)madvise(memory, whole_pages(bytes), MADV_HUGEPAGE);
        memset(memory, 0, bytes);
    }
    return memory;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct flow {
    const struct transfer *transfer;
    struct sl_client *client;
    struct sl_table *table;
    struct sl_step *steps[DEPTH_MAX];
    uint64_t sent, done;
};

static int send_one(struct flow *flow)
{
    const struct transfer *transfer = flow->transfer;
    const uint32_t place = (uint32_t)(flow->sent % transfer->depth);
    const uint64_t count = transfer->bytes / sizeof(float);
    float *values = transfer->memory + place * count;
    struct sl_step *step;
    int err = sl_step_begin(flow->client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = transfer->push ? sl_step_dense_push(step, flow->table, 0, count, values)
                         : sl_step_dense_pull(step, flow->table, 0, count, values);
    err = err != 0 ? err : sl_step_submit(step, STEP_TIMEOUT_MS);
    if (err != 0) {
        sl_step_destroy(&step);
        return err;
    }
    flow->steps[place] = step;
    flow->sent++;
    return 0;
}

static int finish_one(struct flow *flow)
{
    struct sl_step **step = &flow->steps[flow->done % flow->transfer->depth];
    int err = sl_step_wait(*step);
    if (err != 0) {
        sl_log_error("a step of %llu bytes: %s", (unsigned long long)flow->transfer->bytes,
                     sl_step_error(*step));
    }
    sl_step_destroy(step);
    flow->done++;
    return err;
}

/* Keeps `depth` steps under way until `until_ns`. */
static int keep_going(struct flow *flow, uint64_t until_ns)
{
    int err = 0;
    do {
        while (err == 0 && flow->sent - flow->done < flow->transfer->depth) {
            err = send_one(flow);
        }
        err = err != 0 ? err : finish_one(flow);
    } while (err == 0 && sl_bench_now_ns() < until_ns);
    return err;
}

static int measure_flow(struct flow *flow, double warm_up, double seconds,
                        struct transfer_result *out)
{
    int err = keep_going(flow, sl_bench_now_ns() + sl_bench_ns(warm_up));
    const uint64_t begin_ns = sl_bench_now_ns();
    const uint64_t done_before = flow->done;
    const double cpu_before = sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID));
    err = err != 0 ? err : keep_going(flow, begin_ns + sl_bench_ns(seconds));
    *out = (struct transfer_result){
        .steps = flow->done - done_before,
        .seconds = sl_bench_seconds(sl_bench_now_ns() - begin_ns),
        .cpu_seconds = sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID)) - cpu_before,
    };
    while (flow->done < flow->sent) {
        int one = finish_one(flow);
        err = err != 0 ? err : one;
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int connect_flow(struct flow *flow)
{
    const struct transfer *transfer = flow->transfer;
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = transfer->coordinator,
        .task_index = -1,
        .reactor_count = 1,
        .polling = transfer->polling,
        .protocol = SL_PROTOCOL_BATCHED,
        .congestion_control = transfer->congestion,
        .disable_shm = transfer->no_shm,
    };
    int err = sl_client_create(&options, &flow->client);
    if (err != 0) {
        return err;
    }
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .kind = SL_TABLE_DENSE,
        .length = transfer->bytes / sizeof(float),
        .optimizer = sl_optimizer_defaults(transfer->optimizer),
    };
    (void)snprintf(spec.name, sizeof spec.name, "bulk/%llu", (unsigned long long)transfer->bytes);
    return sl_client_table_open(flow->client, &spec, STEP_TIMEOUT_MS, &flow->table);
}

/* Connects, runs, measures and disconnects, with the client on `core`. Errors, logged. */
static int run_transfer(const struct transfer *transfer, int core, double warm_up, double seconds,
                        struct transfer_result *out)
{
    sl_assert(transfer->depth >= 1);
    sl_assert(transfer->depth <= DEPTH_MAX);
    sl_assert(transfer->bytes % sizeof(float) == 0);
    struct flow flow = {.transfer = transfer};
    cpu_set_t before;
    int err = sl_bench_pin_begin(core, &before);
    err = err != 0 ? err : connect_flow(&flow);
    err = err != 0 ? err : measure_flow(&flow, warm_up, seconds, out);
    if (flow.client != NULL) {
        sl_client_destroy(&flow.client);
    }
    sl_bench_pin_end(&before);
    if (err != 0) {
        sl_log_error("dense transfer: %s", sl_err_name(err));
    }
    return err;
}

/* ---- Small pulls beside large pushes: what do they wait for? ----------------------------------
 */

struct small {
    struct sl_bench_ps *ps; /* parked between repeats */
    /* The pushes beside, to a dense table: in pieces that are under way all the time; 0:
     * none. Where push_core is the core of the small pulls, one thread drives both, in short turns:
     * two threads would wait for one another, and a pull that is answered for the thread that
     * pushes, which the kernel does not interrupt while it copies. */
    uint64_t push_bytes;
    int push_core;
    enum sl_optimizer_kind optimizer;
    const char *congestion;
    /* Of the small pulls, of one row of 16 f32 each: one under way on each. */
    uint32_t connections;
};

enum {
    SMALL_P50,
    SMALL_P99,
    SMALL_RATE,
    SMALL_PUSHED,
};

enum { SMALL_ROWS = 10000, SMALL_DIM = 16 };

/* As the client library sends them: long ranges travel in pieces, as many as the credit allows. */
#define PIECE_BYTES ((uint64_t)512 << 10)

struct pair {
    struct sl_bench_load *pulls, *pushes; /* pushes NULL: none */
};

static int open_pulls(const struct small *small, const struct sl_bench_common *common,
                      struct sl_bench_load **out)
{
    const struct sl_bench_load_options options = {
        .coordinator = sl_bench_ps_coordinator(small->ps),
        .table = sl_bench_rows_table("bulk/small", SMALL_DIM, SL_OPTIMIZER_ADAGRAD),
        .operation = SL_BENCH_PULL,
        .connections = small->connections,
        .depth = 1,
        .keys = 1,
        .rows = SMALL_ROWS,
        .seed = 1,
        .core = common->client_core,
        .congestion = small->congestion,
    };
    return sl_bench_load_open(&options, out);
}

static int open_pushes(const struct small *small, const struct sl_bench_common *common,
                       struct sl_bench_load *pulls, struct sl_bench_load **out)
{
    const struct sl_bench_load_options options = {
        .coordinator = sl_bench_ps_coordinator(small->ps),
        .table =
            {
                .name = "bulk/beside",
                .struct_size = sizeof(struct sl_table_spec),
                .kind = SL_TABLE_DENSE,
                .length = small->push_bytes / sizeof(float),
                .optimizer = sl_optimizer_defaults(small->optimizer),
            },
        .operation = SL_BENCH_PUSH,
        .connections = 1,
        .depth = (uint32_t)(small->push_bytes / PIECE_BYTES),
        .keys = PIECE_BYTES / sizeof(float),
        .core = small->push_core,
        .congestion = small->congestion,
        .host = small->push_core == common->client_core ? pulls : NULL,
    };
    return sl_bench_load_open(&options, out);
}

static int open_pair(const struct small *small, const struct sl_bench_common *common,
                     struct pair *pair)
{
    *pair = (struct pair){0};
    int err = open_pulls(small, common, &pair->pulls);
    if (err == 0 && small->push_bytes > 0) {
        err = open_pushes(small, common, pair->pulls, &pair->pushes);
        if (err != 0) {
            sl_bench_load_close(&pair->pulls);
        }
    }
    return err;
}

static void close_pair(struct pair *pair)
{
    sl_bench_load_close(&pair->pushes);
    sl_bench_load_close(&pair->pulls);
}

/* The pushes end last. */
static int run_pair(const struct pair *pair, const struct sl_bench_common *common,
                    struct sl_bench_load_result *pulled, struct sl_bench_load_result *pushed)
{
    int err = sl_bench_load_begin(pair->pulls, common->warm_up, common->seconds);
    if (err != 0 || pair->pushes == NULL) {
        return err != 0 ? err : sl_bench_load_wait(pair->pulls, pulled);
    }
    err = sl_bench_load_run(pair->pushes, common->warm_up, common->seconds, pushed);
    int waited = sl_bench_load_wait(pair->pulls, pulled);
    return err != 0 ? err : waited;
}

static int measure_small(const struct small *small, const struct sl_bench_common *common,
                         struct sl_bench_load_result *pulled, struct sl_bench_load_result *pushed)
{
    struct pair pair;
    sl_bench_ps_unpark(small->ps);
    int err = open_pair(small, common, &pair);
    if (err == 0) {
        err = run_pair(&pair, common, pulled, pushed);
        close_pair(&pair);
    }
    if (err != 0) {
        sl_bench_ps_show_log(small->ps);
    }
    sl_bench_ps_park(small->ps);
    return err;
}

static int run_small(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_load_result *results = calloc(2, sizeof *results);
    if (results == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_bench_load_result *pulled = &results[0], *pushed = &results[1];
    int err = measure_small(ctx, common, pulled, pushed);
    if (err == 0) {
        const double pushed_bytes = (double)(pushed->requests * PIECE_BYTES);
        values[SMALL_P50] = (double)sl_metric_quantile(&pulled->latency, 0.5) / 1e3;
        values[SMALL_P99] = (double)sl_metric_quantile(&pulled->latency, 0.99) / 1e3;
        values[SMALL_RATE] = (double)pulled->requests / pulled->seconds;
        values[SMALL_PUSHED] = pushed->requests == 0 ? 0 : pushed_bytes / pushed->seconds;
    }
    free(results);
    return err;
}

static const struct sl_bench_quantity SMALL_QUANTITIES[] = {
    [SMALL_P50] = {"p50", "us"},
    [SMALL_P99] = {"p99", "us"},
    [SMALL_RATE] = {"requests", "1/s"},
    [SMALL_PUSHED] = {"pushed bytes", "1/s"},
};

/* The comparison */

enum way { WAY_PULL, WAY_PUSH, WAY_COUNT, WAY_BOTH = WAY_COUNT };
enum mode { MODE_EVENT, MODE_POLLING, MODE_COUNT };

static const char *const WAY_NAMES[] = {"pull", "push"};
static const double OF_IPERF[] = {0.9, 0.75};
static const char *const MODE_NAMES[] = {"event", "polling"};

struct options {
    const char *sizes, *congestion, *coordinator;
    uint64_t depth, small_connections;
    int optimizer, over, way, polling;
    struct sl_bench_common common;
    uint64_t bytes[SIZES_MAX];
    uint32_t size_count;
};

/* A contestant of ours: one size, way and mode. */
struct ours {
    struct sl_bench_ps *ps; /* NULL: the cluster of --coordinator */
    struct transfer transfer;
};

/* The contestants of one size and way. Bare sockets run only where Starling uses TCP too, and so do
 * pushes in process, which a computed figure needs beside them. */
struct cell {
    uint64_t bytes;
    enum way way;
    char names[MODE_COUNT + 1][64];
    struct ours ours[MODE_COUNT];
    struct sl_bench_bare_bulk bare;
    struct sl_bench_table_applies applies;
    /* [contestant_count]: ours, bare, and for pushes those in process */
    struct sl_bench_contestant *contestants;
    uint32_t contestant_count;
};

struct bench {
    const struct options *options;
    struct sl_bench_ps *ps[MODE_COUNT];
    float *memory;
    struct cell cells[SIZES_MAX * WAY_COUNT];
    uint32_t cell_count;
    struct sl_bench_peer iperf;
    struct sl_bench_peer_load iperf_loads[WAY_COUNT];
    struct sl_bench_contestant *iperf_contestants; /* [WAY_COUNT], or NULL */
    struct small small[2];                         /* alone, and beside pushes */
    struct sl_bench_contestant *small_contestants; /* [2], or NULL */
    struct sl_bench_contestant contestants[(SIZES_MAX * (MODE_COUNT + 2) + 1) * WAY_COUNT + 2];
    uint32_t contestant_count;
};

static const struct sl_bench_quantity OUR_QUANTITIES[] = {
    {"bytes", "1/s"}, {"client's core", ""}, {"server's core", ""}};
static const struct sl_bench_quantity BARE_QUANTITIES[] = {{"bytes", "1/s"}};

/* ---- Contestants ----------------------------------------------------------------------------- */

static int run_client(const struct ours *ours, const struct sl_bench_common *common, double *values,
                      double *out_seconds)
{
    struct transfer_result result;
    int err = run_transfer(&ours->transfer, common->client_core, common->warm_up, common->seconds,
                           &result);
    if (err == 0) {
        values[0] = (double)(result.steps * ours->transfer.bytes) / result.seconds;
        values[1] = result.cpu_seconds / result.seconds;
        *out_seconds = result.seconds + common->warm_up;
    }
    return err;
}

static int run_theirs(void *ctx, const struct sl_bench_common *common, double *values)
{
    double seconds;
    return run_client(ctx, common, values, &seconds);
}

static int run_ours(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct ours *ours = ctx;
    double seconds;
    sl_bench_ps_unpark(ours->ps);
    const double cpu_before = sl_bench_ps_cpu_seconds(ours->ps);
    int err = run_client(ours, common, values, &seconds);
    if (err == 0) {
        values[2] = (sl_bench_ps_cpu_seconds(ours->ps) - cpu_before) / seconds;
    } else {
        sl_bench_ps_show_log(ours->ps);
    }
    sl_bench_ps_park(ours->ps);
    return err;
}

static int run_bare(void *ctx, const struct sl_bench_common *common, double *values)
{
    return sl_bench_bare_bulk_run(ctx, common, &values[0]);
}

static void add_ours(struct bench *bench, struct cell *cell, enum mode mode)
{
    const struct options *options = bench->options;
    const bool theirs = options->coordinator != NULL;
    cell->ours[mode] = (struct ours){
        .ps = bench->ps[mode],
        .transfer =
            {
                .coordinator =
                    theirs ? options->coordinator : sl_bench_ps_coordinator(bench->ps[mode]),
                .bytes = cell->bytes,
                .push = cell->way == WAY_PUSH,
                .polling = mode == MODE_POLLING,
                .depth = (uint32_t)options->depth,
                .optimizer = (enum sl_optimizer_kind)options->optimizer,
                .congestion = options->congestion,
                .no_shm = options->over == SL_BENCH_OVER_TCP,
                .memory = bench->memory,
            },
    };
    (void)snprintf(cell->names[mode], sizeof cell->names[mode], "%s, %s", WAY_NAMES[cell->way],
                   MODE_NAMES[mode]);
    bench->contestants[bench->contestant_count++] = (struct sl_bench_contestant){
        .name = cell->names[mode],
        .quantities = OUR_QUANTITIES,
        .quantity_count = sizeof OUR_QUANTITIES / sizeof OUR_QUANTITIES[0] - theirs,
        .transport = sl_bench_over_names[options->over],
        .run = theirs ? run_theirs : run_ours,
        .ctx = &cell->ours[mode],
    };
}

static void add_bare(struct bench *bench, struct cell *cell)
{
    cell->bare = (struct sl_bench_bare_bulk){
        .bytes = cell->bytes,
        .to_server = cell->way == WAY_PUSH,
        .depth = (uint32_t)bench->options->depth,
        .congestion = bench->options->congestion,
    };
    (void)snprintf(cell->names[MODE_COUNT], sizeof cell->names[MODE_COUNT], "%s, bare",
                   WAY_NAMES[cell->way]);
    bench->contestants[bench->contestant_count++] = (struct sl_bench_contestant){
        .name = cell->names[MODE_COUNT],
        .quantities = BARE_QUANTITIES,
        .quantity_count = 1,
        .transport = "TCP",
        .run = run_bare,
        .ctx = &cell->bare,
    };
}

static void add_applies(struct bench *bench, struct cell *cell)
{
    cell->applies = (struct sl_bench_table_applies){
        .bytes = cell->bytes,
        .depth = (uint32_t)bench->options->depth,
        .optimizer = (enum sl_optimizer_kind)bench->options->optimizer,
        .gradients = bench->memory,
    };
    bench->contestants[bench->contestant_count++] =
        sl_bench_table_applies_contestant("push, in process", &cell->applies);
}

static void add_cell(struct bench *bench, uint64_t bytes, enum way way)
{
    if (bench->options->way != WAY_BOTH && bench->options->way != (int)way) {
        return;
    }
    struct cell *cell = &bench->cells[bench->cell_count++];
    *cell = (struct cell){
        .bytes = bytes, .way = way, .contestants = &bench->contestants[bench->contestant_count]};
    const bool theirs = bench->options->coordinator != NULL;
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        if (!theirs || mode == bench->options->polling) {
            add_ours(bench, cell, (enum mode)mode);
        }
    }
    if (bench->options->over == SL_BENCH_OVER_TCP && !theirs) {
        add_bare(bench, cell);
        if (way == WAY_PUSH) {
            add_applies(bench, cell);
        }
    }
    cell->contestant_count =
        bench->contestant_count - (uint32_t)(cell->contestants - bench->contestants);
}

static int add_iperf(struct bench *bench)
{
    static const char *const names[] = {"pull, iperf3 -l 1M", "push, iperf3 -l 1M"};
    const struct options *options = bench->options;
    if (options->over != SL_BENCH_OVER_TCP || options->coordinator != NULL) {
        return 0;
    }
    const int err = sl_bench_peer_start(&bench->iperf, &options->common, "iperf3 --congestion=%s",
                                        options->congestion);
    if (err != 0 || !sl_bench_peer_is_there(&bench->iperf)) {
        return err;
    }
    bench->iperf_contestants = &bench->contestants[bench->contestant_count];
    for (int way = 0; way < WAY_COUNT; way++) {
        struct sl_bench_peer_load *load = &bench->iperf_loads[way];
        *load = (struct sl_bench_peer_load){.peer = &bench->iperf, .kind = SL_BENCH_PEER_BYTES};
        (void)snprintf(load->words, sizeof load->words, "%s", WAY_NAMES[way]);
        bench->contestants[bench->contestant_count++] = sl_bench_peer_contestant(names[way], load);
    }
    return 0;
}

/* The first of our cores that neither side has yet; where there is none, the client's. */
static int third_core(const struct sl_bench_common *common)
{
    for (uint32_t i = 0; i < sl_topology_core_count(); i++) {
        int core;
        if (sl_topology_core_for(i, false, &core) == 0 && core != common->server_core &&
            core != common->client_core) {
            return core;
        }
    }
    return common->client_core;
}

static void add_small(struct bench *bench)
{
    static const char *const names[] = {"small pulls alone", "small pulls beside 16 MB pushes"};
    const struct options *options = bench->options;
    if (options->small_connections == 0 || options->coordinator != NULL) {
        return;
    }
    bench->small_contestants = &bench->contestants[bench->contestant_count];
    for (int beside = 0; beside < 2; beside++) {
        bench->small[beside] = (struct small){
            .ps = bench->ps[MODE_EVENT],
            .push_bytes = beside == 1 ? PUSH_BYTES : 0,
            .optimizer = (enum sl_optimizer_kind)options->optimizer,
            .congestion = options->congestion,
            .push_core = third_core(&options->common),
            .connections = (uint32_t)options->small_connections,
        };
        bench->contestants[bench->contestant_count++] = (struct sl_bench_contestant){
            .name = names[beside],
            .quantities = SMALL_QUANTITIES,
            .quantity_count = sizeof SMALL_QUANTITIES / sizeof SMALL_QUANTITIES[0],
            .transport = "TCP",
            .run = run_small,
            .ctx = &bench->small[beside],
        };
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

/* Bytes a second of one core that receives at the bare rate and pushes in process: round by round.
 * NULL: the cell has no such pushes. */
static const struct sl_bench_figure *add_model(const struct cell *cell,
                                               struct sl_bench_report *report)
{
    if (cell->contestant_count < MODE_COUNT + 2) {
        return NULL;
    }
    const struct sl_bench_figure *bare = cell->contestants[MODE_COUNT].figures[0];
    const struct sl_bench_figure *applies = cell->contestants[MODE_COUNT + 1].figures[0];
    struct sl_bench_figure *model =
        sl_bench_report_figure(report, "push, received and in process, computed", "bytes", "1/s");
    sl_bench_figure_over(model, "TCP");
    for (uint32_t i = 0; i < bare->count && i < applies->count; i++) {
        sl_bench_figure_sample(model, 1 / (1 / bare->samples[i] + 1 / applies->samples[i]));
    }
    return model;
}

static void add_ratios(const struct bench *bench, const struct cell *cell,
                       struct sl_bench_report *report)
{
    if (cell->contestant_count <= MODE_COUNT) {
        return; /* nothing is like it */
    }
    const bool held = cell->bytes >= TARGET_LEAST && cell->bytes <= TARGET_MOST;
    const struct sl_bench_figure *model = add_model(cell, report);
    char size[SL_BENCH_SIZE_BYTES];
    sl_bench_size_text(cell->bytes, size);
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        char name[SL_BENCH_NAME_BYTES];
        struct sl_bench_figure *figure = cell->contestants[mode].figures[0];
        (void)snprintf(name, sizeof name, "%s, %s / bare", cell->names[mode], size);
        sl_bench_report_ratio(report, name, figure, cell->contestants[MODE_COUNT].figures[0],
                              held && model == NULL ? OF_BARE : 0, 0);
        if (model != NULL) {
            (void)snprintf(name, sizeof name, "%s, %s / received and in process", cell->names[mode],
                           size);
            sl_bench_report_ratio(report, name, figure, model, held ? OF_MODEL : 0, 0);
        }
        if (bench->iperf_contestants != NULL) {
            (void)snprintf(name, sizeof name, "%s, %s / iperf3 -l 1M", cell->names[mode], size);
            sl_bench_report_ratio(report, name, figure,
                                  bench->iperf_contestants[cell->way].figures[0],
                                  held ? OF_IPERF[cell->way] : 0, 0);
        }
    }
}

static void add_small_ratio(const struct bench *bench, struct sl_bench_report *report)
{
    if (bench->small_contestants != NULL) {
        sl_bench_report_ratio(report, "small pulls' p99, beside pushes / alone",
                              bench->small_contestants[1].figures[SMALL_P99],
                              bench->small_contestants[0].figures[SMALL_P99], 0, P99_BESIDE);
    }
}

static void put_on_curves(const struct cell *cell)
{
    for (uint32_t i = 0; i < cell->contestant_count; i++) {
        for (uint32_t f = 0; f < cell->contestants[i].quantity_count; f++) {
            sl_bench_figure_at(cell->contestants[i].figures[f], "MB",
                               (double)cell->bytes / (1 << 20));
        }
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < bench->cell_count; i++) {
        put_on_curves(&bench->cells[i]);
        add_ratios(bench, &bench->cells[i], report);
    }
    add_small_ratio(bench, report);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int bench_init(struct bench *bench)
{
    const struct options *options = bench->options;
    uint64_t most = 0;
    for (uint32_t i = 0; i < options->size_count; i++) {
        most = options->bytes[i] > most ? options->bytes[i] : most;
    }
    bench->memory = make_memory(most * options->depth);
    if (bench->memory == NULL) {
        sl_log_error("no memory for %" PRIu64 " pieces of %" PRIu64 " bytes", options->depth, most);
        return SL_ERR_NO_MEMORY;
    }
    for (int mode = 0; mode < MODE_COUNT && options->coordinator == NULL; mode++) {
        const struct sl_bench_ps_options ps = {
            .reactors = 1,
            .first_core = options->common.server_core,
            .polling = mode == MODE_POLLING,
            .worker_count = 1,
            .congestion = options->congestion,
        };
        int err = sl_bench_ps_start(&ps, &bench->ps[mode]);
        if (err != 0) {
            return err;
        }
        sl_bench_ps_park(bench->ps[mode]);
    }
    for (uint32_t i = 0; i < options->size_count; i++) {
        add_cell(bench, options->bytes[i], WAY_PULL);
        add_cell(bench, options->bytes[i], WAY_PUSH);
    }
    const int err = add_iperf(bench);
    add_small(bench);
    return err;
}

static void bench_fini(struct bench *bench)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        sl_bench_ps_stop(&bench->ps[mode]);
    }
    sl_bench_peer_stop(&bench->iperf);
    free(bench->memory);
}

static int measure(struct bench *bench)
{
    const struct options *options = bench->options;
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "dense tables over %s, %" PRIu64
                   " steps under way, %s, TCP congestion control %s",
                   sl_bench_over_names[options->over], options->depth,
                   options->optimizer == SL_OPTIMIZER_SUM ? "sum" : "sgd", options->congestion);
    struct sl_bench_contest contest = {.contestants = bench->contestants,
                                       .count = bench->contestant_count};
    return sl_bench_contest_report(&contest, "bulk", setting, conclude, bench, &options->common);
}

static int parse(struct options *options, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_text("sizes", &options->sizes, "SIZE,...", "Bytes of a step, such as 64K,1M."),
        sl_bench_number("depth", &options->depth, 1, DEPTH_MAX, "Steps under way at once."),
        sl_bench_number("small-connections", &options->small_connections, 0, 256,
                        "Connections whose small pulls meet pushes of 16 MB; 0: none."),
        sl_bench_choice("way", &options->way, "pull|push|both", "What the client does."),
        sl_bench_choice("optimizer", &options->optimizer, "sum|sgd", "What pushes go through."),
        sl_bench_over(&options->over),
        sl_bench_congestion(&options->congestion),
        sl_bench_text("coordinator", &options->coordinator, "HOST:PORT",
                      "Only use a cluster that runs already."),
        sl_bench_choice("polling", &options->polling, "false|true",
                        "Whether the client spins beside --coordinator."),
    };
    int parsed = sl_bench_parse("bulk", "Measures dense pulls and pushes over one connection.", own,
                                sizeof own / sizeof own[0], &options->common, argc, argv);
    return parsed != SL_CLI_RUN
               ? parsed
               : sl_bench_sizes("bulk", "sizes", options->sizes, sizeof(float), BYTES_MAX,
                                options->bytes, SIZES_MAX, &options->size_count);
}

int sl_bench_bulk_run(int argc, char **argv)
{
    struct options options = {.sizes = "64K,1M,16M,64M",
                              .congestion = "cubic",
                              .depth = 4,
                              .small_connections = 4,
                              .optimizer = SL_OPTIMIZER_SUM,
                              .way = WAY_BOTH,
                              .common = sl_bench_common_defaults()};
    int parsed = parse(&options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    static struct bench bench;
    bench.options = &options;
    int err = bench_init(&bench);
    err = err != 0 ? err : measure(&bench);
    bench_fini(&bench);
    return err == 0 ? 0 : 1;
}
