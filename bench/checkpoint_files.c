#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/checkpoint.h"
#include "bench/rows.h"
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
    (void)sl_bench_report_ratio(report, name, &over, &under, 0, 0);
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
