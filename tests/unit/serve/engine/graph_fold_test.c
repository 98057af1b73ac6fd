/* Folding: nodes that inference does not need, and BatchNormalization. */
#include <math.h>
#include <string.h>

#include "onnx_model.h"
#include "serve/engine/graph_fold.h"
#include "serve/engine/onnx.h"
#include "tests/support/unit.h"

#define CHANNELS 24

static struct sl_graph_memory memory;
static struct sl_graph graph;

static int set_up(void **state)
{
    sl_graph_memory_init(&memory, 64U << 20);
    return 0;
}

static int tear_down(void **state)
{
    sl_graph_memory_fini(&memory);
    return 0;
}

static void fold(struct wire *parts)
{
    struct sl_reason reason;
    struct wire model = model_finish(parts, 13);
    assert_int_equal(sl_onnx_read(model.bytes, model.count, true, &memory, &graph, &reason), 0);
    wire_free(&model);
    sl_graph_fold(&graph, &memory);
}

static const float *input_of(uint32_t node, uint32_t i)
{
    return graph.nodes[node].inputs[i]->data;
}

static void fill(float *values, float from, float step)
{
    for (uint32_t i = 0; i < CHANNELS; i++) {
        values[i] = from + step * (float)i;
    }
}

static float weights[CHANNELS * 2], bias[CHANNELS], scale[CHANNELS], shift[CHANNELS],
    mean[CHANNELS], variance[CHANNELS];

/* x -> Conv 1x1 -> n -> BatchNormalization -> y */
static struct wire conv_and_bn(const char *bn_input)
{
    struct wire parts = {0};
    fill(bias, 1, 0.5F);
    fill(scale, 2, -0.125F);
    fill(shift, -3, 0.25F);
    fill(mean, 0, 0.75F);
    fill(variance, 0.5F, 0.125F);
    fill(weights, -1, 0.1F);
    fill(weights + CHANNELS, 1, 0.2F);
    model_input(&parts, "x", FLOAT, DIMS(FREE, 2, 3, 3));
    model_tensor(&parts, "w", FLOAT, DIMS(CHANNELS, 2, 1, 1), weights, sizeof weights);
    model_tensor(&parts, "c", FLOAT, DIMS(CHANNELS), bias, sizeof bias);
    model_tensor(&parts, "s", FLOAT, DIMS(CHANNELS), scale, sizeof scale);
    model_tensor(&parts, "b", FLOAT, DIMS(CHANNELS), shift, sizeof shift);
    model_tensor(&parts, "m", FLOAT, DIMS(CHANNELS), mean, sizeof mean);
    model_tensor(&parts, "v", FLOAT, DIMS(CHANNELS), variance, sizeof variance);
    model_node(&parts, "Conv", "conv", "x,w,c", "n", NULL);
    if (strcmp(bn_input, "n") != 0) {
        model_node(&parts, "Identity", "same", "n", bn_input, NULL);
    }
    char inputs[32] = "";
    struct wire attributes = {0};
    (void)strncat(strncat(inputs, bn_input, 8), ",s,b,m,v", 9);
    attribute_float(&attributes, "epsilon", 0.25F);
    model_node(&parts, "BatchNormalization", "bn", inputs, "y", &attributes);
    model_output(&parts, "y");
    return parts;
}

SL_CASE_WITH(graph_fold__batch_normalization, set_up, tear_down)
{
    struct wire parts = conv_and_bn("i"); /* with an Identity between */
    fold(&parts);
    assert_int_equal(graph.node_count, 1);
    assert_int_equal(graph.nodes[0].input_count, 3);
    assert_string_equal(graph.nodes[0].outputs[0]->name, "y");
    for (uint32_t c = 0; c < CHANNELS; c++) {
        const double factor = scale[c] / sqrt(variance[c] + 0.25);
        for (uint32_t i = 0; i < 2; i++) {
            assert_true(fabs(input_of(0, 1)[2 * c + i] - weights[2 * c + i] * factor) < 1e-6);
        }
        assert_true(fabs(input_of(0, 2)[c] - ((bias[c] - mean[c]) * factor + shift[c])) < 1e-5);
    }
    for (uint32_t i = 0; i < graph.value_count; i++) { /* what nothing reads is not published */
        const char *name = graph.values[i].name;
        assert_true(graph.values[i].kind != SL_GRAPH_WEIGHT || strcmp(name, "w") == 0 ||
                    strcmp(name, "n") == 0);
    }
}

/* Another reader of the Conv's output or weights, or an output of the model: nothing is folded. */
SL_CASE_WITH(graph_fold__conv_that_others_use, set_up, tear_down)
{
    for (uint32_t way = 0; way < 4; way++) {
        struct wire parts = conv_and_bn(way == 3 ? "i" : "n");
        if (way == 0) {
            model_node(&parts, "Relu", "other", "n", "z", NULL);
            model_output(&parts, "z");
        } else if (way == 1) {
            model_output(&parts, "n");
        } else if (way == 2) {
            model_node(&parts, "Conv", "other", "x,w", "z", NULL);
            model_output(&parts, "z");
        } else { /* by another reader of the Identity */
            model_node(&parts, "Relu", "other", "i", "z", NULL);
            model_output(&parts, "z");
        }
        fold(&parts);
        assert_int_equal(graph.node_count, way == 1 ? 2 : 3);
        assert_memory_equal(input_of(0, 1), weights, sizeof weights);
    }
}

SL_CASE_WITH(graph_fold__dropout, set_up, tear_down)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 4));
    model_node(&parts, "Dropout", "d1", "x", "a,mask", NULL);
    model_node(&parts, "Relu", "r", "a", "b", NULL);
    model_node(&parts, "Dropout", "d2", "b", "y", NULL); /* an output keeps its name */
    model_output(&parts, "y");
    fold(&parts);
    assert_int_equal(graph.node_count, 2);
    assert_string_equal(graph.nodes[0].inputs[0]->name, "x");
    assert_string_equal(graph.nodes[1].op_type, "Dropout");
}
