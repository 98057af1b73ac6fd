/* What the benchmark of ps-lite (BytePS's fork, tests/test_benchmark) is told by its arguments and
 * its environment, with the same meaning here. No I/O. */
#ifndef SL_BENCH_PSLITE_OPTIONS_H
#define SL_BENCH_PSLITE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "bench/options.h"
#include "core/reason.h"

#define SL_BENCH_PSLITE_LEN_MAX     (1ULL << 30)
#define SL_BENCH_PSLITE_KEYS_MAX    4096 /* of each server */
#define SL_BENCH_PSLITE_WORKERS_MAX 64

enum sl_bench_pslite_mode {
    SL_BENCH_PSLITE_PUSH_THEN_PULL = 0, /* of one key of each server, one after the other */
    SL_BENCH_PSLITE_PUSH_PULL = 1,      /* of all keys, all under way, as the two below */
    SL_BENCH_PSLITE_PUSH = 2,
    SL_BENCH_PSLITE_PULL = 3,
};
#define SL_BENCH_PSLITE_MODES 4

/* "push_pull". */
const char *sl_bench_pslite_mode_name(enum sl_bench_pslite_mode mode);

enum sl_bench_pslite_handler {
    SL_BENCH_PSLITE_KEEP = 0, /* test_benchmark's own: bench/pslite_keep.h */
    SL_BENCH_PSLITE_SUM = 1,  /* what a server does without a handler: pushes are added up */
};

struct sl_bench_pslite_load {
    uint64_t len; /* bytes of the array of a key */
    uint32_t repeat;
    enum sl_bench_pslite_mode mode;
    uint32_t keys_per_server;
    uint32_t log_rounds;   /* rounds between two reports */
    uint32_t total_rounds; /* of modes 1 to 3, in place of `repeat`; 0: not set */
    enum sl_bench_pslite_handler handler;
};

/* LEN 1024000, REPEAT 10, MODE 1, 40 keys, a report every 10 rounds. */
struct sl_bench_pslite_load sl_bench_pslite_options_defaults(void);

/* The arguments in front of the flags, [LEN [REPEAT [MODE]]]: *taken of them, from argv[1] on.
 * Errors: INVALID, with a reason that says what is accepted. */
int sl_bench_pslite_options_arguments(struct sl_bench_pslite_load *load, int argc, char **argv,
                                      int *taken, struct sl_reason *reason);

/* NUM_KEY_PER_SERVER, LOG_DURATION, TOTAL_DURATION, where they are set. Errors likewise. */
int sl_bench_pslite_options_environment(struct sl_bench_pslite_load *load,
                                        struct sl_reason *reason);

/* What no argument tells alone: sums are of f32. Errors likewise. */
int sl_bench_pslite_options_check(const struct sl_bench_pslite_load *load,
                                  struct sl_reason *reason);

/* The whole command line: arguments, environment, flags; *handler is what a flag chose, *taken the
 * number of arguments. SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
int sl_bench_pslite_options_parse(const struct sl_bench_program *program,
                                  const struct sl_cli_option *own, uint32_t own_count,
                                  struct sl_bench_common *common, const int *handler,
                                  struct sl_bench_pslite_load *load, int *taken, int argc,
                                  char **argv);

/* Rounds of modes 1 to 3. */
uint32_t sl_bench_pslite_options_rounds(const struct sl_bench_pslite_load *load);

/* Bytes of one value as the server counts them. */
uint32_t sl_bench_pslite_options_value_bytes(enum sl_bench_pslite_handler handler);

/* One line: what is measured. */
void sl_bench_pslite_options_setting(const struct sl_bench_pslite_load *load, char *text,
                                     size_t text_bytes);

#endif
