#include "programs/serve/engine/graph_check.h"

#include <stdio.h>
#include <string.h>

/* The type of an attribute that the operator accepts; 0: it does not. */
static enum sl_graph_attribute_type find_type(const struct sl_graph_op *op, const char *name)
{
    const uint32_t count = sizeof op->attributes / sizeof op->attributes[0];
    for (uint32_t i = 0; i < count && op->attributes[i].name != NULL; i++) {
        if (strcmp(op->attributes[i].name, name) == 0) {
            return op->attributes[i].type;
        }
    }
    return 0;
}

/* The first attribute that the operator does not accept, or NULL. */
static const struct sl_graph_attribute *find_unsupported(const struct sl_graph_node *node)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (find_type(node->op, node->attributes[i].name) == 0) {
            return &node->attributes[i];
        }
    }
    return NULL;
}

/* Names the first node of each operator, or operator and attribute, that is not supported. */
int sl_graph_check_operators(struct sl_graph *graph, struct sl_reason *reason)
{
    char all[SL_REASON_BYTES] = "", what[192], item[512];
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct sl_graph_node *node = &graph->nodes[i];
        node->op = sl_graph_op_find(node->op_type);
        const struct sl_graph_attribute *a = node->op != NULL ? find_unsupported(node) : NULL;
        if (node->op != NULL && a == NULL) {
            continue;
        }
        (void)snprintf(what, sizeof what,
                       a == NULL ? " (%.80s): the operator is not supported"
                                 : " (%.80s): attribute \"%.80s\" is not supported",
                       node->op_type, a != NULL ? a->name : "");
        if (strstr(all, what) == NULL) {
            (void)snprintf(item, sizeof item, "%snode \"%.200s\"%s", all[0] != '\0' ? "; " : "",
                           node->name, what);
            (void)strncat(all, item, sizeof all - strlen(all) - 1);
        }
    }
    return all[0] == '\0' ? 0 : sl_reason_fail(reason, SL_ERR_UNSUPPORTED, "%s", all);
}

static bool is_absent(struct sl_graph_value *const *operands, uint32_t count, uint32_t i)
{
    return i >= count || operands[i] == NULL;
}

/* Numbers and types of operands. */
static int check_operands(const struct sl_graph_infer *infer)
{
    struct sl_graph_node *node = infer->node;
    const struct sl_graph_op *op = node->op;
    bool is_missing = op->outputs_max == 1 && is_absent(node->outputs, node->output_count, 0);
    for (uint32_t i = 0; i < op->inputs_min; i++) {
        is_missing = is_missing || is_absent(node->inputs, node->input_count, i);
    }
    while (node->output_count > op->outputs_max &&
           (is_absent(node->outputs, node->output_count, node->output_count - 1) ||
            node->outputs[node->output_count - 1]->uses == 0)) {
        node->output_count--;
    }
    if (is_missing || node->input_count > op->inputs_max || node->output_count > op->outputs_max) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%u inputs and %u outputs that are used: accepted are %u to %u and 1 "
                             "to %u",
                             node->input_count, node->output_count, op->inputs_min, op->inputs_max,
                             op->outputs_max);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct sl_graph_value *input = node->inputs[i];
        if (input != NULL && input->type != SL_OBJECT_F32 && (op->flags & SL_GRAPH_ANY_TYPE) == 0) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "input %u (%s) must be of float32", i,
                                 input->name);
        }
    }
    return 0;
}

/* All attributes are accepted: their types. */
static int check_attributes(const struct sl_graph_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->attribute_count; i++) {
        const struct sl_graph_attribute *a = &infer->node->attributes[i];
        const enum sl_graph_attribute_type type = find_type(infer->node->op, a->name);
        if (a->type != type) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "attribute \"%s\" has type %d of ONNX, not %d", a->name,
                                 (int)a->type, (int)type);
        }
    }
    return 0;
}

int sl_graph_check_node(const struct sl_graph *graph, struct sl_graph_node *node, uint32_t rows_max,
                        struct sl_graph_work *out, struct sl_reason *reason)
{
    struct sl_graph_infer infer = {.graph = graph,
                                   .node = node,
                                   .inputs = node->inputs,
                                   .outputs = node->outputs,
                                   .rows_max = rows_max,
                                   .reason = reason};
    double elements = 0;
    int err = check_operands(&infer);
    err = err != 0 ? err : check_attributes(&infer);
    err = err != 0 ? err : node->op->infer(&infer);
    for (uint32_t i = 0; err == 0 && i < node->output_count; i++) {
        struct sl_graph_value *output = node->outputs[i];
        if (output != NULL && !sl_graph_measure(output)) {
            err = sl_graph_fail(&infer, SL_ERR_TOO_LARGE,
                                "output \"%s\" has no element, or more than 2^31 a row",
                                output->name);
        } else if (output != NULL) {
            elements += (double)sl_graph_elements(output, 0, output->rank);
        }
    }
    *out = (struct sl_graph_work){.flops = infer.flops,
                                  .operations = infer.flops > elements ? infer.flops : elements,
                                  .scratch_bytes = infer.scratch_bytes};
    return err;
}
