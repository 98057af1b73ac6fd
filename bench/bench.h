/* The benchmarks of starling-bench: one file each, which parses its own flags (bench/options.h).
 * argv[0] is the benchmark's name. Returns the program's exit status: 0; 1 when something failed;
 * 2 for wrong flags. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

int sl_bench_bulk_run(int argc, char **argv);
int sl_bench_calls_run(int argc, char **argv);
int sl_bench_checkpoint_run(int argc, char **argv);
int sl_bench_cold_run(int argc, char **argv);
int sl_bench_dpdk_run(int argc, char **argv);
int sl_bench_engine_run(int argc, char **argv);
int sl_bench_ipc_run(int argc, char **argv);
int sl_bench_objects_run(int argc, char **argv);
int sl_bench_pslite_run(int argc, char **argv);
int sl_bench_pull_run(int argc, char **argv);
int sl_bench_push_run(int argc, char **argv);
int sl_bench_pushpull_run(int argc, char **argv);
int sl_bench_rdma_run(int argc, char **argv);
int sl_bench_replicas_run(int argc, char **argv);
int sl_bench_scale_run(int argc, char **argv);
int sl_bench_serving_run(int argc, char **argv);
int sl_bench_staleness_run(int argc, char **argv);
int sl_bench_table_run(int argc, char **argv);
int sl_bench_transfer_run(int argc, char **argv);
int sl_bench_workers_run(int argc, char **argv);

#endif
