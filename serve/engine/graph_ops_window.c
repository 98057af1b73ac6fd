/* Operators that move a window over the positions of each plane: Conv, MaxPool, AveragePool. */
#include <inttypes.h>
#include <math.h>

#include "serve/engine/blas.h"
#include "serve/engine/graph_ops.h"

#define AXES          2

/* Columns of a convolution that are computed together: they stay in the cache. */
#define COLUMNS_BYTES (1U << 20)

struct axis {
    uint32_t in, out, kernel, stride, dilation, pad_begin, pad_end;
};

/* Positions o, from begin to before end, at which tap `tap` of the window lies in the plane: at
 * 0 <= o * stride + offset < in. */
struct range {
    int64_t begin, end, offset;
};

static struct range range_of(const struct axis *axis, uint64_t tap)
{
    const int64_t offset = (int64_t)tap * axis->dilation - axis->pad_begin;
    const int64_t stride = axis->stride, out = axis->out;
    const int64_t begin = offset >= 0 ? 0 : (stride - 1 - offset) / stride;
    const int64_t end = offset >= axis->in ? 0 : (axis->in - 1 - offset) / stride + 1;
    struct range range = {.begin = begin < out ? begin : out, .offset = offset};
    range.end = end < range.begin ? range.begin : end < out ? end : out;
    return range;
}

/* Fills out[count] from an attribute of so many numbers. */
static int read_ints(const struct sl_graph_infer *infer, const char *name, uint32_t count,
                     uint32_t least, uint32_t absent, uint32_t *out)
{
    const struct sl_graph_attribute *given = sl_graph_attribute_find(infer->node, name);
    if (given != NULL && given->count != count) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "%s has %u numbers, but must have %u", name,
                             given->count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const int64_t value = given != NULL ? given->ints[i] : absent;
        if (value < least || value > INT32_MAX) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "%s has %" PRId64 ", but must have %u to %d", name, value, least,
                                 INT32_MAX);
        }
        out[i] = (uint32_t)value;
    }
    return 0;
}

/* Sets the pads so that out = in / stride, rounded up. */
static void pad_to_same(struct axis *axis, uint64_t window, bool more_at_begin)
{
    const uint64_t out = ((uint64_t)axis->in + axis->stride - 1) / axis->stride;
    const uint64_t covered = (out - 1) * axis->stride + window;
    const uint64_t pads = covered > axis->in ? covered - axis->in : 0;
    axis->pad_begin = (uint32_t)((pads + more_at_begin) / 2);
    axis->pad_end = (uint32_t)(pads - axis->pad_begin);
}

static int infer_axis(const struct sl_graph_infer *infer, const char *auto_pad, bool rounds_up,
                      struct axis *axis)
{
    const uint64_t window = (uint64_t)(axis->kernel - 1) * axis->dilation + 1;
    if (strncmp(auto_pad, "SAME_", 5) == 0 && window <= SL_GRAPH_ELEMENTS_MAX) {
        pad_to_same(axis, window, strcmp(auto_pad, "SAME_LOWER") == 0);
    } else if (strcmp(auto_pad, "NOTSET") != 0) {
        axis->pad_begin = axis->pad_end = 0;
    }
    const uint64_t padded = (uint64_t)axis->in + axis->pad_begin + axis->pad_end;
    if (window > padded || padded > SL_GRAPH_ELEMENTS_MAX) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "a window of %" PRIu64 " over %" PRIu64
                             " padded elements: it must be smaller or equal, and they at most %llu",
                             window, padded, SL_GRAPH_ELEMENTS_MAX);
    }
    const uint64_t room = padded - window;
    uint64_t out = room / axis->stride + 1;
    if (rounds_up && room % axis->stride != 0 &&
        out * axis->stride < (uint64_t)axis->in + axis->pad_begin) {
        out++; /* a window that begins before the pad at the end */
    }
    axis->out = (uint32_t)out;
    return 0;
}

/* Sets type, rows, and shape of the output
 * but for its channels. */
static int infer_axes(const struct sl_graph_infer *infer, const uint32_t kernel[AXES],
                      struct axis axes[AXES])
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct sl_graph_attribute *given = sl_graph_attribute_find(infer->node, "auto_pad");
    const char *auto_pad = given != NULL ? given->text : "NOTSET";
    const bool rounds_up = sl_graph_attribute_int(infer->node, "ceil_mode", 0) != 0;
    uint32_t strides[AXES], dilations[AXES], pads[2 * AXES];
    int err = read_ints(infer, "strides", AXES, 1, 1, strides);
    err = err != 0 ? err : read_ints(infer, "dilations", AXES, 1, 1, dilations);
    err = err != 0 ? err : read_ints(infer, "pads", 2 * AXES, 0, 0, pads);
    if (err == 0 && strcmp(auto_pad, "NOTSET") != 0 && strcmp(auto_pad, "VALID") != 0 &&
        strcmp(auto_pad, "SAME_UPPER") != 0 && strcmp(auto_pad, "SAME_LOWER") != 0) {
        err = sl_graph_fail(infer, SL_ERR_INVALID,
                            "auto_pad is \"%s\", but must be NOTSET, VALID, SAME_UPPER or "
                            "SAME_LOWER",
                            auto_pad);
    }
    sl_graph_ops_set_output(infer, x);
    for (uint32_t i = 0; err == 0 && i < AXES; i++) {
        struct axis *axis = &axes[i];
        *axis = (struct axis){.in = (uint32_t)x->shape[2 + i],
                              .kernel = kernel[i],
                              .stride = strides[i],
                              .dilation = dilations[i],
                              .pad_begin = pads[i],
                              .pad_end = pads[AXES + i]};
        err = infer_axis(infer, auto_pad, rounds_up, axis);
        infer->outputs[0]->shape[2 + i] = axis->out;
    }
    return err;
}

static int check_input(const struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    if (x->rank != 4) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s has %u dimensions; accepted are 4: [N, C, H, W]", x->name,
                             x->rank);
    }
    return sl_graph_ops_check_f32(infer);
}

/* Conv: for each group, filters [filters][taps] times columns [taps][positions]. */

struct conv {
    struct axis axes[AXES];
    uint32_t images; /* of a row */
    uint32_t groups;
    uint32_t channels, filters, taps; /* of a group */
    uint32_t lines;                   /* of the output that are computed together */
    bool has_rows;
    bool is_direct; /* the columns are the input itself */
};

static int check_filters(const struct sl_graph_infer *infer, int64_t groups)
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    const struct sl_graph_value *bias = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    if (w->rank != 4 || w->has_rows || groups < 1 || groups > INT32_MAX ||
        w->shape[1] * (uint64_t)groups != x->shape[1] || w->shape[0] % (uint64_t)groups != 0) {
        return sl_graph_fail(
            infer, SL_ERR_INVALID,
            "%s must be [M, C / group, ...] with M a multiple of group, for %" PRIu64
            " channels and group %" PRId64,
            w->name, x->shape[1], groups);
    }
    if (bias != NULL && (bias->rank != 1 || bias->shape[0] != w->shape[0] || bias->has_rows)) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "%s must be [%" PRIu64 "]", bias->name,
                             w->shape[0]);
    }
    return 0;
}

static int infer_conv(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    const int64_t groups = sl_graph_attribute_int(infer->node, "group", 1);
    uint32_t kernel[AXES] = {0}, given[AXES];
    int err = check_input(infer);
    err = err != 0 ? err : check_filters(infer, groups);
    for (uint32_t i = 0; err == 0 && i < AXES; i++) {
        kernel[i] = (uint32_t)w->shape[2 + i];
    }
    err = err != 0 ? err : read_ints(infer, "kernel_shape", AXES, 0, 0, given);
    if (err == 0 && sl_graph_attribute_find(infer->node, "kernel_shape") != NULL &&
        memcmp(given, kernel, sizeof *kernel * (AXES)) != 0) {
        err = sl_graph_fail(infer, SL_ERR_INVALID, "kernel_shape is not that of %s", w->name);
    }
    struct conv p = {
        .images = (uint32_t)x->shape[0], .groups = (uint32_t)groups, .has_rows = x->has_rows};
    err = err != 0 ? err : infer_axes(infer, kernel, p.axes);
    if (err != 0) {
        return err;
    }
    const struct axis *vertical = &p.axes[0], *horizontal = &p.axes[1];
    const uint64_t taps = sl_graph_elements(w, 1, w->rank);
    const uint64_t positions = (uint64_t)vertical->out * horizontal->out;
    if (taps * horizontal->out > INT32_MAX || positions > INT32_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "filters of %" PRIu64 " elements at %" PRIu64
                             " positions are too large",
                             taps, positions);
    }
    const uint64_t fitting = COLUMNS_BYTES / sizeof(float) / (taps * horizontal->out);
    p.channels = (uint32_t)w->shape[1];
    p.filters = (uint32_t)w->shape[0] / p.groups;
    p.taps = (uint32_t)taps;
    p.is_direct = taps == p.channels && positions == (uint64_t)vertical->in * horizontal->in &&
                  vertical->stride == 1 && horizontal->stride == 1;
    p.lines = p.is_direct || fitting >= vertical->out ? vertical->out
              : fitting > 0                           ? (uint32_t)fitting
                                                      : 1;
    infer->scratch_bytes = p.is_direct ? 0 : taps * horizontal->out * p.lines * sizeof(float);
    infer->outputs[0]->shape[1] = w->shape[0];
    infer->flops = 2.0 * (double)x->shape[0] * (double)w->shape[0] * (double)(taps * positions);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

/* One line of the output: the elements of a line of the input that a tap meets. */
static void copy_line(float *restrict to, const float *restrict line, const struct axis *axis,
                      const struct range *range)
{
    for (int64_t o = 0; o < range->begin; o++) {
        to[o] = 0;
    }
    if (axis->stride == 1) {
        for (int64_t o = range->begin; o < range->end; o++) {
            to[o] = line[o + range->offset];
        }
    } else {
        for (int64_t o = range->begin; o < range->end; o++) {
            to[o] = line[o * axis->stride + range->offset];
        }
    }
    for (int64_t o = range->end; o < axis->out; o++) {
        to[o] = 0;
    }
}

/* columns[channel, tap][line, position], for output lines from `begin` on; 0 in the pads. */
static void collect_columns(const struct conv *p, const float *planes, uint32_t begin,
                            uint32_t lines, float *columns)
{
    const struct axis *vertical = &p->axes[0], *horizontal = &p->axes[1];
    const uint64_t plane = (uint64_t)vertical->in * horizontal->in;
    for (uint32_t channel = 0; channel < p->channels; channel++) {
        for (uint64_t tap = 0; tap < (uint64_t)vertical->kernel * horizontal->kernel; tap++) {
            const struct range rows = range_of(vertical, tap / horizontal->kernel);
            const struct range range = range_of(horizontal, tap % horizontal->kernel);
            for (int64_t line = begin; line < (int64_t)begin + lines; line++) {
                if (line >= rows.begin && line < rows.end) {
                    const int64_t row = line * vertical->stride + rows.offset;
                    copy_line(columns, planes + channel * plane + row * horizontal->in, horizontal,
                              &range);
                } else {
                    memset(columns, 0, horizontal->out * sizeof *columns);
                }
                columns += horizontal->out;
            }
        }
    }
}

static void fill_bias(float *out, const float *bias, uint64_t filters, uint64_t positions)
{
    for (uint64_t filter = 0; filter < filters; filter++) {
        for (uint64_t i = 0; i < positions; i++) {
            *out++ = bias[filter];
        }
    }
}

static int run_conv(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct conv p;
    sl_graph_ops_load(node, &p, sizeof p);
    const struct axis *vertical = &p.axes[0], *horizontal = &p.axes[1];
    const uint64_t positions = (uint64_t)vertical->out * horizontal->out;
    const uint64_t plane = (uint64_t)vertical->in * horizontal->in;
    const float *in = run->inputs[0], *filters = run->inputs[1];
    const float *bias = node->input_count > 2 ? run->inputs[2] : NULL;
    float *out = run->outputs[0];
    struct sl_blas_product product = {.m = p.filters,
                                      .k = p.taps,
                                      .alpha = 1,
                                      .beta = bias != NULL ? 1 : 0,
                                      .c_stride = positions};
    for (uint64_t i = 0; i < sl_graph_ops_blocks(run, p.has_rows) * p.images * p.groups; i++) {
        const uint64_t filter = i % p.groups * p.filters;
        if (bias != NULL) {
            fill_bias(out, bias + filter, p.filters, positions);
        }
        for (uint32_t line = 0; line < vertical->out; line += p.lines) {
            const uint32_t left = vertical->out - line;
            const uint32_t lines = left < p.lines ? left : p.lines;
            product.n = (uint64_t)lines * horizontal->out;
            product.b_stride = product.n;
            if (!p.is_direct) {
                collect_columns(&p, in, line, lines, run->scratch);
            }
            sl_blas_multiply(&product, filters + filter * p.taps, p.is_direct ? in : run->scratch,
                             out + (uint64_t)line * horizontal->out);
        }
        in += p.channels * plane;
        out += p.filters * positions;
    }
    return 0;
}

/* MaxPool and AveragePool */

struct pool {
    struct axis axes[AXES];
    uint32_t planes; /* of a row */
    bool has_rows, counts_pads;
};

static int infer_pool(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    uint32_t kernel[AXES];
    int err = check_input(infer);
    err = err != 0 ? err : read_ints(infer, "kernel_shape", AXES, 1, 0, kernel);
    if (err != 0) {
        return err;
    }
    struct pool p = {
        .planes = (uint32_t)(x->shape[0] * x->shape[1]),
        .has_rows = x->has_rows,
        .counts_pads = sl_graph_attribute_int(infer->node, "count_include_pad", 0) != 0,
    };
    err = infer_axes(infer, kernel, p.axes);
    infer->flops = p.planes;
    for (uint32_t i = 0; err == 0 && i < AXES; i++) {
        const struct axis *axis = &p.axes[i];
        const uint64_t window = (uint64_t)(axis->kernel - 1) * axis->dilation + 1;
        infer->flops *= (double)axis->out * axis->kernel;
        if (axis->pad_begin >= window || axis->pad_end >= window) {
            err = sl_graph_fail(infer, SL_ERR_INVALID,
                                "pads %u and %u"
                                " must be smaller than the window of %" PRIu64,
                                axis->pad_begin, axis->pad_end, window);
        }
    }
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return err;
}

/* Combines each element of the output, which is set already, with those of its window. */
static void pool_plane(const struct pool *p, bool takes_max, const float *in, float *out)
{
    const struct axis *vertical = &p->axes[0], *horizontal = &p->axes[1];
    for (uint64_t tap = 0; tap < (uint64_t)vertical->kernel * horizontal->kernel; tap++) {
        const struct range rows = range_of(vertical, tap / horizontal->kernel);
        const struct range range = range_of(horizontal, tap % horizontal->kernel);
        for (int64_t line = rows.begin; line < rows.end; line++) {
            const int64_t row = line * vertical->stride + rows.offset;
            const float *restrict from = in + row * horizontal->in;
            float *restrict to = out + line * horizontal->out;
            for (int64_t o = range.begin; o < range.end; o++) {
                const float x = from[o * horizontal->stride + range.offset];
                to[o] = !takes_max ? to[o] + x : to[o] > x ? to[o] : x;
            }
        }
    }
}

static int run_max_pool(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct pool p;
    sl_graph_ops_load(node, &p, sizeof p);
    const uint64_t plane = (uint64_t)p.axes[0].in * p.axes[1].in;
    const uint64_t positions = (uint64_t)p.axes[0].out * p.axes[1].out;
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(run, p.has_rows) * p.planes; i++) {
        for (uint64_t j = 0; j < positions; j++) {
            out[j] = -INFINITY;
        }
        pool_plane(&p, true, in, out);
        in += plane;
        out += positions;
    }
    return 0;
}

/* Elements of the window at position o, with those of the pads or without. */
static int64_t window_elements(const struct axis *axis, uint32_t o, bool counts_pads)
{
    const int64_t begin = (int64_t)o * axis->stride - axis->pad_begin, end = begin + axis->kernel;
    const int64_t first = counts_pads ? begin : 0;
    const int64_t last = (int64_t)axis->in + (counts_pads ? axis->pad_end : 0);
    return (end < last ? end : last) - (begin > first ? begin : first);
}

static int run_average_pool(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct pool p;
    sl_graph_ops_load(node, &p, sizeof p);
    const struct axis *vertical = &p.axes[0], *horizontal = &p.axes[1];
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(run, p.has_rows) * p.planes; i++) {
        memset(out, 0, (uint64_t)vertical->out * horizontal->out * sizeof *out);
        pool_plane(&p, false, in, out);
        for (uint32_t y = 0; y < vertical->out; y++) {
            const int64_t lines = window_elements(vertical, y, p.counts_pads);
            for (uint32_t x = 0; x < horizontal->out; x++) {
                *out++ /= (float)(lines * window_elements(horizontal, x, p.counts_pads));
            }
        }
        in += (uint64_t)vertical->in * horizontal->in;
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_window[] = {
    SL_GRAPH_OPS_ENTRY("Conv", 2, 3, false, infer_conv, run_conv, {"auto_pad", SL_GRAPH_STRING},
                       {"dilations", SL_GRAPH_INTS}, {"group", SL_GRAPH_INT},
                       {"kernel_shape", SL_GRAPH_INTS}, {"pads", SL_GRAPH_INTS},
                       {"strides", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY(
        "MaxPool", 1, 1, false, infer_pool, run_max_pool, {"auto_pad", SL_GRAPH_STRING},
        {"ceil_mode", SL_GRAPH_INT}, {"dilations", SL_GRAPH_INTS}, {"kernel_shape", SL_GRAPH_INTS},
        {"pads", SL_GRAPH_INTS}, {"storage_order", SL_GRAPH_INT}, {"strides", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("AveragePool", 1, 1, false, infer_pool, run_average_pool,
                       {"auto_pad", SL_GRAPH_STRING}, {"ceil_mode", SL_GRAPH_INT},
                       {"count_include_pad", SL_GRAPH_INT}, {"kernel_shape", SL_GRAPH_INTS},
                       {"pads", SL_GRAPH_INTS}, {"strides", SL_GRAPH_INTS}),
    {.name = NULL},
};
