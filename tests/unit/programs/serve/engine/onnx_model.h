/* Makes the bytes of ONNX models, valid and invalid ones, by the numbers of onnx/onnx.proto. */
#ifndef SL_TESTS_UNIT_PROGRAMS_SERVE_ENGINE_ONNX_MODEL_H
#define SL_TESTS_UNIT_PROGRAMS_SERVE_ENGINE_ONNX_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct wire {
    uint8_t *bytes;
    size_t count, capacity;
};

void wire_number(struct wire *wire, uint32_t field, uint64_t value);
void wire_float(struct wire *wire, uint32_t field, float value);
void wire_bytes(struct wire *wire, uint32_t field, const void *bytes, size_t count);
void wire_text(struct wire *wire, uint32_t field, const char *text);
/* Frees the message. */
void wire_message(struct wire *wire, uint32_t field, struct wire *message);
void wire_free(struct wire *wire);

/* ONNX's data types. */
enum {
    FLOAT = 1,
    UINT8 = 2,
    INT8 = 3,
    INT32 = 6,
    INT64 = 7,
    BOOL = 9,
    FLOAT16 = 10,
    DOUBLE = 11,
    COMPLEX128 = 15,
    BFLOAT16 = 16
};

/* Dimensions: as many as come before END. FREE: a named one. */
#define DIMS(...) ((const int64_t[]){__VA_ARGS__, END})
#define FREE      (-7777)
#define END       INT64_MIN

/* Parts of the graph, appended to its message. */
void model_input(struct wire *graph, const char *name, int type, const int64_t *dims);
void model_output(struct wire *graph, const char *name);
/* raw: NULL: no data. */
void model_tensor(struct wire *graph, const char *name, int type, const int64_t *dims,
                  const void *raw, size_t bytes);
/* A tensor of f32 with elements from a seed. */
void model_weight(struct wire *graph, const char *name, const int64_t *dims, uint64_t seed);
/* inputs, outputs: "a,b"; an empty word is an absent one. attributes: freed; or NULL. */
void model_node(struct wire *graph, const char *op_type, const char *name, const char *inputs,
                const char *outputs, struct wire *attributes);

/* Attributes of a node. */
void attribute_int(struct wire *attributes, const char *name, int64_t value);
void attribute_ints(struct wire *attributes, const char *name, const int64_t *values);
void attribute_float(struct wire *attributes, const char *name, float value);
void attribute_message(struct wire *attributes, const char *name, uint32_t field, int type,
                       struct wire *message);

/* The whole model; frees the graph's message. opset 0: none. */
struct wire model_finish(struct wire *graph, int64_t opset);

/* x [N, 16] -> Gemm (w1, b1) -> Relu -> MatMul (w2) -> y [N, 10]. */
struct wire model_mlp(void);

#endif
