/* The reader: what it makes of valid models, and how it refuses others. */
#include <stdlib.h>
#include <string.h>

#include "onnx_model.h"
#include "programs/serve/engine/onnx.h"
#include "tests/support/unit.h"

#define MEMORY_BYTES (64U << 20)

static struct sl_graph_memory memory;
static struct sl_graph graph;
static struct sl_reason reason;

static void set_up(void)
{
    sl_graph_memory_init(&memory, MEMORY_BYTES);
    reason.text[0] = '\0';
}

/* Frees the model. */
static int read_model(struct wire model)
{
    const int err = sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason);
    wire_free(&model);
    return err;
}

static const struct sl_graph_value *value_of(const char *name)
{
    for (uint32_t i = 0; i < graph.value_count; i++) {
        if (strcmp(graph.values[i].name, name) == 0) {
            return &graph.values[i];
        }
    }
    fail_msg("no value %s", name);
    return NULL;
}

/* Finishes the graph with an input, a node and an output, so that only what was added before can be
 * wrong. */
static struct wire finish(struct wire *parts)
{
    model_input(parts, "x", FLOAT, DIMS(FREE, 16));
    model_node(parts, "Relu", "last", "x", "y", NULL);
    model_output(parts, "y");
    return model_finish(parts, 13);
}

static void expect_refused(struct wire model, int err, const char *text)
{
    assert_int_equal(read_model(model), err);
    if (strstr(reason.text, text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, reason.text);
    }
}

#define CASE(name) SL_CASE_WITH(name, set_up(), sl_graph_memory_fini(&memory))

CASE(onnx_read__mlp)
{
    assert_int_equal(read_model(model_mlp()), 0);
    assert_int_equal(graph.opset, 13);
    assert_int_equal(graph.fixed_rows, 0);
    assert_int_equal(graph.node_count, 3);
    assert_int_equal(graph.input_count, 1);
    assert_int_equal(graph.output_count, 1);
    const struct sl_graph_value *x = value_of("x"), *w1 = value_of("w1");
    assert_int_equal(x->kind, SL_GRAPH_INPUT);
    assert_true(x->has_rows);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->shape[0], 1);
    assert_int_equal(x->shape[1], 16);
    assert_int_equal(w1->kind, SL_GRAPH_WEIGHT);
    assert_int_equal(w1->bytes, 16 * 32 * 4);
    assert_non_null(w1->data);
    assert_string_equal(graph.nodes[0].name, "first");
    assert_string_equal(graph.nodes[2].op_type, "MatMul");
    assert_ptr_equal(graph.nodes[2].outputs[0], value_of("y"));
}

/* The model without its weights: the same graph, in few bytes. */
CASE(onnx_write__is_read_again)
{
    static const int64_t shape[] = {-1, 10};
    struct wire parts = {0}, attributes = {0};
    uint8_t *bytes;
    size_t count;
    model_weight(&parts, "w", DIMS(16, 1000), 1);
    model_tensor(&parts, "shape", INT64, DIMS(2), shape, sizeof shape);
    attribute_float(&attributes, "alpha", 0.5F);
    attribute_ints(&attributes, "axes", DIMS(3, -1));
    model_node(&parts, "Some", "some", "shape,,w", "s", &attributes);
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(sl_onnx_write(&graph, false, &memory, &bytes, &count), 0);
    assert_in_range(count, 1, 400);
    assert_int_equal(sl_onnx_read(bytes, count, false, NULL, &memory, &graph, &reason), 0);
    assert_int_equal(value_of("w")->kind, SL_GRAPH_WEIGHT);
    assert_int_equal(value_of("w")->shape[1], 1000);
    assert_null(value_of("w")->data);
    assert_int_equal(value_of("shape")->kind, SL_GRAPH_CONSTANT);
    assert_memory_equal(value_of("shape")->data, shape, sizeof shape);
    const struct sl_graph_node *node = &graph.nodes[0];
    assert_int_equal(node->input_count, 3);
    assert_null(node->inputs[1]);
    assert_true(sl_graph_attribute_float(node, "alpha", 0) == 0.5F);
    const struct sl_graph_attribute *axes = sl_graph_attribute_find(node, "axes");
    assert_int_equal(axes->count, 2);
    assert_int_equal(axes->ints[1], -1);
    assert_int_equal(sl_onnx_read(bytes, count, true, NULL, &memory, &graph, &reason),
                     SL_ERR_INVALID);
}

CASE(onnx_read__half_precision_is_widened)
{
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00, 0x8000};
    static const float wide[] = {1, -2, 0x1p-24F, 65504, -__builtin_inff(), -0.0F};
    static const uint16_t bf16[] = {0x3f80, 0xc040};
    struct wire parts = {0};
    model_tensor(&parts, "f16", FLOAT16, DIMS(6), f16, sizeof f16);
    model_tensor(&parts, "bf16", BFLOAT16, DIMS(2), bf16, sizeof bf16);
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(value_of("f16")->type, SL_OBJECT_F32);
    assert_memory_equal(value_of("f16")->data, wide, sizeof wide);
    assert_true(((const float *)value_of("bf16")->data)[0] == 1);
    assert_true(((const float *)value_of("bf16")->data)[1] == -3);
}

CASE(onnx_read__constant_is_a_value)
{
    struct wire parts = {0}, attributes = {0}, tensor = {0};
    const float two = 2;
    wire_number(&tensor, 2, FLOAT);
    wire_bytes(&tensor, 9, &two, sizeof two);
    attribute_message(&attributes, "value", 5, 4, &tensor);
    model_node(&parts, "Constant", "", "", "two", &attributes);
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(graph.node_count, 1);
    assert_int_equal(value_of("two")->kind, SL_GRAPH_CONSTANT);
    assert_int_equal(value_of("two")->rank, 0);
    assert_true(*(const float *)value_of("two")->data == 2);
}

/* Appends a Constant with one attribute, whose value lies in a field of its message. */
static void constant(struct wire *parts, const char *output, const char *attribute, int type,
                     struct wire *value)
{
    struct wire a = {0}, attributes = {0};
    wire_text(&a, 1, attribute);
    wire_number(&a, 20, (uint64_t)type);
    for (size_t i = 0; i < value->count; i++) { /* the fields as they are */
        a.bytes = realloc(a.bytes, a.count + 1);
        a.bytes[a.count++] = value->bytes[i];
        a.capacity = a.count;
    }
    wire_free(value);
    wire_message(&attributes, 5, &a);
    model_node(parts, "Constant", output, "", output, &attributes);
}

CASE(onnx_read__constant_forms)
{
    struct wire parts = {0}, value = {0};
    wire_float(&value, 2, 0.5F);
    constant(&parts, "half", "value_float", 1, &value);
    wire_float(&value, 7, 1);
    wire_float(&value, 7, -3);
    constant(&parts, "floats", "value_floats", 6, &value);
    wire_number(&value, 3, 7);
    constant(&parts, "seven", "value_int", 2, &value);
    wire_number(&value, 8, 0);
    wire_number(&value, 8, (uint64_t)-1);
    constant(&parts, "shape", "value_ints", 7, &value);
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(value_of("half")->rank, 0);
    assert_true(*(const float *)value_of("half")->data == 0.5F);
    assert_int_equal(value_of("floats")->shape[0], 2);
    assert_true(((const float *)value_of("floats")->data)[1] == -3);
    assert_int_equal(value_of("seven")->rank, 0);
    assert_int_equal(*(const int64_t *)value_of("seven")->data, 7);
    assert_int_equal(value_of("shape")->type, SL_OBJECT_I64);
    assert_int_equal(((const int64_t *)value_of("shape")->data)[1], -1);
}

CASE(onnx_read__constant_that_is_refused)
{
    const struct {
        const char *name;
        int type;
    } cases[] = {{"sparse_value", 11}, {"value_string", 3}, {"value_float", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wire parts = {0}, value = {0}; /* without a number */
        constant(&parts, "c", cases[i].name, cases[i].type, &value);
        expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "node \"c\" (Constant): accepted is");
    }
}

CASE(onnx_read__numbers_are_converted)
{
    static const double wide[] = {0.1, -2, 1e300};
    static const float narrow[] = {0.1F, -2, __builtin_inff()};
    static const int32_t i32[] = {-5, INT32_MAX};
    static const int8_t i8[] = {-128, 7};
    static const uint8_t u8[] = {200, 7};
    struct wire parts = {0}, tensor = {0};
    model_tensor(&parts, "f64", DOUBLE, DIMS(3), wide, sizeof wide);
    model_tensor(&parts, "i32", INT32, DIMS(2), i32, sizeof i32);
    model_tensor(&parts, "i8", INT8, DIMS(2), i8, sizeof i8);
    model_tensor(&parts, "u8", UINT8, DIMS(2), u8, sizeof u8);
    wire_number(&tensor, 1, 1); /* one element, in int32_data */
    wire_number(&tensor, 2, INT8);
    wire_number(&tensor, 5, (uint64_t)-3);
    wire_text(&tensor, 8, "listed");
    wire_message(&parts, 5, &tensor);
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(value_of("f64")->type, SL_OBJECT_F32);
    assert_memory_equal(value_of("f64")->data, narrow, sizeof narrow);
    assert_memory_equal(value_of("i32")->data, ((const int64_t[]){-5, INT32_MAX}), 16);
    assert_memory_equal(value_of("i8")->data, ((const int64_t[]){-128, 7}), 16);
    assert_memory_equal(value_of("u8")->data, ((const int64_t[]){200, 7}), 16);
    assert_memory_equal(value_of("listed")->data, ((const int64_t[]){-3}), 8);
}

static struct {
    char location[32];
    uint64_t offset;
    size_t bytes;
    int err;
} asked;

static int read_beside(void *context, const char *location, uint64_t offset, size_t bytes,
                       const void **data, struct sl_reason *why)
{
    static uint8_t zeros[256];
    (void)strncpy(asked.location, location, sizeof asked.location - 1);
    asked.offset = offset;
    asked.bytes = bytes;
    *data = zeros;
    return asked.err == 0 ? 0 : sl_reason_fail(why, asked.err, "no such folder");
}

/* A model whose weight [40] of f32 lies in another file. offset, length: NULL: not given. */
static int read_external(const char *offset, const char *length)
{
    const char *const pairs[][2] = {
        {"location", "w/part.bin"}, {"offset", offset}, {"length", length}, {"checksum", "0"}};
    const struct sl_onnx_files files = {.read = read_beside};
    struct wire parts = {0}, tensor = {0};
    wire_number(&tensor, 1, 40);
    wire_number(&tensor, 2, FLOAT);
    wire_text(&tensor, 8, "apart");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct wire entry = {0};
        if (pairs[i][1] != NULL) {
            wire_text(&entry, 1, pairs[i][0]);
            wire_text(&entry, 2, pairs[i][1]);
            wire_message(&tensor, 13, &entry);
        }
    }
    wire_number(&tensor, 14, 1);
    wire_message(&parts, 5, &tensor);
    struct wire model = finish(&parts);
    const int err = sl_onnx_read(model.bytes, model.count, true, &files, &memory, &graph, &reason);
    wire_free(&model);
    return err;
}

CASE(onnx_read__external_data)
{
    assert_int_equal(read_external("4096", "160"), 0);
    assert_string_equal(asked.location, "w/part.bin");
    assert_int_equal(asked.offset, 4096);
    assert_int_equal(asked.bytes, 160);
    assert_int_equal(value_of("apart")->kind, SL_GRAPH_WEIGHT);
    assert_int_equal(read_external(NULL, NULL), 0);
    assert_int_equal(asked.offset, 0);
    static const char *const wrong[][2] = {
        {"0", "159"}, {"-1", NULL}, {"1x", NULL}, {"", NULL}, {"99999999999999999999", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(read_external(wrong[i][0], wrong[i][1]), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "tensor \"apart\" is in another file"));
    }
    asked.err = SL_ERR_NOT_FOUND;
    assert_int_equal(read_external("0", "160"), SL_ERR_NOT_FOUND);
    assert_string_equal(reason.text, "tensor \"apart\": no such folder");
    asked.err = 0;
}

CASE(onnx_read__every_beginning_of_a_model_is_refused)
{
    struct wire model = model_mlp();
    for (size_t count = 0; count < model.count; count++) {
        struct wire part = {0};
        for (size_t i = 0; i < count; i++) { /* of that size, so that a sanitizer sees the end */
            part = part.bytes == NULL ? (struct wire){.bytes = malloc(count)} : part;
            part.bytes[part.count++] = model.bytes[i];
        }
        assert_int_not_equal(read_model(part), 0);
        assert_string_not_equal(reason.text, "");
    }
    wire_free(&model);
}

CASE(onnx_read__opset)
{
    for (int64_t opset = 6; opset <= 26; opset++) {
        struct wire parts = {0};
        model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
        model_node(&parts, "Relu", "last", "x", "y", NULL);
        model_output(&parts, "y");
        assert_int_equal(read_model(model_finish(&parts, opset)),
                         opset < 7 || opset > 25 ? SL_ERR_UNSUPPORTED : 0);
    }
    struct wire parts = {0};
    model_output(&parts, "y");
    expect_refused(model_finish(&parts, 0), SL_ERR_INVALID, "opset");
}

CASE(onnx_read__tensor_of_wrong_length)
{
    const float data[4] = {0};
    struct wire parts = {0};
    model_tensor(&parts, "short", FLOAT, DIMS(5), data, sizeof data);
    expect_refused(finish(&parts), SL_ERR_INVALID,
                   "tensor \"short\" has 16 bytes of data, but its shape takes 20");
    model_tensor(&parts, "torn", FLOAT, DIMS(4), data, sizeof data - 1);
    expect_refused(finish(&parts), SL_ERR_INVALID, "tensor \"torn\"");
    model_tensor(&parts, "none", INT64, DIMS(2), NULL, 0);
    expect_refused(finish(&parts), SL_ERR_INVALID, "tensor \"none\"");
}

CASE(onnx_read__gigantic_shape)
{
    const int64_t *const shapes[] = {
        DIMS(1LL << 32),
        DIMS(1LL << 31, 2),
        DIMS(1LL << 31, 1LL << 31, 1LL << 31, 1LL << 31),
        DIMS(3, -1),
        DIMS(0),
        DIMS(INT64_MAX, 4),
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct wire parts = {0};
        model_tensor(&parts, "big", FLOAT, shapes[i], NULL, 0);
        expect_refused(finish(&parts), SL_ERR_TOO_LARGE, "tensor \"big\" has no element, or more");
    }
    struct wire parts = {0};
    model_tensor(&parts, "deep", FLOAT, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), NULL, 0);
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "tensor \"deep\" has 9 dimensions");
    model_tensor(&parts, "long", INT64, DIMS(1 << 20), NULL, 0);
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "tensor \"long\"");
}

CASE(onnx_read__unsupported_tensor)
{
    const double data[2] = {1};
    struct wire parts = {0}, tensor = {0}, entry = {0};
    model_tensor(&parts, "complex", COMPLEX128, DIMS(1), data, sizeof data);
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "tensor \"complex\" has type 15");
    wire_number(&tensor, 1, 1);
    wire_number(&tensor, 2, FLOAT);
    wire_text(&tensor, 8, "apart");
    wire_text(&entry, 1, "location");
    wire_message(&tensor, 13, &entry);
    wire_number(&tensor, 14, 1);
    wire_message(&parts, 5, &tensor);
    expect_refused(finish(&parts), SL_ERR_INVALID, "tensor \"apart\" is in another file");
}

CASE(onnx_read__cycle)
{
    struct wire parts = {0};
    model_node(&parts, "Add", "one", "x0,b", "a", NULL);
    model_node(&parts, "Relu", "two", "a", "b", NULL);
    expect_refused(finish(&parts), SL_ERR_INVALID, "node \"one\" (Add): input \"x0\"");
    model_input(&parts, "x0", FLOAT, DIMS(FREE, 16));
    model_node(&parts, "Add", "one", "x0,b", "a", NULL);
    model_node(&parts, "Relu", "two", "a", "b", NULL);
    expect_refused(finish(&parts), SL_ERR_INVALID, "node \"one\" (Add): input \"b\"");
}

CASE(onnx_read__names_are_unique)
{
    struct wire parts = {0}, attributes = {0};
    model_weight(&parts, "w", DIMS(32), 1);
    model_weight(&parts, "w", DIMS(32), 1);
    expect_refused(finish(&parts), SL_ERR_INVALID, "\"w\"");
    model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
    expect_refused(finish(&parts), SL_ERR_INVALID, "\"x\"");
    model_node(&parts, "Add", "again", "", "x", NULL);
    expect_refused(finish(&parts), SL_ERR_INVALID, "node \"again\" (Add)");
    attribute_int(&attributes, "axis", 1);
    attribute_int(&attributes, "axis", 2);
    model_node(&parts, "Concat", "twice", "", "c", &attributes);
    expect_refused(finish(&parts), SL_ERR_INVALID, "node \"twice\" (Concat): two attributes");
}

/* Old models list initializers among the inputs. */
CASE(onnx_read__initializer_is_no_input)
{
    struct wire parts = {0};
    model_weight(&parts, "w", DIMS(32), 1);
    model_input(&parts, "w", FLOAT, DIMS(32));
    assert_int_equal(read_model(finish(&parts)), 0);
    assert_int_equal(graph.input_count, 1);
    assert_int_equal(value_of("w")->kind, SL_GRAPH_WEIGHT);
}

CASE(onnx_read__inputs)
{
    const int64_t *const refused[] = {
        DIMS(FREE, FREE),
        DIMS(FREE, 0),
        DIMS(FREE, 1LL << 31, 2),
        DIMS(FREE, 1LL << 40),
        DIMS(FREE, 1, 1, 1, 1, 1, 1, 1, 1),
        DIMS(4, 16), /* the other one is free */
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct wire parts = {0};
        model_input(&parts, "first", FLOAT, DIMS(FREE, 16));
        model_input(&parts, "wrong", FLOAT, refused[i]);
        expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "input \"wrong\"");
    }
    struct wire parts = {0};
    model_input(&parts, "wrong", FLOAT, &(const int64_t){END});
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "input \"wrong\"");
    model_input(&parts, "wrong", INT32, DIMS(FREE, 3));
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED, "tensor \"wrong\" has type 6");
    model_input(&parts, "x", FLOAT, DIMS(4, 16));
    model_node(&parts, "Relu", "last", "x", "y", NULL);
    model_output(&parts, "y");
    assert_int_equal(read_model(model_finish(&parts, 13)), 0);
    assert_int_equal(graph.fixed_rows, 4);
}

CASE(onnx_read__outputs)
{
    struct wire parts = {0};
    model_output(&parts, "nothing");
    expect_refused(finish(&parts), SL_ERR_INVALID, "output \"nothing\"");
    model_input(&parts, "x", FLOAT, DIMS(FREE, 16));
    expect_refused(model_finish(&parts, 13), SL_ERR_INVALID, "no output");
    model_node(&parts, "Relu", "last", "", "y", NULL);
    model_output(&parts, "y");
    expect_refused(model_finish(&parts, 13), SL_ERR_INVALID, "no input");
}

CASE(onnx_read__foreign_domain)
{
    struct wire parts = {0}, node = {0};
    wire_text(&node, 2, "c");
    wire_text(&node, 4, "FusedConv");
    wire_text(&node, 7, "com.microsoft");
    wire_message(&parts, 1, &node);
    expect_refused(finish(&parts), SL_ERR_UNSUPPORTED,
                   "node \"c\" (FusedConv): domain \"com.microsoft\"");
}

CASE(onnx_read__limits)
{
    struct wire parts = {0};
    for (uint32_t i = 0; i <= SL_GRAPH_NODES_MAX; i++) {
        wire_text(&parts, 1, "");
    }
    expect_refused(finish(&parts), SL_ERR_TOO_LARGE, "nodes");
    struct wire node = {0};
    for (uint32_t i = 0; i <= SL_GRAPH_OPERANDS_MAX; i++) {
        wire_text(&node, 1, "x");
    }
    wire_text(&node, 2, "c");
    wire_message(&parts, 1, &node);
    expect_refused(finish(&parts), SL_ERR_TOO_LARGE, "node \"c\"");
}

/* Each limit of the memory is kept, and nothing is used that was not there. */
CASE(onnx_read__memory_is_limited)
{
    struct wire model = model_mlp();
    int err = SL_ERR_NO_MEMORY;
    size_t bytes = 0;
    for (; err != 0; bytes += 512) {
        sl_graph_memory_fini(&memory);
        sl_graph_memory_init(&memory, bytes);
        err = sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason);
        assert_true(err == 0 || err == SL_ERR_NO_MEMORY || err == SL_ERR_INVALID);
    }
    assert_in_range(bytes, 4096, 65536);
    wire_free(&model);
}
