/* ONNX files: any bytes are refused with a reason, or deployed as far as an image, which the engine
 * opens like a worker, without tables; what is small is computed, for one row and for two. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "programs/serve/engine/blas.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/lookup.h"
#include "programs/serve/engine/onnx.h"
#include "tests/fuzz/input.h"

#define ROWS_MAX    2
#define MEMORY_MAX  (64U << 20)
#define SCRATCH_MAX (1U << 20)
#define FLOPS_MAX   1e7

/* Each tensor at a multiple of 64, in memory that ends where the tensor does. */
static void copy_tensors(struct sl_graph_image *image)
{
    for (uint32_t i = 0; i < image->count; i++) {
        void *copy;
        sl_assert(posix_memalign(&copy, 64, image->tensors[i].bytes) == 0);
        image->tensors[i].data = memcpy(copy, image->tensors[i].data, image->tensors[i].bytes);
    }
}

static void free_tensors(struct sl_graph_image *image)
{
    for (uint32_t i = 0; i < image->count; i++) {
        free((void *)image->tensors[i].data);
    }
}

static void check_tensors(const struct sl_engine_info *info, const struct sl_engine_tensor *tensors,
                          uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(tensors[i].scratch_offset % 64 == 0);
        sl_assert(tensors[i].scratch_offset + tensors[i].row_bytes <= info->scratch_bytes);
    }
}

static void run(const struct sl_engine *engine, void *model, const struct sl_engine_info *info)
{
    void *scratch;
    int err = 0;
    sl_assert(posix_memalign(&scratch, 64, info->scratch_bytes) == 0);
    memset(scratch, 0, info->scratch_bytes);
    const uint32_t rows_max = info->fixed_rows > 0 ? info->fixed_rows : ROWS_MAX;
    for (uint32_t rows = info->fixed_rows > 0 ? rows_max : 1; rows <= rows_max; rows++) {
        for (uint32_t i = 0; err == 0 && i < info->layer_count; i++) {
            struct sl_reason reason;
            err = engine->run(model, scratch, i, rows, &reason);
        }
    }
    free(scratch);
}

static void open_model(struct sl_graph_image *image)
{
    struct sl_reason reason = {""};
    const struct sl_engine_image of = sl_graph_image_of(image);
    void *model = NULL;
    const bool is_lookup = strcmp(image->tensors[0].name, SL_GRAPH_IMAGE_LOOKUP) == 0;
    const struct sl_engine *engine = is_lookup ? &sl_engine_lookup : &sl_engine_graph;
    if ((is_lookup ? sl_lookup_open_untabled : engine->open)(&of, ROWS_MAX, &reason, &model) != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    const struct sl_engine_info *info = engine->info(model);
    double flops = 0;
    uint64_t end = 0;
    check_tensors(info, info->inputs, info->input_count);
    check_tensors(info, info->outputs, info->output_count);
    for (uint32_t i = 0; i < info->layer_count; i++) {
        sl_assert(info->layers[i].image_end >= end && info->layers[i].image_end <= of.bytes);
        end = info->layers[i].image_end;
        flops += info->layers[i].flops;
    }
    if (info->scratch_bytes <= SCRATCH_MAX && flops <= FLOPS_MAX) {
        run(engine, model, info);
    }
    engine->close(&model);
}

/* A file beside the model, of zeros. */
static int read_beside(void *context, const char *location, uint64_t offset, size_t bytes,
                       const void **data, struct sl_reason *reason)
{
    *data = offset < 4096 ? sl_graph_memory_take(context, bytes, 1) : NULL;
    return *data != NULL ? 0 : sl_reason_fail(reason, SL_ERR_INVALID, "%s is short", location);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static bool is_ready;
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_image image;
    struct sl_reason reason = {""};
    if (!is_ready) {
        sl_blas_init();
        is_ready = true;
    }
    sl_graph_memory_init(&memory, MEMORY_MAX);
    const struct sl_onnx_files files = {.read = read_beside, .context = &memory};
    const int err = sl_onnx_read(bytes, count, true, &files, &memory, &graph, &reason);
    sl_assert(err == 0 || reason.text[0] != '\0');
    if (err == 0) {
        if (sl_graph_fold(&graph, &memory, &reason) == 0 &&
            sl_graph_image_make(&graph, &memory, &image, &reason) == 0) {
            copy_tensors(&image);
            open_model(&image);
            free_tensors(&image);
        }
    }
    sl_graph_memory_fini(&memory);
    sl_graph_memory_init(&memory, MEMORY_MAX);
    (void)sl_onnx_read(bytes, count, false, NULL, &memory, &graph, &reason);
    sl_graph_memory_fini(&memory);
    return 0;
}
