/* Operators that move elements along axes other than that of rows: Transpose, Slice, Pad. A
 * block of the output is made of a block of the input. */
#include <inttypes.h>

#include "programs/serve/engine/graph_ops.h"

/* Copies items: for each place of the axes, one item, from `offset` on. An item is an element, or
 * neighbours that stay neighbours. */
struct move {
    uint64_t item_bytes;
    uint64_t offset; /* bytes */
    uint32_t rank;
    uint32_t size[SL_GRAPH_RANK_MAX]; /* of the output */
    int64_t step[SL_GRAPH_RANK_MAX];  /* of the input, in bytes */
};

/* Adds the next axis of the output, which steps so many elements of the input. */
static void add_axis(struct move *p, uint64_t size, int64_t step)
{
    if (size > 1) {
        p->size[p->rank] = (uint32_t)size;
        p->step[p->rank++] = step * (int64_t)p->item_bytes;
    }
}

/* Makes items of neighbours, and keeps the params. */
static void save_move(const struct sl_graph_infer *infer, struct move *p)
{
    while (p->rank > 0 && p->step[p->rank - 1] == (int64_t)p->item_bytes) {
        p->item_bytes *= p->size[--p->rank];
    }
    sl_graph_ops_save(infer->node, p, sizeof *p);
}

static void copy_items(uint8_t *out, const uint8_t *in, int64_t step, uint64_t count,
                       uint64_t bytes)
{
    if (bytes == sizeof(uint32_t)) {
        for (uint64_t i = 0; i < count; i++) {
            ((uint32_t *)out)[i] = *(const uint32_t *)(in + (int64_t)i * step);
        }
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(out + i * bytes, in + (int64_t)i * step, bytes);
    }
}

static int run_move(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct move *p = sl_graph_ops_params(node);
    const uint32_t last = p->rank > 0 ? p->rank - 1 : 0;
    const uint64_t size = p->rank > 0 ? p->size[last] : 1;
    const uint64_t lines = node->outputs[0]->bytes / (size * p->item_bytes);
    const uint8_t *block = (const uint8_t *)run->inputs[0] + p->offset;
    uint8_t *out = run->outputs[0];
    for (uint64_t row = 0; row < sl_graph_ops_blocks(node, run, 0); row++) {
        uint32_t at[SL_GRAPH_RANK_MAX] = {0};
        const uint8_t *in = block;
        for (uint64_t i = 0; i < lines; i++, out += size * p->item_bytes) {
            copy_items(out, in, p->rank > 0 ? p->step[last] : 0, size, p->item_bytes);
            for (uint32_t axis = last; axis-- > 0;) { /* the next line, as an odometer counts */
                in += p->step[axis];
                if (++at[axis] < p->size[axis]) {
                    break;
                }
                in -= p->step[axis] * p->size[axis];
                at[axis] = 0;
            }
        }
        block += node->inputs[0]->bytes;
    }
    return 0;
}

static int infer_transpose(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct sl_graph_attribute *perm = sl_graph_attribute_find(infer->node, "perm");
    struct move p = {.item_bytes = sl_graph_item_bytes(x)};
    uint32_t chosen = 0;
    sl_graph_ops_set_output(infer, x);
    for (uint32_t i = 0; i < x->rank; i++) {
        const int64_t from = perm == NULL             ? (int64_t)(x->rank - 1 - i)
                             : perm->count == x->rank ? perm->ints[i]
                                                      : -1;
        if (from < 0 || from >= (int64_t)x->rank || (chosen >> from & 1) != 0) {
            return sl_graph_fail(infer, SL_ERR_INVALID, "perm must have each of the %u axes once",
                                 x->rank);
        }
        chosen |= 1U << from;
        infer->outputs[0]->shape[i] = x->shape[from];
        if (sl_graph_ops_is_rows(x, (uint32_t)from)) {
            infer->outputs[0]->row_axis = i;
        }
        add_axis(&p, x->shape[from], (int64_t)sl_graph_elements(x, (uint32_t)from + 1, x->rank));
    }
    save_move(infer, &p);
    return 0;
}

/* ---- Slice ----------------------------------------------------------------------------------- */

/* A bound of a slice, from the begin of the axis, and within least to most. */
static int64_t clamp(int64_t at, int64_t size, int64_t least, int64_t most)
{
    at += at < 0 ? size : 0;
    return at < least ? least : at > most ? most : at;
}

/* The part of an axis that is chosen. */
struct part {
    int64_t first, step;
    uint64_t count; /* 0: the axis has none; the plan refuses that */
};

static struct part choose(int64_t size, int64_t start, int64_t end, int64_t step)
{
    const bool is_back = step < 0;
    const int64_t most = is_back ? size - 1 : size;
    struct part part = {.first = clamp(start, size, 0, most),
                        .step = step < -size  ? -size
                                : step > size ? size
                                              : step};
    const int64_t last = clamp(end, size, is_back ? -1 : 0, most);
    const int64_t span = is_back ? part.first - last : last - part.first;
    const int64_t stride = is_back ? -part.step : part.step;
    part.count = span > 0 ? (uint64_t)((span + stride - 1) / stride) : 0;
    return part;
}

/* The bounds: starts, ends, and axes and steps, which may be absent. */
static int read_bounds(const struct sl_graph_infer *infer, struct sl_graph_list bounds[4])
{
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < 4; i++) {
        err = sl_graph_ops_read_list(infer, i + 1, names[i], &bounds[i]);
        if (err == 0 && bounds[i].count != bounds[0].count && (i < 2 || bounds[i].count > 0)) {
            err = sl_graph_fail(infer, SL_ERR_INVALID, "%s has %u numbers, but starts has %u",
                                names[i], bounds[i].count, bounds[0].count);
        }
        for (uint32_t j = 0; err == 0 && j < bounds[i].count; j++) {
            const int64_t number = bounds[i].numbers[j];
            if (sl_graph_rows_times(number) > 0 || (i == 3 && number == 0)) {
                err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                    "%s must have numbers, not that of rows, and steps not 0",
                                    names[i]);
            }
        }
    }
    return err;
}

static int infer_slice(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_list bounds[4];
    struct part parts[SL_GRAPH_RANK_MAX];
    const int err = read_bounds(infer, bounds);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        parts[i] = (struct part){.step = 1, .count = x->shape[i]};
    }
    for (uint32_t i = 0; i < bounds[0].count; i++) {
        const int64_t given = bounds[2].count > 0 ? bounds[2].numbers[i] : i;
        uint32_t axis;
        if (x->rank == 0 || sl_graph_ops_resolve(infer, given, x->rank, x->rank - 1, &axis) != 0) {
            return SL_ERR_INVALID;
        }
        if (sl_graph_ops_is_rows(x, axis)) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "axis %u counts rows", axis);
        }
        parts[axis] = choose((int64_t)x->shape[axis], bounds[0].numbers[i], bounds[1].numbers[i],
                             bounds[3].count > 0 ? bounds[3].numbers[i] : 1);
    }
    sl_graph_ops_set_output(infer, x);
    struct move p = {.item_bytes = sl_graph_item_bytes(x)};
    for (uint32_t i = 0; i < x->rank; i++) {
        const int64_t step = (int64_t)sl_graph_elements(x, i + 1, x->rank);
        infer->outputs[0]->shape[i] = parts[i].count;
        p.offset += (uint64_t)(parts[i].first * step) * p.item_bytes;
        add_axis(&p, parts[i].count, parts[i].step * step);
    }
    save_move(infer, &p);
    return 0;
}

/* ---- Pad ------------------------------------------------------------------------------------- */

struct pad {
    uint32_t begin[SL_GRAPH_RANK_MAX];
};

/* Pads are an input, or an attribute before opset 11; of all axes, or, since opset 18, of those in
 * the input 3. */
static int infer_pad(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct sl_graph_value *fill = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    const struct sl_graph_attribute *mode = sl_graph_attribute_find(infer->node, "mode");
    struct sl_graph_list pads, axes;
    struct pad p = {0};
    int err = sl_graph_ops_read_list(infer, 1, "pads", &pads);
    err = err != 0 ? err : sl_graph_ops_read_list(infer, 3, "", &axes);
    if (err != 0) {
        return err;
    }
    const uint32_t count = axes.count > 0 ? axes.count : x->rank;
    if ((mode != NULL && strcmp(mode->text, "constant") != 0) || pads.count != 2 * count ||
        (fill != NULL && (fill->has_rows || fill->type != x->type ||
                          sl_graph_elements(fill, 0, fill->rank) != 1))) {
        return sl_graph_fail(
            infer, SL_ERR_UNSUPPORTED,
            "mode must be constant, with %u pads, and a scalar of the input's type", 2 * count);
    }
    sl_graph_ops_set_output(infer, x);
    for (uint32_t i = 0; i < count; i++) {
        const int64_t before = pads.numbers[i], after = pads.numbers[count + i];
        const int64_t given = axes.count > 0 ? axes.numbers[i] : i;
        uint32_t axis;
        if (x->rank == 0 || sl_graph_ops_resolve(infer, given, x->rank, x->rank - 1, &axis) != 0) {
            return SL_ERR_INVALID;
        }
        const int64_t most = (int64_t)(SL_GRAPH_ELEMENTS_MAX - x->shape[axis]);
        if (before < 0 || after < 0 || before > most || after > most - before ||
            (sl_graph_ops_is_rows(x, axis) && before + after > 0)) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "axis %u has pads of %" PRId64 " and %" PRId64
                                 ": accepted are 0 or more, and 0 if it counts rows",
                                 axis, before, after);
        }
        infer->outputs[0]->shape[axis] = x->shape[axis] + (uint64_t)(before + after);
        p.begin[axis] = (uint32_t)before;
    }
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

static int run_pad(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct pad *p = sl_graph_ops_params(node);
    const struct sl_graph_value *x = node->inputs[0], *output = node->outputs[0];
    const struct sl_graph_attribute *given = sl_graph_attribute_find(node, "value");
    const uint64_t item_bytes = sl_graph_item_bytes(x);
    const uint64_t line = x->rank > 0 ? x->shape[x->rank - 1] * item_bytes : item_bytes;
    const float before_opset_11 = given != NULL ? given->f : 0;
    const int64_t zero = 0;
    const void *fill = node->input_count > 2 && run->inputs[2] != NULL ? run->inputs[2]
                       : x->type == SL_OBJECT_F32 ? (const void *)&before_opset_11
                                                  : &zero;
    const uint8_t *in = run->inputs[0];
    for (uint64_t row = 0; row < sl_graph_ops_blocks(node, run, 0); row++) {
        uint8_t *out = (uint8_t *)run->outputs[0] + row * output->bytes;
        for (uint64_t at = 0; at < output->bytes; at += item_bytes) {
            memcpy(out + at, fill, item_bytes);
        }
        for (uint64_t i = 0; i < x->bytes / line; i++, in += line) {
            uint64_t at = x->rank > 0 ? p->begin[x->rank - 1] : 0, step = 1, left = i;
            for (uint32_t axis = x->rank; axis-- > 1;) { /* those before the last one */
                step *= output->shape[axis];
                at += (left % x->shape[axis - 1] + p->begin[axis - 1]) * step;
                left /= x->shape[axis - 1];
            }
            memcpy(out + at * item_bytes, in, line);
        }
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_move[] = {
    SL_GRAPH_OPS_ENTRY("Transpose", 1, 1, SL_GRAPH_ANY_TYPE, infer_transpose, run_move,
                       {"perm", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("Slice", 1, 5, SL_GRAPH_ANY_TYPE, infer_slice, run_move,
                       {"starts", SL_GRAPH_INTS}, {"ends", SL_GRAPH_INTS}, {"axes", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("Pad", 1, 4, SL_GRAPH_ANY_TYPE | SL_GRAPH_COPIES, infer_pad, run_pad,
                       {"mode", SL_GRAPH_STRING}, {"pads", SL_GRAPH_INTS},
                       {"value", SL_GRAPH_FLOAT}),
    {.name = NULL},
};
