/* Operators that move a window over the positions of each plane [H, W]: Conv, ConvTranspose,
 * MaxPool, AveragePool. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/blas.h"
#include "programs/serve/engine/graph_ops.h"

#define AXES          2

/* Columns of a convolution that are computed together: they stay in the cache. */
#define COLUMNS_BYTES (1U << 20)

struct axis {
    uint32_t in, out, kernel, stride, dilation, pads[2]; /* at the begin, at the end */
};

/* Positions o, from begin to before end, at which a tap of the window lies in the plane: at
 * o * stride + offset. */
struct range {
    int64_t begin, end, offset;
};

static struct range graph_ops_window_range_of(const struct axis *axis, uint64_t tap)
{
    const int64_t offset = (int64_t)(tap * axis->dilation) - axis->pads[0];
    const int64_t stride = axis->stride, out = axis->out;
    const int64_t begin = offset >= 0 ? 0 : (stride - 1 - offset) / stride;
    const int64_t end = offset >= axis->in ? 0 : (axis->in - 1 - offset) / stride + 1;
    struct range range = {.begin = begin < out ? begin : out, .offset = offset};
    range.end = end < range.begin ? range.begin : end < out ? end : out;
    return range;
}

/* Elements that a window covers, with those between its taps. */
static uint64_t covered(const struct axis *axis)
{
    return (uint64_t)(axis->kernel - 1) * axis->dilation + 1;
}

static uint64_t plane_elements(const struct axis axes[AXES])
{
    return (uint64_t)axes[0].in * axes[1].in;
}

static uint64_t position_count(const struct axis axes[AXES])
{
    return (uint64_t)axes[0].out * axes[1].out;
}

/* Infer */

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

/* Sets the pads so that out = in / stride, rounded up; of an odd sum the greater is more_at. */
static void pad_to_same(struct axis *axis, uint32_t more_at)
{
    const uint64_t out = ((uint64_t)axis->in + axis->stride - 1) / axis->stride;
    const uint64_t needed = (out - 1) * axis->stride + covered(axis);
    const uint64_t sum = needed > axis->in ? needed - axis->in : 0;
    axis->pads[more_at] = (uint32_t)((sum + 1) / 2);
    axis->pads[1 - more_at] = (uint32_t)(sum / 2);
}

static int infer_positions(const struct sl_graph_infer *infer, bool rounds_up, struct axis *axis)
{
    const uint64_t end = (uint64_t)axis->in + axis->pads[0], padded = end + axis->pads[1];
    if (covered(axis) > padded || padded > SL_GRAPH_ELEMENTS_MAX) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "a window of %" PRIu64 " over %" PRIu64
                             " padded elements: it must not be longer, and they at most %llu",
                             covered(axis), padded, SL_GRAPH_ELEMENTS_MAX);
    }
    const uint64_t room = padded - covered(axis), out = room / axis->stride + 1;
    /* One more if it begins before the pad at the end. */
    const bool has_more = rounds_up && room % axis->stride != 0 && out * axis->stride < end;
    axis->out = (uint32_t)(out + has_more);
    return 0;
}

/* Sets the output, except its channels. */
static int infer_axes(const struct sl_graph_infer *infer, const uint32_t kernel[AXES],
                      struct axis axes[AXES])
{
    static const char *const auto_pads[] = {"SAME_LOWER", "SAME_UPPER", "NOTSET", "VALID"};
    const struct sl_graph_value *x = infer->inputs[0];
    const struct sl_graph_attribute *given = sl_graph_attribute_find(infer->node, "auto_pad");
    const bool rounds_up = sl_graph_attribute_int(infer->node, "ceil_mode", 0) != 0;
    uint32_t strides[AXES], dilations[AXES], pads[2 * AXES], choice = 0;
    while (choice < 4 && strcmp(given != NULL ? given->text : "NOTSET", auto_pads[choice]) != 0) {
        choice++;
    }
    int err = sl_graph_ops_check_rows_first(infer, x);
    err = err != 0 || choice < 4
              ? err
              : sl_graph_fail(infer, SL_ERR_INVALID,
                              "auto_pad is %s, but must be NOTSET, VALID, SAME_UPPER or "
                              "SAME_LOWER",
                              given->text);
    err = err != 0 ? err : read_ints(infer, "strides", AXES, 1, 1, strides);
    err = err != 0 ? err : read_ints(infer, "dilations", AXES, 1, 1, dilations);
    err = err != 0 ? err : read_ints(infer, "pads", 2 * AXES, 0, 0, pads);
    sl_graph_ops_set_output(infer, x);
    for (uint32_t i = 0; err == 0 && i < AXES; i++) {
        axes[i] = (struct axis){.in = (uint32_t)x->shape[2 + i],
                                .kernel = kernel[i],
                                .stride = strides[i],
                                .dilation = dilations[i]};
        if (choice < 2 && covered(&axes[i]) <= SL_GRAPH_ELEMENTS_MAX) {
            pad_to_same(&axes[i], choice);
        } else if (choice == 2) {
            axes[i].pads[0] = pads[i];
            axes[i].pads[1] = pads[AXES + i];
        }
        err = infer_positions(infer, rounds_up, &axes[i]);
        infer->outputs[0]->shape[2 + i] = axes[i].out;
    }
    return err;
}

/* Conv: for each group, filters [filters][taps] times columns [taps][positions]. */

struct conv {
    struct axis axes[AXES];
    uint32_t images; /* of a block */
    uint32_t groups;
    uint32_t channels, filters, taps; /* of a group */
    uint32_t lines;                   /* of the output that are computed together */
    bool is_direct;                   /* the columns are the input itself */
};

static int check_filters(const struct sl_graph_infer *infer, int64_t groups)
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    const struct sl_graph_value *bias = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    if (x->rank != 4 || w->rank != 4 || w->has_rows || groups < 1 || groups > INT32_MAX ||
        w->shape[1] * (uint64_t)groups != x->shape[1] || w->shape[0] % (uint64_t)groups != 0) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "group %" PRId64 ": %s must be [N, C, H, W], and %s [M, C / group, "
                             "kernel, kernel] with M a multiple of group",
                             groups, x->name, w->name);
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
    const struct sl_graph_attribute *given = sl_graph_attribute_find(infer->node, "kernel_shape");
    const int64_t groups = sl_graph_attribute_int(infer->node, "group", 1);
    int err = check_filters(infer, groups);
    if (err != 0) {
        return err;
    }
    const uint32_t kernel[AXES] = {(uint32_t)w->shape[2], (uint32_t)w->shape[3]};
    struct conv p = {.images = (uint32_t)x->shape[0],
                     .groups = (uint32_t)groups,
                     .channels = (uint32_t)w->shape[1],
                     .filters = (uint32_t)(w->shape[0] / (uint64_t)groups),
                     .taps = (uint32_t)sl_graph_elements(w, 1, w->rank)};
    if (given != NULL &&
        (given->count != AXES || given->ints[0] != kernel[0] || given->ints[1] != kernel[1])) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "kernel_shape must be [%u, %u], that of %s",
                             kernel[0], kernel[1], w->name);
    }
    err = infer_axes(infer, kernel, p.axes);
    if (err != 0) {
        return err;
    }
    const uint64_t positions = position_count(p.axes);
    const uint64_t line_floats = (uint64_t)p.taps * p.axes[1].out;
    if (line_floats > INT32_MAX || positions > INT32_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "filters of %u elements at %" PRIu64 " positions are too large",
                             p.taps, positions);
    }
    const uint64_t fitting = COLUMNS_BYTES / sizeof(float) / line_floats;
    p.lines = fitting >= p.axes[0].out ? p.axes[0].out : fitting > 0 ? (uint32_t)fitting : 1;
    p.is_direct = p.taps == p.channels && positions == plane_elements(p.axes) &&
                  p.axes[0].stride == 1 && p.axes[1].stride == 1;
    if (p.is_direct) {
        p.lines = p.axes[0].out;
    } else {
        infer->scratch_bytes = line_floats * p.lines * sizeof(float);
    }
    infer->outputs[0]->shape[1] = w->shape[0];
    infer->flops = 2.0 * (double)(x->shape[0] * w->shape[0]) * (double)p.taps * (double)positions;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

/* A line of the output: what a tap meets in a line of the input; 0 in the pads. */
static void copy_line(float *restrict to, const float *restrict line, const struct axis *axis,
                      const struct range *range)
{
    memset(to, 0, (size_t)range->begin * sizeof *to);
    if (axis->stride == 1) { /* so that the loop is vectorised */
        for (int64_t o = range->begin; o < range->end; o++) {
            to[o] = line[o + range->offset];
        }
    } else {
        for (int64_t o = range->begin; o < range->end; o++) {
            to[o] = line[o * axis->stride + range->offset];
        }
    }
    memset(to + range->end, 0, (size_t)(axis->out - range->end) * sizeof *to);
}

/* columns[channel, tap][line, position], for `lines` lines of the output from `begin` on. */
static void collect_columns(const struct conv *p, const float *planes, uint32_t begin,
                            uint32_t lines, float *columns)
{
    const struct axis *vertical = &p->axes[0], *horizontal = &p->axes[1];
    const struct range nothing = {0};
    for (uint32_t tap = 0; tap < p->taps; tap++) {
        const uint32_t in_line = tap % horizontal->kernel, line_of = tap / horizontal->kernel;
        const struct range rows = graph_ops_window_range_of(vertical, line_of % vertical->kernel);
        const struct range range = graph_ops_window_range_of(horizontal, in_line);
        const float *plane = planes + line_of / vertical->kernel * plane_elements(p->axes);
        for (int64_t line = begin; line < (int64_t)begin + lines; line++) {
            const bool is_inside = line >= rows.begin && line < rows.end;
            const int64_t row = is_inside ? line * vertical->stride + rows.offset : 0;
            copy_line(columns, plane + row * horizontal->in, horizontal,
                      is_inside ? &range : &nothing);
            columns += horizontal->out;
        }
    }
}

static int run_conv(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct conv *p = sl_graph_ops_params(node);
    const uint64_t positions = position_count(p->axes);
    const float *in = run->inputs[0], *bias = node->input_count > 2 ? run->inputs[2] : NULL;
    float *out = run->outputs[0];
    struct sl_blas_product product = {
        .m = p->filters, .k = p->taps, .alpha = 1, .beta = bias != NULL, .c_stride = positions};
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->images * p->groups; i++) {
        const uint64_t filter = i % p->groups * p->filters;
        for (uint64_t f = 0; bias != NULL && f < p->filters; f++) {
            for (uint64_t j = 0; j < positions; j++) {
                out[f * positions + j] = bias[filter + f];
            }
        }
        for (uint32_t line = 0; line < p->axes[0].out; line += p->lines) {
            const uint32_t left = p->axes[0].out - line, lines = left < p->lines ? left : p->lines;
            product.n = product.b_stride = (uint64_t)lines * p->axes[1].out;
            if (!p->is_direct) {
                collect_columns(p, in, line, lines, run->scratch);
            }
            sl_blas_multiply(&product, (const float *)run->inputs[1] + filter * p->taps,
                             p->is_direct ? in : run->scratch,
                             out + (uint64_t)line * p->axes[1].out);
        }
        in += p->channels * plane_elements(p->axes);
        out += p->filters * positions;
    }
    return 0;
}

/* ConvTranspose: the reverse of a Conv, whose input is the output here: filters [taps][channels]
 * times planes [channels][positions] are columns, which are added to the planes of the output. */

struct enlarge {
    struct axis axes[AXES]; /* in: of the output, out: of the input */
    uint32_t images;        /* of a block */
    uint32_t groups;
    uint32_t channels, filters, taps; /* of a group; taps of all its filters */
};

static int check_enlarging(const struct sl_graph_infer *infer, int64_t groups)
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    const struct sl_graph_value *bias = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    const struct sl_graph_attribute *given = sl_graph_attribute_find(infer->node, "auto_pad");
    const struct sl_graph_attribute *kernel = sl_graph_attribute_find(infer->node, "kernel_shape");
    if (x->rank != 4 || w->rank != 4 || w->has_rows || groups < 1 || groups > INT32_MAX ||
        w->shape[0] != x->shape[1] || x->shape[1] % (uint64_t)groups != 0) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "group %" PRId64 ": %s must be [N, C, H, W], and %s [C, M / group, "
                             "kernel, kernel] with C a multiple of group",
                             groups, x->name, w->name);
    }
    if ((bias != NULL &&
         (bias->rank != 1 || bias->has_rows || bias->shape[0] != w->shape[1] * (uint64_t)groups)) ||
        (kernel != NULL && (kernel->count != AXES || kernel->ints[0] != (int64_t)w->shape[2] ||
                            kernel->ints[1] != (int64_t)w->shape[3])) ||
        (given != NULL && strcmp(given->text, "NOTSET") != 0)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "the bias must be [M], kernel_shape that of %s, and auto_pad NOTSET",
                             w->name);
    }
    return sl_graph_ops_check_rows_first(infer, x);
}

static int infer_enlarged_axes(const struct sl_graph_infer *infer, struct axis axes[AXES])
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    uint32_t strides[AXES], dilations[AXES], pads[2 * AXES], more[AXES];
    int err = read_ints(infer, "strides", AXES, 1, 1, strides);
    err = err != 0 ? err : read_ints(infer, "dilations", AXES, 1, 1, dilations);
    err = err != 0 ? err : read_ints(infer, "pads", 2 * AXES, 0, 0, pads);
    err = err != 0 ? err : read_ints(infer, "output_padding", AXES, 0, 0, more);
    for (uint32_t i = 0; err == 0 && i < AXES; i++) {
        axes[i] = (struct axis){.out = (uint32_t)x->shape[2 + i],
                                .kernel = (uint32_t)w->shape[2 + i],
                                .stride = strides[i],
                                .dilation = dilations[i],
                                .pads = {pads[i], pads[AXES + i]}};
        const uint64_t steps = x->shape[2 + i] - 1; /* each factor is at most 2^31 */
        const uint64_t whole = steps * strides[i] + covered(&axes[i]) + more[i];
        const uint64_t cut = (uint64_t)pads[i] + pads[AXES + i];
        if (whole <= cut || whole > SL_GRAPH_ELEMENTS_MAX ||
            more[i] >= (strides[i] > dilations[i] ? strides[i] : dilations[i])) {
            err = sl_graph_fail(infer, SL_ERR_INVALID,
                                "%" PRIu64 " elements without pads of %" PRIu64
                                ": accepted are more than those and at most %llu, and an "
                                "output_padding smaller than a stride or dilation",
                                whole, cut, SL_GRAPH_ELEMENTS_MAX);
        } else {
            axes[i].in = (uint32_t)(whole - cut);
        }
    }
    return err;
}

static int infer_conv_transpose(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *w = infer->inputs[1];
    struct sl_graph_value *output = infer->outputs[0];
    const int64_t groups = sl_graph_attribute_int(infer->node, "group", 1);
    struct enlarge p = {.groups = (uint32_t)groups};
    int err = check_enlarging(infer, groups);
    err = err != 0 ? err : infer_enlarged_axes(infer, p.axes);
    if (err != 0) {
        return err;
    }
    const uint64_t taps = sl_graph_elements(w, 1, w->rank), positions = position_count(p.axes);
    if (taps > INT32_MAX || positions > INT32_MAX || taps > SL_GRAPH_ELEMENTS_MAX / positions) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "filters of %" PRIu64 " elements at %" PRIu64
                             " positions are too large",
                             taps, positions);
    }
    p.images = (uint32_t)x->shape[0];
    p.channels = (uint32_t)(x->shape[1] / (uint64_t)groups);
    p.filters = (uint32_t)w->shape[1];
    p.taps = (uint32_t)taps;
    sl_graph_ops_set_output(infer, x);
    output->shape[1] = w->shape[1] * (uint64_t)groups;
    output->shape[2] = p.axes[0].in;
    output->shape[3] = p.axes[1].in;
    infer->scratch_bytes = taps * positions * sizeof(float);
    infer->flops = 2.0 * (double)(x->shape[0] * x->shape[1]) * (double)taps * (double)positions;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

/* Adds the columns of one filter's taps to its plane. */
static void add_columns(const struct enlarge *p, const float *columns, float *plane)
{
    const struct axis *vertical = &p->axes[0], *horizontal = &p->axes[1];
    for (uint64_t tap = 0; tap < (uint64_t)vertical->kernel * horizontal->kernel; tap++) {
        const struct range rows = graph_ops_window_range_of(vertical, tap / horizontal->kernel);
        const struct range range = graph_ops_window_range_of(horizontal, tap % horizontal->kernel);
        for (int64_t line = rows.begin; line < rows.end; line++) {
            const float *restrict from = columns + line * horizontal->out;
            float *restrict to = plane + (line * vertical->stride + rows.offset) * horizontal->in;
            for (int64_t o = range.begin; o < range.end; o++) {
                to[o * horizontal->stride + range.offset] += from[o];
            }
        }
        columns += position_count(p->axes);
    }
}

static int run_conv_transpose(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct enlarge *p = sl_graph_ops_params(node);
    const uint64_t positions = position_count(p->axes), plane = plane_elements(p->axes);
    const uint64_t taps = p->taps / p->filters; /* of a filter */
    const float *in = run->inputs[0], *bias = node->input_count > 2 ? run->inputs[2] : NULL;
    const float *filters = run->inputs[1];
    float *out = run->outputs[0];
    const struct sl_blas_product product = {
        .m = p->taps, .n = positions, .k = p->channels, .alpha = 1, .a_transposed = true};
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->images * p->groups; i++) {
        const uint64_t group = i % p->groups;
        sl_blas_multiply(&product, filters + group * p->channels * p->taps, in, run->scratch);
        for (uint64_t f = 0; f < p->filters; f++, out += plane) {
            const float begin = bias != NULL ? bias[group * p->filters + f] : 0;
            for (uint64_t j = 0; j < plane; j++) {
                out[j] = begin;
            }
            add_columns(p, (const float *)run->scratch + f * taps * positions, out);
        }
        in += p->channels * positions;
    }
    return 0;
}

/* MaxPool and AveragePool */

struct pool {
    struct axis axes[AXES];
    uint32_t planes; /* of a block */
    bool takes_max, counts_pads;
};

static int infer_pool(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct pool p = {
        .takes_max = strcmp(infer->node->op_type, "MaxPool") == 0,
        .counts_pads = sl_graph_attribute_int(infer->node, "count_include_pad", 0) != 0,
    };
    uint32_t kernel[AXES];
    int err = x->rank == 4
                  ? read_ints(infer, "kernel_shape", AXES, 1, 0, kernel)
                  : sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "%s must be [N, C, H, W]", x->name);
    err = err != 0 ? err : infer_axes(infer, kernel, p.axes);
    for (uint32_t i = 0; err == 0 && i < 2 * AXES; i++) {
        const struct axis *axis = &p.axes[i % AXES];
        if (axis->pads[i / AXES] >= covered(axis)) { /* else each window meets the plane */
            err = sl_graph_fail(infer, SL_ERR_INVALID,
                                "a pad of %u must be smaller than the window of %" PRIu64,
                                axis->pads[i / AXES], covered(axis));
        }
    }
    if (err == 0) {
        p.planes = (uint32_t)(x->shape[0] * x->shape[1]);
        infer->flops = (double)p.planes * (double)position_count(p.axes) * kernel[0] * kernel[1];
        sl_graph_ops_save(infer->node, &p, sizeof p);
    }
    return err;
}

/* Combines each element of the output, which is set already, with those of its window. */
static void pool_plane(const struct pool *p, const float *in, float *out)
{
    const struct axis *vertical = &p->axes[0], *horizontal = &p->axes[1];
    for (uint64_t tap = 0; tap < (uint64_t)vertical->kernel * horizontal->kernel; tap++) {
        const struct range rows = graph_ops_window_range_of(vertical, tap / horizontal->kernel);
        const struct range range = graph_ops_window_range_of(horizontal, tap % horizontal->kernel);
        for (int64_t line = rows.begin; line < rows.end; line++) {
            const int64_t row = line * vertical->stride + rows.offset;
            const float *restrict from = in + row * horizontal->in;
            float *restrict to = out + line * horizontal->out;
            for (int64_t o = range.begin; o < range.end; o++) {
                const float x = from[o * horizontal->stride + range.offset];
                to[o] = !p->takes_max ? to[o] + x : to[o] > x ? to[o] : x;
            }
        }
    }
}

/* Taps of the window at position o that lie in the plane, or in its pads too; 1 if there is none.
 */
static int64_t window_taps(const struct axis *axis, uint32_t o, bool counts_pads)
{
    const int64_t begin = (int64_t)o * axis->stride - axis->pads[0], step = axis->dilation;
    const int64_t last = (int64_t)axis->in + (counts_pads ? axis->pads[1] : 0);
    const int64_t before = counts_pads || begin >= 0 ? 0 : (step - 1 - begin) / step;
    /* The first tap behind; a division for each position would take as long as the window. */
    const int64_t until = step == 1 ? last - begin : (last - begin + step - 1) / step;
    const int64_t count = (until < axis->kernel ? until : axis->kernel) - before;
    return count > 0 ? count : 1;
}

static int run_pool(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct pool *p = sl_graph_ops_params(node);
    const uint64_t positions = position_count(p->axes);
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->planes; i++) {
        for (uint64_t j = 0; j < positions; j++) {
            out[j] = p->takes_max ? -INFINITY : 0;
        }
        pool_plane(p, in, out);
        for (uint64_t j = 0; !p->takes_max && j < positions; j++) {
            const uint32_t line = (uint32_t)(j / p->axes[1].out),
                           o = (uint32_t)(j % p->axes[1].out);
            out[j] /= (float)(window_taps(&p->axes[0], line, p->counts_pads) *
                              window_taps(&p->axes[1], o, p->counts_pads));
        }
        in += plane_elements(p->axes);
        out += positions;
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_window[] = {
    SL_GRAPH_OPS_ENTRY("Conv", 2, 3, 0, infer_conv, run_conv, {"auto_pad", SL_GRAPH_STRING},
                       {"dilations", SL_GRAPH_INTS}, {"group", SL_GRAPH_INT},
                       {"kernel_shape", SL_GRAPH_INTS}, {"pads", SL_GRAPH_INTS},
                       {"strides", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("ConvTranspose", 2, 3, 0, infer_conv_transpose, run_conv_transpose,
                       {"auto_pad", SL_GRAPH_STRING}, {"dilations", SL_GRAPH_INTS},
                       {"group", SL_GRAPH_INT}, {"kernel_shape", SL_GRAPH_INTS},
                       {"output_padding", SL_GRAPH_INTS}, {"pads", SL_GRAPH_INTS},
                       {"strides", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("MaxPool", 1, 1, 0, infer_pool, run_pool, {"auto_pad", SL_GRAPH_STRING},
                       {"ceil_mode", SL_GRAPH_INT}, {"dilations", SL_GRAPH_INTS},
                       {"kernel_shape", SL_GRAPH_INTS}, {"pads", SL_GRAPH_INTS},
                       {"storage_order", SL_GRAPH_INT}, {"strides", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("AveragePool", 1, 1, 0, infer_pool, run_pool, {"auto_pad", SL_GRAPH_STRING},
                       {"ceil_mode", SL_GRAPH_INT}, {"count_include_pad", SL_GRAPH_INT},
                       {"dilations", SL_GRAPH_INTS}, {"kernel_shape", SL_GRAPH_INTS},
                       {"pads", SL_GRAPH_INTS}, {"strides", SL_GRAPH_INTS}),
    {.name = NULL},
};
