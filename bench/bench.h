/* The programs and the loads of starling-bench: one file each, which parses its own flags
 * (bench/options.h). argv[0] is its name. Returns the program's exit status: 0; 1 when something
 * failed; 2 for wrong flags. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

/* Programs of their own, for users. */
int sl_bench_pslite_run(int argc, char **argv);
int sl_bench_staleness_run(int argc, char **argv);
int sl_bench_transfer_run(int argc, char **argv);

/* Loads (bench/turns.h). */
int sl_bench_applies_run(int argc, char **argv);
int sl_bench_bulk_run(int argc, char **argv);
int sl_bench_calls_run(int argc, char **argv);
int sl_bench_checkpoints_run(int argc, char **argv);
int sl_bench_cold_run(int argc, char **argv);
int sl_bench_echo_run(int argc, char **argv);
int sl_bench_engine_run(int argc, char **argv);
int sl_bench_frames_load_run(int argc, char **argv);
int sl_bench_ipc_run(int argc, char **argv);
int sl_bench_memory_run(int argc, char **argv);
int sl_bench_objects_run(int argc, char **argv);
int sl_bench_reads_run(int argc, char **argv);
int sl_bench_replicas_run(int argc, char **argv);
int sl_bench_rows_run(int argc, char **argv);
int sl_bench_sends_run(int argc, char **argv);
int sl_bench_table_run(int argc, char **argv);
int sl_bench_transfer_load_run(int argc, char **argv);
int sl_bench_workers_run(int argc, char **argv);

#endif
