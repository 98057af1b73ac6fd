#include "onnx_model.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

static void append(struct wire *wire, const void *bytes, size_t count)
{
    if (wire->count + count > wire->capacity) {
        wire->capacity = 2 * (wire->count + count) + 64;
        wire->bytes = realloc(wire->bytes, wire->capacity);
        sl_assert(wire->bytes != NULL);
    }
    if (count > 0) {
        memcpy(wire->bytes + wire->count, bytes, count);
    }
    wire->count += count;
}

static void append_varint(struct wire *wire, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        append(wire, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void wire_number(struct wire *wire, uint32_t field, uint64_t value)
{
    append_varint(wire, (uint64_t)field << 3);
    append_varint(wire, value);
}

void wire_float(struct wire *wire, uint32_t field, float value)
{
    append_varint(wire, (uint64_t)field << 3 | 5);
    append(wire, &value, sizeof value);
}

void wire_bytes(struct wire *wire, uint32_t field, const void *bytes, size_t count)
{
    append_varint(wire, (uint64_t)field << 3 | 2);
    append_varint(wire, count);
    append(wire, bytes, count);
}

void wire_text(struct wire *wire, uint32_t field, const char *text)
{
    wire_bytes(wire, field, text, strlen(text));
}

void wire_message(struct wire *wire, uint32_t field, struct wire *message)
{
    wire_bytes(wire, field, message->bytes, message->count);
    wire_free(message);
}

void wire_free(struct wire *wire)
{
    free(wire->bytes);
    *wire = (struct wire){0};
}

void model_input(struct wire *graph, const char *name, int type, const int64_t *dims)
{
    struct wire shape = {0}, tensor = {0}, of = {0}, info = {0};
    for (; *dims != END; dims++) {
        struct wire dim = {0};
        if (*dims == FREE) {
            wire_text(&dim, 2, "N");
        } else {
            wire_number(&dim, 1, (uint64_t)*dims);
        }
        wire_message(&shape, 1, &dim);
    }
    wire_number(&tensor, 1, (uint64_t)type);
    wire_message(&tensor, 2, &shape);
    wire_message(&of, 1, &tensor);
    wire_text(&info, 1, name);
    wire_message(&info, 2, &of);
    wire_message(graph, 11, &info);
}

void model_output(struct wire *graph, const char *name)
{
    struct wire info = {0};
    wire_text(&info, 1, name);
    wire_message(graph, 12, &info);
}

void model_tensor(struct wire *graph, const char *name, int type, const int64_t *dims,
                  const void *raw, size_t bytes)
{
    struct wire tensor = {0};
    for (; *dims != END; dims++) {
        wire_number(&tensor, 1, (uint64_t)*dims);
    }
    wire_number(&tensor, 2, (uint64_t)type);
    wire_text(&tensor, 8, name);
    if (raw != NULL) {
        wire_bytes(&tensor, 9, raw, bytes);
    }
    wire_message(graph, 5, &tensor);
}

void model_weight(struct wire *graph, const char *name, const int64_t *dims, uint64_t seed)
{
    size_t count = 1;
    for (const int64_t *dim = dims; *dim != END; dim++) {
        count *= (size_t)*dim;
    }
    float *values = calloc(count, sizeof *values);
    sl_assert(values != NULL);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(sl_hash_random(&seed) % 2001) / 1000 - 1;
    }
    model_tensor(graph, name, FLOAT, dims, values, count * sizeof *values);
    free(values);
}

static void append_names(struct wire *node, uint32_t field, const char *names)
{
    for (const char *end; *names != '\0'; names = *end == ',' ? end + 1 : end) {
        end = strchrnul(names, ',');
        wire_bytes(node, field, names, (size_t)(end - names));
    }
}

void model_node(struct wire *graph, const char *op_type, const char *name, const char *inputs,
                const char *outputs, struct wire *attributes)
{
    struct wire node = {0};
    append_names(&node, 1, inputs);
    append_names(&node, 2, outputs);
    wire_text(&node, 3, name);
    wire_text(&node, 4, op_type);
    if (attributes != NULL) {
        append(&node, attributes->bytes, attributes->count);
        wire_free(attributes);
    }
    wire_message(graph, 1, &node);
}

void attribute_int(struct wire *attributes, const char *name, int64_t value)
{
    struct wire a = {0};
    wire_text(&a, 1, name);
    wire_number(&a, 3, (uint64_t)value);
    wire_number(&a, 20, 2);
    wire_message(attributes, 5, &a);
}

void attribute_ints(struct wire *attributes, const char *name, const int64_t *values)
{
    struct wire a = {0};
    wire_text(&a, 1, name);
    for (; *values != END; values++) {
        wire_number(&a, 8, (uint64_t)*values);
    }
    wire_number(&a, 20, 7);
    wire_message(attributes, 5, &a);
}

void attribute_float(struct wire *attributes, const char *name, float value)
{
    struct wire a = {0};
    wire_text(&a, 1, name);
    wire_float(&a, 2, value);
    wire_number(&a, 20, 1);
    wire_message(attributes, 5, &a);
}

void attribute_message(struct wire *attributes, const char *name, uint32_t field, int type,
                       struct wire *message)
{
    struct wire a = {0};
    wire_text(&a, 1, name);
    wire_message(&a, field, message);
    wire_number(&a, 20, (uint64_t)type);
    wire_message(attributes, 5, &a);
}

struct wire model_finish(struct wire *graph, int64_t opset)
{
    struct wire model = {0}, set = {0};
    wire_number(&model, 1, 8);
    wire_text(&model, 6, "an unknown field: doc_string");
    wire_message(&model, 7, graph);
    if (opset != 0) {
        wire_text(&set, 1, "");
        wire_number(&set, 2, (uint64_t)opset);
        wire_message(&model, 8, &set);
    }
    return model;
}

struct wire model_mlp(void)
{
    struct wire graph = {0};
    model_input(&graph, "x", FLOAT, DIMS(FREE, 16));
    model_output(&graph, "y");
    model_weight(&graph, "w1", DIMS(16, 32), 1);
    model_weight(&graph, "b1", DIMS(32), 2);
    model_weight(&graph, "w2", DIMS(32, 10), 3);
    model_node(&graph, "Gemm", "first", "x,w1,b1", "h", NULL);
    model_node(&graph, "Relu", "relu", "h", "r", NULL);
    model_node(&graph, "MatMul", "second", "r,w2", "y", NULL);
    return model_finish(&graph, 13);
}
