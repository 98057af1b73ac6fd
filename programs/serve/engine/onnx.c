#include "programs/serve/engine/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/key_index.h"
#include "onnx.pb-c.h"

/* The operators here have the same definition in all of these, but for what infer looks at: Softmax
 * before 13, and numbers that were attributes before they became inputs. */
#define OPSET_MIN      7
#define OPSET_MAX      25
#define ATTRIBUTES_MAX 64 /* of a node */

/* ONNX's TensorProto.DataType. */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_BFLOAT16 = 16
};

static const struct type {
    int32_t number;
    uint32_t item_bytes; /* in raw_data */
    uint32_t object_type;
} types[] = {{ONNX_FLOAT, 4, SL_OBJECT_F32},    {ONNX_INT64, 8, SL_OBJECT_I64},
             {ONNX_BOOL, 1, SL_OBJECT_BOOL},    {ONNX_FLOAT16, 2, SL_OBJECT_F32},
             {ONNX_BFLOAT16, 2, SL_OBJECT_F32}, {ONNX_DOUBLE, 8, SL_OBJECT_F32},
             {ONNX_UINT8, 1, SL_OBJECT_I64},    {ONNX_INT8, 1, SL_OBJECT_I64},
             {ONNX_UINT16, 2, SL_OBJECT_I64},   {ONNX_INT16, 2, SL_OBJECT_I64},
             {ONNX_INT32, 4, SL_OBJECT_I64}};

struct reader {
    struct sl_graph_memory *memory;
    struct sl_reason *reason;
    struct sl_graph *graph;
    struct sl_key_index names; /* hashes of the values' names, which so have the values' numbers */
    bool has_weights;
    const struct sl_onnx_files *files; /* NULL: the model is one file */
    /* Room for the operands and attributes of all nodes; what is not used yet. */
    struct sl_graph_value **operands;
    struct sl_graph_attribute *attributes;
};

static void *onnx_allocate(void *memory, size_t bytes)
{
    return sl_graph_memory_take(memory, bytes, 1);
}

static void onnx_release(void *memory, void *at)
{
}

static int onnx_fail_memory(struct reader *reader)
{
    return sl_reason_fail(reader->reason, SL_ERR_NO_MEMORY,
                          "no memory for the model, or it needs more than a file of its size may");
}

/* The text, or "" if the field is absent. */
static const char *onnx_text(const char *field)
{
    return field != NULL ? field : "";
}

static bool is_onnx_domain(const char *domain)
{
    return onnx_text(domain)[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static float widen_f16(uint16_t half)
{
    union {
        uint32_t bits;
        float f;
    } of = {.bits = (uint32_t)(half & 0x7fff) << 13};
    if ((half & 0x7c00) == 0x7c00) {
        of.bits |= 0x7f800000; /* infinity, NaN */
    } else {
        of.f *= 0x1p112f; /* the exponents' biases differ by 112; exact for subnormal ones too */
    }
    of.bits |= (uint32_t)(half & 0x8000) << 16;
    return of.f;
}

/* The elements of a tensor as the file has them. */
struct elements {
    const void *data;
    size_t bytes, item_bytes;
};

static struct elements find_elements(const Onnx__TensorProto *t, const struct type *type)
{
    if (t->raw_data.len > 0) {
        return (struct elements){t->raw_data.data, t->raw_data.len, type->item_bytes};
    }
    switch (t->data_type) {
    case ONNX_FLOAT:
        return (struct elements){t->float_data, t->n_float_data * 4, 4};
    case ONNX_INT64:
        return (struct elements){t->int64_data, t->n_int64_data * 8, 8};
    case ONNX_DOUBLE:
        return (struct elements){t->double_data, t->n_double_data * 8, 8};
    default:
        return (struct elements){t->int32_data, t->n_int32_data * 4, 4};
    }
}

/* Converts the elements to the value's type. */
static void convert(int32_t type, const struct elements *e, void *to)
{
    for (size_t i = 0; i < e->bytes / e->item_bytes; i++) {
        const bool is_signed = type == ONNX_INT8 || type == ONNX_INT16 || type == ONNX_INT32;
        const size_t shift = 64 - 8 * e->item_bytes;
        double wide;
        uint64_t x = 0;
        memcpy(&x, (const uint8_t *)e->data + i * e->item_bytes, e->item_bytes);
        if (type == ONNX_BOOL) {
            ((uint8_t *)to)[i] = x != 0;
        } else if (type == ONNX_FLOAT16) {
            ((float *)to)[i] = widen_f16((uint16_t)x);
        } else if (type == ONNX_BFLOAT16) {
            ((uint32_t *)to)[i] = (uint32_t)x << 16;
        } else if (type == ONNX_DOUBLE) {
            memcpy(&wide, &x, sizeof wide);
            ((float *)to)[i] = (float)wide;
        } else {
            ((int64_t *)to)[i] = is_signed ? (int64_t)(x << shift) >> shift : (int64_t)x;
        }
    }
}

/* Sets the type of the value. */
static int read_type(struct reader *reader, int32_t number, struct sl_graph_value *value,
                     const struct type **out)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].number == number && (value->kind != SL_GRAPH_INPUT || i <= 2)) {
            value->type = types[i].object_type;
            *out = &types[i];
            return 0;
        }
    }
    return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                          "tensor \"%s\" has type %d of ONNX: supported are 1 (float), 7 (int64) "
                          "and 9 (bool); of stored tensors also 2 to 6 (shorter integers), 10, 11 "
                          "and 16 (float16, double, bfloat16)",
                          value->name, number);
}

static int read_shape(struct reader *reader, const Onnx__TensorProto *t,
                      struct sl_graph_value *value)
{
    if (t->n_dims > SL_GRAPH_RANK_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" has %zu dimensions: at most %d are supported",
                              value->name, t->n_dims, SL_GRAPH_RANK_MAX);
    }
    value->rank = (uint32_t)t->n_dims;
    for (size_t i = 0; i < t->n_dims; i++) {
        value->shape[i] = (uint64_t)t->dims[i];
    }
    return sl_graph_measure(value)
               ? 0
               : sl_reason_fail(reader->reason, SL_ERR_TOO_LARGE,
                                "tensor \"%s\" has no element, or more than 2^31", value->name);
}

/* A number of 0 to 2^63 - 1. */
static bool read_number(const char *digits, uint64_t *out)
{
    char *end;
    *out = strtoull(digits, &end, 10);
    return digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && *out <= INT64_MAX;
}

/* Gets the elements that lie in another file. */
static int read_external(struct reader *reader, const Onnx__TensorProto *t, const char *name,
                         size_t bytes, struct elements *out)
{
    const char *location = "";
    uint64_t offset = 0, length = bytes;
    bool is_valid = true;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = onnx_text(t->external_data[i]->key);
        const char *value = onnx_text(t->external_data[i]->value);
        location = strcmp(key, "location") == 0 ? value : location;
        is_valid = is_valid && (strcmp(key, "offset") != 0 || read_number(value, &offset));
        is_valid = is_valid && (strcmp(key, "length") != 0 || read_number(value, &length));
    }
    if (reader->files == NULL || !is_valid || length != bytes) {
        return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                              "tensor \"%s\" is in another file: accepted is that only of a file "
                              "beside the model, with an offset, and a length of %zu bytes",
                              name, bytes);
    }
    struct sl_reason why;
    out->bytes = bytes;
    const int err =
        reader->files->read(reader->files->context, location, offset, bytes, &out->data, &why);
    return err == 0 ? 0 : sl_reason_fail(reader->reason, err, "tensor \"%s\": %s", name, why.text);
}

/* Fills the value, all but its name. */
static int read_tensor(struct reader *reader, const Onnx__TensorProto *t,
                       struct sl_graph_value *value)
{
    const struct type *type;
    int err = read_type(reader, t->data_type, value, &type);
    err = err != 0 ? err : read_shape(reader, t, value);
    if (err != 0) {
        return err;
    }
    const bool is_f32 = value->type == SL_OBJECT_F32;
    const bool is_weight = sl_onnx_stored_kind(value) == SL_GRAPH_WEIGHT;
    if (!is_f32 && value->bytes > SL_ONNX_CONSTANT_BYTES_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" has %" PRIu64
                              " bytes: only one of float may have more than %u",
                              value->name, value->bytes, SL_ONNX_CONSTANT_BYTES_MAX);
    }
    const bool has_data = !is_weight || reader->has_weights;
    struct elements e = find_elements(t, type);
    if (t->data_location != 0) {
        e.item_bytes = type->item_bytes;
        err = read_external(reader, t, value->name,
                            sl_graph_elements(value, 0, value->rank) * e.item_bytes, &e);
    }
    if (err != 0) {
        return err;
    }
    const uint64_t expected =
        has_data ? sl_graph_elements(value, 0, value->rank) * e.item_bytes : 0;
    if (e.bytes != expected) {
        return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                              "tensor \"%s\" has %zu bytes of data, but its shape takes %" PRIu64,
                              value->name, e.bytes, expected);
    }
    value->kind = sl_onnx_stored_kind(value);
    value->data = e.data;
    if (!has_data || type->number == ONNX_FLOAT || type->number == ONNX_INT64) {
        return 0;
    }
    void *to = sl_graph_memory_take(reader->memory, value->bytes, 1);
    if (to == NULL) {
        return onnx_fail_memory(reader);
    }
    convert(type->number, &e, to);
    value->data = to;
    return 0;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* NULL: there is no value of this name yet. */
static struct sl_graph_value *onnx_find_value(const struct reader *reader, const char *name)
{
    uint64_t number;
    const bool is_known =
        sl_key_index_find(&reader->names, sl_hash_bytes(name, strlen(name), 0), &number);
    struct sl_graph_value *value = is_known ? &reader->graph->values[number] : NULL;
    return is_known && strcmp(value->name, name) == 0 ? value : NULL;
}

/* Appends a value, for which there is room. */
static int onnx_add_value(struct reader *reader, const char *name, enum sl_graph_kind kind,
                          struct sl_graph_value **out)
{
    struct sl_graph *graph = reader->graph;
    uint64_t number;
    if (sl_key_index_add(&reader->names, sl_hash_bytes(name, strlen(name), 0), &number) != 0) {
        return onnx_fail_memory(reader);
    }
    if (name[0] == '\0' || number != graph->value_count) {
        return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                              "value \"%s\": each value has a name that no other one has", name);
    }
    *out = &graph->values[graph->value_count++];
    **out = (struct sl_graph_value){.name = name, .kind = kind};
    return 0;
}

static int read_initializer(struct reader *reader, const Onnx__TensorProto *t)
{
    struct sl_graph_value *value;
    int err = onnx_add_value(reader, onnx_text(t->name), SL_GRAPH_WEIGHT, &value);
    return err != 0 ? err : read_tensor(reader, t, value);
}

/* Reads type and shape of an input. Its first dimension, the rows, is free or fixed. */
static int read_input(struct reader *reader, const Onnx__ValueInfoProto *info,
                      struct sl_graph_value *value)
{
    const Onnx__TypeProto__Tensor *tensor = info->type != NULL ? info->type->tensor_type : NULL;
    const size_t rank = tensor != NULL && tensor->shape != NULL ? tensor->shape->n_dim : 0;
    const struct type *type;
    struct sl_graph *graph = reader->graph;
    if (rank == 0 || rank > SL_GRAPH_RANK_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "input \"%s\": accepted is a tensor with 1 to %d dimensions, of "
                              "which the first one counts rows",
                              value->name, SL_GRAPH_RANK_MAX);
    }
    int err = read_type(reader, tensor->elem_type, value, &type);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < rank; i++) {
        const int64_t size = tensor->shape->dim[i]->dim_value;
        value->shape[i] = size > 0 ? (uint64_t)size : 0; /* 0: free */
    }
    const uint64_t rows = value->shape[0];
    value->has_rows = rows == 0;
    value->row_outer = value->has_rows;
    value->rank = (uint32_t)rank;
    value->shape[0] = rows == 0 ? 1 : rows;
    if (!sl_graph_measure(value) || (graph->input_count > 0 && rows != graph->fixed_rows)) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "input \"%s\": only the first dimension, that of rows, may be free; "
                              "it is the same for all inputs; others are 1 to 2^31 together",
                              value->name);
    }
    graph->fixed_rows = (uint32_t)rows;
    return 0;
}

/* Inputs that are initializers too, as older models have them, are no inputs. */
static int read_inputs(struct reader *reader, const Onnx__GraphProto *g)
{
    struct sl_graph *graph = reader->graph;
    int err = 0;
    graph->inputs = reader->operands;
    for (size_t i = 0; err == 0 && i < g->n_input; i++) {
        struct sl_graph_value *value;
        const char *name = onnx_text(g->input[i]->name);
        value = onnx_find_value(reader, name);
        if (value != NULL && value->kind != SL_GRAPH_INPUT) {
            continue;
        }
        err = onnx_add_value(reader, name, SL_GRAPH_INPUT, &value);
        err = err != 0 ? err : read_input(reader, g->input[i], value);
        *reader->operands++ = value;
        graph->input_count++;
    }
    return err == 0 && graph->input_count == 0
               ? sl_reason_fail(reader->reason, SL_ERR_INVALID, "the model has no input")
               : err;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* Fails with the node's name. `node` needs only its name and op_type. */
#define FAIL_NODE(reader, err, node, format, ...)                                                  \
    sl_reason_fail((reader)->reason, (err), "node \"%s\" (%s): " format, (node)->name,             \
                   (node)->op_type, ##__VA_ARGS__)

static int read_attributes(struct reader *reader, const Onnx__NodeProto *from,
                           struct sl_graph_node *node)
{
    node->attributes = reader->attributes;
    for (size_t i = 0; i < from->n_attribute; i++) {
        const Onnx__AttributeProto *a = from->attribute[i];
        if (sl_graph_attribute_find(node, onnx_text(a->name)) != NULL) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node, "two attributes \"%s\"", a->name);
        }
        *reader->attributes++ =
            (struct sl_graph_attribute){.name = onnx_text(a->name),
                                        .type = (enum sl_graph_attribute_type)a->type,
                                        .f = a->f,
                                        .i = a->i,
                                        .text = onnx_text(a->s),
                                        .ints = a->ints,
                                        .count = (uint32_t)a->n_ints};
        node->attribute_count++;
        if (a->type == SL_GRAPH_TENSOR && a->t != NULL &&
            strcmp(node->op_type, "ConstantOfShape") == 0) {
            struct sl_graph_value *value = sl_graph_memory_take(reader->memory, 1, sizeof *value);
            if (value == NULL) {
                return onnx_fail_memory(reader);
            }
            value->name = a->name;
            reader->attributes[-1].tensor = value;
            const int err = read_tensor(reader, a->t, value);
            if (err != 0) {
                return err;
            }
        }
    }
    return 0;
}

/* Finds the values that the node reads, and adds those that it computes. */
static int connect(struct reader *reader, const Onnx__NodeProto *from, struct sl_graph_node *node)
{
    node->inputs = reader->operands;
    node->input_count = (uint32_t)from->n_input;
    for (size_t i = 0; i < from->n_input; i++) {
        const char *name = from->input[i];
        struct sl_graph_value *value = onnx_find_value(reader, name);
        if (name[0] != '\0' && value == NULL) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node,
                             "input \"%s\" is no input or initializer of the model, and no node "
                             "before this one computes it: nodes are in topological order, without "
                             "a cycle",
                             name);
        }
        if (value != NULL) {
            value->uses++;
        }
        *reader->operands++ = value;
    }
    node->outputs = reader->operands;
    node->output_count = (uint32_t)from->n_output;
    for (size_t i = 0; i < from->n_output; i++) {
        struct sl_graph_value *value = NULL;
        const char *name = from->output[i];
        if (name[0] != '\0' && onnx_add_value(reader, name, SL_GRAPH_COMPUTED, &value) != 0) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node, "two values have the name \"%s\"", name);
        }
        if (value != NULL) {
            value->producer = node;
        }
        *reader->operands++ = value;
    }
    return 0;
}

/* A Constant becomes the value that is its output. */
static int read_constant(struct reader *reader, const Onnx__NodeProto *from,
                         struct sl_graph_node *node)
{
    static const struct {
        const char *name;
        int32_t type; /* ONNX's AttributeProto.AttributeType */
    } forms[] = {
        {"value", 4}, {"value_float", 1}, {"value_floats", 6}, {"value_int", 2}, {"value_ints", 7}};
    const Onnx__AttributeProto *a = from->n_attribute == 1 ? from->attribute[0] : NULL;
    Onnx__TensorProto t = ONNX__TENSOR_PROTO__INIT;
    uint32_t form = 0;
    while (form < 5 && (a == NULL || strcmp(onnx_text(a->name), forms[form].name) != 0 ||
                        a->type != forms[form].type)) {
        form++;
    }
    if (form == 1 || form == 2) {
        t.float_data = form == 1 ? (float *)&a->f : a->floats;
        t.n_float_data = form == 1 ? 1 : a->n_floats;
    } else if (form == 3 || form == 4) {
        t.int64_data = form == 3 ? (int64_t *)&a->i : a->ints;
        t.n_int64_data = form == 3 ? 1 : a->n_ints;
    }
    int64_t count = (int64_t)(t.n_float_data + t.n_int64_data);
    t.dims = &count;
    t.n_dims = form == 2 || form == 4;
    t.data_type = form < 3 ? ONNX_FLOAT : ONNX_INT64;
    const Onnx__TensorProto *tensor = form == 0 ? a->t : form < 5 ? &t : NULL;
    if (tensor == NULL || node->output_count != 1 || node->outputs[0] == NULL) {
        return FAIL_NODE(reader, SL_ERR_UNSUPPORTED, node,
                         "accepted is one output, and one attribute: \"value\", a dense tensor, or "
                         "\"value_float\", \"value_floats\", \"value_int\" or \"value_ints\"");
    }
    node->outputs[0]->producer = NULL;
    return read_tensor(reader, tensor, node->outputs[0]);
}

/* Reads a node; a Constant becomes the value that is its output. */
static int read_node(struct reader *reader, Onnx__NodeProto *from)
{
    struct sl_graph *graph = reader->graph;
    struct sl_graph_node *node = &graph->nodes[graph->node_count];
    const bool has_name = onnx_text(from->name)[0] != '\0';
    *node = (struct sl_graph_node){.op_type = onnx_text(from->op_type), .source = from};
    node->name = has_name ? from->name : from->n_output > 0 ? from->output[0] : "";
    if (!is_onnx_domain(from->domain)) {
        return FAIL_NODE(reader, SL_ERR_UNSUPPORTED, node, "domain \"%s\" is not supported",
                         from->domain);
    }
    if (from->n_input > SL_GRAPH_OPERANDS_MAX || from->n_output > SL_GRAPH_OPERANDS_MAX ||
        from->n_attribute > ATTRIBUTES_MAX) {
        return FAIL_NODE(reader, SL_ERR_TOO_LARGE, node,
                         "%zu inputs, %zu outputs, %zu attributes: at most %d, %d and %d are "
                         "accepted",
                         from->n_input, from->n_output, from->n_attribute, SL_GRAPH_OPERANDS_MAX,
                         SL_GRAPH_OPERANDS_MAX, ATTRIBUTES_MAX);
    }
    int err = connect(reader, from, node);
    if (err == 0 && strcmp(node->op_type, "Constant") == 0) {
        return read_constant(reader, from, node);
    }
    graph->node_count++;
    return err != 0 ? err : read_attributes(reader, from, node);
}

static int read_outputs(struct reader *reader, const Onnx__GraphProto *g)
{
    struct sl_graph *graph = reader->graph;
    graph->outputs = reader->operands;
    graph->output_count = (uint32_t)g->n_output;
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = onnx_text(g->output[i]->name);
        struct sl_graph_value *value = onnx_find_value(reader, name);
        if (value == NULL || value->kind != SL_GRAPH_COMPUTED) {
            return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                                  "output \"%s\" of the model is the output of no node", name);
        }
        value->is_output = true;
        value->uses++;
        *reader->operands++ = value;
    }
    return g->n_output == 0
               ? sl_reason_fail(reader->reason, SL_ERR_INVALID, "the model has no output")
               : 0;
}

/* ---- Model ----------------------------------------------------------------------------------- */

static int read_opset(struct reader *reader, const Onnx__ModelProto *model)
{
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = model->opset_import[i];
        if (is_onnx_domain(set->domain)) {
            if (set->version < OPSET_MIN || set->version > OPSET_MAX) {
                return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                                      "the model has opset %" PRId64 ": supported are %d to %d",
                                      set->version, OPSET_MIN, OPSET_MAX);
            }
            reader->graph->opset = (uint32_t)set->version;
            return 0;
        }
    }
    return sl_reason_fail(reader->reason, SL_ERR_INVALID, "the model names no opset of ONNX");
}

/* Makes room for all values, nodes, operands and attributes. */
static int prepare(struct reader *reader, const Onnx__GraphProto *g)
{
    struct sl_graph *graph = reader->graph;
    size_t values = g->n_input + g->n_initializer, operands = g->n_input + g->n_output;
    size_t attributes = 0;
    for (size_t i = 0; i < g->n_node; i++) {
        values += g->node[i]->n_output;
        operands += g->node[i]->n_input + g->node[i]->n_output;
        attributes += g->node[i]->n_attribute;
    }
    if (g->n_node > SL_GRAPH_NODES_MAX || values > SL_GRAPH_VALUES_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_TOO_LARGE,
                              "the model has %zu nodes and %zu values: at most %d and %d are "
                              "accepted",
                              g->n_node, values, SL_GRAPH_NODES_MAX, SL_GRAPH_VALUES_MAX);
    }
    graph->values = sl_graph_memory_take(reader->memory, values, sizeof *graph->values);
    graph->nodes = sl_graph_memory_take(reader->memory, g->n_node, sizeof *graph->nodes);
    reader->operands = sl_graph_memory_take(reader->memory, operands, sizeof *reader->operands);
    reader->attributes =
        sl_graph_memory_take(reader->memory, attributes, sizeof *reader->attributes);
    return graph->values == NULL || graph->nodes == NULL || reader->operands == NULL ||
                   reader->attributes == NULL
               ? onnx_fail_memory(reader)
               : 0;
}

enum sl_graph_kind sl_onnx_stored_kind(const struct sl_graph_value *value)
{
    return value->type == SL_OBJECT_F32 && value->bytes > SL_ONNX_CONSTANT_BYTES
               ? SL_GRAPH_WEIGHT
               : SL_GRAPH_CONSTANT;
}

int sl_onnx_read(const void *bytes, size_t count, bool has_weights,
                 const struct sl_onnx_files *files, struct sl_graph_memory *memory,
                 struct sl_graph *out, struct sl_reason *reason)
{
    ProtobufCAllocator allocator = {
        .alloc = onnx_allocate, .free = onnx_release, .allocator_data = memory};
    Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, count, bytes);
    struct sl_graph graph = {.source = model};
    struct reader reader = {.memory = memory,
                            .reason = reason,
                            .graph = &graph,
                            .has_weights = has_weights,
                            .files = files};
    if (model == NULL || model->graph == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the bytes are no ONNX model, or end too early, or need too much "
                              "memory");
    }
    int err = read_opset(&reader, model);
    err = err != 0 ? err : prepare(&reader, model->graph);
    for (size_t i = 0; err == 0 && i < model->graph->n_initializer; i++) {
        err = read_initializer(&reader, model->graph->initializer[i]);
    }
    err = err != 0 ? err : read_inputs(&reader, model->graph);
    for (size_t i = 0; err == 0 && i < model->graph->n_node; i++) {
        err = read_node(&reader, model->graph->node[i]);
    }
    err = err != 0 ? err : read_outputs(&reader, model->graph);
    sl_key_index_fini(&reader.names);
    if (err == 0) {
        *out = graph;
    }
    return err;
}

const char *sl_onnx_metadata(const struct sl_graph *graph, const char *key)
{
    const Onnx__ModelProto *model = graph->source;
    for (size_t i = 0; i < model->n_metadata_props; i++) {
        if (strcmp(onnx_text(model->metadata_props[i]->key), key) == 0) {
            return onnx_text(model->metadata_props[i]->value);
        }
    }
    return NULL;
}

/* ---- Write ----------------------------------------------------------------------------------- */

/* Names of values; "" for absent ones. NULL: no memory. */
static char **make_names(struct sl_graph_value *const *values, uint32_t count,
                         struct sl_graph_memory *memory)
{
    static char absent[1];
    char **names = sl_graph_memory_take(memory, count, sizeof *names);
    for (uint32_t i = 0; names != NULL && i < count; i++) {
        names[i] = values[i] == NULL ? absent : (char *)values[i]->name;
    }
    return names;
}

/* Writes the node's operands to the message that it was read from; the rest is the same. */
static Onnx__NodeProto *write_node(const struct sl_graph_node *node, struct sl_graph_memory *memory)
{
    Onnx__NodeProto *to = node->source;
    to->base.n_unknown_fields = 0;
    to->n_input = node->input_count;
    to->input = make_names(node->inputs, node->input_count, memory);
    to->n_output = node->output_count;
    to->output = make_names(node->outputs, node->output_count, memory);
    return to->input != NULL && to->output != NULL ? to : NULL;
}

static void write_tensor(const struct sl_graph_value *value, bool has_data, Onnx__TensorProto *to)
{
    *to = (Onnx__TensorProto)ONNX__TENSOR_PROTO__INIT;
    to->name = (char *)value->name;
    to->has_data_type = true;
    to->data_type = value->type == SL_OBJECT_F32   ? ONNX_FLOAT
                    : value->type == SL_OBJECT_I64 ? ONNX_INT64
                                                   : ONNX_BOOL;
    to->n_dims = value->rank;
    to->dims = (int64_t *)value->shape;
    to->has_raw_data = has_data;
    if (has_data) {
        to->raw_data = (ProtobufCBinaryData){.len = value->bytes, .data = (uint8_t *)value->data};
    }
}

/* Writes what is stored: initializers, and Constant nodes of the file. */
static bool write_initializers(const struct sl_graph *graph, bool has_weights,
                               struct sl_graph_memory *memory, Onnx__GraphProto *to)
{
    Onnx__TensorProto *tensors = sl_graph_memory_take(memory, graph->value_count, sizeof *tensors);
    to->n_initializer = 0;
    to->initializer = sl_graph_memory_take(memory, graph->value_count, sizeof *to->initializer);
    if (tensors == NULL || to->initializer == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct sl_graph_value *value = &graph->values[i];
        if (sl_graph_is_stored(value)) {
            write_tensor(value, value->kind == SL_GRAPH_CONSTANT || has_weights, &tensors[i]);
            to->initializer[to->n_initializer++] = &tensors[i];
        }
    }
    return true;
}

int sl_onnx_write(const struct sl_graph *graph, bool has_weights, struct sl_graph_memory *memory,
                  uint8_t **bytes, size_t *count)
{
    Onnx__ModelProto *model = graph->source;
    Onnx__GraphProto *to = model->graph;
    model->base.n_unknown_fields = to->base.n_unknown_fields = 0;
    model->n_metadata_props = has_weights ? model->n_metadata_props : 0; /* graph_image.h */
    bool is_done = write_initializers(graph, has_weights, memory, to);
    to->n_node = graph->node_count;
    for (uint32_t i = 0; is_done && i < graph->node_count; i++) {
        to->node[i] = write_node(&graph->nodes[i], memory);
        is_done = to->node[i] != NULL;
    }
    const size_t listed_count = to->n_input; /* those that are initializers are not written */
    to->n_input = 0;
    for (size_t i = 0; to->n_input < graph->input_count && i < listed_count; i++) {
        if (to->input[i]->name == graph->inputs[to->n_input]->name) {
            to->input[to->n_input++] = to->input[i];
        }
    }
    uint8_t *at = NULL;
    if (is_done) {
        at = sl_graph_memory_take(memory, onnx__model_proto__get_packed_size(model), 1);
    }
    if (at == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *count = onnx__model_proto__pack(model, at);
    *bytes = at;
    return 0;
}
