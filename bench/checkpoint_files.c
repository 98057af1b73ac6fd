#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/checkpoint.h"
#include "bench/contest.h"
#include "bench/now.h"
#include "bench/workload.h"
#include "core/log.h"

#define PUSH_KEYS 8192

static const uint32_t levels[SL_BENCH_CHECKPOINT_LEVELS] = {1, 0};

/* ---- Rows ------------------------------------------------------------------------------------ */

/* In [-0.1, 0.1), with as many different last digits as training makes. */
static float next_gradient(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return ((float)(*state >> 40) / (float)(1 << 24) - 0.5F) * 0.2F;
}

static int push_some(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                     uint32_t count, const float *gradients)
{
    struct sl_step *step;
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = sl_step_push(step, table, keys, count, gradients);
    return sl_bench_rows_finish(step, err, "rows cannot be pushed to");
}

/* A push to each of the rows of the first `count` ranks. */
static int push_rows(const struct sl_bench_checkpoint *bench, struct sl_client *client,
                     struct sl_table *table, uint64_t count)
{
    const size_t dim = bench->options->dim;
    uint64_t state = count;
    uint64_t *keys = malloc(PUSH_KEYS * sizeof *keys);
    float *gradients = malloc(PUSH_KEYS * dim * sizeof *gradients);
    int err = keys == NULL || gradients == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint64_t rank = 0; err == 0 && rank < count;) {
        uint32_t some = 0;
        while (some < PUSH_KEYS && rank < count) {
            keys[some++] = sl_bench_workload_key(rank++);
        }
        for (size_t i = 0; i < some * dim; i++) {
            gradients[i] = next_gradient(&state);
        }
        err = push_some(client, table, keys, some, gradients);
    }
    free(keys);
    free(gradients);
    return err;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Of all files of a checkpoint together. */
static int folder_bytes(const char *folder, uint64_t *bytes)
{
    uint64_t sum = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        sl_log_error("%s: %s", folder, strerror(errno));
        return SL_ERR_IO;
    }
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat about;
        if (fstatat(dirfd(dir), entry->d_name, &about, 0) == 0 && S_ISREG(about.st_mode)) {
            sum += (uint64_t)about.st_size;
        }
    }
    (void)closedir(dir);
    *bytes = sum;
    return 0;
}

/* One more checkpoint, whose folder is then files->newest. */
static int make_one(const struct sl_bench_checkpoint *bench, struct sl_client *client,
                    struct sl_bench_checkpoint_files *files, const char *what, uint64_t *bytes)
{
    char name[SL_BENCH_NAME_BYTES];
    uint64_t number;
    double seconds;
    int err = sl_bench_checkpoint_ask(client, &number, &seconds);
    if (err != 0) {
        return err;
    }
    (void)snprintf(files->newest, sizeof files->newest, "%s/checkpoint-%06llu", files->dir,
                   (unsigned long long)number);
    err = folder_bytes(files->newest, bytes);
    if (err == 0) {
        (void)snprintf(name, sizeof name, "%s, level %u", what, files->level);
        (void)sl_bench_report_add(bench->report, name, "bytes", "B", (double)*bytes);
        (void)sl_bench_report_add(bench->report, name, "time", "s", seconds);
    }
    return err;
}

/* A full one, one that adds, and a full one again: the ps lets one of two add. */
static int make_all(const struct sl_bench_checkpoint *bench, struct sl_client *client,
                    struct sl_table *table, struct sl_bench_checkpoint_files *files)
{
    const struct sl_bench_checkpoint_options *options = bench->options;
    const double touched = options->touched * (double)options->rows;
    char what[SL_BENCH_NAME_BYTES];
    int err = push_rows(bench, client, table, options->rows);
    err = err != 0 ? err : make_one(bench, client, files, "full, idle ps", &files->bytes);
    if (err == 0) {
        err = push_rows(bench, client, table, touched < 1 ? 1 : (uint64_t)touched);
    }
    if (err == 0) {
        (void)snprintf(what, sizeof what, "adds %g of the rows, idle ps", options->touched);
        err = make_one(bench, client, files, what, &files->adds_bytes);
    }
    err = err != 0 ? err : make_one(bench, client, files, "full again, idle ps", &files->bytes);
    return err != 0 ? err : sl_bench_checkpoint_value(bench, client, table, &files->value);
}

static int make_files(const struct sl_bench_checkpoint *bench,
                      struct sl_bench_checkpoint_files *files)
{
    (void)snprintf(files->dir, sizeof files->dir, "%s/level-%u", bench->scratch.path, files->level);
    const struct sl_bench_ps_options checkpoints = {
        .checkpoint_dir = files->dir, .checkpoint_adds = 1, .checkpoint_level = files->level};
    struct sl_bench_ps *ps = NULL;
    struct sl_client *client = NULL;
    struct sl_table *table;
    int err = sl_bench_checkpoint_start(bench, &checkpoints, &ps);
    err = err != 0 ? err : sl_bench_checkpoint_connect(bench, ps, &client, &table);
    err = err != 0 ? err : make_all(bench, client, table, files);
    if (client != NULL) {
        sl_client_destroy(&client);
    }
    if (err != 0 && ps != NULL) {
        sl_bench_ps_show_log(ps);
    }
    sl_bench_ps_kill(&ps);
    return err;
}

static void hold(struct sl_bench_report *report, const char *name, uint64_t a, uint64_t b)
{
    struct sl_bench_figure over = {.samples = {(double)a}, .count = 1};
    struct sl_bench_figure under = {.samples = {(double)b}, .count = 1};
    sl_bench_report_ratio(report, name, &over, &under, 0, 0);
}

int sl_bench_checkpoint_measure_files(struct sl_bench_checkpoint *bench,
                                      struct sl_bench_checkpoint_files *files)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < SL_BENCH_CHECKPOINT_LEVELS; i++) {
        files[i] = (struct sl_bench_checkpoint_files){.level = levels[i]};
        err = make_files(bench, &files[i]);
    }
    if (err == 0) {
        hold(bench->report, "bytes, one that adds / full, level 0", files[1].adds_bytes,
             files[1].bytes);
        hold(bench->report, "bytes, full, level 1 / level 0", files[0].bytes, files[1].bytes);
    }
    return err;
}

#define PIECE_BYTES ((size_t)1 << 20)

enum { TIME, BYTES, RAW };
static const struct sl_bench_quantity quantities[] = {
    [TIME] = {"time", "s"}, [BYTES] = {"bytes", "1/s"}, [RAW] = {"raw bytes", "1/s"}};

struct reading {
    const struct sl_bench_checkpoint *bench;
    const struct sl_bench_checkpoint_files *files; /* NULL: a ps that begins with nothing */
    uint64_t raw_bytes;                            /* of what is not packed */
};

static double seconds_since(uint64_t from_ns)
{
    return sl_bench_seconds(sl_bench_now_ns() - from_ns);
}

/* ---- Starts --------------------------------------------------------------------------------- */

/* Until somebody has a row, which is the one that was written. */
static int begin(const struct reading *reading, struct sl_bench_ps *ps)
{
    struct sl_client *client = NULL;
    struct sl_table *table = NULL;
    float value = 0;
    int err = sl_bench_checkpoint_connect(reading->bench, ps, &client, &table);
    if (err == 0) {
        err = sl_bench_checkpoint_value(reading->bench, client, table, &value);
        sl_client_destroy(&client);
    }
    if (err == 0 && reading->files != NULL && value != reading->files->value) {
        sl_log_error("%s: a row begins with %g, where %g was written", reading->files->newest,
                     (double)value, (double)reading->files->value);
        err = SL_ERR_CORRUPT;
    }
    return err;
}

static int run_start(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct reading *reading = ctx;
    const struct sl_bench_checkpoint_files *files = reading->files;
    struct sl_bench_ps_options checkpoints = {0};
    if (files != NULL) {
        checkpoints = (struct sl_bench_ps_options){
            .checkpoint_dir = files->dir, .checkpoint_level = files->level, .restores = true};
    }
    struct sl_bench_ps *ps = NULL;
    const uint64_t from_ns = sl_bench_now_ns();
    int err = sl_bench_checkpoint_start(reading->bench, &checkpoints, &ps);
    if (err == 0) {
        err = begin(reading, ps);
        values[TIME] = seconds_since(from_ns);
        if (err != 0) {
            sl_bench_ps_show_log(ps);
        }
    }
    sl_bench_ps_kill(&ps);
    if (err == 0 && files != NULL) {
        values[BYTES] = (double)files->bytes / values[TIME];
        values[RAW] = (double)reading->raw_bytes / values[TIME];
    }
    return err;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int read_file(const char *folder, const char *name, uint8_t *memory, uint64_t *bytes)
{
    char path[SL_BENCH_PATH_BYTES + 256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t some = fd < 0 ? -1 : 1;
    while (some > 0) {
        some = read(fd, memory, PIECE_BYTES);
        *bytes += some > 0 ? (uint64_t)some : 0;
    }
    if (some < 0) {
        sl_log_error("%s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return some < 0 ? SL_ERR_IO : 0;
}

/* Reads as many bytes as a ps does that begins from it. */
static int read_folder(const char *folder, uint8_t *memory, uint64_t *bytes)
{
    DIR *dir = opendir(folder);
    int err = 0;
    if (dir == NULL) {
        sl_log_error("%s: %s", folder, strerror(errno));
        return SL_ERR_IO;
    }
    for (const struct dirent *entry = readdir(dir); err == 0 && entry != NULL;
         entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            err = read_file(folder, entry->d_name, memory, bytes);
        }
    }
    (void)closedir(dir);
    return err;
}

static int run_read(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct reading *reading = ctx;
    uint8_t *memory = calloc(1, PIECE_BYTES);
    uint64_t bytes = 0;
    if (memory == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const uint64_t from_ns = sl_bench_now_ns();
    const int err = read_folder(reading->files->newest, memory, &bytes);
    values[TIME] = seconds_since(from_ns);
    values[BYTES] = (double)bytes / values[TIME];
    free(memory);
    return err;
}

/* As many raw bytes, from memory to memory. */
static int run_memcpy(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct reading *reading = ctx;
    const uint64_t pieces = reading->raw_bytes / PIECE_BYTES;
    const struct sl_bench_bare_memory memory = {.bytes = PIECE_BYTES,
                                                .pieces = pieces < 1      ? 1
                                                          : pieces > 4096 ? 4096
                                                                          : (uint32_t)pieces};
    int err = sl_bench_bare_memory_run(&memory, common, &values[BYTES]);
    if (err == 0) {
        values[TIME] = (double)reading->raw_bytes / values[BYTES];
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

enum { EMPTY, RESTORE_1, RESTORE_0, READ_1, READ_0, MEMCPY, CONTESTANTS };

static void conclude(struct sl_bench_report *report, const struct sl_bench_contestant *contestants)
{
    static const struct {
        const char *name;
        uint32_t a, b, quantity;
    } ratios[] = {
        {"restore, level 1 / read() of its file", RESTORE_1, READ_1, BYTES},
        {"restore, level 0 / read() of its file", RESTORE_0, READ_0, BYTES},
        {"restore, level 1, raw bytes / memcpy", RESTORE_1, MEMCPY, RAW},
        {"restore, level 0, raw bytes / memcpy", RESTORE_0, MEMCPY, RAW},
    };
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        const struct sl_bench_contestant *b = &contestants[ratios[i].b];
        sl_bench_report_ratio(report, ratios[i].name,
                              contestants[ratios[i].a].figures[ratios[i].quantity],
                              b->figures[BYTES], 0, 0);
    }
}

int sl_bench_checkpoint_measure_restore(struct sl_bench_checkpoint *bench,
                                        const struct sl_bench_checkpoint_files *files)
{
    static const struct {
        const char *name;
        uint32_t quantity_count, files; /* files: 1 + their index; 0: none */
        int (*run)(void *ctx, const struct sl_bench_common *common, double *values);
    } kinds[CONTESTANTS] = {
        [EMPTY] = {"start without a checkpoint", 1, 0, run_start},
        [RESTORE_1] = {"start from level 1", 3, 1, run_start},
        [RESTORE_0] = {"start from level 0", 3, 2, run_start},
        [READ_1] = {"read() of level 1", 2, 1, run_read},
        [READ_0] = {"read() of level 0", 2, 2, run_read},
        [MEMCPY] = {"memcpy of the raw bytes", 2, 0, run_memcpy},
    };
    struct reading readings[CONTESTANTS];
    struct sl_bench_contestant contestants[CONTESTANTS];
    for (uint32_t i = 0; i < CONTESTANTS; i++) {
        readings[i] =
            (struct reading){.bench = bench,
                             .files = kinds[i].files == 0 ? NULL : &files[kinds[i].files - 1],
                             .raw_bytes = files[1].bytes};
        contestants[i] = (struct sl_bench_contestant){
            .name = kinds[i].name,
            .quantities = quantities,
            .quantity_count = kinds[i].quantity_count,
            .run = kinds[i].run,
            .ctx = &readings[i],
        };
    }
    int err =
        sl_bench_contest_run(contestants, CONTESTANTS, &bench->options->common, bench->report);
    if (err == 0) {
        conclude(bench->report, contestants);
    }
    return err;
}
