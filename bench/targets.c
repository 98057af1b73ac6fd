/* starling-bench targets: runs the benchmarks that hold Starling against something, each as a
 * program of its own, and gathers their ratios in one table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/options.h"
#include "bench/report_parts.h"
#include "core/log.h"

#define CHILD_TIMEOUT_MS (30U * 60 * 1000)

struct part {
    const char *name;
    const char *arguments[8]; /* up to NULL */
};

static const struct part parts[] = {
    {"serving", {NULL}},
    {"bulk", {"--sizes", "1M,16M", NULL}},
    {"bulk", {"--sizes", "1M,16M", "--over", "shm", NULL}},
    {"ratio", {NULL}},
    {"ratio", {"--over", "shm", NULL}},
    {"scale", {NULL}},
    {"ipc", {NULL}},
    {"train", {NULL}},
    {"train", {"--over", "shm", NULL}},
};
#define PART_COUNT (sizeof parts / sizeof parts[0])

struct options {
    struct sl_bench_common common;
    const char *only; /* names of parts, with commas between them; NULL: all */
};

static void build(struct sl_bench_arguments *arguments, const char *program,
                  const struct part *part, const struct sl_bench_common *common, const char *json)
{
    sl_bench_arguments_add(arguments, "%s", program);
    sl_bench_arguments_add(arguments, "%s", part->name);
    for (uint32_t i = 0; part->arguments[i] != NULL; i++) {
        sl_bench_arguments_add(arguments, "%s", part->arguments[i]);
    }
    sl_bench_arguments_add(arguments, "--rounds=%u", (unsigned)common->rounds);
    sl_bench_arguments_add(arguments, "--seconds=%g", common->seconds);
    sl_bench_arguments_add(arguments, "--warm-up=%g", common->warm_up);
    sl_bench_arguments_add(arguments, "--server-core=%d", common->server_core);
    sl_bench_arguments_add(arguments, "--client-core=%d", common->client_core);
    sl_bench_arguments_add(arguments, "--json=%s", json);
    if (common->plot != NULL) {
        sl_bench_arguments_add(arguments, "--plot=%s/%s", common->plot, part->name);
    }
}

static int take_ratios(const char *path, const char *benchmark, struct sl_bench_report *report)
{
    struct sl_bench_report *part;
    int err = sl_bench_report_read_json(path, benchmark, &part);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < part->ratio_count; i++) {
        const struct sl_bench_ratio *from = part->ratios[i];
        struct sl_bench_ratio *to =
            sl_bench_report_new_ratio(report, from->name, from->least, from->most);
        memcpy(to->samples, from->samples, from->count * sizeof *from->samples);
        to->count = from->count;
        memcpy(to->transport, from->transport, sizeof to->transport);
    }
    sl_bench_report_disturbed(report, part->rounds_left_out, true);
    sl_bench_report_disturbed(report, part->rounds_disturbed, false);
    sl_bench_report_destroy(&part);
    return 0;
}

/* Runs it, prints what it printed, and takes its ratios. */
static int run_part(const struct part *part, const struct sl_bench_common *common,
                    struct sl_bench_report *report)
{
    char program[SL_BENCH_PATH_BYTES], json[64];
    struct sl_bench_arguments arguments = {0};
    if (!sl_bench_child_beside("starling-bench", program)) {
        sl_log_error("starling-bench cannot find itself, to run %s", part->name);
        return SL_ERR_IO;
    }
    /* A file without a name: nothing is left behind, however this ends. */
    const int fd = memfd_create("report", MFD_CLOEXEC);
    if (fd < 0) {
        sl_log_error("no memory for the report of %s: %s", part->name, strerror(errno));
        return SL_ERR_NO_MEMORY;
    }
    (void)snprintf(json, sizeof json, "/proc/%d/fd/%d", getpid(), fd);
    build(&arguments, program, part, common, json);
    const struct sl_bench_child_options options = {
        .argv = arguments.items, .core = -1, .reads = true};
    struct sl_bench_child child;
    char *text = NULL;
    int err = sl_bench_child_start(&options, &child);
    err = err != 0 ? err : sl_bench_child_collect(&child, CHILD_TIMEOUT_MS, &text);
    if (err == 0) {
        (void)printf("%s\n", text);
        (void)fflush(stdout);
        err = take_ratios(json, part->name, report);
    }
    free(text);
    (void)close(fd);
    return err;
}

/* Whether `name` is one of the names of a list with commas between them. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',' ? 1 : 0;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Errors, printed: INVALID. */
static int check_only(const char *only)
{
    char known[128];
    size_t used = 0, characters = 0;
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (i > 0 && strcmp(parts[i].name, parts[i - 1].name) == 0) {
            continue; /* over another transport */
        }
        characters += is_listed(only, parts[i].name) ? strlen(parts[i].name) + 1 : 0;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ",",
                                 parts[i].name);
    }
    if (only != NULL && characters != strlen(only) + 1) {
        (void)fprintf(stderr, "starling-bench targets: --only %s: accepts some of %s\n", only,
                      known);
        return SL_ERR_INVALID;
    }
    return 0;
}

int sl_bench_targets_run(int argc, char **argv)
{
    struct options options = {.common = sl_bench_common_defaults()};
    const struct sl_cli_option table[] = {
        sl_bench_text("only", &options.only, "NAME,...", "These benchmarks only."),
    };
    int err = sl_bench_parse("targets",
                             "Runs what holds Starling against something, and says what "
                             "holds.",
                             table, sizeof table / sizeof table[0], &options.common, argc, argv);
    if (err == SL_CLI_RUN) {
        err = check_only(options.only);
    }
    if (err != SL_CLI_RUN) {
        return err < 0 ? 2 : 0;
    }
    struct sl_bench_report *report = NULL;
    err = sl_bench_report_create("targets", "what each benchmark holds Starling against", &report);
    if (err == 0 && options.common.plot != NULL && mkdir(options.common.plot, 0777) != 0 &&
        errno != EEXIST) {
        sl_log_error("--plot %s: %s", options.common.plot, strerror(errno));
        err = SL_ERR_IO;
    }
    for (size_t i = 0; err == 0 && i < PART_COUNT; i++) {
        if (options.only == NULL || is_listed(options.only, parts[i].name)) {
            err = run_part(&parts[i], &options.common, report);
        }
    }
    err = err != 0 ? err : sl_bench_report_finish(report, &options.common);
    sl_bench_report_destroy(&report);
    return err == 0 ? 0 : 1;
}
