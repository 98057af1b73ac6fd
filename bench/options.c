#include "bench/options.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/topology.h"

#define COMMON_OPTIONS 9
#define CORES_MOST     (CPU_SETSIZE - 1)
#define REASON_BYTES   512

struct sl_bench_common sl_bench_common_defaults(void)
{
    return (struct sl_bench_common){
        .rounds = 5,
        .seconds = 1,
        .warm_up = 0.3,
        .server_core = -1,
        .client_core = -1,
    };
}

struct sl_cli_option sl_bench_number(const char *name, uint64_t *target, double least, double most,
                                     const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_U64,
        .name = name,
        .target = target,
        .metavar = "N",
        .help = help,
        .least = least,
        .most = most,
    };
}

struct sl_cli_option sl_bench_choice(const char *name, int *target, const char *choices,
                                     const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_CHOICE,
        .name = name,
        .target = target,
        .metavar = "NAME",
        .help = help,
        .choices = choices,
    };
}

struct sl_cli_option sl_bench_text(const char *name, const char **target, const char *metavar,
                                   const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_STRING,
        .name = name,
        .target = target,
        .metavar = metavar,
        .help = help,
    };
}

static struct sl_cli_option seconds(const char *name, double *target, double least,
                                    const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_F64,
        .name = name,
        .target = target,
        .metavar = "S",
        .help = help,
        .least = least,
        .most = 600,
    };
}

static struct sl_cli_option core(const char *name, int64_t *target, const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_I64,
        .name = name,
        .target = target,
        .metavar = "CORE",
        .help = help,
        .least = -1,
        .most = CORES_MOST,
    };
}

/* Puts the common options behind the benchmark's own. */
static void add_common(struct sl_cli_option *table, struct sl_bench_common *common,
                       int64_t *server_core, int64_t *client_core)
{
    const struct sl_cli_option options[COMMON_OPTIONS] = {
        {.kind = SL_CLI_SECTION, .name = "Of every benchmark"},
        sl_bench_number("rounds", &common->rounds, 1, SL_BENCH_ROUNDS_MAX,
                        "How often everything is measured, in turns; medians are reported."),
        seconds("seconds", &common->seconds, 0.001, "How long one measurement takes."),
        seconds("warm-up", &common->warm_up, 0, "How long it runs before that, uncounted."),
        sl_bench_text("json", &common->json, "FILE", "Write the report there as JSON too."),
        sl_bench_text("compare", &common->compare, "FILE",
                      "An older report as JSON, to print the ratios to."),
        sl_bench_text("plot", &common->plot, "DIR",
                      "Draw charts there, as SVG by gnuplot (Debian package gnuplot-nox)."),
        core("server-core", server_core, "The core of the server; -1: the first that may be used."),
        core("client-core", client_core,
             "The core of the client; -1: the next one, or the same where there is one only."),
    };
    memcpy(table, options, sizeof options);
}

/* A core that was asked for is one that this process may run on. */
static int check_core(const char *flag, int core_number, char *reason, size_t reason_bytes)
{
    cpu_set_t allowed;
    if (core_number < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_ISSET((size_t)core_number, &allowed)) {
        return 0;
    }
    int used = snprintf(reason, reason_bytes, "--%s=%d: this process may not run there; accepts",
                        flag, core_number);
    for (size_t i = 0; i < CPU_SETSIZE && used > 0 && (size_t)used < reason_bytes; i++) {
        if (CPU_ISSET(i, &allowed)) {
            used += snprintf(reason + used, reason_bytes - (size_t)used, " %zu", i);
        }
    }
    return SL_ERR_INVALID;
}

/* The first core by the topology's order that is not `other`, or `other` where there is no more. */
static int choose_core(int other)
{
    const uint32_t count = sl_topology_core_count();
    for (uint32_t i = 0; i < count; i++) {
        int candidate;
        if (sl_topology_core_for(i, false, &candidate) == 0 && candidate != other) {
            return candidate;
        }
    }
    return other < 0 ? 0 : other;
}

static int choose_cores(struct sl_bench_common *common, char *reason, size_t reason_bytes)
{
    int err = check_core("server-core", common->server_core, reason, reason_bytes);
    if (err == 0) {
        err = check_core("client-core", common->client_core, reason, reason_bytes);
    }
    if (err == 0 && common->server_core < 0) {
        common->server_core = choose_core(common->client_core);
    }
    if (err == 0 && common->client_core < 0) {
        common->client_core = choose_core(common->server_core);
    }
    return err;
}

static int parse_table(const struct sl_cli *cli, struct sl_bench_common *common,
                       struct sl_cli_option *table, uint32_t own_count, int argc, char **argv,
                       char *reason)
{
    int64_t server_core = common->server_core;
    int64_t client_core = common->client_core;
    add_common(table + own_count, common, &server_core, &client_core);
    const int result = sl_cli_parse(cli, argc, argv, reason, REASON_BYTES);
    if (result != SL_CLI_RUN) {
        return result;
    }
    common->server_core = (int)server_core;
    common->client_core = (int)client_core;
    return choose_cores(common, reason, REASON_BYTES);
}

int sl_bench_parse(const char *benchmark, const char *summary, const struct sl_cli_option *own,
                   uint32_t own_count, struct sl_bench_common *common, int argc, char **argv)
{
    char program[64];
    char reason[REASON_BYTES] = "no memory for its flags";
    int result = SL_ERR_NO_MEMORY;
    struct sl_cli_option *table = calloc(own_count + COMMON_OPTIONS, sizeof *table);
    (void)snprintf(program, sizeof program, "starling-bench %s", benchmark);
    if (table != NULL) {
        const struct sl_cli cli = {
            .program = program,
            .summary = summary,
            .usage = "[options]",
            .options = table,
            .option_count = own_count + COMMON_OPTIONS,
        };
        if (own_count > 0) {
            memcpy(table, own, own_count * sizeof *table);
        }
        result = parse_table(&cli, common, table, own_count, argc, argv, reason);
    }
    free(table);
    if (result < 0) {
        (void)fprintf(stderr, "%s: %s\n", program, reason);
    }
    return result == SL_CLI_RUN ? sl_bench_report_check(benchmark, common) : result;
}

/* One number at *text, which is moved behind it and its comma. */
static int read_number(const char **text, uint64_t least, uint64_t most, uint64_t *out)
{
    static const struct {
        char letter;
        uint64_t times;
    } suffixes[] = {{'k', 1000}, {'M', 1000000}, {'G', 1000000000}};
    char *end;
    errno = 0;
    uint64_t value = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || errno != 0) {
        return SL_ERR_INVALID;
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (*end == suffixes[i].letter) {
            if (__builtin_mul_overflow(value, suffixes[i].times, &value)) {
                return SL_ERR_INVALID;
            }
            end++;
            break;
        }
    }
    if ((*end != '\0' && (*end != ',' || end[1] == '\0')) || value < least || value > most) {
        return SL_ERR_INVALID;
    }
    *text = end + (*end == ',');
    *out = value;
    return 0;
}

int sl_bench_list(const char *benchmark, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *values, uint32_t values_max, uint32_t *count)
{
    const char *at = text;
    uint32_t found = 0;
    do {
        if (found == values_max || read_number(&at, least, most, &values[found]) != 0) {
            (void)fprintf(stderr,
                          "starling-bench %s: --%s=%s: accepts 1 to %u numbers from %" PRIu64
                          " to %" PRIu64 ", with commas between them\n",
                          benchmark, flag, text, values_max, least, most);
            return SL_ERR_INVALID;
        }
        found++;
    } while (*at != '\0');
    *count = found;
    return 0;
}
