/* A load measures one thing in turns that bench/driver.py requests, alternating with other loads.
 * It prepares, prints "ready", and then answers each line of its input,
 * WARM_UP SECONDS [WORD...], with one line of JSON: {"numbers": [[quantity, unit, value], ...],
 * "times": {"count": N, "max": NS, "buckets": [[NS, N], ...]}}. It ends with its input. One thread.
 */
#ifndef SL_BENCH_TURNS_H
#define SL_BENCH_TURNS_H

#include "bench/options.h"
#include "core/metric.h"

#define SL_BENCH_QUANTITIES_MAX 10

struct sl_bench_quantity {
    const char *name, *unit; /* "requests", "1/s"; static storage */
};

struct sl_bench_turns {
    const struct sl_bench_quantity *quantities;
    uint32_t quantity_count; /* at most SL_BENCH_QUANTITIES_MAX */
    /* One turn: runs for common->warm_up seconds, measures for common->seconds, and writes some of
     * values[quantity_count]. Between turns the load takes no processor time. Errors, logged: any.
     */
    int (*run)(void *ctx, const struct sl_bench_common *common, double *values);
    void *ctx;
    const struct sl_metric_histogram *times; /* of the last turn, in ns; or NULL */
};

/* Serves turns until the end of the input. Returns the program's exit status. */
int sl_bench_turns_serve(const struct sl_bench_turns *turns, const struct sl_bench_common *common);

/* Whether the turn's next word is this one, which is then taken. */
bool sl_bench_turns_word(const char **words, const char *word);

/* Takes the turn's next word, a number from least to most. Errors, logged: INVALID. */
int sl_bench_turns_number(const char **words, uint64_t least, uint64_t most, uint64_t *out);

#endif
