/* Runs ONNX models as they are deployed and opened, for onnx_test.py. Each line of
 * the standard input is "MODEL ROWS ROWS_MAX INPUTS OUTPUTS": the file INPUTS has the rows of all
 * inputs as f32, one input after another, and OUTPUTS gets those of all outputs. The answer is a
 * line: "ok", or why the model is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "programs/serve/engine/blas.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/onnx.h"

#define PATH_BYTES 512

static uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    sl_assert(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    sl_assert(data != NULL && fread(data, 1, *bytes, file) == *bytes);
    (void)fclose(file);
    return data;
}

/* Weights lie at multiples of 64, as in a view: exactly as many bytes as there are, so that a
 * sanitizer sees what lies beyond. */
static void align_weights(struct sl_graph_image *image)
{
    for (uint32_t i = 0; i < image->count; i++) {
        void *copy;
        sl_assert(posix_memalign(&copy, 64, image->tensors[i].bytes) == 0);
        image->tensors[i].data = memcpy(copy, image->tensors[i].data, image->tensors[i].bytes);
    }
}

static void free_weights(struct sl_graph_image *image)
{
    for (uint32_t i = 0; i < image->count; i++) {
        free((void *)image->tensors[i].data);
    }
}

static int run_model(void *model, uint32_t rows, const char *inputs, const char *outputs,
                     struct sl_reason *reason)
{
    const struct sl_engine_info *info = sl_engine_graph.info(model);
    void *scratch;
    size_t bytes, at = 0;
    uint8_t *data = read_file(inputs, &bytes);
    sl_assert(posix_memalign(&scratch, 64, info->scratch_bytes) == 0);
    memset(scratch, 0xff, info->scratch_bytes); /* NaN: what nobody has written */
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct sl_engine_tensor *input = &info->inputs[i];
        sl_assert(at + input->row_bytes * rows <= bytes);
        memcpy((uint8_t *)scratch + input->scratch_offset, data + at, input->row_bytes * rows);
        at += input->row_bytes * rows;
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < info->layer_count; i++) {
        err = sl_engine_graph.run(model, scratch, i, rows, reason);
    }
    FILE *file = fopen(outputs, "wb");
    sl_assert(file != NULL);
    for (uint32_t i = 0; err == 0 && i < info->output_count; i++) {
        const struct sl_engine_tensor *output = &info->outputs[i];
        sl_assert(fwrite((uint8_t *)scratch + output->scratch_offset, output->row_bytes, rows,
                         file) == rows);
    }
    (void)fclose(file);
    free(scratch);
    free(data);
    return err;
}

static int run_file(const char *path, uint32_t rows, uint32_t rows_max, const char *inputs,
                    const char *outputs, struct sl_reason *reason)
{
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_image image;
    size_t bytes;
    void *opened;
    uint8_t *model = read_file(path, &bytes);
    sl_graph_memory_init(&memory, 1U << 30);
    int err = sl_onnx_read(model, bytes, true, NULL, &memory, &graph, reason);
    err = err != 0 ? err : sl_graph_fold(&graph, &memory, reason);
    if (err == 0) {
        err = sl_graph_image_make(&graph, &memory, &image, reason);
    }
    if (err == 0) {
        align_weights(&image);
        const struct sl_engine_image of = sl_graph_image_of(&image);
        err = sl_engine_graph.open(&of, rows_max, reason, &opened);
        if (err == 0) {
            err = run_model(opened, rows, inputs, outputs, reason);
            sl_engine_graph.close(&opened);
        }
        free_weights(&image);
    }
    sl_graph_memory_fini(&memory);
    free(model);
    return err;
}

int main(void)
{
    char model[PATH_BYTES], inputs[PATH_BYTES], outputs[PATH_BYTES];
    unsigned rows, rows_max;
    sl_blas_init();
    while (scanf("%511s %u %u %511s %511s", model, &rows, &rows_max, inputs, outputs) == 5) {
        struct sl_reason reason;
        const int err = run_file(model, rows, rows_max, inputs, outputs, &reason);
        printf("%s\n", err == 0 ? "ok" : reason.text);
        (void)fflush(stdout);
    }
    return 0;
}
