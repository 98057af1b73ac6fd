/* starling-sim: whole clusters on a virtual clock, from seeds. tests/sim/README.md. */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "tests/sim/cluster.h"
#include "tests/sim/objects.h"
#include "tests/sim/scale.h"
#include "tests/sim/serve.h"
#include "tests/sim/transfer.h"

#define REPLAY_EVERY 64 /* of so many seeds one is run twice */

/* What runs. */
static const struct mode {
    const char *flag;
    sl_sim_run_fn *run;
} modes[] = {{"", sl_sim_cluster_run},
             {" --transfer", sl_sim_transfer_run},
             {" --objects", sl_sim_objects_run},
             {" --serve", sl_sim_serve_run}};

struct flags {
    uint64_t first, last;
    double minutes; /* > 0: seeds from `first` on, for so long */
    struct sl_sim_choice choice;
    const struct mode *mode;
    bool twice; /* each seed */
    bool verbose;
    bool all; /* go on after a breach */
    FILE *traces;
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void usage(void)
{
    printf(
        "starling-sim: runs simulated clusters from seeds and checks what must hold\n"
        "  --seed N      one seed\n"
        "  --seeds A-B   these seeds\n"
        "  --minutes M   fresh seeds, or those from --seed on, for M minutes\n"
        "  --faults MASK kinds of faults that may happen, as bits; 0: none\n"
        "  --transport T stream: the simulation's own, whose frames are never lost; or dpdk:\n"
        "                net/dpdk, on packet devices whose packets are\n"
        "  --strangers   over packets: strangers on the network in all seeds, and not only one in\n"
        "                four\n"
        "  --disks       with disks and checkpoints\n"
        "  --replicas    all seeds with backups of the shards, and not only one in four; not over\n"
        "                packets; with --disks all ps share one\n"
        "  --link        all hosts share a slow link, on which many push megabytes at once; "
        "without\n"
        "                packets, disks and replicas\n"
        "  --transfer    transfer engines, and no cluster\n"
        "  --objects     nodes of objects, and no cluster\n"
        "  --serve       gateways and workers of model serving, and no cluster\n"
        "  --scale ...   a job whose processors and links take time; without more, its parameters\n"
        "  --twice       runs each seed twice and compares, and not only one in 64\n"
        "  --all         goes on after a breach\n"
        "  --traces FILE writes each seed's hash over all that happened: equal hashes show that a\n"
        "                change of the source has changed nothing in what the cluster does\n"
        "  --verbose     prints the plan and all that happens; with --twice only the first line\n"
        "                that differs\n");
}

static bool parse_bare(const char *text, struct flags *flags)
{
    bool *const flag = strcmp(text, "--verbose") == 0     ? &flags->verbose
                       : strcmp(text, "--all") == 0       ? &flags->all
                       : strcmp(text, "--twice") == 0     ? &flags->twice
                       : strcmp(text, "--disks") == 0     ? &flags->choice.disks
                       : strcmp(text, "--replicas") == 0  ? &flags->choice.replicas
                       : strcmp(text, "--strangers") == 0 ? &flags->choice.strangers
                       : strcmp(text, "--link") == 0      ? &flags->choice.link
                                                          : NULL;
    bool is_mode = false;
    for (size_t i = 1; i < sizeof modes / sizeof modes[0] && flags->mode == modes; i++) {
        is_mode = is_mode || strcmp(text, modes[i].flag + 1) == 0;
        flags->mode = is_mode ? &modes[i] : modes;
    }
    if (flag != NULL) {
        *flag = true;
    }
    return flag != NULL || is_mode;
}

static bool parse(int argc, char **argv, struct flags *flags)
{
    bool seeded = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end = NULL;
        if (parse_bare(argv[i], flags)) {
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0) {
            flags->first = flags->last = strtoull(value, &end, 10);
            seeded = true;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            flags->first = strtoull(value, &end, 10);
            flags->last = *end == '-' ? strtoull(end + 1, &end, 10) : flags->first;
            seeded = true;
        } else if (strcmp(argv[i], "--traces") == 0) {
            flags->traces = fopen(value, "w");
            end = argv[i + 1] + (flags->traces != NULL ? strlen(value) : 0);
        } else if (strcmp(argv[i], "--minutes") == 0) {
            flags->minutes = strtod(value, &end);
        } else if (strcmp(argv[i], "--faults") == 0) {
            flags->choice.faults = (uint32_t)strtoul(value, &end, 0);
        } else if (strcmp(argv[i], "--transport") == 0) {
            flags->choice.packets = strcmp(value, "dpdk") == 0;
            end = argv[i + 1] +
                  (flags->choice.packets || strcmp(value, "stream") == 0 ? strlen(value) : 0);
        }
        if (end == NULL || end == value || *end != '\0') {
            return false;
        }
        i++;
    }
    if (!seeded && flags->minutes > 0) {
        flags->first = (uint64_t)time(NULL) * 1000;
    }
    const struct sl_sim_choice *choice = &flags->choice;
    const bool others = choice->packets || choice->disks || choice->replicas;
    if ((choice->link || flags->mode != modes) &&
        others + choice->link + (flags->mode != modes) > 1) {
        return false;
    }
    return (seeded && flags->first <= flags->last) || flags->minutes > 0;
}

/* How to see the seed that is being run again; an assertion that fails says it too. */
static char replay[128];

static void set_replay(const struct flags *flags, uint64_t seed)
{
    char faults[32] = "";
    if (flags->choice.faults != UINT32_MAX) {
        snprintf(faults, sizeof faults, " --faults 0x%x", flags->choice.faults);
    }
    snprintf(replay, sizeof replay,
             "replay: starling-sim%s%s%s%s%s%s --seed %" PRIu64 "%s --verbose\n",
             flags->choice.packets ? " --transport dpdk" : "",
             flags->choice.strangers ? " --strangers" : "", flags->choice.disks ? " --disks" : "",
             flags->choice.replicas ? " --replicas" : "", flags->choice.link ? " --link" : "",
             flags->mode->flag, seed, faults);
}

static void on_abort(int signal_number)
{
    (void)signal_number; /* the default action follows when this returns */
    (void)!write(STDERR_FILENO, replay, strlen(replay));
}

/* Runs the seed with stdout in the file. */
static bool run_into(FILE *file, const struct flags *flags, uint64_t seed, uint64_t *trace)
{
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    sl_assert(file != NULL && saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    const bool good = flags->mode->run(&flags->choice, seed, true, trace);
    fflush(stdout);
    sl_assert(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    rewind(file);
    return good;
}

/* --twice --verbose: of two runs only the first line that differs is printed. */
static bool run_compared(const struct flags *flags, uint64_t seed)
{
    FILE *files[2] = {tmpfile(), tmpfile()};
    char *lines[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    uint64_t traces[2] = {0, 0};
    bool differ = false, more = true;
    bool good = run_into(files[0], flags, seed, &traces[0]);
    good = run_into(files[1], flags, seed, &traces[1]) && good;
    for (uint32_t number = 1; more && !differ; number++) {
        const bool first = getline(&lines[0], &sizes[0], files[0]) >= 0;
        const bool second = getline(&lines[1], &sizes[1], files[1]) >= 0;
        more = first && second;
        differ = first != second || (more && strcmp(lines[0], lines[1]) != 0);
        if (differ) {
            printf("seed %" PRIu64 ": replay: line %" PRIu32 " differs:\n%s%s", seed, number,
                   first ? lines[0] : "the end\n", second ? lines[1] : "the end\n");
        }
    }
    if (!good && !differ) {
        printf("seed %" PRIu64 ": both runs print the same, and find a breach\n", seed);
    }
    for (uint32_t i = 0; i < 2; i++) {
        free(lines[i]);
        fclose(files[i]);
    }
    return good && !differ && traces[0] == traces[1];
}

/* Some seeds are run twice: a breach could not be replayed if both differed. */
static bool run_checked(const struct flags *flags, uint64_t seed)
{
    uint64_t trace, again;
    if (flags->twice && flags->verbose) {
        return run_compared(flags, seed);
    }
    if (!flags->mode->run(&flags->choice, seed, flags->verbose, &trace)) {
        return false;
    }
    if (flags->traces != NULL) {
        fprintf(flags->traces, "%" PRIu64 " %016" PRIx64 "\n", seed, trace);
    }
    if ((flags->twice || seed % REPLAY_EVERY == 0) &&
        flags->mode->run(&flags->choice, seed, false, &again) && again != trace) {
        printf("seed %" PRIu64 ": replay: two runs of it differ: see --twice --verbose\n", seed);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct flags flags = {.choice.faults = UINT32_MAX, .mode = modes};
    if (argc > 1 && strcmp(argv[1], "--scale") == 0) {
        return sl_sim_scale_main(argc - 2, argv + 2);
    }
    if (!parse(argc, argv, &flags)) {
        usage();
        return 2;
    }
    sl_log_setup(flags.verbose ? SL_LOG_DEBUG : SL_LOG_OFF, "sim");
    (void)setvbuf(stdout, NULL, _IOLBF, 1 << 16); /* in order with the log */
    (void)signal(SIGABRT, on_abort);
    /* Long blocks are mapped, and do not keep the small ones between them: else the process would
     * grow with the seeds. But a mapping is zeroed page by page, so messages come from the heap. */
    (void)mallopt(M_MMAP_THRESHOLD, 2 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 4 << 20);
    double began = seconds_now();
    uint64_t seed = flags.first, breaches = 0;
    for (; flags.minutes > 0 ? seconds_now() - began < flags.minutes * 60 : seed <= flags.last;
         seed++) {
        set_replay(&flags, seed);
        if (run_checked(&flags, seed)) {
            continue;
        }
        breaches++;
        fputs(replay, stdout);
        if (!flags.all) {
            return EXIT_FAILURE;
        }
    }
    if (flags.traces != NULL && fclose(flags.traces) != 0) {
        perror("starling-sim: --traces");
        return EXIT_FAILURE;
    }
    printf("seeds %" PRIu64 "-%" PRIu64 ": %" PRIu64 " breaches, %.1f s\n", flags.first, seed - 1,
           breaches, seconds_now() - began);
    return breaches == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
