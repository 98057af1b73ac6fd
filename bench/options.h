/* Options common to all benchmarks. */
#ifndef SL_BENCH_OPTIONS_H
#define SL_BENCH_OPTIONS_H

#include "bench/report.h"
#include "config/cli.h"

/* --rounds 5 --seconds 1 --warm-up 0.3, no files, cores chosen. */
struct sl_bench_common sl_bench_common_defaults(void);

/* Parses a benchmark's own flags and the common ones (--rounds, --seconds, --warm-up, --json,
 * --plot, --compare, --server-core, --client-core), and chooses the cores that were left open.
 * SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
int sl_bench_parse(const char *benchmark, const char *summary, const struct sl_cli_option *own,
                   uint32_t own_count, struct sl_bench_common *common, int argc, char **argv);

/* The same of a benchmark that takes more, or fewer, arguments than that. */
struct sl_bench_program {
    const char *name, *summary;
    const char *usage; /* "[options]" */
    bool is_one_run;   /* it is not measured in turns: of the common flags it has --json and the
                        * cores */
};
int sl_bench_parse_program(const struct sl_bench_program *program, const struct sl_cli_option *own,
                           uint32_t own_count, struct sl_bench_common *common, int argc,
                           char **argv);

/* Rows of an option table. */
struct sl_cli_option sl_bench_number(const char *name, uint64_t *target, double least, double most,
                                     const char *help);
struct sl_cli_option sl_bench_real(const char *name, double *target, double least, double most,
                                   const char *help);
struct sl_cli_option sl_bench_core(const char *name, int64_t *target, const char *help);
struct sl_cli_option sl_bench_choice(const char *name, int *target, const char *choices,
                                     const char *help);
struct sl_cli_option sl_bench_text(const char *name, const char **target, const char *metavar,
                                   const char *help);

/* --congestion, of TCP; what the kernel does not have is refused by sl_bench_parse. */
struct sl_cli_option sl_bench_congestion(const char **target);

/* --over: what the clients of a ps of this machine speak; what bare sockets are compared with is
 * TCP. Names of the choices, for sl_bench_contestant.transport. */
enum sl_bench_over { SL_BENCH_OVER_TCP, SL_BENCH_OVER_SHM };
extern const char *const sl_bench_over_names[];
struct sl_cli_option sl_bench_over(int *target);

/* The exponent of Zipf's law. */
struct sl_cli_option sl_bench_exponent(const char *name, double *target);

/* Reads the value of a flag that takes numbers between commas, "16,64" or "1M,20M" (k, M and G are
 * decimal), each within [least, most]. Errors, printed: INVALID. */
int sl_bench_list(const char *benchmark, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *values, uint32_t values_max, uint32_t *count);

#define SL_BENCH_NUMBERS_MAX 16
struct sl_bench_numbers {
    uint64_t items[SL_BENCH_NUMBERS_MAX];
    uint32_t count;
};

/* Of one that takes sizes in bytes, "64K,1M" (K, M and G are binary), multiples of `multiple`, from
 * one of it to `most`. Errors, printed: INVALID. */
int sl_bench_sizes(const char *benchmark, const char *flag, const char *text, uint64_t multiple,
                   uint64_t most, uint64_t *values, uint32_t values_max, uint32_t *count);

/* "64 KB", "16 MB", "3 B". */
#define SL_BENCH_SIZE_BYTES 32
void sl_bench_size_text(uint64_t bytes, char text[SL_BENCH_SIZE_BYTES]);

/* Whether this process, and a ps that it starts, may have so many connections open at a time; the
 * soft limit is raised as far as it goes. Errors, printed: INVALID. */
int sl_bench_check_connections(const char *benchmark, uint64_t connections);

#endif
