/* Runs ONNX models with the operators of serve/engine, for onnx_test.py. Each line of
 * the standard input is "MODEL ROWS ROWS_MAX INPUTS OUTPUTS": the file INPUTS has the rows of all
 * inputs as f32, one input after another, and OUTPUTS gets those of all outputs. The answer is a
 * line: "ok", or why the model is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "serve/engine/blas.h"
#include "serve/engine/graph_plan.h"
#include "serve/engine/onnx.h"

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

/* Operators get addresses at multiples of 64, as in a view: exactly as many bytes as the value has,
 * so that a sanitizer sees what lies beyond. */
static void align_weights(struct sl_graph *graph)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        struct sl_graph_value *value = &graph->values[i];
        if (value->kind == SL_GRAPH_WEIGHT) {
            void *copy;
            sl_assert(posix_memalign(&copy, 64, value->bytes) == 0);
            value->data = memcpy(copy, value->data, value->bytes);
        }
    }
}

static void free_weights(struct sl_graph *graph)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].kind == SL_GRAPH_WEIGHT) {
            free((void *)graph->values[i].data);
        }
    }
}

static void *address(const struct sl_graph *graph, uint32_t value, uint8_t *scratch)
{
    if (value == SL_GRAPH_NONE) {
        return NULL;
    }
    const struct sl_graph_value *of = &graph->values[value];
    return of->kind == SL_GRAPH_WEIGHT || of->kind == SL_GRAPH_CONSTANT
               ? (void *)of->data
               : scratch + of->scratch_offset;
}

static int run_node(const struct sl_graph *graph, const struct sl_graph_node *node,
                    uint8_t *scratch, uint32_t rows, struct sl_reason *reason)
{
    const void *inputs[SL_GRAPH_OPERANDS_MAX];
    void *outputs[SL_GRAPH_OPERANDS_MAX];
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = address(graph, node->inputs[i], scratch);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        outputs[i] = address(graph, node->outputs[i], scratch);
    }
    const struct sl_graph_run run = {.inputs = inputs,
                                     .outputs = outputs,
                                     .scratch = scratch + node->scratch_offset,
                                     .rows = rows,
                                     .reason = reason};
    return node->op->run(node, &run);
}

static int run_model(struct sl_graph *graph, const struct sl_graph_plan *plan, uint32_t rows,
                     const char *inputs, const char *outputs, struct sl_reason *reason)
{
    void *scratch;
    size_t bytes, at = 0;
    uint8_t *data = read_file(inputs, &bytes);
    sl_assert(posix_memalign(&scratch, 64, plan->scratch_bytes) == 0);
    memset(scratch, 0xff, plan->scratch_bytes); /* NaN: what nobody has written */
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct sl_graph_value *input = &graph->values[graph->inputs[i]];
        sl_assert(at + input->bytes * rows <= bytes);
        memcpy((uint8_t *)scratch + input->scratch_offset, data + at, input->bytes * rows);
        at += input->bytes * rows;
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < graph->node_count; i++) {
        err = run_node(graph, &graph->nodes[i], scratch, rows, reason);
    }
    FILE *file = fopen(outputs, "wb");
    sl_assert(file != NULL);
    for (uint32_t i = 0; err == 0 && i < graph->output_count; i++) {
        const struct sl_graph_value *output = &graph->values[graph->outputs[i]];
        sl_assert(fwrite((uint8_t *)scratch + output->scratch_offset, output->bytes, rows, file) ==
                  rows);
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
    struct sl_graph graph = {0};
    struct sl_graph_plan plan;
    size_t bytes;
    uint8_t *model = read_file(path, &bytes);
    sl_graph_memory_init(&memory, 1U << 30);
    int err = sl_onnx_read(model, bytes, true, &memory, &graph, reason);
    err = err != 0 ? err : sl_graph_plan_make(&graph, rows_max, 0, &memory, &plan, reason);
    if (err == 0) {
        align_weights(&graph);
        err = run_model(&graph, &plan, rows, inputs, outputs, reason);
        free_weights(&graph);
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
