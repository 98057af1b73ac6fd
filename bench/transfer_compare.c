/* READ and WRITE between two processes of this machine, in turns with bare sockets and iperf3, with
 * memcpy, or over RDMA with perftest. The target is a process of its own on the server's core,
 * stopped while others run. Bare
 * sockets and memcpy use as much memory as the blocks have: memory that stays in the processor's
 * cache is faster, which "bare, 4 MB" shows. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/child.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/peers.h"
#include "bench/transfer.h"
#include "core/log.h"

/* Targets, as ratios. */
#define BLOCKS_OF_BARE   0.85
#define BLOCKS_OF_IPERF  1.0
#define READS_OF_BARE    0.47 /* 64 KB x 128 */
#define WRITES_OF_BARE   0.37
#define STRIDED_OF_BARE  0.37
#define MAPPED_OF_MEMCPY 0.8
#define RDMA_OF_PERFTEST 0.9
#define P99_OF_ALONE     3.0

#define BLOCK_BYTES      65536U
#define LONG_BYTES       (1U << 20)
#define BARE_DEPTH       4U
#define BUFFER_BYTES     (128ULL << 20)
#define START_MS         20000

static const char *const OP_NAMES[] = {"READ", "WRITE"};

/* Blocks of a size from some threads. */
struct shape {
    const char *name;
    uint64_t block, batch, threads;
    double least[2]; /* of bare, by operation */
};
static const struct shape shapes[] = {
    {"1 MB x 16, 1 thread", LONG_BYTES, 16, 1, {BLOCKS_OF_BARE, BLOCKS_OF_BARE}},
    {"64 KB x 128, 1 thread", BLOCK_BYTES, 128, 1, {READS_OF_BARE, WRITES_OF_BARE}},
    {"64 KB x 128, 12 threads", BLOCK_BYTES, 128, 12, {STRIDED_OF_BARE, STRIDED_OF_BARE}},
};
#define SHAPES     (sizeof shapes / sizeof shapes[0])

/* Over RDMA: of perftest, with as many messages in flight. */
#define RDMA_DEPTH 16
static const struct shape rdma_shapes[] = {
    {"64 KB x 16", BLOCK_BYTES, RDMA_DEPTH, 1, {RDMA_OF_PERFTEST, RDMA_OF_PERFTEST}},
    {"1 MB x 16", LONG_BYTES, RDMA_DEPTH, 1, {RDMA_OF_PERFTEST, RDMA_OF_PERFTEST}},
};
#define RDMA_SHAPES (sizeof rdma_shapes / sizeof rdma_shapes[0])
static const char *const TOOLS[] = {"ib_read_bw", "ib_write_bw"}; /* by operation */

/* Of all blocks, in units of LONG_BYTES. */
static uint32_t memory_mb(const struct shape *shape)
{
    return (uint32_t)(shape->block * shape->batch * shape->threads / LONG_BYTES);
}

/* READs of 4 KB, one at a time, alone and beside WRITEs of 16 MB to the same peer. */
#define SMALL_BYTES 4096U
#define ALONE       "4 KB, alone"
#define BESIDE      "4 KB, beside 16 MB WRITEs"

struct target {
    struct sl_bench_child child;
    char name[SL_TRANSFER_NAME_BYTES];
};

struct entry {
    struct bench *bench;
    struct sl_bench_transfer_options options; /* of this contestant's initiator */
    const char *transport;
};

struct bench {
    struct sl_bench_transfer_options *options;
    struct target target;
    struct entry entries[2 * SHAPES], small[2];
    struct sl_bench_bare_bulk bare[2 * (SHAPES + 1)];
    struct sl_bench_bare_memory memory[SHAPES];
    struct sl_bench_peer iperf, perftest;
    struct sl_bench_peer_load iperf_loads[2], perftest_loads[2 * RDMA_SHAPES];
    struct sl_bench_contest contest;
};

static const struct sl_bench_quantity BYTES[] = {
    {"bytes", "1/s"}, {"client's core", ""}, {"target's core", ""}};
static const struct sl_bench_quantity LATENCY[] = {{"p50", "s"}, {"p99", "s"}, {"WRITEs", "1/s"}};

/* ---- The target ------------------------------------------------------------------------------ */

static void add_security(struct sl_bench_arguments *arguments,
                         const struct sl_security_flags *flags)
{
    const struct {
        const char *name, *value;
    } texts[] = {{"secret-file", flags->secret_file},
                 {"tls-cert", flags->tls_cert},
                 {"tls-key", flags->tls_key},
                 {"tls-ca", flags->tls_ca},
                 {"tls-name", flags->tls_name}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].value != NULL) {
            sl_bench_arguments_add(arguments, "--%s=%s", texts[i].name, texts[i].value);
        }
    }
}

static int start_target(struct target *target, const struct sl_bench_transfer_options *options)
{
    char program[SL_BENCH_PATH_BYTES];
    char line[SL_BENCH_PATH_BYTES];
    static struct sl_bench_arguments arguments;
    static const char *const protocols[] = {"any", "tcp", "shm", "rdma", "dpdk"};
    if (!sl_bench_child_beside("starling-bench", program)) {
        sl_log_error("there is no starling-bench beside this program");
        return SL_ERR_NOT_FOUND;
    }
    arguments = (struct sl_bench_arguments){0};
    sl_bench_arguments_add(&arguments, "%s", program);
    sl_bench_arguments_add(&arguments, "transfer");
    sl_bench_arguments_add(&arguments, "--mode=target");
    sl_bench_arguments_add(&arguments, "--local_server_name=%s", options->local_server_name);
    sl_bench_arguments_add(&arguments, "--protocol=%s", protocols[options->protocol]);
    sl_bench_arguments_add(&arguments, "--buffer_size=%llu", BUFFER_BYTES);
    sl_bench_arguments_add(&arguments, "--memory=%s",
                           options->memory == SL_BENCH_TRANSFER_SHARED ? "shared" : "private");
    sl_bench_arguments_add(&arguments, "--lanes=%u", options->engine.lanes);
    if (options->engine.congestion_control != NULL) {
        sl_bench_arguments_add(&arguments, "--congestion=%s", options->engine.congestion_control);
    }
    if (options->polling) {
        sl_bench_arguments_add(&arguments, "--polling");
    }
    if (options->insecure) {
        sl_bench_arguments_add(&arguments, "--insecure");
    }
    if (options->device_name != NULL) {
        sl_bench_arguments_add(&arguments, "--device_name=%s", options->device_name);
    }
    add_security(&arguments, &options->security_flags);
    const struct sl_bench_child_options child = {
        .argv = arguments.items, .core = options->common.server_core, .reads = true};
    int err = sl_bench_child_start(&child, &target->child);
    err = err != 0 ? err : sl_bench_child_line(&target->child, line, sizeof line, START_MS);
    if (err != 0) {
        sl_log_error("the target did not start: %s", sl_err_name(err));
        return err;
    }
    (void)snprintf(target->name, sizeof target->name, "%.*s", (int)strcspn(line, " "), line);
    return kill(target->child.pid, SIGSTOP) == 0 ? 0 : SL_ERR_IO;
}

/* ---- Contestants ----------------------------------------------------------------------------- */

static double cpu_seconds_of(pid_t pid)
{
    clockid_t clock;
    struct timespec time = {0};
    return clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &time) == 0
               ? (double)time.tv_sec + (double)time.tv_nsec / 1e9
               : 0;
}

/* The shape's figures. */
static void note_rate(const struct sl_bench_transfer_moved *moved, double own_cpu, double its_cpu,
                      double *values)
{
    values[0] = (double)moved->bytes / moved->seconds;
    values[1] = own_cpu / moved->seconds;
    values[2] = its_cpu / moved->seconds;
}

static void note_latency(const struct sl_bench_transfer_moved *moved, double *values)
{
    values[0] = sl_bench_seconds(sl_metric_quantile(&moved->latency, 0.5));
    values[1] = sl_bench_seconds(sl_metric_quantile(&moved->latency, 0.99));
    values[2] = (double)moved->bulk_bytes / moved->seconds;
}

static int initiate(struct entry *entry, struct sl_bench_transfer_engine *engine,
                    const struct sl_bench_common *common, double *values)
{
    const pid_t target = entry->bench->target.child.pid;
    const char *name = entry->bench->target.name;
    struct sl_bench_transfer_moved moved;
    entry->options.duration = common->warm_up > 0 ? common->warm_up : 0.01;
    int err = sl_bench_transfer_initiate(engine, &entry->options, name, false, &moved);
    entry->options.duration = common->seconds;
    const uint64_t own_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    const double its = cpu_seconds_of(target);
    err = err != 0 ? err : sl_bench_transfer_initiate(engine, &entry->options, name, false, &moved);
    if (err == 0 && entry->options.block_size == SMALL_BYTES) {
        note_latency(&moved, values);
    } else if (err == 0) {
        note_rate(&moved, sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - own_ns),
                  cpu_seconds_of(target) - its, values);
    }
    return err;
}

static int run_ours(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct entry *entry = ctx;
    struct sl_bench_transfer_engine engine;
    cpu_set_t before;
    (void)kill(entry->bench->target.child.pid, SIGCONT);
    int err = sl_bench_pin_begin(common->client_core, &before);
    const bool pinned = err == 0;
    err = err != 0 ? err : sl_bench_transfer_engine_open(&engine, &entry->options, BUFFER_BYTES);
    err = err != 0 ? err : initiate(entry, &engine, common, values);
    if (pinned) {
        sl_bench_transfer_engine_close(&engine);
        sl_bench_pin_end(&before);
    }
    (void)kill(entry->bench->target.child.pid, SIGSTOP);
    return err;
}

static int run_bare(void *ctx, const struct sl_bench_common *common, double *values)
{
    return sl_bench_bare_bulk_run(ctx, common, &values[0]);
}

static int run_memory(void *ctx, const struct sl_bench_common *common, double *values)
{
    return sl_bench_bare_memory_run(ctx, common, &values[0]);
}

static void add_entry(struct bench *bench, struct entry *entry, const struct shape *shape, int op,
                      const struct sl_bench_quantity *quantities)
{
    *entry = (struct entry){.bench = bench, .options = *bench->options};
    entry->options.operation = op;
    entry->options.block_size = shape->block;
    entry->options.batch_size = shape->batch;
    entry->options.threads = shape->threads;
    static const char *const transports[] = {"TCP", "TCP", "shared memory", "RDMA", "DPDK"};
    entry->transport = transports[bench->options->protocol];
    const struct sl_bench_contestant contestant = {
        .quantities = quantities,
        .quantity_count = 3,
        .transport = entry->transport,
        .run = run_ours,
        .ctx = entry,
    };
    sl_bench_contest_add(&bench->contest, &contestant, "%s, %s", OP_NAMES[op], shape->name);
}

static void add_ours(struct bench *bench)
{
    static const struct shape small[] = {{ALONE, SMALL_BYTES, 1, 1, {0, 0}},
                                         {BESIDE, SMALL_BYTES, 1, 1, {0, 0}}};
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        add_entry(bench, &bench->entries[i], &shapes[i / 2], (int)(i % 2), BYTES);
    }
    for (size_t i = 0; i < 2 && bench->options->protocol != SL_BENCH_TRANSFER_SHM; i++) {
        add_entry(bench, &bench->small[i], &small[i], SL_TRANSFER_READ, LATENCY);
        bench->small[i].options.has_bulk = i == 1;
    }
}

static const char *perftest_name(size_t index, char name[SL_BENCH_NAME_BYTES])
{
    const struct shape *shape = &rdma_shapes[index / 2];
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "%s, %s, %s", OP_NAMES[index % 2], TOOLS[index % 2],
                   shape->name);
    return name;
}

/* Each of ours is followed by perftest's. */
static int add_rdma(struct bench *bench)
{
    struct sl_bench_rdma_device device;
    char name[SL_BENCH_NAME_BYTES];
    int err = sl_bench_peer_rdma_device(bench->options->device_name, NULL, &device);
    err = err != 0 ? err
                   : sl_bench_peer_start(&bench->perftest, &bench->options->common,
                                         "perftest --device=%s --address=%s --gid=%d", device.name,
                                         device.address, device.gid);
    for (size_t i = 0; err == 0 && i < 2 * RDMA_SHAPES; i++) {
        const struct shape *shape = &rdma_shapes[i / 2];
        struct sl_bench_peer_load *load = &bench->perftest_loads[i];
        add_entry(bench, &bench->entries[i], shape, (int)(i % 2), BYTES);
        if (sl_bench_peer_is_there(&bench->perftest)) {
            *load = (struct sl_bench_peer_load){.peer = &bench->perftest,
                                                .kind = SL_BENCH_PEER_MESSAGES};
            (void)snprintf(load->words, sizeof load->words, "%s %" PRIu64 " %d poll", TOOLS[i % 2],
                           shape->block, RDMA_DEPTH);
            const struct sl_bench_contestant contestant = sl_bench_peer_contestant("", load);
            sl_bench_contest_add(&bench->contest, &contestant, "%s", perftest_name(i, name));
        }
    }
    return err;
}

static void add_bare(struct bench *bench, uint32_t index, uint32_t mb)
{
    const int op = (int)(index % 2);
    bench->bare[index] = (struct sl_bench_bare_bulk){
        .bytes = LONG_BYTES,
        .to_server = op == SL_TRANSFER_WRITE,
        .depth = BARE_DEPTH,
        .pieces = mb,
        .congestion = bench->options->engine.congestion_control,
    };
    const struct sl_bench_contestant contestant = {
        .quantities = BYTES,
        .quantity_count = 1,
        .transport = "TCP",
        .run = run_bare,
        .ctx = &bench->bare[index],
    };
    sl_bench_contest_add(&bench->contest, &contestant, "%s, bare, %u MB", OP_NAMES[op], mb);
}

static void add_all_bare(struct bench *bench)
{
    for (uint32_t i = 0; i < 2 * (SHAPES + 1); i++) {
        add_bare(bench, i, i < 2 * SHAPES ? memory_mb(&shapes[i / 2]) : BARE_DEPTH);
    }
}

static int add_iperf(struct bench *bench)
{
    static const char *const words[] = {"pull", "push"};
    const char *congestion = bench->options->engine.congestion_control;
    const int err = congestion == NULL
                        ? sl_bench_peer_start(&bench->iperf, &bench->options->common, "iperf3")
                        : sl_bench_peer_start(&bench->iperf, &bench->options->common,
                                              "iperf3 --congestion=%s", congestion);
    for (int op = 0; err == 0 && op < 2 && sl_bench_peer_is_there(&bench->iperf); op++) {
        struct sl_bench_peer_load *load = &bench->iperf_loads[op];
        *load = (struct sl_bench_peer_load){.peer = &bench->iperf, .kind = SL_BENCH_PEER_BYTES};
        (void)snprintf(load->words, sizeof load->words, "%s", words[op]);
        const struct sl_bench_contestant contestant = sl_bench_peer_contestant("", load);
        sl_bench_contest_add(&bench->contest, &contestant, "%s, iperf3 -l 1M", OP_NAMES[op]);
    }
    return err;
}

static void add_memory(struct bench *bench)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape *shape = &shapes[i];
        bench->memory[i] = (struct sl_bench_bare_memory){
            .bytes = shape->block,
            .pieces = (uint32_t)(shape->batch * shape->threads),
            .is_shared = bench->options->memory == SL_BENCH_TRANSFER_SHARED};
        const struct sl_bench_contestant contestant = {
            .quantities = BYTES, .quantity_count = 1, .run = run_memory, .ctx = &bench->memory[i]};
        sl_bench_contest_add(&bench->contest, &contestant, "memcpy, %s", shape->name);
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

static void conclude_rdma(const struct bench *bench, struct sl_bench_report *report)
{
    char name[SL_BENCH_NAME_BYTES], other[SL_BENCH_NAME_BYTES];
    for (size_t i = 0; i < 2 * RDMA_SHAPES; i++) {
        const struct shape *shape = &rdma_shapes[i / 2];
        (void)snprintf(name, sizeof name, "%s, %s", OP_NAMES[i % 2], shape->name);
        sl_bench_contest_ratio(&bench->contest, report, "bytes", name, perftest_name(i, other),
                               shape->least[i % 2], 0);
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const struct sl_bench_contest *contest = &bench->contest;
    if (bench->options->protocol == SL_BENCH_TRANSFER_RDMA) {
        conclude_rdma(bench, report);
        return;
    }
    if (bench->options->protocol != SL_BENCH_TRANSFER_SHM) {
        sl_bench_contest_ratio(contest, report, "p99", "READ, " BESIDE, "READ, " ALONE, 0,
                               P99_OF_ALONE);
    }
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        const char *op = OP_NAMES[i % 2];
        const struct shape *shape = &shapes[i / 2];
        char name[SL_BENCH_NAME_BYTES];
        char other[SL_BENCH_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s, %s", op, shape->name);
        if (bench->options->protocol == SL_BENCH_TRANSFER_SHM) {
            const bool is_shared = bench->options->memory == SL_BENCH_TRANSFER_SHARED;
            (void)snprintf(other, sizeof other, "memcpy, %s", shape->name);
            sl_bench_contest_ratio(contest, report, "bytes", name, other,
                                   is_shared ? MAPPED_OF_MEMCPY : 0, 0);
            continue;
        }
        (void)snprintf(other, sizeof other, "%s, bare, %u MB", op, memory_mb(shape));
        sl_bench_contest_ratio(contest, report, "bytes", name, other, shape->least[i % 2], 0);
        if (shape->block == LONG_BYTES) {
            (void)snprintf(other, sizeof other, "%s, bare, %u MB", op, BARE_DEPTH);
            sl_bench_contest_ratio(contest, report, "bytes", name, other, 0, 0);
            (void)snprintf(other, sizeof other, "%s, iperf3 -l 1M", op);
            sl_bench_contest_ratio(contest, report, "bytes", name, other, BLOCKS_OF_IPERF, 0);
        }
    }
}

int sl_bench_transfer_compare(struct sl_bench_transfer_options *options)
{
    static struct bench bench;
    char setting[256];
    bench.options = options;
    if (options->protocol == SL_BENCH_TRANSFER_ANY) {
        options->protocol = SL_BENCH_TRANSFER_TCP;
        options->engine.endpoints = "tcp://127.0.0.1:0";
    }
    options->common.rounds = options->common.rounds == 0 ? 5 : options->common.rounds;
    options->common.seconds = options->duration;
    options->common.warm_up = options->duration / 4;
    int err = start_target(&bench.target, options);
    if (options->protocol == SL_BENCH_TRANSFER_RDMA) {
        err = err != 0 ? err : add_rdma(&bench);
    } else if (options->protocol == SL_BENCH_TRANSFER_SHM) {
        add_ours(&bench);
        add_memory(&bench);
    } else {
        add_ours(&bench);
        add_all_bare(&bench);
        err = err != 0 ? err : add_iperf(&bench);
    }
    if (err == 0) {
        (void)snprintf(setting, sizeof setting, "memory %s, congestion control %s",
                       options->memory == SL_BENCH_TRANSFER_SHARED ? "shared" : "private",
                       options->engine.congestion_control == NULL
                           ? "of the system"
                           : options->engine.congestion_control);
        err = sl_bench_contest_report(&bench.contest, "transfer", setting, conclude, &bench,
                                      &options->common);
    }
    if (bench.target.child.pid > 0) { /* 0 would be this process and its siblings */
        (void)kill(bench.target.child.pid, SIGCONT);
    }
    sl_bench_child_stop(&bench.target.child);
    sl_bench_peer_stop(&bench.iperf);
    sl_bench_peer_stop(&bench.perftest);
    return err == 0 ? 0 : 1;
}
