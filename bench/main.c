/* starling-bench: measures parts of Starling and whole clusters. Figures are for comparison within
 * one machine and one run. A benchmark is run by bench/driver.py, in whose place this program runs
 * what the driver measures: `starling-bench load NAME`. */
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/build.h"
#include "bench/child.h"
#include "core/log.h"
#include "programs/serve/engine/blas.h"

typedef int run_fn(int argc, char **argv);

struct program {
    const char *name;
    const char *summary; /* of a load: NULL */
    run_fn *run;         /* NULL: the driver's */
};

/* By name. */
static const struct program benchmarks[] = {
    {"bulk", "dense pulls and pushes from 64 KB to 64 MB, beside bare sockets and iperf3", NULL},
    {"calls", "calls of the client library, one at a time", NULL},
    {"checkpoint", "what checkpoints cost a ps that serves, what they hold, and how fast they load",
     NULL},
    {"cold", "models that are not in memory, opened and computed under each schedule", NULL},
    {"dpdk", "frames over DPDK's memif, beside TCP", NULL},
    {"elastic", "pulls while a shard moves to another server, and how long the move takes", NULL},
    {"engine", "an ONNX model in a loop, without requests; the grouping of layers", NULL},
    {"ipc", "shared memory, TCP over loopback and memcpy in turns, beside ps-lite's figures", NULL},
    {"mooncake", "the Python package mooncake beside the C engine", NULL},
    {"narrow", "rows and messages in f16, bf16 and int8 beside f32", NULL},
    {"objects", "versions that one process or many get, beside READs, hashing and a star", NULL},
    {"pslite", "ps-lite's test_benchmark: its arguments, environment and figures",
     sl_bench_pslite_run},
    {"pull", "reads of rows, 1 to 1000 keys a request, from a real ps", NULL},
    {"push", "gradients to a real ps", NULL},
    {"pushpull", "gradients to a real ps, and the rows behind them, in one trip", NULL},
    {"rdma", "pulls, pushes and frames over an RDMA device, beside perftest", NULL},
    {"replicas", "what a backup of each shard costs those who push", NULL},
    {"scale", "reads of rows, by number of reactors and of connections", NULL},
    {"serving", "one reactor beside bare sockets, bare memory and Redis", NULL},
    {"staleness", "how old the parameters are that workers use; SRL's flags and lines",
     sl_bench_staleness_run},
    {"table", "lookups, reads and updates of one sparse table in this process; its memory", NULL},
    {"train", "samples/s of lr, fm and deepfm end to end, and where the time goes", NULL},
    {"transfer", "blocks between registered memory of two processes; Mooncake's flags",
     sl_bench_transfer_run},
    {"workers", "worker processes that pull, push and tick in turns", NULL},
};
#define BENCHMARK_COUNT (sizeof benchmarks / sizeof benchmarks[0])

static const struct program loads[] = {
    {"applies", NULL, sl_bench_applies_run},
    {"bulk", NULL, sl_bench_bulk_run},
    {"calls", NULL, sl_bench_calls_run},
    {"checkpoints", NULL, sl_bench_checkpoints_run},
    {"cold", NULL, sl_bench_cold_run},
    {"echo", NULL, sl_bench_echo_run},
    {"engine", NULL, sl_bench_engine_run},
    {"frames", NULL, sl_bench_frames_load_run},
    {"ipc", NULL, sl_bench_ipc_run},
    {"memory", NULL, sl_bench_memory_run},
    {"objects", NULL, sl_bench_objects_run},
    {"reads", NULL, sl_bench_reads_run},
    {"replicas", NULL, sl_bench_replicas_run},
    {"rows", NULL, sl_bench_rows_run},
    {"sends", NULL, sl_bench_sends_run},
    {"table", NULL, sl_bench_table_run},
    {"transfer", NULL, sl_bench_transfer_load_run},
    {"workers", NULL, sl_bench_workers_run},
};
#define LOAD_COUNT (sizeof loads / sizeof loads[0])

static void print_usage(FILE *to)
{
    fprintf(to, "usage: starling-bench BENCHMARK [options]\n"
                "       starling-bench BENCHMARK --help\n\nBenchmarks:\n");
    for (size_t i = 0; i < BENCHMARK_COUNT; i++) {
        fprintf(to, "  %-10s %s\n", benchmarks[i].name, benchmarks[i].summary);
    }
    fprintf(to, "\nstarling-bench load NAME runs what a benchmark measures in turns. Loads:\n ");
    for (size_t i = 0; i < LOAD_COUNT; i++) {
        fprintf(to, " %s", loads[i].name);
    }
    fprintf(to, "\n");
}

/* Becomes bench/driver.py, as it is installed or in the source tree. argv[0]: the benchmark. */
static int run_driver(int argc, char **argv)
{
    char script[SL_BENCH_PATH_BYTES], bin[SL_BENCH_PATH_BYTES];
    static struct sl_bench_arguments arguments;
    sl_bench_child_script("driver.py", script);
    (void)sl_bench_child_beside("", F_OK, bin);
    sl_bench_arguments_add(&arguments, "python3");
    sl_bench_arguments_add(&arguments, "%s", script);
    sl_bench_arguments_add(&arguments, "%s", argv[0]);
    sl_bench_arguments_add(&arguments, "--bin=%s", bin);
    for (int i = 1; i < argc; i++) {
        sl_bench_arguments_add(&arguments, "%s", argv[i]);
    }
    (void)execvp(arguments.items[0], (char *const *)(uintptr_t)arguments.items);
    perror("starling-bench needs python3");
    return 1;
}

static const struct program *find(const struct program *programs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, programs[i].name) == 0) {
            return &programs[i];
        }
    }
    return NULL;
}

/* `transfer --compare` is a benchmark, other transfers are not. */
static bool compares(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compare") == 0 || strcmp(argv[i], "-compare") == 0) {
            return true;
        }
    }
    return false;
}

static int run_transfer(int argc, char **argv)
{
    static char name[] = "transfer";
    argv[0] = name;
    return compares(argc, argv) ? run_driver(argc, argv) : sl_bench_transfer_run(argc, argv);
}

static int run_load(int argc, char **argv)
{
    const struct program *load = argc > 1 ? find(loads, LOAD_COUNT, argv[1]) : NULL;
    if (load == NULL) {
        fprintf(stderr, "starling-bench: there is no such load\n");
        print_usage(stderr);
        return 2;
    }
    sl_log_setup(SL_LOG_ERROR, "bench"); /* of late turns the figures tell */
    return load->run(argc - 1, argv + 1);
}

static int run_benchmark(int argc, char **argv)
{
    const struct program *benchmark = find(benchmarks, BENCHMARK_COUNT, argv[0]);
    if (benchmark == NULL) {
        fprintf(stderr, "starling-bench: there is no benchmark \"%s\"\n", argv[0]);
        print_usage(stderr);
        return 2;
    }
    return benchmark->run == NULL                    ? run_driver(argc, argv)
           : benchmark->run == sl_bench_transfer_run ? run_transfer(argc, argv)
                                                     : benchmark->run(argc, argv);
}

int main(int argc, char **argv)
{
    sl_log_setup(SL_LOG_INFO, "bench");
    sl_blas_init(); /* for all benchmarks: its threads would take their signals */
    if (strcmp(basename(argv[0]), "transfer_engine_bench") == 0) {
        return run_transfer(argc, argv);
    }
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("starling-bench %s\n", STARLING_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--build") == 0) {
        printf("%s\n", sl_bench_build());
        return 0;
    }
    return strcmp(argv[1], "load") == 0 ? run_load(argc - 1, argv + 1)
                                        : run_benchmark(argc - 1, argv + 1);
}
