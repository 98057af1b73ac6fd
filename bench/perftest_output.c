/* A table of perftest's: a line of headings that begins with "#bytes", and one line of numbers. Of
 * the headings some have a blank before their unit, or within, so that they are looked for as a
 * whole. */
#include "bench/perftest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEGABYTE       1048576.0 /* what it calls MB/sec or MiB/sec */

/* From here on its column of millions of messages a second, with six digits behind the point, says
 * more than that of megabytes with two. */
#define MESSAGES_LEAST 1000.0

/* What may stand in the line. */
static const char *const HEADINGS[] = {
    "#bytes", "#iterations", "BW peak", "BW average", "MsgRate",        "t_min",
    "t_max",  "t_typical",   "t_avg",   "t_stdev",    "99% percentile", "99.9% percentile",
};

/* The place of the heading among those of the line, or -1. */
static int column_of(const char *line, const char *heading)
{
    const size_t length = strcspn(line, "\n");
    int column = 0;
    bool found = false;
    const char *wanted = strstr(line, heading);
    for (size_t i = 0; i < sizeof HEADINGS / sizeof HEADINGS[0]; i++) {
        const char *at = strstr(line, HEADINGS[i]);
        if (at == NULL || at >= line + length) {
            continue;
        }
        found = found || at == wanted;
        column += wanted != NULL && at < wanted;
    }
    return found ? column : -1;
}

/* The number in this column of the line behind the headings. */
static int number_in(const char *headings, const char *heading, double *out)
{
    const int column = column_of(headings, heading);
    const char *at = strchr(headings, '\n');
    if (column < 0 || at == NULL) {
        return SL_ERR_PROTOCOL;
    }
    at++;
    for (int i = 0; i <= column; i++) {
        at += strspn(at, " \t");
        char *end;
        const double number = strtod(at, &end);
        if (end == at || *at == '\n' || !isfinite(number)) {
            return SL_ERR_PROTOCOL;
        }
        *out = number;
        at = end;
    }
    return 0;
}

int sl_bench_perftest_read_rate(const char *text, uint64_t bytes,
                                struct sl_bench_perftest_rate *out)
{
    const char *table = strstr(text, "#bytes");
    double megabytes, millions, had_bytes;
    int err = table == NULL ? SL_ERR_PROTOCOL : number_in(table, "#bytes", &had_bytes);
    err = err != 0 ? err : number_in(table, "BW average", &megabytes);
    err = err != 0 ? err : number_in(table, "MsgRate", &millions);
    if (err != 0 || had_bytes != (double)bytes) {
        return SL_ERR_PROTOCOL;
    }
    const double messages =
        millions * 1e6 >= MESSAGES_LEAST ? millions * 1e6 : megabytes * MEGABYTE / (double)bytes;
    if (!(messages > 0)) {
        return SL_ERR_PROTOCOL;
    }
    *out = (struct sl_bench_perftest_rate){.bytes_per_s = messages * (double)bytes,
                                           .messages_per_s = messages};
    return 0;
}

int sl_bench_perftest_read_latency(const char *text, struct sl_bench_perftest_latency *out)
{
    const char *table = strstr(text, "#bytes");
    struct sl_bench_perftest_latency latency;
    int err = table == NULL ? SL_ERR_PROTOCOL : number_in(table, "t_typical", &latency.half_us_p50);
    err = err != 0 ? err : number_in(table, "99% percentile", &latency.half_us_p99);
    if (err != 0 || !(latency.half_us_p50 > 0) || !(latency.half_us_p99 > 0)) {
        return SL_ERR_PROTOCOL;
    }
    *out = latency;
    return 0;
}
