#include "bench/turns.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"

#define LINE_BYTES 512

static void print_numbers(const struct sl_bench_turns *turns, const double *values)
{
    const char *comma = "";
    for (uint32_t i = 0; i < turns->quantity_count; i++) {
        const struct sl_bench_quantity *quantity = &turns->quantities[i];
        if (isfinite(values[i])) {
            (void)printf("%s[\"%s\", \"%s\", %.17g]", comma, quantity->name, quantity->unit,
                         values[i]);
            comma = ", ";
        }
    }
}

static void print_times(const struct sl_metric_histogram *times)
{
    const char *comma = "";
    (void)printf("\"count\": %" PRIu64 ", \"max\": %" PRIu64 ", \"buckets\": [", times->count,
                 times->max);
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        const uint64_t count = sl_metric_bucket(times, i, &upper);
        if (count > 0) {
            (void)printf("%s[%" PRIu64 ", %" PRIu64 "]", comma, upper, count);
            comma = ", ";
        }
    }
    (void)printf("]");
}

static void print_turn(const struct sl_bench_turns *turns, const double *values)
{
    (void)printf("{\"numbers\": [");
    print_numbers(turns, values);
    (void)printf("]");
    if (turns->times != NULL) {
        (void)printf(", \"times\": {");
        print_times(turns->times);
        (void)printf("}");
    }
    (void)printf("}\n");
}

static int run_turn(const struct sl_bench_turns *turns, const struct sl_bench_common *common)
{
    double values[SL_BENCH_QUANTITIES_MAX];
    for (uint32_t i = 0; i < turns->quantity_count; i++) {
        values[i] = NAN;
    }
    const int err = turns->run(turns->ctx, common, values);
    if (err != 0) {
        sl_log_error("the turn has failed: %s", sl_err_name(err));
        return err;
    }
    print_turn(turns, values);
    return fflush(stdout) == 0 ? 0 : SL_ERR_IO;
}

int sl_bench_turns_serve(const struct sl_bench_turns *turns, const struct sl_bench_common *common)
{
    sl_assert(turns->quantity_count <= SL_BENCH_QUANTITIES_MAX);
    struct sl_bench_common turn = *common;
    char line[LINE_BYTES];
    (void)puts("ready");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        int used = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%lf %lf %n", &turn.warm_up, &turn.seconds, &used) != 2 ||
            !(turn.warm_up >= 0) || !(turn.seconds > 0)) {
            sl_log_error("\"%s\": accepts WARM_UP SECONDS [WORD...]", line);
            return 2;
        }
        turn.words = line + used;
        if (run_turn(turns, &turn) != 0) {
            return 1;
        }
    }
    return 0;
}

bool sl_bench_turns_word(const char **words, const char *word)
{
    const size_t length = strlen(word);
    const char *at = *words + strspn(*words, " ");
    if (strncmp(at, word, length) != 0 || (at[length] != ' ' && at[length] != '\0')) {
        return false;
    }
    *words = at + length;
    return true;
}

int sl_bench_turns_number(const char **words, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    const uint64_t value = strtoull(*words, &end, 10);
    if (end == *words || (*end != ' ' && *end != '\0') || value < least || value > most) {
        sl_log_error("\"%s\": a word of the turn is no number from %" PRIu64 " to %" PRIu64, *words,
                     least, most);
        return SL_ERR_INVALID;
    }
    *words = end;
    *out = value;
    return 0;
}
