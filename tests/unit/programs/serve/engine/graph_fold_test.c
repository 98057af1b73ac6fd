/* Folding: nodes that inference does not need, and BatchNormalization. */
#include <math.h>
#include <string.h>

#include "onnx_model.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/onnx.h"
#include "tests/support/unit.h"

#define CHANNELS 24

static struct sl_graph_memory memory;
static struct sl_graph graph;

static struct sl_reason reason;

static void read_model(struct wire *parts)
{
    struct wire model = model_finish(parts, 13);
    assert_int_equal(sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason),
                     0);
    wire_free(&model);
}

static void fold(struct wire *parts)
{
    read_model(parts);
    assert_int_equal(sl_graph_fold(&graph, &memory, &reason), 0);
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

#define CASE(name)                                                                                 \
    SL_CASE_WITH(name, sl_graph_memory_init(&memory, 64U << 20), sl_graph_memory_fini(&memory))

CASE(graph_fold__batch_normalization)
{
    struct wire parts = conv_and_bn("i"); /* with an Identity between */
    fold(&parts);
    assert_int_equal(graph.node_count, 1);
    assert_int_equal(graph.nodes[0].input_count, 3);
    assert_string_equal(graph.nodes[0].outputs[0]->name, "y");
    assert_int_equal(graph.nodes[0].inputs[2]->kind, SL_GRAPH_WEIGHT);
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
CASE(graph_fold__conv_that_others_use)
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

CASE(graph_fold__dropout)
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

/* The BatchNormalization is checked, although folding removes it. */
CASE(graph_fold__refuses_what_the_check_refuses)
{
    for (uint32_t way = 0; way < 2; way++) {
        struct wire parts = conv_and_bn("n"), attributes = {0};
        if (way == 0) {
            attribute_int(&attributes, "no_such_attribute", 1);
        } else {
            attribute_int(&attributes, "epsilon", 1);
        }
        model_node(&parts, "Conv", "conv2", "x,w,c", "n2", NULL);
        model_node(&parts, "BatchNormalization", "bn2", "n2,s,b,m,v", "y2", &attributes);
        model_output(&parts, "y2");
        read_model(&parts);
        assert_int_equal(sl_graph_fold(&graph, &memory, &reason),
                         way == 0 ? SL_ERR_UNSUPPORTED : SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "node \"bn2\" (BatchNormalization): attribute"));
    }
}

/* Operators run on constants: y = x + (2 w + w), then a Cast and an Unsqueeze of a constant. */
CASE(graph_fold__constants)
{
    static const int64_t axis = 0;
    struct wire parts = {0}, attributes = {0};
    const float two = 2;
    const int32_t whole = 5;
    fill(weights, -1, 0.5F);
    model_input(&parts, "x", FLOAT, DIMS(FREE, CHANNELS));
    model_tensor(&parts, "w", FLOAT, DIMS(CHANNELS), weights, CHANNELS * sizeof *weights);
    model_tensor(&parts, "two", FLOAT, &(const int64_t){END}, &two, sizeof two);
    model_tensor(&parts, "i", INT32, &(const int64_t){END}, &whole, sizeof whole);
    model_tensor(&parts, "axis", INT64, DIMS(1), &axis, sizeof axis);
    model_node(&parts, "Mul", "mul", "two,w", "a", NULL);
    model_node(&parts, "Add", "add", "a,w", "b", NULL);
    model_node(&parts, "Add", "first", "x,b", "c", NULL);
    attribute_int(&attributes, "to", FLOAT);
    model_node(&parts, "Cast", "cast", "i", "f", &attributes);
    model_node(&parts, "Unsqueeze", "up", "f,axis", "u", NULL);
    model_node(&parts, "Mul", "last", "c,u", "y", NULL);
    model_output(&parts, "y");
    fold(&parts);
    assert_int_equal(graph.node_count, 2);
    assert_int_equal(graph.nodes[0].inputs[1]->kind, SL_GRAPH_WEIGHT);
    assert_int_equal(graph.nodes[1].inputs[1]->kind, SL_GRAPH_CONSTANT);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        assert_true(input_of(0, 1)[i] == 3 * weights[i]);
    }
    assert_true(*input_of(1, 1) == 5);
    for (uint32_t i = 0; i < graph.value_count; i++) { /* what nothing reads is not published */
        assert_string_not_equal(sl_graph_is_stored(&graph.values[i]) ? graph.values[i].name : "",
                                "w");
    }
}

/* x [N, 2, 3] is viewed as [N, -1]: Shape, Gather, Unsqueeze, Concat, Reshape. The number of rows
 * is multiplied by two, or two is added, before it is used. */
static struct wire view_of_rows(const char *op_type)
{
    static const int64_t zero = 0, rest = -1, two = 2;
    struct wire parts = {0}, attributes = {0};
    const int64_t scalar[] = {END};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 2, 3));
    model_tensor(&parts, "zero", INT64, scalar, &zero, sizeof zero);
    model_tensor(&parts, "axes", INT64, DIMS(1), &zero, sizeof zero);
    model_tensor(&parts, "rest", INT64, DIMS(1), &rest, sizeof rest);
    model_tensor(&parts, "two", INT64, scalar, &two, sizeof two);
    model_node(&parts, "Shape", "shape", "x", "sizes", NULL);
    model_node(&parts, "Gather", "gather", "sizes,zero", "rows", NULL);
    if (op_type != NULL) {
        model_node(&parts, op_type, "twice", "rows,two", "twice", NULL);
    }
    model_node(&parts, "Unsqueeze", "up", op_type != NULL ? "twice,axes" : "rows,axes", "list",
               NULL);
    attribute_int(&attributes, "axis", 0);
    model_node(&parts, "Concat", "concat", "list,rest", "to", &attributes);
    model_node(&parts, "Reshape", "reshape", "x,to", "y", NULL);
    model_output(&parts, "y");
    return parts;
}

CASE(graph_fold__shape_that_counts_rows)
{
    static const int64_t zeros[3] = {0};
    struct wire parts = view_of_rows(NULL);
    fold(&parts);
    assert_int_equal(graph.node_count, 1);
    assert_int_equal(graph.nodes[0].outputs[0]->rank, 2);
    assert_int_equal(graph.nodes[0].outputs[0]->shape[0], 1);
    assert_int_equal(graph.nodes[0].outputs[0]->shape[1], 6);
    parts = view_of_rows("Mul");
    fold(&parts);
    assert_int_equal(graph.node_count, 1);
    assert_int_equal(graph.nodes[0].outputs[0]->shape[0], 2);
    assert_int_equal(graph.nodes[0].outputs[0]->shape[1], 3);
    parts = view_of_rows("Add"); /* a number of rows plus 2 is no constant */
    read_model(&parts);
    assert_int_equal(sl_graph_fold(&graph, &memory, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "node \"twice\" (Add)"));
    model_input(&parts, "x", FLOAT, DIMS(FREE, 2, 3));
    model_tensor(&parts, "zero", INT64, DIMS(3), zeros, sizeof zeros);
    model_node(&parts, "Shape", "shape", "x", "sizes", NULL);
    model_node(&parts, "Slice", "slice", "sizes,zero,sizes", "y", NULL);
    model_output(&parts, "y");
    read_model(&parts);
    assert_int_equal(sl_graph_fold(&graph, &memory, &reason), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "node \"slice\" (Slice): ends"));
}

/* An output that nothing reads is no output; one that is read is refused. */
CASE(graph_fold__unused_output)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 4));
    model_node(&parts, "Relu", "r", "x", "a", NULL);
    model_node(&parts, "Dropout", "d", "a", "y,mask", NULL);
    model_output(&parts, "y");
    fold(&parts);
    assert_int_equal(graph.nodes[1].output_count, 1);
    model_input(&parts, "x", FLOAT, DIMS(FREE, 4));
    model_node(&parts, "Dropout", "d", "x", "y,mask", NULL);
    model_output(&parts, "y");
    model_output(&parts, "mask");
    read_model(&parts);
    assert_int_equal(sl_graph_fold(&graph, &memory, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "node \"d\" (Dropout): 1 inputs and 2 outputs"));
}

/* What takes more memory than the model may have stays a node. */
CASE(graph_fold__memory_is_bounded)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 1 << 16));
    model_weight(&parts, "a", DIMS(1 << 16, 1), 1);
    model_weight(&parts, "b", DIMS(1, 1 << 15), 2);
    model_node(&parts, "Add", "outer", "a,b", "c", NULL); /* 8 GiB: more than the memory has */
    model_node(&parts, "MatMul", "last", "x,c", "y", NULL);
    model_output(&parts, "y");
    fold(&parts);
    assert_int_equal(graph.node_count, 2);
}
