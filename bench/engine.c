/* The load `engine`: an ONNX model that one process computes in a loop, as a worker does without
 * requests; and the grouping of 200 layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/assert.h"
#include "core/hash.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/onnx.h"
#include "programs/serve/worker/schedule.h"

#define LAYERS             200
#define MODEL_MEMORY_BYTES (8ULL << 30)

struct bench {
    const char *path;
    uint64_t rows;
    struct sl_bench_common common;
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_image image;
    void *model;
    uint8_t *scratch;
    struct sl_serve_layer layers[LAYERS];
    struct sl_serve_search search;
};

enum { ROWS, BATCH, TIME, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [ROWS] = {"rows", "1/s"}, [BATCH] = {"batch", "ms"}, [TIME] = {"time", "ms"}};

/* ---- The model ------------------------------------------------------------------------------- */

static int read_model(struct bench *bench, struct sl_reason *reason)
{
    FILE *file = fopen(bench->path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "cannot be read");
    }
    const size_t bytes = (size_t)ftell(file);
    uint8_t *data = malloc(bytes + 1);
    rewind(file);
    int err = data != NULL && fread(data, 1, bytes, file) == bytes
                  ? sl_onnx_read(data, bytes, true, NULL, &bench->memory, &bench->graph, reason)
                  : sl_reason_fail(reason, SL_ERR_IO, "cannot be read");
    (void)fclose(file);
    free(data);
    return err;
}

static int open_model(struct bench *bench)
{
    struct sl_reason reason;
    sl_graph_memory_init(&bench->memory, MODEL_MEMORY_BYTES);
    int err = read_model(bench, &reason);
    err = err != 0 ? err : sl_graph_fold(&bench->graph, &bench->memory, &reason);
    if (err == 0) {
        err = sl_graph_image_make(&bench->graph, &bench->memory, &bench->image, &reason);
    }
    if (err == 0) {
        const struct sl_engine_image image = sl_graph_image_of(&bench->image);
        err = sl_engine_graph.open(&image, (uint32_t)bench->rows, &reason, &bench->model);
    }
    if (err != 0) {
        (void)fprintf(stderr, "load engine: %s: %s\n", bench->path, reason.text);
        return err;
    }
    const uint64_t bytes = sl_engine_graph.info(bench->model)->scratch_bytes;
    sl_assert(posix_memalign((void **)&bench->scratch, 64, bytes + 1) == 0);
    memset(bench->scratch, 0, bytes);
    return 0;
}

static double run_for(struct bench *bench, double seconds, uint64_t *batches)
{
    const struct sl_engine_info *info = sl_engine_graph.info(bench->model);
    const uint64_t begin_ns = sl_bench_now_ns();
    double passed = 0;
    for (*batches = 0; passed < seconds || *batches == 0; ++*batches) {
        for (uint32_t layer = 0; layer < info->layer_count; layer++) {
            struct sl_reason reason;
            const int err = sl_engine_graph.run(bench->model, bench->scratch, layer,
                                                (uint32_t)bench->rows, &reason);
            sl_assert(err == 0);
        }
        passed = (double)(sl_bench_now_ns() - begin_ns) / SL_CLOCK_NS_PER_S;
    }
    return passed;
}

static void run_model(struct bench *bench, const struct sl_bench_common *common, double *values)
{
    uint64_t batches;
    (void)run_for(bench, common->warm_up, &batches);
    const double seconds = run_for(bench, common->seconds, &batches);
    values[ROWS] = (double)(batches * bench->rows) / seconds;
    values[BATCH] = 1000 * seconds / (double)batches;
}

/* ---- The grouping ---------------------------------------------------------------------------- */

/* Layers of 100 KB to 2 MB and 50 us to 1 ms, over a source of 1 GB/s. */
static double run_grouping(struct bench *bench)
{
    const struct sl_serve_costs costs = {.transfer_us = 20, .byte_us = 0.001, .group_us = 5};
    struct sl_serve_schedule schedule;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < LAYERS; i++) {
        bench->layers[i] = (struct sl_serve_layer){
            .missing_bytes = 1e5 + (double)(sl_hash_random(&seed) % 1900000),
            .compute_us = 50 + (double)(sl_hash_random(&seed) % 950)};
    }
    const uint64_t begin_ns = sl_bench_now_ns();
    sl_serve_schedule_plan(SL_SERVE_OPTIMAL, 0, &costs, bench->layers, LAYERS, &bench->search,
                           &schedule);
    return (double)(sl_bench_now_ns() - begin_ns) / SL_CLOCK_NS_PER_MS;
}

/* Word of a turn: model or grouping. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const char *words = common->words;
    if (sl_bench_turns_word(&words, "grouping")) {
        values[TIME] = run_grouping(ctx);
        return 0;
    }
    run_model(ctx, common, values);
    return 0;
}

int sl_bench_engine_run(int argc, char **argv)
{
    static struct bench bench;
    bench.common = sl_bench_common_defaults();
    bench.rows = 1;
    const struct sl_cli_option table[] = {
        sl_bench_text("model", &bench.path, "FILE", "An ONNX model. Required."),
        sl_bench_number("rows", &bench.rows, 1, 65536, "Rows that are computed together."),
    };
    const int parsed = sl_bench_parse_load("engine", table, sizeof table / sizeof table[0],
                                           &bench.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    if (bench.path == NULL) {
        (void)fprintf(stderr, "load engine: --model is missing\n");
        return 2;
    }
    if (open_model(&bench) != 0) {
        return 1;
    }
    const int status = sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &bench},
        &bench.common);
    sl_engine_graph.close(&bench.model);
    sl_graph_memory_fini(&bench.memory);
    free(bench.scratch);
    return status;
}
