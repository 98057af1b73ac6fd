#include "bench/perftest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/child.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/log.h"

#define LISTEN_NS      (10 * SL_CLOCK_NS_PER_S)
#define LOOK_AGAIN_NS  (5 * SL_CLOCK_NS_PER_MS)
#define TRIES          3
#define RUN_MS         60000
#define SERVER_END_MS  10000

#define MESSAGES_LEAST 20.0 /* of a repeat; perftest takes 5 */
#define MESSAGES_MOST  1e8
#define FIRST_BYTES    (4.0 * (1 << 20)) /* of a repeat before anything is known */
#define FIRST_MESSAGES 1000.0

struct tool {
    const char *program;
    bool is_latency;
    /* The client moves the data, as a ps does that writes what is pulled and reads what is pushed:
     * it has the server's core. */
    bool client_is_ps;
    bool sends;
};
static const struct tool TOOLS[] = {
    [SL_BENCH_PERFTEST_WRITE_BW] = {"ib_write_bw", false, true, false},
    [SL_BENCH_PERFTEST_READ_BW] = {"ib_read_bw", false, true, false},
    [SL_BENCH_PERFTEST_SEND_BW] = {"ib_send_bw", false, false, true},
    [SL_BENCH_PERFTEST_SEND_LAT] = {"ib_send_lat", true, false, true},
};
#define TOOL_COUNT (sizeof TOOLS / sizeof TOOLS[0])

bool sl_bench_perftest_is_there(void)
{
    char path[SL_BENCH_PATH_BYTES];
    for (size_t i = 0; i < TOOL_COUNT; i++) {
        if (!sl_bench_child_find(TOOLS[i].program, path)) {
            (void)fprintf(stderr, "perftest is left out: install Debian's perftest to compare\n");
            return false;
        }
    }
    return true;
}

/* ---- One run --------------------------------------------------------------------------------- */

/* Arguments of both sides. */
static void build(struct sl_bench_arguments *command, const char *program,
                  const struct sl_bench_perftest *test, uint16_t port, double messages)
{
    sl_bench_arguments_add(command, "%s", program);
    sl_bench_arguments_add(command, "-F"); /* no warning about the clock of the processor */
    sl_bench_arguments_add(command, "-d%s", test->device->name);
    sl_bench_arguments_add(command, "-p%u", port);
    sl_bench_arguments_add(command, "-s%u", test->bytes);
    sl_bench_arguments_add(command, "-n%.0f", messages);
    if (test->device->gid >= 0) {
        sl_bench_arguments_add(command, "-x%d", test->device->gid);
    }
    if (!TOOLS[test->tool].is_latency) {
        sl_bench_arguments_add(command, "-t%u", test->depth);
    }
    if (TOOLS[test->tool].sends) { /* without a key, as Starling's frames; else only latency is */
        sl_bench_arguments_add(command, "-I%u", test->bytes);
    }
    if (test->events) {
        sl_bench_arguments_add(command, "-e");
    }
}

/* Whether somebody listens on the port, at any address, without connecting: that would be taken for
 * the client. */
static bool is_listening(const char *table, uint16_t port)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(table, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        unsigned at, state;
        found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &at, &state) == 2 &&
                at == port && state == 0x0a;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static void await_listener(uint16_t port)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_NS};
    const uint64_t end_ns = sl_bench_now_ns() + LISTEN_NS;
    while (!is_listening("/proc/net/tcp", port) && !is_listening("/proc/net/tcp6", port) &&
           sl_bench_now_ns() < end_ns) {
        (void)nanosleep(&pause, NULL);
    }
}

/* One exchange of so many messages; *text, the caller's to free, is what the client printed. */
static int run_once(const struct sl_bench_perftest *test, const struct sl_bench_common *common,
                    double messages, char **text)
{
    const bool swapped = TOOLS[test->tool].client_is_ps;
    struct sl_bench_arguments command = {0};
    char program[SL_BENCH_PATH_BYTES];
    struct sl_bench_child server, client;
    uint16_t port;
    if (!sl_bench_child_find(TOOLS[test->tool].program, program)) {
        return SL_ERR_NOT_FOUND;
    }
    int err = sl_bench_child_port(&port);
    if (err != 0) {
        return err;
    }
    build(&command, program, test, port, messages);
    const struct sl_bench_child_options of_server = {
        .argv = command.items, .core = swapped ? common->client_core : common->server_core};
    err = sl_bench_child_start(&of_server, &server);
    if (err != 0) {
        return err;
    }
    await_listener(port);
    sl_bench_arguments_add(&command, "%s", test->device->address);
    const struct sl_bench_child_options of_client = {.argv = command.items,
                                                     .core = swapped ? common->server_core
                                                                     : common->client_core,
                                                     .reads = true};
    err = sl_bench_child_start(&of_client, &client);
    err = err != 0 ? err : sl_bench_child_collect(&client, RUN_MS, text);
    if (err == 0) {
        (void)sl_bench_child_wait(&server, SERVER_END_MS);
    }
    sl_bench_child_stop(&server);
    return err;
}

/* ---- As a contestant ------------------------------------------------------------------------- */

/* Reads the client's table into values, and how many messages it was a second. */
static int read_table(struct sl_bench_perftest *test, const char *text, double *values)
{
    struct sl_bench_perftest_latency latency;
    struct sl_bench_perftest_rate rate;
    int err;
    if (TOOLS[test->tool].is_latency) {
        err = sl_bench_perftest_read_latency(text, &latency);
        if (err == 0) {
            values[0] = 2 * latency.half_us_p50;
            values[1] = 2 * latency.half_us_p99;
            test->per_s = 1e6 / values[0];
        }
    } else {
        err = sl_bench_perftest_read_rate(text, test->bytes, &rate);
        if (err == 0) {
            values[0] = rate.bytes_per_s;
            values[1] = rate.messages_per_s;
            test->per_s = rate.messages_per_s;
        }
    }
    return err;
}

/* It measures the processor's clock first, and where that was disturbed it prints zeros, or none.
 */
static int offer(struct sl_bench_perftest *test, const struct sl_bench_common *common,
                 double messages, double *values)
{
    const double bounded = fmin(fmax(messages, MESSAGES_LEAST), MESSAGES_MOST);
    int err = SL_ERR_PROTOCOL;
    for (int i = 0; i < TRIES && err == SL_ERR_PROTOCOL; i++) {
        char *text = NULL;
        err = run_once(test, common, bounded, &text);
        err = err != 0 ? err : read_table(test, text, values);
        if (err == SL_ERR_PROTOCOL && i + 1 == TRIES) {
            const char *table = strstr(text, "#bytes");
            sl_log_error("%s said nothing that can be read: %.400s", TOOLS[test->tool].program,
                         table == NULL ? text : table);
        }
        free(text);
    }
    return err;
}

/* It counts messages, not seconds, and begins to count with the first: how many, the repeat before
 * tells, whose pages and caches are warm. The first repeat looks twice. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_perftest *test = ctx;
    int err = 0;
    if (test->per_s == 0) {
        err = offer(test, common, fmin(FIRST_MESSAGES, FIRST_BYTES / test->bytes), values);
    }
    return err != 0 ? err : offer(test, common, test->per_s * common->seconds, values);
}

struct sl_bench_contestant sl_bench_perftest_contestant(const char *name,
                                                        struct sl_bench_perftest *test)
{
    static const struct sl_bench_quantity rates[] = {{"bytes", "1/s"}, {"messages", "1/s"}};
    static const struct sl_bench_quantity latencies[] = {{"p50", "us"}, {"p99", "us"}};
    sl_assert(test->tool < TOOL_COUNT);
    sl_assert(test->bytes > 0);
    sl_assert(test->depth > 0 || TOOLS[test->tool].is_latency);
    return (struct sl_bench_contestant){
        .name = name,
        .quantities = TOOLS[test->tool].is_latency ? latencies : rates,
        .quantity_count = 2,
        .run = run,
        .ctx = test,
    };
}

/* ---- What it prints -----------------------------------------------------------------------------
 */

/* A table of perftest's: a line of headings that begins with "#bytes", and one line of numbers. Of
 * the headings some have a blank before their unit, or within, so that they are looked for as a
 * whole. */
#define MEGABYTE       1048576.0 /* what it calls MB/sec or MiB/sec */

/* From here on its column of millions of messages a second, with six digits behind the point, says
 * more than that of megabytes with two. */
#define MILLIONS_LEAST 1000.0

/* Characters of a result line. */
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
        millions * 1e6 >= MILLIONS_LEAST ? millions * 1e6 : megabytes * MEGABYTE / (double)bytes;
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
