/* Requests for rows to real processes: what `pull`, `push` and `pushpull` have in common, which is
 * everything but the operation. */
#ifndef SL_BENCH_EXCHANGE_H
#define SL_BENCH_EXCHANGE_H

#include "bench/load.h"

#define SL_BENCH_NUMBERS_MAX 16

/* Numbers of a list, as sl_bench_list reads them, of 32 bits. An error has been printed, with
 * the flag's name. Errors: INVALID. */
struct sl_bench_numbers {
    uint32_t items[SL_BENCH_NUMBERS_MAX];
    uint32_t count;
};
int sl_bench_exchange_numbers(const char *benchmark, const char *flag, const char *text,
                              uint32_t least, uint32_t most, struct sl_bench_numbers *out);

#endif
