#include "bench/options.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/format.h"
#include "core/reason.h"
#include "reactor/topology.h"

#define COMMON_OPTIONS 4

#define CONGESTION     "congestion"

/* Descriptors of a benchmark or a ps beside its connections; both have fewer. */
#define OTHER_FILES    64

struct sl_bench_common sl_bench_common_defaults(void)
{
    return (struct sl_bench_common){.server_core = -1, .client_core = -1};
}

static struct sl_cli_option option(enum sl_cli_kind kind, const char *name, void *target,
                                   const char *metavar, const char *help)
{
    return (struct sl_cli_option){
        .kind = kind, .name = name, .target = target, .metavar = metavar, .help = help};
}

static struct sl_cli_option between(struct sl_cli_option of, double least, double most)
{
    of.least = least;
    of.most = most;
    return of;
}

struct sl_cli_option sl_bench_number(const char *name, uint64_t *target, double least, double most,
                                     const char *help)
{
    return between(option(SL_CLI_U64, name, target, "N", help), least, most);
}

struct sl_cli_option sl_bench_real(const char *name, double *target, double least, double most,
                                   const char *help)
{
    return between(option(SL_CLI_F64, name, target, "X", help), least, most);
}

struct sl_cli_option sl_bench_core(const char *name, int64_t *target, const char *help)
{
    return between(option(SL_CLI_I64, name, target, "CORE", help), -1, CPU_SETSIZE - 1);
}

struct sl_cli_option sl_bench_choice(const char *name, int *target, const char *choices,
                                     const char *help)
{
    struct sl_cli_option of = option(SL_CLI_CHOICE, name, target, choices, help);
    of.choices = choices;
    return of;
}

struct sl_cli_option sl_bench_text(const char *name, const char **target, const char *metavar,
                                   const char *help)
{
    return option(SL_CLI_STRING, name, (void *)target, metavar, help);
}

struct sl_cli_option sl_bench_congestion(const char **target)
{
    return sl_bench_text(CONGESTION, target, "NAME",
                         "TCP's congestion control of all that is measured, such as cubic; without "
                         "it the system's.");
}

const char *const sl_bench_over_names[] = {
    [SL_BENCH_OVER_TCP] = "TCP", [SL_BENCH_OVER_SHM] = "shared memory"};

struct sl_cli_option sl_bench_over(int *target)
{
    return sl_bench_choice("over", target, "tcp|shm",
                           "What is between a ps and its clients, which are on one machine here.");
}

struct sl_cli_option sl_bench_exponent(const char *name, double *target)
{
    return sl_bench_real(name, target, 0.01, 10, "Exponent of Zipf's law.");
}

/* Puts the common options behind the program's own; returns how many. */
static uint32_t add_common(struct sl_cli_option *table, bool is_load,
                           struct sl_bench_common *common, int64_t *server_core,
                           int64_t *client_core)
{
    uint32_t count = 0;
    table[count++] = (struct sl_cli_option){.kind = SL_CLI_SECTION, .name = "Common"};
    if (!is_load) {
        table[count++] =
            sl_bench_text("json", &common->json, "FILE", "Write the report there as JSON too.");
    }
    table[count++] = sl_bench_core("server-core", server_core,
                                   "The core of the server; -1: the first that may be used.");
    table[count++] = sl_bench_core(
        "client-core", client_core,
        "The core of the client; -1: the next one, or the same where there is one only.");
    return count;
}

/* Whether the report can be written, before anything is measured. */
static int check_json(const char *path, struct sl_reason *reason)
{
    char folder[PATH_MAX];
    if (path == NULL || access(path, W_OK) == 0) {
        return 0;
    }
    (void)snprintf(folder, sizeof folder, "%s", path);
    return errno == ENOENT && access(dirname(folder), W_OK) == 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_INVALID, "--json=%s: cannot be written", path);
}

/* A core that was asked for is one that this process may run on. */
static int check_core(const char *flag, int core_number, struct sl_reason *reason)
{
    cpu_set_t allowed;
    if (core_number < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_ISSET((size_t)core_number, &allowed)) {
        return 0;
    }
    sl_reason_set(reason, "--%s=%d: this process may not run there; accepts", flag, core_number);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &allowed)) {
            (void)sl_format_add(reason->text, sizeof reason->text, " ", "%zu", i);
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

static int choose_cores(struct sl_bench_common *common, struct sl_reason *reason)
{
    int err = check_core("server-core", common->server_core, reason);
    err = err != 0 ? err : check_core("client-core", common->client_core, reason);
    if (err == 0 && common->server_core < 0) {
        common->server_core = choose_core(common->client_core);
    }
    if (err == 0 && common->client_core < 0) {
        common->client_core = choose_core(common->server_core);
    }
    return err;
}

/* The one way to know that needs no rights, and loads the kernel's module where one may. */
static bool kernel_knows_congestion(const char *name)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool known =
        fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return known;
}

/* Names with blanks between them, of what this process may use. */
static void list_congestions(char *list, size_t list_bytes)
{
    char known[256] = "";
    size_t used = 0;
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
    if (file != NULL) {
        (void)!fgets(known, sizeof known, file);
        (void)fclose(file);
    }
    char *rest = known;
    for (const char *name = strtok_r(known, " \n", &rest); name != NULL && used < list_bytes;
         name = strtok_r(NULL, " \n", &rest)) {
        if (kernel_knows_congestion(name)) {
            used += (size_t)snprintf(list + used, list_bytes - used, " %s", name);
        }
    }
}

static int check_congestion(const struct sl_cli_option *own, uint32_t own_count,
                            struct sl_reason *reason)
{
    const char *name = NULL;
    char known[256] = " what the kernel has";
    for (uint32_t i = 0; i < own_count; i++) {
        name = strcmp(own[i].name, CONGESTION) == 0 ? *(const char **)own[i].target : name;
    }
    if (name == NULL || kernel_knows_congestion(name)) {
        return 0;
    }
    list_congestions(known, sizeof known);
    return sl_reason_fail(
        reason, SL_ERR_INVALID,
        "--" CONGESTION "=%s: the kernel has no such congestion control; accepts%s", name, known);
}

static int parse_table(struct sl_cli *cli, const struct sl_bench_program *program,
                       struct sl_bench_common *common, struct sl_cli_option *table, int argc,
                       char **argv, struct sl_reason *reason)
{
    const uint32_t own_count = cli->option_count;
    int64_t server_core = common->server_core;
    int64_t client_core = common->client_core;
    cli->option_count +=
        add_common(table + own_count, program->is_load, common, &server_core, &client_core);
    const int result = sl_cli_parse(cli, argc, argv, reason);
    if (result != SL_CLI_RUN) {
        return result;
    }
    common->server_core = (int)server_core;
    common->client_core = (int)client_core;
    int err = choose_cores(common, reason);
    err = err != 0 ? err : check_json(common->json, reason);
    return err != 0 ? err : check_congestion(table, own_count, reason);
}

int sl_bench_parse_program(const struct sl_bench_program *program, const struct sl_cli_option *own,
                           uint32_t own_count, struct sl_bench_common *common, int argc,
                           char **argv)
{
    char name[64];
    struct sl_reason reason = {.text = "no memory for its flags"};
    int result = SL_ERR_NO_MEMORY;
    struct sl_cli_option *table = calloc(own_count + COMMON_OPTIONS, sizeof *table);
    (void)snprintf(name, sizeof name, "starling-bench %s", program->name);
    if (table != NULL) {
        struct sl_cli cli = {
            .program = name,
            .summary = program->summary,
            .usage = program->usage,
            .options = table,
            .option_count = own_count,
        };
        if (own_count > 0) {
            memcpy(table, own, own_count * sizeof *table);
        }
        result = parse_table(&cli, program, common, table, argc, argv, &reason);
    }
    free(table);
    if (result < 0) {
        (void)fprintf(stderr, "%s: %s\n", name, reason.text);
    }
    return result;
}

int sl_bench_parse_load(const char *load, const struct sl_cli_option *own, uint32_t own_count,
                        struct sl_bench_common *common, int argc, char **argv)
{
    char name[64];
    (void)snprintf(name, sizeof name, "load %s", load);
    const struct sl_bench_program program = {
        .name = name,
        .summary = "A load: README.md of the folder bench says how to run it.",
        .usage = "[options]",
        .is_load = true};
    return sl_bench_parse_program(&program, own, own_count, common, argc, argv);
}

/* One number at *text, which is moved behind it and its comma. */
static int read_number(const char **text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    const uint64_t value = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || errno != 0 || value < least || value > most ||
        (*end != '\0' && (*end != ',' || end[1] == '\0'))) {
        return SL_ERR_INVALID;
    }
    *text = end + (*end == ',');
    *out = value;
    return 0;
}

int sl_bench_list(const char *program, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *values, uint32_t values_max, uint32_t *count)
{
    const char *at = text;
    uint32_t found = 0;
    do {
        if (found == values_max || read_number(&at, least, most, &values[found]) != 0) {
            (void)fprintf(stderr,
                          "starling-bench %s: --%s=%s: accepts 1 to %u numbers from %" PRIu64
                          " to %" PRIu64 ", with commas between them\n",
                          program, flag, text, values_max, least, most);
            return SL_ERR_INVALID;
        }
        found++;
    } while (*at != '\0');
    *count = found;
    return 0;
}

int sl_bench_check_connections(const char *benchmark, uint64_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (connections + OTHER_FILES > limit.rlim_max) {
        (void)fprintf(stderr,
                      "starling-bench %s: %" PRIu64 " connections are more than the limit of open "
                      "files allows, %" PRIu64 " (ulimit -Hn): ask for fewer, or raise it to "
                      "%" PRIu64 "\n",
                      benchmark, connections, (uint64_t)limit.rlim_max, connections + OTHER_FILES);
        return SL_ERR_INVALID;
    }
    return 0;
}
