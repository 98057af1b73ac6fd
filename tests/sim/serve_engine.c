#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/sim/publish.h"
#include "tests/sim/random.h"
#include "tests/sim/serve_app.h"

#define LAYERS 3

struct model {
    struct sl_sim_serve_app *app;
    uint64_t head[2]; /* model, version */
    const uint8_t *weights;
    uint64_t bytes, offset;           /* of them, in the image */
    struct sl_object_tensor *tensors; /* of tables of a job; NULL: of none */
    uint32_t tensor_count;
    bool is_judged;
    struct sl_engine_tensor input, output;
    struct sl_engine_layer layers[LAYERS];
    struct sl_engine_info info;
};

static uint64_t word(uint32_t model, uint64_t version, uint64_t index)
{
    return sl_hash_key((uint64_t)model << 32 ^ version) + index * 0x9e3779b97f4a7c15ULL;
}

void sl_sim_serve_engine_fill(uint32_t model, uint64_t version, uint8_t *weights, uint64_t bytes)
{
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        const uint64_t value = word(model, version, i / 8);
        memcpy(weights + i, &value, 8);
    }
}

/* Its rows are there when the last layer is run. */
static void open_tables(struct model *made, const struct sl_engine_image *image)
{
    const int count = sscanf(image->note, "%" SCNu64 "@%" SCNu64, &made->head[0], &made->head[1]);
    made->tensors = calloc(image->count, sizeof *made->tensors);
    sl_assert(count == 2 && made->tensors != NULL);
    memcpy(made->tensors, image->tensors, image->count * sizeof *made->tensors);
    made->tensor_count = image->count;
    made->bytes = image->bytes;
}

static int open(struct sl_sim_serve_app *app, const struct sl_engine_image *image,
                uint32_t rows_max, struct sl_reason *reason, void **out)
{
    struct model *made = calloc(1, sizeof *made);
    sl_assert(made != NULL);
    made->app = app;
    if (app->options.plan->has_tables) {
        open_tables(made, image);
    } else {
        sl_assert(image->count == 2);
        memcpy(made->head, image->tensors[0].data, sizeof made->head);
        made->weights = image->tensors[1].data;
        made->bytes = image->tensors[1].bytes;
        made->offset = image->offsets[1];
    }
    const uint64_t input_bytes = 8ULL * app->options.plan->input_numbers;
    const uint64_t output_bytes = 8ULL * app->options.plan->output_numbers;
    made->input = (struct sl_engine_tensor){.name = "x",
                                            .type = SL_OBJECT_U64,
                                            .rank = 2,
                                            .shape = {0, input_bytes / 8},
                                            .row_bytes = input_bytes};
    made->output = (struct sl_engine_tensor){.name = "y",
                                             .type = SL_OBJECT_U64,
                                             .rank = 2,
                                             .shape = {0, output_bytes / 8},
                                             .row_bytes = output_bytes,
                                             .scratch_offset = 8 * input_bytes * rows_max};
    for (uint32_t i = 0; i < LAYERS; i++) {
        made->layers[i].image_end =
            i + 1 == LAYERS ? image->bytes : made->offset + made->bytes * (i + 1) / LAYERS;
        made->layers[i].flops = 1e6;
    }
    made->info =
        (struct sl_engine_info){.inputs = &made->input,
                                .outputs = &made->output,
                                .layers = made->layers,
                                .input_count = 1,
                                .output_count = 1,
                                .layer_count = LAYERS,
                                .scratch_bytes = (8 * input_bytes + output_bytes) * rows_max};
    *out = made;
    return 0;
}

static const struct sl_engine_info *info(const void *model)
{
    return &((const struct model *)model)->info;
}

/* The bytes of the layer are there before it is run. */
static void judge_layer(const struct model *model, uint32_t layer)
{
    const uint64_t from = layer == 0 ? 0 : model->layers[layer - 1].image_end - model->offset;
    const uint64_t end = model->layers[layer].image_end - model->offset;
    for (uint64_t i = (from + 7) / 8; (i + 1) * 8 <= end && (i + 1) * 8 <= model->bytes; i++) {
        const uint64_t value = word((uint32_t)model->head[0], model->head[1], i);
        if (memcmp(model->weights + i * 8, &value, 8) != 0) {
            sl_sim_fail(&model->app->options.oracle->breach, "bytes",
                        "worker %u computes layer %u of m%u@%u before its bytes are there",
                        model->app->options.host, layer, (uint32_t)model->head[0],
                        (uint32_t)model->head[1]);
            return;
        }
    }
}

static int run(void *ctx, uint8_t *scratch, uint32_t layer, uint32_t rows, struct sl_reason *reason)
{
    struct model *model = ctx;
    struct sl_sim_serve_app *app = model->app;
    if (!app->base.dying && model->tensors == NULL) {
        judge_layer(model, layer);
    } else if (!app->base.dying && layer + 1 == LAYERS && !model->is_judged) {
        model->is_judged = true;
        sl_sim_publish_judge_rows((uint32_t)model->head[0], model->head[1], model->tensors,
                                  model->tensor_count);
    }
    sl_sim_app_sleep(&app->base,
                     SL_CLOCK_NS_PER_US *
                         (1 + sl_sim_below(&app->base.random, app->options.plan->compute_us_max)));
    for (uint32_t i = 0; layer + 1 == LAYERS && i < rows; i++) {
        const uint8_t *input = scratch + i * model->input.row_bytes;
        uint8_t *output = scratch + model->output.scratch_offset + i * model->output.row_bytes;
        memcpy(output, model->head, sizeof model->head);
        for (uint64_t at = 16; at < model->output.row_bytes;
             at += 8) { /* the first, then the last */
            memcpy(output + at, input + (at == 16 ? 0 : model->input.row_bytes - 8), 8);
        }
    }
    return 0;
}

static void close(void **model)
{
    free(((struct model *)*model)->tensors);
    free(*model);
    *model = NULL;
}

/* An engine has no context of its own. */
static struct sl_sim_serve_app *apps[SL_SIM_SERVE_WORKERS_MAX];

#define ENGINE(i)                                                                                  \
    static int open_##i(const struct sl_engine_image *image, uint32_t rows_max,                    \
                        struct sl_reason *reason, void **model)                                    \
    {                                                                                              \
        return open(apps[i], image, rows_max, reason, model);                                      \
    }                                                                                              \
    static const struct sl_engine engine_##i = {                                                   \
        .name = "stand-in", .open = open_##i, .info = info, .run = run, .close = close};

ENGINE(0)
ENGINE(1)
ENGINE(2)
ENGINE(3)

const struct sl_engine *sl_sim_serve_engine(uint32_t worker, struct sl_sim_serve_app *app)
{
    static const struct sl_engine *const engines[] = {&engine_0, &engine_1, &engine_2, &engine_3};
    apps[worker] = app;
    return engines[worker];
}
