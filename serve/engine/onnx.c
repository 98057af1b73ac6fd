#include "serve/engine/onnx.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"
#include "core/key_index.h"
#include "onnx.pb-c.h"

#define OPSET_MIN      11
#define OPSET_MAX      17
#define ATTRIBUTES_MAX 64 /* of a node */

/* ONNX's TensorProto.DataType. */
enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9, ONNX_FLOAT16 = 10, ONNX_BFLOAT16 = 16 };

struct reader {
    struct sl_graph_memory *memory;
    struct sl_reason *reason;
    struct sl_graph *graph;
    struct sl_key_index names; /* hashes of the values' names, which so have the values' numbers */
    bool has_weights;
};

static void *allocate(void *memory, size_t bytes)
{
    return sl_graph_memory_take(memory, bytes, 1);
}

static void release(void *memory, void *at)
{
}

static int fail_memory(struct reader *reader)
{
    return sl_reason_fail(reader->reason, SL_ERR_NO_MEMORY,
                          "no memory for the model, or it needs more than a file of its size may");
}

/* The text, or "" if the field is absent. */
static const char *text(const char *field)
{
    return field != NULL ? field : "";
}

static bool is_onnx_domain(const char *domain)
{
    return text(domain)[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
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
    const void *data; /* NULL: none */
    size_t count, item_bytes;
    bool is_whole; /* `data` is a multiple of an item */
};

static struct elements find_elements(const Onnx__TensorProto *t)
{
    struct elements e = {.is_whole = true};
    const bool is_f32 = t->data_type == ONNX_FLOAT, is_i64 = t->data_type == ONNX_INT64;
    if (t->has_raw_data && t->raw_data.len > 0) {
        e.item_bytes = is_f32 ? 4 : is_i64 ? 8 : t->data_type == ONNX_BOOL ? 1 : 2;
        e.data = t->raw_data.data;
        e.count = t->raw_data.len / e.item_bytes;
        e.is_whole = t->raw_data.len % e.item_bytes == 0;
    } else if (is_f32) {
        e.data = t->float_data;
        e.count = t->n_float_data;
        e.item_bytes = 4;
    } else if (is_i64) {
        e.data = t->int64_data;
        e.count = t->n_int64_data;
        e.item_bytes = 8;
    } else {
        e.data = t->int32_data;
        e.count = t->n_int32_data;
        e.item_bytes = 4;
    }
    return e;
}

static uint32_t element(const struct elements *e, size_t i)
{
    return e->item_bytes == 1   ? ((const uint8_t *)e->data)[i]
           : e->item_bytes == 2 ? ((const uint16_t *)e->data)[i]
                                : ((const uint32_t *)e->data)[i];
}

/* Converts the elements to the value's type, in memory of their own. */
static void *convert(struct reader *reader, const Onnx__TensorProto *t, const struct elements *e,
                     uint64_t bytes)
{
    void *to = sl_graph_memory_take(reader->memory, bytes + SL_ONNX_CONSTANT_BYTES, 1);
    if (to == NULL) {
        return NULL;
    }
    if (t->data_type == ONNX_FLOAT || t->data_type == ONNX_INT64) {
        return memcpy(to, e->data, bytes);
    }
    for (size_t i = 0; i < e->count; i++) {
        const uint32_t x = element(e, i);
        if (t->data_type == ONNX_BOOL) {
            ((uint8_t *)to)[i] = x != 0;
        } else if (t->data_type == ONNX_FLOAT16) {
            ((float *)to)[i] = widen_f16((uint16_t)x);
        } else {
            ((uint32_t *)to)[i] = x << 16;
        }
    }
    return to;
}

/* Sets the type of the value. */
static int read_type(struct reader *reader, int32_t type, struct sl_graph_value *value)
{
    switch (type) {
    case ONNX_FLOAT:
        value->type = SL_OBJECT_F32;
        return 0;
    case ONNX_INT64:
        value->type = SL_OBJECT_I64;
        return 0;
    case ONNX_BOOL:
        value->type = SL_OBJECT_BOOL;
        return 0;
    default:
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" has type %d of ONNX: supported are 1 (float), 7 "
                              "(int64) and 9 (bool); of stored tensors also 10 and 16 (float16, "
                              "bfloat16)",
                              value->name, type);
    }
}

static int read_shape(struct reader *reader, const Onnx__TensorProto *t,
                      struct sl_graph_value *value)
{
    uint64_t product = 1;
    if (t->n_dims > SL_GRAPH_RANK_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" has %zu dimensions: at most %d are supported",
                              value->name, t->n_dims, SL_GRAPH_RANK_MAX);
    }
    for (size_t i = 0; i < t->n_dims; i++) {
        const uint64_t dim = (uint64_t)t->dims[i];
        if (dim == 0 || dim > SL_GRAPH_ELEMENTS_MAX || product * dim > SL_GRAPH_ELEMENTS_MAX) {
            return sl_reason_fail(reader->reason, SL_ERR_TOO_LARGE,
                                  "tensor \"%s\", dimension %zu is %" PRId64
                                  ": a tensor has 1 to 2^31 elements",
                                  value->name, i, t->dims[i]);
        }
        value->shape[i] = dim;
        product *= dim;
    }
    value->rank = (uint32_t)t->n_dims;
    return 0;
}

/* Fills the value, all but its name. */
static int read_tensor(struct reader *reader, const Onnx__TensorProto *t,
                       struct sl_graph_value *value)
{
    const bool is_half = t->data_type == ONNX_FLOAT16 || t->data_type == ONNX_BFLOAT16;
    int err = read_type(reader, is_half ? ONNX_FLOAT : t->data_type, value);
    err = err != 0 ? err : read_shape(reader, t, value);
    if (err != 0) {
        return err;
    }
    if (t->data_location != 0 || t->n_external_data > 0) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" is in another file: save the model in one file",
                              value->name);
    }
    const uint64_t count = sl_graph_elements(value, 0, value->rank);
    const bool is_f32 = value->type == SL_OBJECT_F32;
    value->bytes = count * (is_f32 ? 4 : value->type == SL_OBJECT_I64 ? 8 : 1);
    const bool is_weight = is_f32 && value->bytes > SL_ONNX_CONSTANT_BYTES;
    if (!is_f32 && value->bytes > SL_ONNX_CONSTANT_BYTES_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                              "tensor \"%s\" has %" PRIu64
                              " bytes: only one of float may have more "
                              "than %u",
                              value->name, value->bytes, SL_ONNX_CONSTANT_BYTES_MAX);
    }
    const struct elements e = find_elements(t);
    const uint64_t expected = is_weight && !reader->has_weights ? 0 : count;
    if (e.count != expected || !e.is_whole) {
        return sl_reason_fail(
            reader->reason, SL_ERR_INVALID,
            "tensor \"%s\" has data of %zu elements%s, but its shape has %" PRIu64, value->name,
            e.count, e.is_whole ? "" : " and a part of one", expected);
    }
    value->kind = is_weight ? SL_GRAPH_WEIGHT : SL_GRAPH_CONSTANT;
    if (is_weight && (!is_half || expected == 0)) {
        value->data = e.data; /* may be large: not copied */
        return 0;
    }
    value->data = convert(reader, t, &e, value->bytes);
    return value->data != NULL ? 0 : fail_memory(reader);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* SL_GRAPH_NONE: there is no value of this name yet. */
static uint32_t find_value(const struct reader *reader, const char *name)
{
    uint64_t number;
    return sl_key_index_find(&reader->names, sl_hash_bytes(name, strlen(name), 0), &number) &&
                   strcmp(reader->graph->values[number].name, name) == 0
               ? (uint32_t)number
               : SL_GRAPH_NONE;
}

/* Appends a value, for which there is room. */
static int add_value(struct reader *reader, const char *name, enum sl_graph_kind kind,
                     struct sl_graph_value **out)
{
    struct sl_graph *graph = reader->graph;
    uint64_t number;
    if (sl_key_index_add(&reader->names, sl_hash_bytes(name, strlen(name), 0), &number) != 0) {
        return fail_memory(reader);
    }
    if (name[0] == '\0' || number != graph->value_count) {
        return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                              "value \"%s\": each value has a name that no other one has", name);
    }
    *out = &graph->values[graph->value_count++];
    **out = (struct sl_graph_value){.name = name, .kind = kind};
    return 0;
}

static int read_initializers(struct reader *reader, const Onnx__GraphProto *g)
{
    int err = 0;
    for (size_t i = 0; err == 0 && i < g->n_initializer; i++) {
        struct sl_graph_value *value;
        err = add_value(reader, text(g->initializer[i]->name), SL_GRAPH_WEIGHT, &value);
        err = err != 0 ? err : read_tensor(reader, g->initializer[i], value);
    }
    return err;
}

/* Reads type and shape of an input. Its first dimension, the rows, is free or fixed. */
static int read_input(struct reader *reader, const Onnx__ValueInfoProto *info,
                      struct sl_graph_value *value)
{
    const Onnx__TypeProto__Tensor *type = info->type != NULL ? info->type->tensor_type : NULL;
    struct sl_graph *graph = reader->graph;
    if (type == NULL || type->shape == NULL || type->shape->n_dim == 0 ||
        type->shape->n_dim > SL_GRAPH_RANK_MAX) {
        return sl_reason_fail(
            reader->reason, SL_ERR_UNSUPPORTED,
            "input \"%s\": accepted is a tensor with 1 to %d dimensions, of which "
            "the first one counts rows",
            value->name, SL_GRAPH_RANK_MAX);
    }
    uint64_t product = 1;
    value->has_rows = true;
    value->rank = (uint32_t)type->shape->n_dim;
    for (uint32_t i = 0; i < value->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[i];
        const bool is_free =
            !dim->has_dim_value || dim->dim_value < 0 || (i == 0 && dim->dim_value == 0);
        const uint64_t size = is_free ? 0 : (uint64_t)dim->dim_value;
        if ((i > 0 && is_free) || size > SL_GRAPH_ELEMENTS_MAX ||
            (i > 0 && (size == 0 || product * size > SL_GRAPH_ELEMENTS_MAX)) ||
            (i == 0 && graph->input_count > 0 && size != graph->fixed_rows)) {
            return sl_reason_fail(reader->reason, SL_ERR_UNSUPPORTED,
                                  "input \"%s\", dimension %u: only the first dimension, that of "
                                  "rows, may be free; it is the same for all inputs; others are 1 "
                                  "to 2^31 together",
                                  value->name, i);
        }
        graph->fixed_rows = i == 0 ? (uint32_t)size : graph->fixed_rows;
        value->shape[i] = i == 0 ? 1 : size;
        product *= value->shape[i];
    }
    return read_type(reader, type->elem_type, value);
}

/* Inputs that are initializers too, as older models have them, are no inputs. */
static int read_inputs(struct reader *reader, const Onnx__GraphProto *g)
{
    struct sl_graph *graph = reader->graph;
    uint32_t *inputs = sl_graph_memory_take(reader->memory, g->n_input, sizeof *inputs);
    int err = inputs == NULL ? fail_memory(reader) : 0;
    for (size_t i = 0; err == 0 && i < g->n_input; i++) {
        struct sl_graph_value *value;
        const char *name = text(g->input[i]->name);
        const uint32_t known = find_value(reader, name);
        if (known != SL_GRAPH_NONE && graph->values[known].kind != SL_GRAPH_INPUT) {
            continue;
        }
        err = add_value(reader, name, SL_GRAPH_INPUT, &value);
        err = err != 0 ? err : read_input(reader, g->input[i], value);
        inputs[graph->input_count] = graph->value_count - 1;
        graph->input_count += err == 0;
    }
    graph->inputs = inputs;
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
    struct sl_graph_attribute *to =
        sl_graph_memory_take(reader->memory, from->n_attribute, sizeof *to);
    if (to == NULL) {
        return fail_memory(reader);
    }
    if (from->n_attribute > ATTRIBUTES_MAX) {
        return FAIL_NODE(reader, SL_ERR_TOO_LARGE, node, "%zu attributes: at most %d are accepted",
                         from->n_attribute, ATTRIBUTES_MAX);
    }
    node->attributes = to;
    for (size_t i = 0; i < from->n_attribute; i++, to++) {
        const Onnx__AttributeProto *a = from->attribute[i];
        *to = (struct sl_graph_attribute){.name = text(a->name),
                                          .type = (enum sl_graph_attribute_type)a->type,
                                          .f = a->f,
                                          .i = a->i,
                                          .text = "",
                                          .ints = a->ints,
                                          .floats = a->floats};
        to->count = (uint32_t)(to->type == SL_GRAPH_INTS ? a->n_ints : a->n_floats);
        if (sl_graph_attribute_find(node, to->name) != NULL) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node, "two attributes \"%s\"", to->name);
        }
        if (a->has_s) {
            char *copy = sl_graph_memory_take(reader->memory, a->s.len + 1, 1);
            if (copy == NULL) {
                return fail_memory(reader);
            }
            to->text = a->s.len > 0 ? memcpy(copy, a->s.data, a->s.len) : copy;
        }
        node->attribute_count++;
    }
    return 0;
}

/* Finds the values that the node reads. */
static int connect(struct reader *reader, const Onnx__NodeProto *from, struct sl_graph_node *node)
{
    uint32_t *inputs = sl_graph_memory_take(reader->memory, from->n_input, sizeof *inputs);
    if (inputs == NULL) {
        return fail_memory(reader);
    }
    for (size_t i = 0; i < from->n_input; i++) {
        const char *name = from->input[i];
        inputs[i] = name[0] == '\0' ? SL_GRAPH_NONE : find_value(reader, name);
        if (name[0] != '\0' && inputs[i] == SL_GRAPH_NONE) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node,
                             "input \"%s\" is no input or initializer of the model, and no node "
                             "before this one computes it: nodes are in topological order, without "
                             "a cycle",
                             name);
        }
    }
    node->inputs = inputs;
    node->input_count = (uint32_t)from->n_input;
    return 0;
}

/* Adds the node's outputs as values. */
static int add_outputs(struct reader *reader, const Onnx__NodeProto *from,
                       struct sl_graph_node *node)
{
    uint32_t *outputs = sl_graph_memory_take(reader->memory, from->n_output, sizeof *outputs);
    if (outputs == NULL) {
        return fail_memory(reader);
    }
    for (size_t i = 0; i < from->n_output; i++) {
        struct sl_graph_value *value;
        const char *name = from->output[i];
        outputs[i] = name[0] == '\0' ? SL_GRAPH_NONE : reader->graph->value_count;
        if (name[0] != '\0' && add_value(reader, name, SL_GRAPH_COMPUTED, &value) != 0) {
            return FAIL_NODE(reader, SL_ERR_INVALID, node, "two values have the name \"%s\"", name);
        }
    }
    node->outputs = outputs;
    node->output_count = (uint32_t)from->n_output;
    return 0;
}

/* Reads a node; a Constant becomes the value that is its output. */
static int read_node(struct reader *reader, const Onnx__NodeProto *from)
{
    struct sl_graph *graph = reader->graph;
    struct sl_graph_node *node = &graph->nodes[graph->node_count];
    const bool has_name = text(from->name)[0] != '\0';
    *node = (struct sl_graph_node){.op_type = text(from->op_type)};
    node->name = has_name ? from->name : from->n_output > 0 ? from->output[0] : "";
    if (!is_onnx_domain(from->domain)) {
        return FAIL_NODE(reader, SL_ERR_UNSUPPORTED, node, "domain \"%s\" is not supported",
                         from->domain);
    }
    if (from->n_input > SL_GRAPH_OPERANDS_MAX || from->n_output > SL_GRAPH_OPERANDS_MAX) {
        return FAIL_NODE(reader, SL_ERR_TOO_LARGE, node,
                         "%zu inputs, %zu outputs: at most %d are accepted", from->n_input,
                         from->n_output, SL_GRAPH_OPERANDS_MAX);
    }
    int err = connect(reader, from, node);
    err = err != 0 ? err : add_outputs(reader, from, node);
    if (err == 0 && strcmp(node->op_type, "Constant") == 0) {
        const Onnx__AttributeProto *a = from->n_attribute == 1 ? from->attribute[0] : NULL;
        if (a == NULL || a->t == NULL || node->output_count != 1 ||
            node->outputs[0] == SL_GRAPH_NONE) {
            return FAIL_NODE(reader, SL_ERR_UNSUPPORTED, node,
                             "accepted is one output, and the attribute \"value\" with a tensor");
        }
        return read_tensor(reader, a->t, &graph->values[node->outputs[0]]);
    }
    graph->node_count++;
    return err != 0 ? err : read_attributes(reader, from, node);
}

static int read_nodes(struct reader *reader, const Onnx__GraphProto *g)
{
    int err = 0;
    for (size_t i = 0; err == 0 && i < g->n_node; i++) {
        err = read_node(reader, g->node[i]);
    }
    return err;
}

static int read_outputs(struct reader *reader, const Onnx__GraphProto *g)
{
    uint32_t *outputs = sl_graph_memory_take(reader->memory, g->n_output, sizeof *outputs);
    if (outputs == NULL) {
        return fail_memory(reader);
    }
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text(g->output[i]->name);
        outputs[i] = find_value(reader, name);
        if (outputs[i] == SL_GRAPH_NONE ||
            reader->graph->values[outputs[i]].kind != SL_GRAPH_COMPUTED) {
            return sl_reason_fail(reader->reason, SL_ERR_INVALID,
                                  "output \"%s\" of the model is the output of no node", name);
        }
    }
    reader->graph->outputs = outputs;
    reader->graph->output_count = (uint32_t)g->n_output;
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

/* Makes room for all values. */
static int prepare(struct reader *reader, const Onnx__GraphProto *g)
{
    size_t count = g->n_input + g->n_initializer;
    for (size_t i = 0; i < g->n_node; i++) {
        count += g->node[i]->n_output;
    }
    if (g->n_node > SL_GRAPH_NODES_MAX || count > SL_GRAPH_VALUES_MAX) {
        return sl_reason_fail(reader->reason, SL_ERR_TOO_LARGE,
                              "the model has %zu nodes and %zu values: at most %d and %d are "
                              "accepted",
                              g->n_node, count, SL_GRAPH_NODES_MAX, SL_GRAPH_VALUES_MAX);
    }
    struct sl_graph *graph = reader->graph;
    graph->values = sl_graph_memory_take(reader->memory, count, sizeof *graph->values);
    graph->nodes = sl_graph_memory_take(reader->memory, g->n_node, sizeof *graph->nodes);
    return graph->values == NULL || graph->nodes == NULL ? fail_memory(reader) : 0;
}

int sl_onnx_read(const void *bytes, size_t count, bool has_weights, struct sl_graph_memory *memory,
                 struct sl_graph *out, struct sl_reason *reason)
{
    ProtobufCAllocator allocator = {.alloc = allocate, .free = release, .allocator_data = memory};
    struct sl_graph graph = {0};
    struct reader reader = {
        .memory = memory, .reason = reason, .graph = &graph, .has_weights = has_weights};
    const Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, count, bytes);
    if (model == NULL || model->graph == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the bytes are no ONNX model, or end too early, or need too much "
                              "memory");
    }
    int err = read_opset(&reader, model);
    err = err != 0 ? err : prepare(&reader, model->graph);
    err = err != 0 ? err : read_initializers(&reader, model->graph);
    err = err != 0 ? err : read_inputs(&reader, model->graph);
    err = err != 0 ? err : read_nodes(&reader, model->graph);
    err = err != 0 ? err : read_outputs(&reader, model->graph);
    sl_key_index_fini(&reader.names);
    if (err == 0) {
        *out = graph;
    }
    return err;
}

/* ---- Write ----------------------------------------------------------------------------------- */

struct writer {
    struct sl_graph_memory *memory;
    const struct sl_graph *graph;
    bool has_weights;
    bool failed; /* no memory; then arrays are NULL or not filled */
};

/* Pointers to `count` messages, each a copy of *initial. */
static void *make_messages(struct writer *writer, size_t count, size_t item_bytes,
                           const void *initial)
{
    void **pointers = sl_graph_memory_take(writer->memory, count, sizeof *pointers);
    uint8_t *items = sl_graph_memory_take(writer->memory, count, item_bytes);
    writer->failed = writer->failed || pointers == NULL || items == NULL;
    for (size_t i = 0; !writer->failed && i < count; i++) {
        pointers[i] = memcpy(items + i * item_bytes, initial, item_bytes);
    }
    return pointers;
}

#define MAKE(writer, count, type, initial)                                                         \
    make_messages((writer), (count), sizeof(type), &(const type)initial)

/* Names of values; "" for absent ones. */
static char **make_names(struct writer *writer, const uint32_t *values, uint32_t count)
{
    static char absent[1];
    char **names = sl_graph_memory_take(writer->memory, count, sizeof *names);
    writer->failed = writer->failed || names == NULL;
    for (uint32_t i = 0; !writer->failed && i < count; i++) {
        names[i] =
            values[i] == SL_GRAPH_NONE ? absent : (char *)writer->graph->values[values[i]].name;
    }
    return names;
}

static int32_t onnx_type(const struct sl_graph_value *value)
{
    return value->type == SL_OBJECT_F32   ? ONNX_FLOAT
           : value->type == SL_OBJECT_I64 ? ONNX_INT64
                                          : ONNX_BOOL;
}

static void write_input(struct writer *writer, const struct sl_graph_value *value,
                        Onnx__ValueInfoProto *to)
{
    Onnx__TypeProto **type = MAKE(writer, 1, Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    Onnx__TypeProto__Tensor **tensor =
        MAKE(writer, 1, Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);
    Onnx__TensorShapeProto **shape =
        MAKE(writer, 1, Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
    Onnx__TensorShapeProto__Dimension **dims =
        MAKE(writer, value->rank, Onnx__TensorShapeProto__Dimension,
             ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
    if (writer->failed) {
        return;
    }
    to->name = (char *)value->name;
    to->type = type[0];
    type[0]->tensor_type = tensor[0];
    tensor[0]->has_elem_type = true;
    tensor[0]->elem_type = onnx_type(value);
    tensor[0]->shape = shape[0];
    shape[0]->n_dim = value->rank;
    shape[0]->dim = dims;
    for (uint32_t i = 0; i < value->rank; i++) {
        dims[i]->has_dim_value = true;
        dims[i]->dim_value = (int64_t)(i > 0 ? value->shape[i] : writer->graph->fixed_rows);
    }
}

static void write_tensor(struct writer *writer, const struct sl_graph_value *value,
                         Onnx__TensorProto *to)
{
    int64_t *dims = sl_graph_memory_take(writer->memory, value->rank, sizeof *dims);
    writer->failed = writer->failed || dims == NULL;
    to->name = (char *)value->name;
    to->has_data_type = true;
    to->data_type = onnx_type(value);
    to->n_dims = value->rank;
    to->dims = dims;
    for (uint32_t i = 0; !writer->failed && i < value->rank; i++) {
        dims[i] = (int64_t)value->shape[i];
    }
    if (value->kind == SL_GRAPH_CONSTANT || writer->has_weights) {
        to->has_raw_data = true;
        to->raw_data = (ProtobufCBinaryData){.len = value->bytes, .data = (uint8_t *)value->data};
    }
}

static void write_node(struct writer *writer, const struct sl_graph_node *node, Onnx__NodeProto *to)
{
    to->name = (char *)node->name;
    to->op_type = (char *)node->op_type;
    to->n_input = node->input_count;
    to->input = make_names(writer, node->inputs, node->input_count);
    to->n_output = node->output_count;
    to->output = make_names(writer, node->outputs, node->output_count);
    to->n_attribute = node->attribute_count;
    to->attribute =
        MAKE(writer, node->attribute_count, Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
    for (uint32_t i = 0; !writer->failed && i < node->attribute_count; i++) {
        const struct sl_graph_attribute *a = &node->attributes[i];
        Onnx__AttributeProto *b = to->attribute[i];
        b->name = (char *)a->name;
        b->has_type = b->has_f = b->has_i = b->has_s = true;
        b->type = (int32_t)a->type;
        b->f = a->f;
        b->i = a->i;
        b->s = (ProtobufCBinaryData){.len = strlen(a->text), .data = (uint8_t *)a->text};
        b->n_ints = a->type == SL_GRAPH_INTS ? a->count : 0;
        b->ints = (int64_t *)a->ints;
        b->n_floats = a->type == SL_GRAPH_FLOATS ? a->count : 0;
        b->floats = (float *)a->floats;
    }
}

static void write_graph(struct writer *writer, Onnx__GraphProto *to)
{
    const struct sl_graph *graph = writer->graph;
    to->n_input = graph->input_count;
    to->input = MAKE(writer, to->n_input, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    to->n_output = graph->output_count;
    to->output = MAKE(writer, to->n_output, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    to->n_node = graph->node_count;
    to->node = MAKE(writer, to->n_node, Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    to->initializer = MAKE(writer, graph->value_count, Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    for (uint32_t i = 0; !writer->failed && i < graph->input_count; i++) {
        write_input(writer, &graph->values[graph->inputs[i]], to->input[i]);
    }
    for (uint32_t i = 0; !writer->failed && i < graph->output_count; i++) {
        to->output[i]->name = (char *)graph->values[graph->outputs[i]].name;
    }
    for (uint32_t i = 0; !writer->failed && i < graph->node_count; i++) {
        write_node(writer, &graph->nodes[i], to->node[i]);
    }
    for (uint32_t i = 0; !writer->failed && i < graph->value_count; i++) {
        const enum sl_graph_kind kind = graph->values[i].kind;
        if (kind == SL_GRAPH_WEIGHT || kind == SL_GRAPH_CONSTANT) {
            write_tensor(writer, &graph->values[i], to->initializer[to->n_initializer++]);
        }
    }
}

int sl_onnx_write(const struct sl_graph *graph, bool has_weights, struct sl_graph_memory *memory,
                  uint8_t **bytes, size_t *count)
{
    struct writer writer = {.memory = memory, .graph = graph, .has_weights = has_weights};
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT;
    Onnx__OperatorSetIdProto *opsets[] = {&opset};
    Onnx__GraphProto to = ONNX__GRAPH_PROTO__INIT;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    opset.has_version = true;
    opset.version = graph->opset;
    model.graph = &to;
    model.n_opset_import = 1;
    model.opset_import = opsets;
    write_graph(&writer, &to);
    if (writer.failed) {
        return SL_ERR_NO_MEMORY;
    }
    const size_t packed = onnx__model_proto__get_packed_size(&model);
    uint8_t *at = sl_graph_memory_take(memory, packed, 1);
    if (at == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *count = onnx__model_proto__pack(&model, at);
    *bytes = at;
    return 0;
}
