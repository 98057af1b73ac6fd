/* The benchmarks of starling-bench: one file each, which parses its own flags. argv[0] is the
 * benchmark's name. Returns the program's exit status. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

int sl_bench_generate_run(int argc, char **argv);
int sl_bench_table_run(int argc, char **argv);

#endif
