/* starling-bench: measures parts of Starling and whole clusters. Figures are for comparison within
 * one machine and one run. */
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/report.h"
#include "core/log.h"
#include "programs/serve/engine/blas.h"

struct benchmark {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

/* bench/train.py takes the place of this program. */
static int run_train(int argc, char **argv)
{
    struct sl_bench_arguments arguments = {0};
    char build[160];
    if (sl_bench_child_script("train.py", &arguments) != 0) {
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        sl_bench_arguments_add(&arguments, "%s", argv[i]);
    }
    char folder[SL_BENCH_PATH_BYTES];
    if (!sl_bench_child_beside("starling-ps", folder)) {
        (void)fprintf(stderr, "starling-bench: there is no starling-ps beside this program\n");
        return 1;
    }
    sl_bench_report_build(build, sizeof build);
    sl_bench_arguments_add(&arguments, "--build=%s", build);
    sl_bench_arguments_add(&arguments, "--bin=%s", dirname(folder));
    (void)execv(arguments.items[0], (char *const *)(uintptr_t)arguments.items);
    perror("starling-bench train");
    return 1;
}

/* By name. */
static const struct benchmark benchmarks[] = {
    {"bulk", "dense pulls and pushes from 64 KB to 64 MB, beside bare sockets and iperf3",
     sl_bench_bulk_run},
    {"calls", "calls of the client library, one at a time", sl_bench_calls_run},
    {"checkpoint", "what checkpoints cost a ps that serves, what they hold, and how fast they load",
     sl_bench_checkpoint_run},
    {"cold", "models that are not in memory, opened and computed under each schedule",
     sl_bench_cold_run},
    {"dpdk", "frames over DPDK's memif, beside TCP", sl_bench_dpdk_run},
    {"engine", "an ONNX model in a loop, without requests; the grouping of layers",
     sl_bench_engine_run},
    {"ipc", "shared memory, TCP over loopback and memcpy in turns, beside ps-lite's figures",
     sl_bench_ipc_run},
    {"objects", "versions that one process or many get, beside READs, hashing and a star",
     sl_bench_objects_run},
    {"pslite", "ps-lite's test_benchmark: its arguments, environment and figures",
     sl_bench_pslite_run},
    {"pull", "reads of rows, 1 to 1000 keys a request, from a real ps", sl_bench_pull_run},
    {"push", "gradients to a real ps", sl_bench_push_run},
    {"pushpull", "gradients to a real ps, and the rows behind them, in one trip",
     sl_bench_pushpull_run},
    {"rdma", "pulls, pushes and frames over an RDMA device, beside perftest", sl_bench_rdma_run},
    {"replicas", "what a backup of each shard costs those who push", sl_bench_replicas_run},
    {"scale", "reads of rows, by number of reactors and of connections", sl_bench_scale_run},
    {"serving", "one reactor beside bare sockets, bare memory and Redis", sl_bench_serving_run},
    {"staleness", "how old the parameters are that workers use; SRL's flags and lines",
     sl_bench_staleness_run},
    {"table", "lookups, reads and updates of one sparse table in this process; its memory",
     sl_bench_table_run},
    {"train", "samples/s of lr, fm and deepfm end to end, and where the time goes", run_train},
    {"transfer", "blocks between registered memory of two processes; Mooncake's flags",
     sl_bench_transfer_run},
    {"workers", "worker processes that pull, push and tick in turns", sl_bench_workers_run},
};
#define BENCHMARK_COUNT (sizeof benchmarks / sizeof benchmarks[0])

static void print_usage(FILE *to)
{
    fprintf(to, "usage: starling-bench BENCHMARK [options]\n"
                "       starling-bench BENCHMARK --help\n\nBenchmarks:\n");
    for (size_t i = 0; i < BENCHMARK_COUNT; i++) {
        fprintf(to, "  %-10s %s\n", benchmarks[i].name, benchmarks[i].summary);
    }
}

int main(int argc, char **argv)
{
    sl_log_setup(SL_LOG_INFO, "bench");
    sl_blas_init(); /* for all benchmarks: its threads would take their signals */
    if (strcmp(basename(argv[0]), "transfer_engine_bench") == 0) {
        return sl_bench_transfer_run(argc, argv);
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
    for (size_t i = 0; i < BENCHMARK_COUNT; i++) {
        if (strcmp(argv[1], benchmarks[i].name) == 0) {
            return benchmarks[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "starling-bench: there is no benchmark \"%s\"\n", argv[1]);
    print_usage(stderr);
    return 2;
}
