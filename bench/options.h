/* Options common to all benchmarks. */
#ifndef SL_BENCH_OPTIONS_H
#define SL_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/cli.h"

/* Options that every program and every load has, beside its own flags. */
struct sl_bench_common {
    const char *json;             /* NULL, or where the report is written; not of a load */
    int server_core, client_core; /* -1: chosen: the first and the second that we may run on */
    /* Of a turn of a load (bench/turns.h). */
    double warm_up, seconds;
    const char *words;
};

/* No file, cores left open. */
struct sl_bench_common sl_bench_common_defaults(void);

struct sl_bench_program {
    const char *name, *summary;
    const char *usage; /* "[options]" */
    bool is_load;      /* it has no --json */
};

/* Parses a program's own flags and the common ones (--json, --server-core, --client-core), and
 * chooses the cores that were left open. SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been
 * printed. */
int sl_bench_parse_program(const struct sl_bench_program *program, const struct sl_cli_option *own,
                           uint32_t own_count, struct sl_bench_common *common, int argc,
                           char **argv);

/* The flags of a load (bench/turns.h): its own, and the cores. */
int sl_bench_parse_load(const char *load, const struct sl_cli_option *own, uint32_t own_count,
                        struct sl_bench_common *common, int argc, char **argv);

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

/* --congestion, of TCP; what the kernel does not have is refused by sl_bench_parse_program. */
struct sl_cli_option sl_bench_congestion(const char **target);

/* --over: what the clients of a ps of this machine speak; what bare sockets are compared with is
 * TCP. Names of the choices, for reports. */
enum sl_bench_over { SL_BENCH_OVER_TCP, SL_BENCH_OVER_SHM };
extern const char *const sl_bench_over_names[];
struct sl_cli_option sl_bench_over(int *target);

/* The exponent of Zipf's law. */
struct sl_cli_option sl_bench_exponent(const char *name, double *target);

/* Reads the value of a flag that takes numbers between commas, "16,64", each within [least, most].
 * Errors, printed: INVALID. */
int sl_bench_list(const char *program, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *values, uint32_t values_max, uint32_t *count);

/* Whether this process, and a ps that it starts, may have so many connections open at a time; the
 * soft limit is raised as far as it goes. Errors, printed: INVALID. */
int sl_bench_check_connections(const char *benchmark, uint64_t connections);

#endif
