/* starling-sim: whole clusters on a virtual clock, from seeds. tests/sim/README.md. */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "tests/sim/crowd.h"
#include "tests/sim/scale.h"
#include "tests/sim/world.h"

#define REPLAY_EVERY 64 /* of so many seeds one is run twice */

struct flags {
    uint64_t first, last;
    double minutes; /* > 0: seeds from `first` on, for so long */
    struct sl_sim_choice choice;
    /* Members of the world; without any: the job. */
    bool job, transfer, objects, serve, elections;
    bool twice; /* each seed */
    bool verbose;
    bool all; /* go on after a breach */
    FILE *traces;
};

/* Flags without a value. */
static const struct bare {
    const char *text;
    size_t offset;                  /* of the bool in struct flags */
    const struct sl_sim_kind *kind; /* that the flag adds to the world; NULL: none */
    bool replays;                   /* it is part of what a seed means */
} bares[] = {
    {"--job", offsetof(struct flags, job), &sl_sim_kind_job, true}, /* its hosts are the first */
    {"--transfer", offsetof(struct flags, transfer), &sl_sim_kind_transfer, true},
    {"--objects", offsetof(struct flags, objects), &sl_sim_kind_objects, true},
    {"--policies", offsetof(struct flags, choice.policies), NULL, true},
    {"--publish", offsetof(struct flags, choice.publish), &sl_sim_kind_publish, true},
    {"--serve", offsetof(struct flags, serve), &sl_sim_kind_serve, true},
    {"--elections", offsetof(struct flags, elections), &sl_sim_kind_elections, true}, /* alone */
    {"--strangers", offsetof(struct flags, choice.strangers), NULL, true},
    {"--disks", offsetof(struct flags, choice.disks), NULL, true},
    {"--replicas", offsetof(struct flags, choice.replicas), NULL, true},
    {"--moves", offsetof(struct flags, choice.moves), NULL, true},
    {"--link", offsetof(struct flags, choice.link), NULL, true},
    {"--twice", offsetof(struct flags, twice), NULL, false},
    {"--all", offsetof(struct flags, all), NULL, false},
    {"--verbose", offsetof(struct flags, verbose), NULL, false},
};

#define BARE_COUNT (sizeof bares / sizeof bares[0])

static bool *bare_of(struct flags *flags, const struct bare *bare)
{
    return (bool *)((char *)flags + bare->offset);
}

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
        "  --moves       shards move between servers, which come and go, in all seeds that can\n"
        "                have it, and not only in one in five of these\n"
        "  --link        all hosts share a slow link, on which many push megabytes at once; "
        "without\n"
        "                packets, disks and replicas\n"
        "  --job, --transfer, --objects, --serve\n"
        "                what is in the world: a cluster (without any of them), transfer engines,\n"
        "                nodes of objects, gateways and workers of model serving; any of them\n"
        "                together\n"
        "  --policies    sparse tables of all seeds have policies, and not only of one in four\n"
        "  --publish     versions of the tables of a cluster are published, and served\n"
        "  --elections   candidates for a leader, and its records in a store that gets stuck;\n"
        "                nothing else is in the world\n"
        "  --crowd ...   a thousand members lose their catalogue or coordinator, and return\n"
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
    for (size_t i = 0; i < BARE_COUNT; i++) {
        if (strcmp(text, bares[i].text) == 0) {
            *bare_of(flags, &bares[i]) = true;
            return true;
        }
    }
    return false;
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
    struct sl_sim_choice *choice = &flags->choice;
    choice->disks = choice->disks || choice->publish;
    choice->faults &= choice->publish ? ~SL_SIM_FAULTS_OF_DISKS : UINT32_MAX;
    const bool others = flags->transfer || flags->objects || flags->serve || choice->publish;
    if (flags->elections && (flags->job || others || choice->packets)) {
        return false;
    }
    flags->job = flags->job || !(others || flags->elections) || choice->publish;
    flags->serve = flags->serve || choice->publish;
    if ((choice->link && (others || choice->packets || choice->disks || choice->replicas)) ||
        (others && choice->packets) || (!flags->job && (choice->disks || choice->replicas))) {
        return false;
    }
    return (seeded && flags->first <= flags->last) || flags->minutes > 0;
}

/* How to see the seed that is being run again; an assertion that fails says it too. */
static char replay[256];

static void set_replay(struct flags *flags, uint64_t seed)
{
    size_t used = (size_t)snprintf(replay, sizeof replay, "replay: starling-sim%s",
                                   flags->choice.packets ? " --transport dpdk" : "");
    for (size_t i = 0; i < BARE_COUNT; i++) {
        if (bares[i].replays && *bare_of(flags, &bares[i])) {
            used += (size_t)snprintf(replay + used, sizeof replay - used, " %s", bares[i].text);
        }
    }
    if (flags->choice.faults != UINT32_MAX) {
        used += (size_t)snprintf(replay + used, sizeof replay - used, " --faults 0x%x",
                                 flags->choice.faults);
    }
    snprintf(replay + used, sizeof replay - used, " --seed %" PRIu64 " --verbose\n", seed);
}

static void on_abort(int signal_number)
{
    (void)signal_number; /* the default action follows when this returns */
    (void)!write(STDERR_FILENO, replay, strlen(replay));
}

/* Runs the members of a seed in one world. Returns true if all was well, else prints the breach;
 * *trace: a hash over all that happened. */
static bool run(struct flags *flags, uint64_t seed, bool verbose, uint64_t *trace)
{
    const struct sl_sim_kind *kinds[SL_SIM_WORLD_MEMBERS_MAX];
    uint32_t count = 0;
    for (size_t i = 0; i < BARE_COUNT; i++) {
        if (bares[i].kind != NULL && *bare_of(flags, &bares[i])) {
            kinds[count++] = bares[i].kind;
        }
    }
    struct sl_sim_world world = {.seed = seed, .verbose = verbose, .is_mixed = count > 1};
    for (uint32_t i = 0; i < count; i++) {
        kinds[i]->make(&flags->choice, &world);
    }
    sl_sim_world_create(&world);
    for (uint32_t i = 0; i < count; i++) {
        if (kinds[i]->begin != NULL) {
            kinds[i]->begin();
        }
    }
    if (kinds[0]->run != NULL) {
        kinds[0]->run();
    }
    sl_sim_world_run(&world);
    for (uint32_t i = 0; i < count; i++) {
        if (kinds[i]->judge != NULL) {
            kinds[i]->judge();
        }
    }
    const bool good = sl_sim_world_report(&world);
    sl_sim_world_kill(&world);
    *trace = world.trace;
    for (uint32_t i = 0; i < count; i++) {
        kinds[i]->fini();
    }
    sl_sim_world_fini(&world);
    return good;
}

/* Runs the seed with stdout in the file. */
static bool run_into(FILE *file, struct flags *flags, uint64_t seed, uint64_t *trace)
{
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    sl_assert(file != NULL && saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    const bool good = run(flags, seed, true, trace);
    fflush(stdout);
    sl_assert(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    rewind(file);
    return good;
}

/* --twice --verbose: of two runs only the first line that differs is printed. */
static bool run_compared(struct flags *flags, uint64_t seed)
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
static bool run_checked(struct flags *flags, uint64_t seed)
{
    uint64_t trace, again;
    if (flags->twice && flags->verbose) {
        return run_compared(flags, seed);
    }
    if (!run(flags, seed, flags->verbose, &trace)) {
        return false;
    }
    if (flags->traces != NULL) {
        fprintf(flags->traces, "%" PRIu64 " %016" PRIx64 "\n", seed, trace);
    }
    if ((flags->twice || seed % REPLAY_EVERY == 0) && run(flags, seed, false, &again) &&
        again != trace) {
        printf("seed %" PRIu64 ": replay: two runs of it differ: see --twice --verbose\n", seed);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct flags flags = {.choice.faults = UINT32_MAX};
    if (argc > 1 && strcmp(argv[1], "--scale") == 0) {
        return sl_sim_scale_main(argc - 2, argv + 2);
    }
    if (argc > 1 && strcmp(argv[1], "--crowd") == 0) {
        return sl_sim_crowd_main(argc - 2, argv + 2);
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
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
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
