/* Resize: planes [H, W] become larger or smaller, by the nearest elements or linearly. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

#define AXES 2

/* ONNX's coordinate_transformation_mode. */
enum place { HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, PLACES };

enum rounding { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL, ROUNDINGS };

struct resize {
    uint32_t planes; /* of a block */
    uint32_t place, rounding;
    bool is_linear;
    struct {
        uint32_t in, out;
        float scale;
    } axes[AXES];
};

/* The two elements of an axis of the input between which an element of the output lies, and the
 * weight of the second one. */
struct source {
    uint32_t first, second;
    float weight;
};

/* The number of the attribute's text among the names; `count`: it is none of them. */
static uint32_t read_choice(const struct sl_graph_infer *infer, const char *name,
                            const char *const *names, uint32_t count)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(infer->node, name);
    uint32_t i = 0;
    while (a != NULL && i < count && strcmp(a->text, names[i]) != 0) {
        i++;
    }
    return i;
}

static int read_modes(const struct sl_graph_infer *infer, struct resize *p)
{
    static const char *const modes[] = {"nearest", "linear"};
    static const char *const places[] = {"half_pixel", "pytorch_half_pixel", "align_corners",
                                         "asymmetric"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil"};
    const uint32_t mode = read_choice(infer, "mode", modes, 2);
    p->is_linear = mode == 1;
    p->place = read_choice(infer, "coordinate_transformation_mode", places, PLACES);
    p->rounding = read_choice(infer, "nearest_mode", roundings, ROUNDINGS);
    return mode < 2 && p->place < PLACES && p->rounding < ROUNDINGS &&
                   sl_graph_attribute_int(infer->node, "antialias", 0) == 0
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "accepted are the modes nearest and linear, without antialias, and "
                               "coordinates half_pixel, pytorch_half_pixel, align_corners and "
                               "asymmetric");
}

/* Sets the axes by scales (input 2) or sizes (input 3), which are constants of all dimensions. */
static int read_sizes(const struct sl_graph_infer *infer, struct resize *p)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct sl_graph_value *scales = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    const struct sl_graph_value *sizes = sl_graph_ops_has(infer, 3) ? infer->inputs[3] : NULL;
    const struct sl_graph_value *given = scales != NULL ? scales : sizes;
    bool fits = (scales == NULL) != (sizes == NULL) && given->kind == SL_GRAPH_CONSTANT &&
                given->type == (scales != NULL ? SL_OBJECT_F32 : SL_OBJECT_I64) &&
                given->rank == 1 && given->shape[0] == x->rank;
    for (uint32_t i = 0; fits && i < x->rank; i++) {
        const double scale = scales != NULL ? ((const float *)scales->data)[i] : 1;
        const int64_t size = sizes != NULL ? ((const int64_t *)sizes->data)[i] : 0;
        const bool is_rows = sl_graph_ops_is_rows(x, i);
        const double out = scales != NULL ? floor((double)x->shape[i] * scale)
                           : is_rows      ? (double)sl_graph_rows_times(size)
                                          : (double)size;
        fits = out >= 1 && out <= (double)SL_GRAPH_ELEMENTS_MAX / 2 &&
               (i >= 2 || (out == (double)x->shape[i] && scale == 1));
        if (fits && i >= 2) {
            p->axes[i - 2].in = (uint32_t)x->shape[i];
            p->axes[i - 2].out = (uint32_t)out;
            p->axes[i - 2].scale = (float)(scales != NULL ? scale : out / (double)x->shape[i]);
        }
    }
    return fits ? 0
                : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                "scales or sizes must be a constant for all dimensions, which "
                                "leaves the first two as they are");
}

static int infer_resize(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct resize p = {0};
    if (x->rank != 4 || x->type != SL_OBJECT_F32) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "%s must be [N, C, H, W] of float32",
                             x->name);
    }
    int err = sl_graph_ops_check_rows_first(infer, x);
    err = err != 0 ? err : read_modes(infer, &p);
    err = err != 0 ? err : read_sizes(infer, &p);
    if (err != 0) {
        return err;
    }
    p.planes = (uint32_t)(x->shape[0] * x->shape[1]);
    sl_graph_ops_set_output(infer, x);
    infer->outputs[0]->shape[2] = p.axes[0].out;
    infer->outputs[0]->shape[3] = p.axes[1].out;
    infer->scratch_bytes = ((uint64_t)p.axes[0].out + p.axes[1].out) * sizeof(struct source);
    infer->flops = (double)p.planes * p.axes[0].out * p.axes[1].out * (p.is_linear ? 8 : 1);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

static struct source find_source(const struct resize *p, uint32_t axis, uint32_t i)
{
    const uint32_t in = p->axes[axis].in, out = p->axes[axis].out;
    const float scale = p->axes[axis].scale, last = (float)(in - 1);
    float at = ((float)i + 0.5F) / scale - 0.5F;
    if (p->place == ALIGN_CORNERS) {
        at = out > 1 ? (float)i * last / (float)(out - 1) : 0;
    } else if (p->place == ASYMMETRIC) {
        at = (float)i / scale;
    } else if (p->place == PYTORCH_HALF_PIXEL && out == 1) {
        at = 0;
    }
    if (!p->is_linear) {
        at = p->rounding == FLOOR               ? floorf(at)
             : p->rounding == CEIL              ? ceilf(at)
             : p->rounding == ROUND_PREFER_CEIL ? floorf(at + 0.5F)
                                                : ceilf(at - 0.5F);
    }
    at = !(at > 0) ? 0 : at > last ? last : at;
    struct source source = {.first = (uint32_t)at};
    source.first = source.first < in ? source.first : in - 1; /* floats are coarse above 2^24 */
    source.second = source.first + 1 < in ? source.first + 1 : source.first;
    source.weight = at - (float)source.first;
    return source;
}

static int run_resize(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct resize *p = sl_graph_ops_params(node);
    const uint32_t height = p->axes[0].out, width = p->axes[1].out;
    struct source *lines = run->scratch, *columns = lines + height;
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint32_t i = 0; i < height; i++) {
        lines[i] = find_source(p, 0, i);
    }
    for (uint32_t i = 0; i < width; i++) {
        columns[i] = find_source(p, 1, i);
    }
    for (uint64_t plane = 0; plane < sl_graph_ops_blocks(node, run, 0) * p->planes; plane++) {
        for (uint32_t y = 0; y < height; y++, out += width) {
            const float *a = in + (uint64_t)lines[y].first * p->axes[1].in;
            const float *b = in + (uint64_t)lines[y].second * p->axes[1].in;
            const float down = lines[y].weight;
            for (uint32_t x = 0; x < width; x++) {
                const struct source *s = &columns[x];
                const float upper = a[s->first] + (a[s->second] - a[s->first]) * s->weight;
                const float lower = b[s->first] + (b[s->second] - b[s->first]) * s->weight;
                out[x] = p->is_linear ? upper + (lower - upper) * down : a[s->first];
            }
        }
        in += (uint64_t)p->axes[0].in * p->axes[1].in;
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_resize[] = {
    SL_GRAPH_OPS_ENTRY(
        "Resize", 1, 4, SL_GRAPH_ANY_TYPE, infer_resize, run_resize, {"antialias", SL_GRAPH_INT},
        {"coordinate_transformation_mode", SL_GRAPH_STRING}, {"cubic_coeff_a", SL_GRAPH_FLOAT},
        {"exclude_outside", SL_GRAPH_INT}, {"extrapolation_value", SL_GRAPH_FLOAT},
        {"mode", SL_GRAPH_STRING}, {"nearest_mode", SL_GRAPH_STRING}),
    {.name = NULL},
};
