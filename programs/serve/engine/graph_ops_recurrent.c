/* LSTM and GRU, with the default activations. A sequence is a row, or one of several in a row; all
 * sequences of a run take a step together, so each step is one product for all of them. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/blas.h"
#include "programs/serve/engine/graph_ops.h"

struct recurrent {
    uint64_t steps, lanes; /* lanes: the sequences of a block */
    uint64_t inputs, hidden;
    uint64_t gates; /* 4 of LSTM, 3 of GRU */
    uint32_t directions;
    bool is_reverse;    /* the first direction */
    bool is_lane_first; /* layout 1: [lanes, steps, inputs] */
};

/* Operands of ONNX. */
enum {
    IN_X,
    IN_W,       /* [directions, gates * hidden, inputs] */
    IN_R,       /* [directions, gates * hidden, hidden] */
    IN_B,       /* [directions, 2 * gates * hidden], of W, then of R */
    IN_LENGTHS, /* refused */
    IN_H,       /* [directions, lanes, hidden] */
    IN_C,       /* the same, of LSTM */
    IN_P        /* refused */
};

/* Refuses an operand, if it is there, of another shape; third: 0: it has two dimensions. */
static int check_shape(const struct sl_graph_infer *infer, uint32_t input, uint64_t first,
                       uint64_t second, uint64_t third)
{
    const uint64_t sizes[] = {first, second, third};
    const struct sl_graph_value *value =
        sl_graph_ops_has(infer, input) ? infer->inputs[input] : NULL;
    const uint32_t rank = third == 0 ? 2 : 3;
    bool fits = value == NULL || value->rank == rank;
    for (uint32_t i = 0; fits && value != NULL && i < rank; i++) {
        fits = value->shape[i] == sizes[i];
    }
    return fits ? 0
                : sl_graph_fail(infer, SL_ERR_INVALID,
                                "input %u (%s) must have %u dimensions, of %" PRIu64 ", %" PRIu64
                                " and %" PRIu64 " elements",
                                input, value->name, rank, first, second, third);
}

/* Refuses what is not served, and what depends on activations. */
static int check_form(const struct sl_graph_infer *infer, const char **direction)
{
    const struct sl_graph_node *node = infer->node;
    const struct sl_graph_attribute *a = sl_graph_attribute_find(node, "direction");
    const struct sl_graph_value *x = infer->inputs[IN_X];
    *direction = a != NULL ? a->text : "forward";
    if (strcmp(*direction, "forward") != 0 && strcmp(*direction, "reverse") != 0 &&
        strcmp(*direction, "bidirectional") != 0) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "direction is %s, but must be forward, reverse or bidirectional",
                             *direction);
    }
    if (sl_graph_ops_has(infer, IN_LENGTHS) || sl_graph_ops_has(infer, IN_P) ||
        sl_graph_attribute_int(node, "input_forget", 0) != 0) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "sequence_lens, peepholes and input_forget are not supported");
    }
    if (x->rank != 3 || infer->inputs[IN_W]->rank != 3 || infer->inputs[IN_R]->rank != 3) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "X, W and R must have 3 dimensions");
    }
    return 0;
}

static int check_rows(const struct sl_graph_infer *infer, const struct recurrent *p)
{
    const struct sl_graph_value *x = infer->inputs[IN_X];
    const uint32_t axis = p->is_lane_first ? 0 : 1; /* of the lanes */
    for (uint32_t i = IN_W; i < infer->node->input_count; i++) {
        const struct sl_graph_value *value = infer->inputs[i];
        const bool has_rows = (i == IN_H || i == IN_C) && x->has_rows;
        if (value != NULL && (value->has_rows != has_rows ||
                              (has_rows && (value->row_axis != axis || value->row_outer != 1)))) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "%s must have the rows of the input if it is a state, else none",
                                 value->name);
        }
    }
    return !x->has_rows || (x->row_axis == axis && x->row_outer == 1)
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "the rows must be the sequences, not their steps (dimension %u)",
                               x->row_axis);
}

/* Y [steps, directions, lanes, hidden], Y_h and Y_c [directions, lanes, hidden]; with layout 1 the
 * lanes come first. */
static void set_outputs(const struct sl_graph_infer *infer, const struct recurrent *p)
{
    const struct sl_graph_value *x = infer->inputs[IN_X];
    for (uint32_t i = 0; i < infer->node->output_count; i++) {
        struct sl_graph_infer one = *infer;
        one.outputs = &infer->outputs[i];
        if (infer->outputs[i] == NULL) {
            continue;
        }
        sl_graph_ops_set_output(&one, x);
        struct sl_graph_value *output = infer->outputs[i];
        uint32_t rank = 0;
        const uint64_t lanes_first = p->is_lane_first ? p->lanes : 0;
        const uint64_t sizes[] = {lanes_first, i == 0 ? p->steps : 0, p->directions,
                                  p->is_lane_first ? 0 : p->lanes, p->hidden};
        for (uint32_t j = 0; j < 5; j++) {
            if (sizes[j] != 0) {
                output->row_axis = x->has_rows && (j == 0 || j == 3) ? rank : output->row_axis;
                output->shape[rank++] = sizes[j];
            }
        }
        output->rank = rank;
    }
}

static int infer_recurrent(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[IN_X];
    const bool is_gru = infer->node->op_type[0] == 'G';
    const char *direction;
    int err = check_form(infer, &direction);
    if (err != 0) {
        return err;
    }
    const bool is_lane_first = sl_graph_attribute_int(infer->node, "layout", 0) != 0;
    struct recurrent p = {
        .steps = x->shape[is_lane_first],
        .lanes = x->shape[!is_lane_first],
        .inputs = x->shape[2],
        .hidden = infer->inputs[IN_R]->shape[2],
        .gates = is_gru ? 3 : 4,
        .directions = direction[0] == 'b' ? 2 : 1,
        .is_reverse = direction[0] == 'r',
        .is_lane_first = is_lane_first,
    };
    const uint64_t wide = p.gates * p.hidden; /* hidden is at most 2^31 */
    const uint64_t state[] = {is_lane_first ? p.lanes : p.directions,
                              is_lane_first ? p.directions : p.lanes};
    err = check_shape(infer, IN_W, p.directions, wide, p.inputs);
    err = err != 0 ? err : check_shape(infer, IN_R, p.directions, wide, p.hidden);
    err = err != 0 ? err : check_shape(infer, IN_B, p.directions, 2 * wide, 0);
    err = err != 0 ? err : check_shape(infer, IN_H, state[0], state[1], p.hidden);
    err = err != 0 ? err : check_shape(infer, IN_C, state[0], state[1], p.hidden);
    err = err != 0 ? err : check_rows(infer, &p);
    if (err != 0) {
        return err;
    }
    const uint64_t given =
        (uint64_t)sl_graph_attribute_int(infer->node, "hidden_size", (int64_t)p.hidden);
    const double floats = (double)infer->rows_max * (double)p.lanes *
                          ((double)(p.steps + 2) * (double)wide + 2 * (double)p.hidden);
    if (given != p.hidden || wide > INT32_MAX || floats > (double)SL_GRAPH_ELEMENTS_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "hidden_size must be that of R, and the gates of all steps and rows "
                             "at most %llu values",
                             SL_GRAPH_ELEMENTS_MAX);
    }
    set_outputs(infer, &p);
    infer->scratch_bytes = (uint64_t)floats * sizeof(float);
    infer->flops = 2.0 * p.directions * (double)p.steps * (double)p.lanes * (double)wide *
                   (double)(p.inputs + p.hidden);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* i, o, f, c; c is at state, and becomes the new one. */
static void step_lstm(const float *of_x, const float *of_h, const float *bias, uint64_t hidden,
                      float *h, float *c)
{
    for (uint64_t j = 0; j < hidden; j++) {
        float gate[4];
        for (uint64_t g = 0; g < 4; g++) {
            const uint64_t at = g * hidden + j;
            gate[g] = of_x[at] + of_h[at] + (bias != NULL ? bias[at] + bias[4 * hidden + at] : 0);
        }
        c[j] = sigmoid(gate[2]) * c[j] + sigmoid(gate[0]) * tanhf(gate[3]);
        h[j] = sigmoid(gate[1]) * tanhf(c[j]);
    }
}

/* z, r, h; with linear_before_reset. */
static void step_gru(const float *of_x, const float *of_h, const float *bias, uint64_t hidden,
                     float *h)
{
    for (uint64_t j = 0; j < hidden; j++) {
        float x[3], r[3];
        for (uint64_t g = 0; g < 3; g++) {
            const uint64_t at = g * hidden + j;
            x[g] = of_x[at] + (bias != NULL ? bias[at] : 0);
            r[g] = of_h[at] + (bias != NULL ? bias[3 * hidden + at] : 0);
        }
        const float update = sigmoid(x[0] + r[0]);
        const float fresh = tanhf(x[2] + sigmoid(x[1] + r[1]) * r[2]);
        h[j] = (1 - update) * fresh + update * h[j];
    }
}

/* A direction of a run. */
struct direction {
    const struct recurrent *p;
    uint64_t rows, number;
    const float *recurrent, *bias; /* bias: NULL: 0 */
    float *of_x;                   /* [rows][block of X] gates of all steps */
    float *of_h;                   /* [rows * lanes][gates * hidden] */
    float *h, *c;                  /* [rows * lanes][hidden] */
};

/* Where a lane of a row has its state in Y_h, Y_c and the initial ones. */
static uint64_t state_at(const struct direction *d, uint64_t row, uint64_t lane)
{
    const struct recurrent *p = d->p;
    const uint64_t in_row =
        p->is_lane_first ? lane * p->directions + d->number : d->number * p->lanes + lane;
    return (row * p->directions * p->lanes + in_row) * p->hidden;
}

static void copy_states(const struct direction *d, const float *from, float *to, bool reads)
{
    const struct recurrent *p = d->p;
    for (uint64_t lane = 0; lane < d->rows * p->lanes; lane++) {
        const uint64_t at = state_at(d, lane / p->lanes, lane % p->lanes);
        const uint64_t read = reads ? at : lane * p->hidden;
        const uint64_t written = reads ? lane * p->hidden : at;
        if (from == NULL) {
            memset(to + written, 0, p->hidden * sizeof *to);
        } else {
            memcpy(to + written, from + read, p->hidden * sizeof *to);
        }
    }
}

/* One step of all sequences. */
static void run_step(const struct direction *d, uint64_t step, float *y)
{
    const struct recurrent *p = d->p;
    const uint64_t lanes = d->rows * p->lanes, wide = p->gates * p->hidden;
    const struct sl_blas_product product = {
        .m = lanes, .n = wide, .k = p->hidden, .alpha = 1, .b_transposed = true};
    sl_blas_multiply(&product, d->h, d->recurrent, d->of_h);
    for (uint64_t i = 0; i < lanes; i++) {
        const uint64_t row = i / p->lanes, lane = i % p->lanes;
        const uint64_t place = p->is_lane_first ? lane * p->steps + step : step * p->lanes + lane;
        const float *of_x = d->of_x + (row * p->steps * p->lanes + place) * wide;
        float *h = d->h + i * p->hidden;
        if (p->gates == 4) {
            step_lstm(of_x, d->of_h + i * wide, d->bias, p->hidden, h, d->c + i * p->hidden);
        } else {
            step_gru(of_x, d->of_h + i * wide, d->bias, p->hidden, h);
        }
        if (y != NULL) {
            const uint64_t in_row = p->is_lane_first
                                        ? (lane * p->steps + step) * p->directions + d->number
                                        : (step * p->directions + d->number) * p->lanes + lane;
            const uint64_t row_states = p->steps * p->directions * p->lanes;
            memcpy(y + (row * row_states + in_row) * p->hidden, h, p->hidden * sizeof *h);
        }
    }
}

static const float *input_of(const struct sl_graph_node *node, const struct sl_graph_run *run,
                             uint32_t input)
{
    return input < node->input_count ? run->inputs[input] : NULL;
}

static float *output_of(const struct sl_graph_node *node, const struct sl_graph_run *run,
                        uint32_t output)
{
    return output < node->output_count ? run->outputs[output] : NULL;
}

static int run_recurrent(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct recurrent *p = sl_graph_ops_params(node);
    const uint64_t rows = sl_graph_ops_blocks(node, run, IN_X), wide = p->gates * p->hidden;
    const struct sl_blas_product product = {.m = rows * p->steps * p->lanes,
                                            .n = wide,
                                            .k = p->inputs,
                                            .alpha = 1,
                                            .b_transposed = true};
    const float *bias = input_of(node, run, IN_B);
    struct direction d = {.p = p, .rows = rows, .of_x = run->scratch};
    d.of_h = d.of_x + product.m * wide;
    d.h = d.of_h + rows * p->lanes * wide;
    d.c = d.h + rows * p->lanes * p->hidden;
    for (d.number = 0; d.number < p->directions; d.number++) {
        const bool is_back = p->is_reverse || d.number == 1;
        const float *w = (const float *)run->inputs[IN_W] + d.number * wide * p->inputs;
        d.recurrent = (const float *)run->inputs[IN_R] + d.number * wide * p->hidden;
        d.bias = bias != NULL ? bias + d.number * 2 * wide : NULL;
        copy_states(&d, input_of(node, run, IN_H), d.h, true);
        copy_states(&d, p->gates == 4 ? input_of(node, run, IN_C) : NULL, d.c, true);
        sl_blas_multiply(&product, run->inputs[IN_X], w, d.of_x);
        for (uint64_t i = 0; i < p->steps; i++) {
            run_step(&d, is_back ? p->steps - 1 - i : i, output_of(node, run, 0));
        }
        if (output_of(node, run, 1) != NULL) {
            copy_states(&d, d.h, output_of(node, run, 1), false);
        }
        if (output_of(node, run, 2) != NULL) {
            copy_states(&d, d.c, output_of(node, run, 2), false);
        }
    }
    return 0;
}

static int infer_gru(struct sl_graph_infer *infer)
{
    const int err = infer_recurrent(infer);
    return err != 0 || sl_graph_attribute_int(infer->node, "linear_before_reset", 0) != 0
               ? err
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "linear_before_reset must be 1");
}

const struct sl_graph_op sl_graph_ops_recurrent[] = {
    {.name = "LSTM",
     .inputs_min = 3,
     .inputs_max = 8,
     .outputs_max = 3,
     .attributes = {{"direction", SL_GRAPH_STRING},
                    {"hidden_size", SL_GRAPH_INT},
                    {"input_forget", SL_GRAPH_INT},
                    {"layout", SL_GRAPH_INT}},
     .infer = infer_recurrent,
     .run = run_recurrent},
    {.name = "GRU",
     .inputs_min = 3,
     .inputs_max = 6,
     .outputs_max = 2,
     .attributes = {{"direction", SL_GRAPH_STRING},
                    {"hidden_size", SL_GRAPH_INT},
                    {"layout", SL_GRAPH_INT},
                    {"linear_before_reset", SL_GRAPH_INT}},
     .infer = infer_gru,
     .run = run_recurrent},
    {.name = NULL},
};
