/* The plan: what it refuses, layers, and that no two values that are alive share memory. */
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "onnx_model.h"
#include "programs/serve/engine/graph_plan.h"
#include "programs/serve/engine/onnx.h"
#include "tests/support/unit.h"

#define ROWS_MAX 3
#define NODE     UINT32_MAX

static struct sl_graph_memory memory;
static struct sl_graph graph;
static struct sl_graph_plan plan;
static struct sl_reason reason;

/* Reads the model and plans it. Weights lie in the image in the order of the file, behind 64 bytes.
 */
static int make(struct wire model)
{
    uint64_t end = 64;
    assert_int_equal(sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason),
                     0);
    wire_free(&model);
    for (uint32_t i = 0; i < graph.value_count; i++) {
        if (graph.values[i].kind == SL_GRAPH_WEIGHT) {
            end += graph.values[i].bytes;
            graph.values[i].image_end = end;
        }
    }
    return sl_graph_plan_make(&graph, ROWS_MAX, 64, &memory, &plan, &reason);
}

static void expect_refused(struct wire *parts, int err, const char *text)
{
    if (make(model_finish(parts, 13)) != err || strstr(reason.text, text) == NULL) {
        fail_msg("error %d with \"%s\" was expected: %s", err, text, reason.text);
    }
}

/* A model with the node between x [N, 16] and y. */
static struct wire around(const char *op_type, const char *inputs, const char *outputs,
                          struct wire *attributes)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
    model_output(&parts, "y");
    model_node(&parts, op_type, "n", inputs, outputs, attributes);
    return parts;
}

#define CASE(name)                                                                                 \
    SL_CASE_WITH(name, sl_graph_memory_init(&memory, 256U << 20), sl_graph_memory_fini(&memory))

CASE(graph_plan_make__refuses_nodes)
{
    struct wire attributes = {0}, parts = around("Fancy", "x", "y", NULL);
    expect_refused(&parts, SL_ERR_UNSUPPORTED, "node \"n\" (Fancy): the operator is not supported");
    parts = around("Relu", "x,x", "y", NULL);
    expect_refused(&parts, SL_ERR_INVALID, "node \"n\" (Relu): 2 inputs and 1 outputs");
    parts = around("Add", "x,", "y", NULL);
    expect_refused(&parts, SL_ERR_INVALID, "node \"n\" (Add)");
    parts = around("Relu", "x", "y,z", NULL);
    model_output(&parts, "z");
    expect_refused(&parts, SL_ERR_INVALID, "node \"n\" (Relu)");
    attribute_int(&attributes, "speed", 1);
    parts = around("Relu", "x", "y", &attributes);
    expect_refused(&parts, SL_ERR_UNSUPPORTED, "node \"n\" (Relu): attribute \"speed\"");
    attribute_float(&attributes, "axis", 1);
    parts = around("Softmax", "x", "y", &attributes);
    expect_refused(&parts, SL_ERR_INVALID, "attribute \"axis\" has type 1 of ONNX, not 2");
    struct wire subgraph = {0};
    attribute_message(&attributes, "axis", 6, 5, &subgraph);
    parts = around("Softmax", "x", "y", &attributes);
    expect_refused(&parts, SL_ERR_INVALID, "attribute \"axis\" has type 5 of ONNX, not 2");
}

CASE(graph_plan_make__refuses_sizes)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 1 << 20, 1)); /* the sum has 2^32 elements */
    model_input(&parts, "z", FLOAT, DIMS(FREE, 1, 1 << 12));
    model_output(&parts, "y");
    model_node(&parts, "Add", "n", "x,z", "y", NULL);
    expect_refused(&parts, SL_ERR_TOO_LARGE, "node \"n\" (Add)");
    model_input(&parts, "x", FLOAT, DIMS(FREE, 1LL << 31)); /* 8 GiB a row, three rows */
    model_output(&parts, "y");
    model_node(&parts, "Relu", "n", "x", "y", NULL);
    expect_refused(&parts, SL_ERR_TOO_LARGE, "bytes of memory for 3 rows");
    for (uint32_t i = 0; i < 5; i++) { /* each fits, not all at once */
        char name[2] = {(char)('a' + i)};
        model_input(&parts, name, FLOAT, DIMS(FREE, 1 << 29));
    }
    model_output(&parts, "y");
    model_node(&parts, "Relu", "n", "a", "y", NULL);
    expect_refused(&parts, SL_ERR_TOO_LARGE, "the model needs ");
}

/* A window of 2^30 x 2^30 over a plane of one element, in pads. */
static struct wire huge_pool(void)
{
    const int64_t half = 1 << 29, whole = 1 << 30;
    struct wire parts = {0}, attributes = {0};
    attribute_ints(&attributes, "kernel_shape", DIMS(whole, whole));
    attribute_ints(&attributes, "pads", DIMS(half, half, half, half));
    attribute_ints(&attributes, "strides", DIMS(whole, whole));
    model_input(&parts, "x", FLOAT, DIMS(FREE, 1, 1, 1));
    model_node(&parts, "MaxPool", "pool", "x", "y", &attributes);
    model_output(&parts, "y");
    return parts;
}

CASE(graph_plan_make__work_is_bounded)
{
    struct wire parts = huge_pool();
    expect_refused(&parts, SL_ERR_TOO_LARGE,
                   "node \"pool\" (MaxPool): with its 1.15e+18 operations");
    /* Each product has 4.4e12 for the rows of the model: the third is one too many. */
    model_input(&parts, "x", FLOAT, DIMS(2, 1 << 10, 1 << 15));
    model_tensor(&parts, "w", FLOAT, DIMS(1 << 15, 1 << 15), NULL, 0);
    model_node(&parts, "MatMul", "one", "x,w", "a", NULL);
    model_node(&parts, "MatMul", "two", "a,w", "b", NULL);
    model_node(&parts, "MatMul", "three", "b,w", "y", NULL);
    model_output(&parts, "y");
    struct wire model = model_finish(&parts, 13);
    assert_int_equal(sl_onnx_read(model.bytes, model.count, false, NULL, &memory, &graph, &reason),
                     0);
    wire_free(&model);
    assert_int_equal(sl_graph_plan_make(&graph, 2, 64, &memory, &plan, &reason), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "node \"three\" (MatMul): with its 4.4e+12 operations"));
}

CASE(graph_plan_make__names_all_operators_that_are_missing)
{
    struct wire parts = around("TopK", "x", "a", NULL), attributes = {0};
    attribute_int(&attributes, "axis", 0);
    model_node(&parts, "OneHot", "p", "a", "b", NULL);
    model_node(&parts, "TopK", "e", "b", "c", NULL);
    model_node(&parts, "OneHot", "q", "c", "d", NULL);
    model_node(&parts, "Relu", "r", "d", "e", &attributes);
    model_node(&parts, "NonZero", "l", "e", "y", NULL);
    expect_refused(
        &parts, SL_ERR_UNSUPPORTED,
        "node \"n\" (TopK): the operator is not supported; node \"p\" (OneHot): the operator is "
        "not "
        "supported; node \"r\" (Relu): attribute \"axis\" is not supported; node \"l\" (NonZero): "
        "the operator is not supported");
    assert_null(strstr(strstr(reason.text, "OneHot") + 1, "OneHot"));
}

CASE(graph_plan_make__output_without_rows)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
    model_weight(&parts, "w", DIMS(4, 16), 1);
    model_node(&parts, "Relu", "n", "w", "y", NULL);
    model_output(&parts, "y");
    expect_refused(&parts, SL_ERR_UNSUPPORTED, "output \"y\" of the model");
}

CASE(graph_plan_make__layers)
{
    assert_int_equal(make(model_mlp()), 0);
    assert_int_equal(plan.layer_count, 2);
    assert_int_equal(plan.layer_ends[0], 2); /* Relu joins the Gemm before */
    assert_int_equal(plan.layer_ends[1], 3);
    assert_int_equal(plan.layers[0].image_end, 64 + (16 * 32 + 32) * 4);
    assert_int_equal(plan.layers[1].image_end, 64 + (16 * 32 + 32 + 32 * 10) * 4);
    assert_true(plan.layers[0].flops >= 2 * 16 * 32);
    assert_true(plan.layers[1].flops >= 2 * 32 * 10);
}

/* A chain of Relu takes the memory of one value; of Softmax, which needs another place, of two. */
CASE(graph_plan_make__memory_is_used_again)
{
    static const char *const ops[] = {"Relu", "MatMul"};
    for (uint32_t which = 0; which < 2; which++) {
        struct wire parts = {0};
        char in[16] = "x", out[16], inputs[20];
        model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
        model_weight(&parts, "w", DIMS(16, 16), 1);
        for (uint32_t i = 0; i < 20; i++) {
            (void)snprintf(out, sizeof out, "v%u", i);
            (void)snprintf(inputs, sizeof inputs, "%s%s", in, which == 0 ? "" : ",w");
            model_node(&parts, ops[which], "", inputs, out, NULL);
            memcpy(in, out, sizeof in);
        }
        model_output(&parts, in);
        assert_int_equal(make(model_finish(&parts, 13)), 0);
        assert_int_equal(plan.scratch_bytes, (which + 1) * 16 * 4 * ROWS_MAX);
    }
}

/* ---- No overlap ------------------------------------------------------------------------------ */

/* Adds a random node, which reads values v0 to v(count - 1) with channels[] and computes `count`.
 */
static void add_random_node(struct wire *parts, uint64_t *seed, uint32_t count, uint32_t *channels)
{
    char inputs[40], output[16];
    struct wire attributes = {0};
    const uint32_t a = (uint32_t)(sl_hash_random(seed) % count);
    uint32_t b = (uint32_t)(sl_hash_random(seed) % count);
    const uint64_t op = sl_hash_random(seed) % 4;
    (void)snprintf(output, sizeof output, "v%u", count);
    channels[count] = channels[a];
    if (op == 0) {
        (void)snprintf(inputs, sizeof inputs, "v%u", a);
        model_node(parts, "Relu", "", inputs, output, NULL);
    } else if (op == 1) {
        b = channels[a] == channels[b] || channels[b] == 1 ? b : a;
        (void)snprintf(inputs, sizeof inputs, "v%u,v%u", a, b);
        model_node(parts, "Add", "", inputs, output, NULL);
    } else if (op == 2 && channels[a] + channels[b] < 64) {
        (void)snprintf(inputs, sizeof inputs, "v%u,v%u", a, b);
        attribute_int(&attributes, "axis", 1);
        model_node(parts, "Concat", "", inputs, output, &attributes);
        channels[count] += channels[b];
    } else { /* with im2col, and so with memory of its own */
        char weight[16];
        channels[count] = 1 + (uint32_t)(sl_hash_random(seed) % 8);
        (void)snprintf(weight, sizeof weight, "w%u", count);
        (void)snprintf(inputs, sizeof inputs, "v%u,%s", a, weight);
        model_weight(parts, weight, DIMS(channels[count], channels[a], 3, 3), *seed);
        attribute_ints(&attributes, "pads", DIMS(1, 1, 1, 1));
        model_node(parts, "Conv", "", inputs, output, &attributes);
    }
}

static bool is_written_by(uint32_t node, uint32_t value)
{
    return graph.nodes[node].outputs[0] == &graph.values[value];
}

static bool is_read_by(uint32_t node, uint32_t value)
{
    for (uint32_t i = 0; i < graph.nodes[node].input_count; i++) {
        if (graph.nodes[node].inputs[i] == &graph.values[value]) {
            return true;
        }
    }
    return false;
}

/* The value's bytes must be there while the node runs: written before or by it, and read by it or
 * later. */
static bool is_alive(uint32_t node, uint32_t value)
{
    bool is_written = graph.values[value].kind == SL_GRAPH_INPUT, is_read = false;
    for (uint32_t i = 0; i <= node; i++) {
        is_written = is_written || is_written_by(i, value);
    }
    for (uint32_t i = node; i < graph.node_count; i++) {
        is_read = is_read || is_read_by(i, value) || is_written_by(node, value);
    }
    for (uint32_t i = 0; i < graph.output_count; i++) {
        is_read = is_read || graph.outputs[i] == &graph.values[value];
    }
    return is_written && is_read && graph.values[value].kind <= SL_GRAPH_COMPUTED;
}

static bool is_read_after(uint32_t node, uint32_t value)
{
    for (uint32_t i = node + 1; i < graph.node_count; i++) {
        if (is_read_by(i, value)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < graph.output_count; i++) {
        if (graph.outputs[i] == &graph.values[value]) {
            return true;
        }
    }
    return false;
}

struct range {
    uint64_t begin, end;
    uint32_t value; /* or NODE: the memory of the node that runs */
};

/* The output may lie exactly where the first input lies, which nothing reads later. */
static bool is_in_place(uint32_t node, const struct range *a, const struct range *b)
{
    const uint32_t input = (uint32_t)(graph.nodes[node].inputs[0] - graph.values);
    return (graph.nodes[node].op->flags & SL_GRAPH_IN_PLACE) != 0 && a->begin == b->begin &&
           a->end == b->end &&
           ((a->value == input && is_written_by(node, b->value)) ||
            (b->value == input && is_written_by(node, a->value))) &&
           !is_read_after(node, input);
}

/* Returns the bytes that are alive while the node runs. */
static uint64_t check_node(uint32_t node, uint64_t seed)
{
    static struct range ranges[256];
    uint32_t count = 0;
    uint64_t alive = 0;
    for (uint32_t value = 0; value < graph.value_count; value++) {
        if (is_alive(node, value)) {
            const struct sl_graph_value *of = &graph.values[value];
            const uint64_t begin = of->scratch_offset;
            ranges[count++] = (struct range){begin, begin + of->bytes * ROWS_MAX, value};
        }
    }
    ranges[count++] = (struct range){0, plan.node_bytes, NODE};
    for (uint32_t i = 0; i < count; i++) {
        bool is_new = true;
        assert_int_equal(ranges[i].begin % 64, 0);
        assert_true(ranges[i].end <= plan.scratch_bytes);
        for (uint32_t j = 0; j < i; j++) {
            const struct range *a = &ranges[i], *b = &ranges[j];
            const bool is_same = is_in_place(node, a, b);
            is_new = is_new && !is_same;
            if (a->begin < b->end && b->begin < a->end && !is_same) {
                fail_msg("seed %llu, node %u: values %d and %d overlap", (unsigned long long)seed,
                         node, (int)a->value, (int)b->value);
            }
        }
        alive += is_new ? (ranges[i].end - ranges[i].begin + 63) / 64 * 64 : 0;
    }
    return alive;
}

CASE(graph_plan_make__values_that_are_alive_do_not_overlap)
{
    uint64_t scratch_bytes = 0, least_bytes = 0; /* of all graphs */
    for (uint64_t first = 1; first <= 300; first++) {
        struct wire parts = {0};
        uint64_t seed = first, most = 0;
        uint32_t channels[64] = {3, 1};
        char name[16];
        const uint32_t count = 3 + (uint32_t)(sl_hash_random(&seed) % 40);
        model_input(&parts, "v0", FLOAT, DIMS(FREE, 3, 5, 5));
        model_input(&parts, "v1", FLOAT, DIMS(FREE, 1, 5, 5));
        for (uint32_t i = 2; i < count; i++) {
            add_random_node(&parts, &seed, i, channels);
        }
        for (uint32_t i = count - 1; i >= 2; i -= i < 20 ? 2 : 20) {
            (void)snprintf(name, sizeof name, "v%u", i);
            model_output(&parts, name);
        }
        assert_int_equal(make(model_finish(&parts, 13)), 0);
        for (uint32_t i = 0; i < graph.node_count; i++) {
            const uint64_t alive = check_node(i, first);
            most = alive > most ? alive : most;
        }
        scratch_bytes += plan.scratch_bytes;
        least_bytes += most;
        sl_graph_memory_fini(&memory);
        sl_graph_memory_init(&memory, 256U << 20);
    }
    assert_true(scratch_bytes >= least_bytes);
    assert_true((double)scratch_bytes < 1.1 * (double)least_bytes);
}
