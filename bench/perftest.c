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

/* What both sides are told. */
static void build(struct sl_bench_arguments *command, const char *program,
                  const struct sl_bench_perftest *test, uint16_t port, double messages)
{
    sl_bench_arguments_add(command, "%s", program);
    sl_bench_arguments_add(command, "-F"); /* no warning about the clock of the processor */
    sl_bench_arguments_add(command, "-d%s", test->device->name);
    sl_bench_arguments_add(command, "-p%u", port);
    sl_bench_arguments_add(command, "-s%u", test->bytes);
    sl_bench_arguments_add(command, "-n%.0f", messages);
    if (test->device->is_iwarp) {
        sl_bench_arguments_add(command, "-R");
    } else if (test->device->gid >= 0) {
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

/* A device of iWARP may listen without the kernel's TCP: then the time is up, and all is well. */
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
