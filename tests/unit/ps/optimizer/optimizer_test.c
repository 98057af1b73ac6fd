/* Every optimizer against its formula in double precision, written here from the papers and not
 * from the kernels; and every form of the kernels against the scalar one, bit by bit. */
#include <math.h>
#include <string.h>

#include "core/hash.h"
#include "core/table_names.h"
#include "ps/optimizer/optimizer.h"
#include "ps/optimizer/update.h"
#include "tests/support/unit.h"

#define DIM_MAX    64
#define SLOTS_MAX  (2 * DIM_MAX + 4)
#define STEPS      25
#define DECAY_STEP 7

static const uint32_t dims[] = {1, 3, 8, 16, 17, 64};
#define DIM_COUNT (sizeof dims / sizeof dims[0])

/* Uniform in [-1, 1), sometimes exactly 0. */
static float random_float(uint64_t *state)
{
    const uint64_t bits = sl_hash_random(state);
    return bits % 16 == 0 ? 0.0F : (float)(bits >> 40) * 0x1p-23F - 1.0F;
}

static struct sl_optimizer_spec spec_of(enum sl_optimizer_kind kind)
{
    struct sl_optimizer_spec spec = sl_optimizer_defaults(kind);
    spec.lr = 0.05F;
    spec.momentum = 0.8F;
    spec.decay_steps = DECAY_STEP;
    spec.decay_baseline = 0.5F;
    spec.l1 = 0.3F;
    spec.l2 = 0.2F;
    spec.weight_decay = 0.2F;
    return spec;
}

/* Each way to update rows, alone and together; the first asks for nothing. */
static const struct sl_update_spec updates[] = {
    {.decay = SL_DECAY_NONE},
    {.decay = SL_DECAY_L2},
    {.decay = SL_DECAY_DECOUPLED},
    {.clip_norm = 0.8F},
    {.value_bound = 0.6F},
    {.clip_norm = 0.8F, .value_bound = 0.6F},
    {.decay = SL_DECAY_L2, .clip_norm = 0.8F},
    {.decay = SL_DECAY_L2, .clip_norm = 0.8F, .value_bound = 0.6F},
    {.decay = SL_DECAY_DECOUPLED, .clip_norm = 0.8F, .value_bound = 0.6F},
};
#define UPDATE_COUNT (sizeof updates / sizeof updates[0])

struct reference {
    double w[DIM_MAX];
    double a[DIM_MAX]; /* accumulator, first moment or n */
    double b[DIM_MAX]; /* velocity, second moment or z */
    double row;        /* row-wise accumulator or second moment */
    uint64_t periods;
    double beta1_power, beta2_power;
};

static void reference_init(struct reference *reference, const struct sl_optimizer_spec *spec,
                           uint32_t dim, const float *w)
{
    const bool accumulates =
        spec->kind == SL_OPTIMIZER_ADAGRAD || spec->kind == SL_OPTIMIZER_ADAGRAD_DECAY ||
        spec->kind == SL_OPTIMIZER_FTRL || spec->kind == SL_OPTIMIZER_FTRL_GROUP;
    memset(reference, 0, sizeof *reference);
    for (uint32_t i = 0; i < dim; i++) {
        reference->w[i] = (double)w[i];
        reference->a[i] = accumulates ? (double)spec->initial_accumulator : 0;
    }
    reference->row =
        spec->kind == SL_OPTIMIZER_ROWWISE_ADAGRAD ? (double)spec->initial_accumulator : 0;
    reference->beta1_power = (double)spec->beta1;
    reference->beta2_power = (double)spec->beta2;
}

static double norm_of(uint32_t dim, const double *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* The optimizers with one moment or ratio for the whole row. */
static void reference_row(struct reference *x, const struct sl_optimizer_spec *spec, uint32_t dim,
                          const double *g, uint32_t t)
{
    const double mean = norm_of(dim, g) * norm_of(dim, g) / dim;
    const double beta1 = (double)spec->beta1, beta2 = (double)spec->beta2;
    const double lr = (double)spec->lr, epsilon = (double)spec->epsilon;
    const double m_bias = 1 - pow(beta1, t), v_bias = 1 - pow(beta2, t);
    double step[DIM_MAX];
    x->row = spec->kind == SL_OPTIMIZER_ROWWISE_ADAGRAD ? x->row + mean
                                                        : beta2 * x->row + (1 - beta2) * mean;
    for (uint32_t i = 0; i < dim; i++) {
        x->a[i] = beta1 * x->a[i] + (1 - beta1) * g[i];
        x->b[i] = beta2 * x->b[i] + (1 - beta2) * g[i] * g[i];
        step[i] = spec->kind == SL_OPTIMIZER_ROWWISE_ADAGRAD ? g[i] / (sqrt(x->row) + epsilon)
                  : spec->kind == SL_OPTIMIZER_ROWWISE_ADAM
                      ? x->a[i] / m_bias / (sqrt(x->row / v_bias) + epsilon)
                      : x->a[i] / m_bias / (sqrt(x->b[i] / v_bias) + epsilon) +
                            (double)spec->weight_decay * x->w[i];
    }
    const double length = norm_of(dim, x->w), change = norm_of(dim, step);
    const bool is_scaled = spec->kind == SL_OPTIMIZER_LAMB && length > 0 && change > 0;
    for (uint32_t i = 0; i < dim; i++) {
        x->w[i] -= lr * (is_scaled ? length / change : 1) * step[i];
    }
}

static void reference_adam(struct reference *x, const struct sl_optimizer_spec *spec, uint32_t i,
                           double g, uint32_t t)
{
    const double lr = (double)spec->lr;
    const double beta1 = (double)spec->beta1;
    const double beta2 = (double)spec->beta2;
    x->a[i] = beta1 * x->a[i] + (1 - beta1) * g;
    x->b[i] = beta2 * x->b[i] + (1 - beta2) * g * g;
    if (spec->kind == SL_OPTIMIZER_ADAM_ASYNC) {
        const double alpha = lr * sqrt(1 - x->beta2_power) / (1 - x->beta1_power);
        x->w[i] -= alpha * x->a[i] / (sqrt(x->b[i]) + (double)spec->epsilon);
        return;
    }
    const double unbiased_m = x->a[i] / (1 - pow(beta1, t));
    const double unbiased_v = x->b[i] / (1 - pow(beta2, t));
    double change = unbiased_m / (sqrt(unbiased_v) + (double)spec->epsilon);
    if (spec->kind == SL_OPTIMIZER_ADAMW) {
        change += (double)spec->weight_decay * x->w[i];
    }
    x->w[i] -= lr * change;
}

static void reference_ftrl(struct reference *x, const struct sl_optimizer_spec *spec, uint32_t dim,
                           const double *g)
{
    const double lr = (double)spec->lr;
    const double l1 = (double)spec->l1;
    const double q = -(double)spec->lr_power;
    double length = 0;
    for (uint32_t i = 0; i < dim; i++) {
        const double before = x->a[i];
        x->a[i] += g[i] * g[i];
        x->b[i] += g[i] - (pow(x->a[i], q) - pow(before, q)) / lr * x->w[i];
        length += x->b[i] * x->b[i];
    }
    length = sqrt(length);
    for (uint32_t i = 0; i < dim; i++) {
        const double z = x->b[i];
        const double divisor = pow(x->a[i], q) / lr + 2 * (double)spec->l2;
        if (spec->kind == SL_OPTIMIZER_FTRL) {
            x->w[i] = fabs(z) <= l1 ? 0 : ((z > 0 ? l1 : -l1) - z) / divisor;
        } else {
            x->w[i] = length <= l1 ? 0 : z * (l1 - length) / (divisor * length);
        }
    }
}

static void reference_element(struct reference *x, const struct sl_optimizer_spec *spec, uint32_t i,
                              double g, uint32_t t)
{
    const double lr = (double)spec->lr;
    switch (spec->kind) {
    case SL_OPTIMIZER_SUM:
        x->w[i] += g;
        break;
    case SL_OPTIMIZER_SGD:
        x->w[i] -= lr * g;
        break;
    case SL_OPTIMIZER_MOMENTUM:
        x->b[i] = (double)spec->momentum * x->b[i] + g;
        x->w[i] -= lr * x->b[i];
        break;
    case SL_OPTIMIZER_ADAGRAD:
    case SL_OPTIMIZER_ADAGRAD_DECAY:
        x->a[i] += g * g;
        x->w[i] -= lr * g / (sqrt(x->a[i]) + (double)spec->epsilon);
        break;
    case SL_OPTIMIZER_RMSPROP:
        x->a[i] = (double)spec->rho * x->a[i] + (1 - (double)spec->rho) * g * g;
        x->b[i] = (double)spec->momentum * x->b[i] + lr * g / sqrt(x->a[i] + (double)spec->epsilon);
        x->w[i] -= x->b[i];
        break;
    case SL_OPTIMIZER_ADAM:
    case SL_OPTIMIZER_ADAMW:
    case SL_OPTIMIZER_ADAM_ASYNC:
        reference_adam(x, spec, i, g, t);
        break;
    case SL_OPTIMIZER_ADADELTA: {
        const double rho = (double)spec->rho, epsilon = (double)spec->epsilon;
        x->a[i] = rho * x->a[i] + (1 - rho) * g * g;
        const double change = sqrt(x->b[i] + epsilon) / sqrt(x->a[i] + epsilon) * g;
        x->b[i] = rho * x->b[i] + (1 - rho) * change * change;
        x->w[i] -= lr * change;
        break;
    }
    case SL_OPTIMIZER_LION: {
        const double mixed = (double)spec->beta1 * x->a[i] + (1 - (double)spec->beta1) * g;
        x->a[i] = (double)spec->beta2 * x->a[i] + (1 - (double)spec->beta2) * g;
        x->w[i] -= lr * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
        break;
    }
    case SL_OPTIMIZER_FTRL:
    case SL_OPTIMIZER_FTRL_GROUP:
    case SL_OPTIMIZER_ROWWISE_ADAGRAD:
    case SL_OPTIMIZER_ROWWISE_ADAM:
    case SL_OPTIMIZER_LAMB:
        fail_msg("not by element");
    }
}

/* One push of one row: visit number t, from 1, at the table's step `step`. */
static void reference_push(struct reference *x, const struct sl_optimizer_spec *spec, uint32_t dim,
                           const double *g, uint32_t t, uint64_t step)
{
    if (spec->kind == SL_OPTIMIZER_ROWWISE_ADAGRAD || spec->kind == SL_OPTIMIZER_ROWWISE_ADAM ||
        spec->kind == SL_OPTIMIZER_LAMB) {
        reference_row(x, spec, dim, g, t);
        return;
    }
    if (spec->kind == SL_OPTIMIZER_FTRL || spec->kind == SL_OPTIMIZER_FTRL_GROUP) {
        reference_ftrl(x, spec, dim, g);
        return;
    }
    if (spec->kind == SL_OPTIMIZER_ADAGRAD_DECAY && step / spec->decay_steps > x->periods) {
        x->periods++;
        for (uint32_t i = 0; i < dim; i++) {
            x->a[i] = fmax((double)spec->rho * x->a[i], (double)spec->decay_baseline);
        }
    }
    for (uint32_t i = 0; i < dim; i++) {
        reference_element(x, spec, i, g[i], t);
    }
    x->beta1_power *= (double)spec->beta1;
    x->beta2_power *= (double)spec->beta2;
}

/* The same with what the table asks for beside the optimizer. */
static void reference_update(struct reference *x, const struct sl_update_spec *update,
                             const struct sl_optimizer_spec *spec, uint32_t dim, const float *g,
                             uint32_t t, uint64_t step)
{
    double gradient[DIM_MAX];
    for (uint32_t i = 0; i < dim; i++) {
        gradient[i] = (double)g[i];
    }
    const double norm = norm_of(dim, gradient);
    const double longest = (double)update->clip_norm, bound = (double)update->value_bound;
    for (uint32_t i = 0; i < dim; i++) {
        gradient[i] *= longest > 0 && norm > longest ? longest / norm : 1;
        if (update->decay == SL_DECAY_L2) {
            gradient[i] += (double)spec->weight_decay * x->w[i];
        } else if (update->decay == SL_DECAY_DECOUPLED) {
            x->w[i] -= (double)spec->lr * (double)spec->weight_decay * x->w[i];
        }
    }
    reference_push(x, spec, dim, gradient, t, step);
    for (uint32_t i = 0; i < dim && bound > 0; i++) {
        x->w[i] = fmax(-bound, fmin(bound, x->w[i]));
    }
}

struct row {
    const struct sl_optimizer *optimizer;
    struct sl_update_spec update;
    struct sl_optimizer_spec spec;
    struct sl_optimizer_state state;
    float rate;
    uint32_t dim;
    uint32_t count;
    float w[DIM_MAX + 1];
    float slots[SLOTS_MAX];
};

static void row_init(struct row *row, const struct sl_optimizer_spec *spec,
                     enum sl_optimizer_simd form, uint32_t dim, uint64_t seed)
{
    memset(row, 0, sizeof *row);
    row->optimizer = sl_optimizer_find(spec->kind, form);
    assert_non_null(row->optimizer);
    row->spec = *spec;
    row->rate = 1;
    row->dim = dim;
    for (uint32_t i = 0; i < dim; i++) {
        row->w[i] = random_float(&seed);
    }
    /* Guards against writes past the end. */
    row->w[dim] = 12345.0F;
    row->slots[sl_optimizer_slot_floats(row->optimizer, dim)] = 54321.0F;
    sl_optimizer_init_slots(row->optimizer, spec, dim, row->slots);
    sl_optimizer_state_init(spec, &row->state);
}

/* As a table does. */
static void apply(const struct sl_update_spec *update, const struct sl_optimizer *optimizer,
                  const struct sl_optimizer_visit *visit, float *w, float *s, float *r,
                  const float *g)
{
    if (sl_update_is_asked(update)) {
        sl_update_apply(update, optimizer, visit, w, s, r, g);
    } else {
        optimizer->apply(visit, w, s, r, g);
    }
}

static void row_push(struct row *row, const float *g, uint64_t step)
{
    const struct sl_optimizer_visit visit = {
        .spec = &row->spec,
        .state = &row->state,
        .lr = row->spec.lr * row->rate,
        .dim = row->dim,
        .slot_stride = row->dim,
        .count = row->count,
        .step = step,
    };
    apply(&row->update, row->optimizer, &visit, row->w, row->slots,
          row->slots + (size_t)row->optimizer->slots_per_value * row->dim, g);
    if (row->optimizer->end_push != NULL) {
        row->optimizer->end_push(&row->spec, &row->state);
    }
    row->count++;
    assert_true(row->w[row->dim] == 12345.0F);
    assert_true(row->slots[sl_optimizer_slot_floats(row->optimizer, row->dim)] == 54321.0F);
}

static void follow_reference(const struct sl_optimizer_spec *spec,
                             const struct sl_update_spec *update, uint32_t dim)
{
    uint64_t seed = 100 * (uint64_t)spec->kind + dim;
    static const float rates[] = {1, 0.75F, 1.25F, 0.5F};
    struct sl_optimizer_spec rated = *spec;
    struct row row;
    struct reference reference;
    row_init(&row, spec, SL_OPTIMIZER_SIMD_BEST, dim, seed);
    row.update = *update;
    reference_init(&reference, spec, dim, row.w);
    for (uint32_t t = 1; t <= STEPS; t++) {
        float g[DIM_MAX];
        for (uint32_t i = 0; i < dim; i++) {
            g[i] = random_float(&seed);
        }
        row.rate = rates[t % 4];
        rated.lr = spec->lr * row.rate;
        row_push(&row, g, 2 * t);
        reference_update(&reference, update, &rated, dim, g, t, 2 * t);
        for (uint32_t i = 0; i < dim; i++) {
            if (fabs((double)row.w[i] - reference.w[i]) > 4e-6 * (1 + fabs(reference.w[i]))) {
                fail_msg("%s, update %zu, dim %u, visit %u, column %u: %.9g, not %.9g",
                         row.optimizer->name, (size_t)(update - updates), dim, t, i,
                         (double)row.w[i], reference.w[i]);
            }
        }
    }
}

SL_CASE(optimizer_apply__follows_the_formula)
{
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        const struct sl_optimizer_spec spec = spec_of((enum sl_optimizer_kind)kind);
        for (size_t i = 0; i < DIM_COUNT * UPDATE_COUNT; i++) {
            const struct sl_update_spec *update = &updates[i % UPDATE_COUNT];
            if (kind != SL_OPTIMIZER_SUM || update->decay == SL_DECAY_NONE) {
                follow_reference(&spec, update, dims[i / UPDATE_COUNT]);
            }
        }
    }
}

SL_CASE(optimizer_apply__ftrl_of_another_power)
{
    for (int kind = SL_OPTIMIZER_FTRL; kind <= SL_OPTIMIZER_FTRL_GROUP; kind++) {
        struct sl_optimizer_spec spec = spec_of((enum sl_optimizer_kind)kind);
        spec.lr_power = -0.7F;
        for (size_t d = 0; d < DIM_COUNT; d++) {
            follow_reference(&spec, &updates[0], dims[d]);
        }
    }
}

static void compare_forms(const struct sl_optimizer_spec *spec, const struct sl_update_spec *update,
                          enum sl_optimizer_simd form, uint32_t dim)
{
    uint64_t seed = dim;
    struct row scalar;
    struct row vector;
    row_init(&scalar, spec, SL_OPTIMIZER_SIMD_SCALAR, dim, seed);
    row_init(&vector, spec, form, dim, seed);
    scalar.update = vector.update = *update;
    for (uint32_t t = 0; t < STEPS; t++) {
        float g[DIM_MAX];
        for (uint32_t i = 0; i < dim; i++) {
            g[i] = random_float(&seed);
        }
        row_push(&scalar, g, t);
        row_push(&vector, g, t);
        if (memcmp(scalar.w, vector.w, sizeof scalar.w) != 0 ||
            memcmp(scalar.slots, vector.slots, sizeof scalar.slots) != 0) {
            fail_msg("%s: form %d differs at dim %u, visit %u", scalar.optimizer->name, (int)form,
                     dim, t);
        }
    }
}

SL_CASE(optimizer_forms__bit_identical)
{
    for (int form = SL_OPTIMIZER_SIMD_SCALAR; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
        for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
            const struct sl_optimizer_spec spec = spec_of((enum sl_optimizer_kind)kind);
            if (sl_optimizer_find(spec.kind, (enum sl_optimizer_simd)form) == NULL) {
                continue;
            }
            for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
                compare_forms(&spec, &updates[dim % UPDATE_COUNT], (enum sl_optimizer_simd)form,
                              dim);
                compare_forms(&spec, &updates[0], (enum sl_optimizer_simd)form, dim);
            }
        }
    }
}

/* Records as a table has them; the count of one comes to its end. */
static void visit_rows(const struct sl_optimizer_spec *spec, const struct sl_update_spec *update,
                       enum sl_optimizer_simd form, uint32_t dim)
{
    enum { ROWS = 3, VISITS = 20, STEP = 2 * DECAY_STEP, ROW_FLOATS = DIM_MAX + SLOTS_MAX };
    static float one_by_one[ROWS][ROW_FLOATS];
    static uint64_t together[ROWS][(sizeof(struct sl_row) / 4 + ROW_FLOATS + 1) / 2];
    static float gradients[VISITS * DIM_MAX];
    uint32_t counts[ROWS] = {4, SL_ROW_COUNT_MAX - 1, 0};
    const struct sl_optimizer *scalar = sl_optimizer_find(spec->kind, SL_OPTIMIZER_SIMD_SCALAR);
    const size_t own = (size_t)dim * (1 + scalar->slots_per_value);
    struct sl_row *records[VISITS];
    uint64_t seed = dim;
    struct sl_optimizer_state powers;
    struct sl_optimizer_visit visit = {.spec = spec,
                                       .state = &powers,
                                       .lr = spec->lr,
                                       .dim = dim,
                                       .slot_stride = dim,
                                       .step = STEP};
    sl_optimizer_state_init(spec, &powers);
    memset(one_by_one, 0, sizeof one_by_one);
    for (uint32_t row = 0; row < ROWS; row++) {
        struct sl_row *record = (void *)together[row];
        for (uint32_t i = 0; i < dim; i++) {
            one_by_one[row][i] = random_float(&seed);
        }
        sl_optimizer_init_slots(scalar, spec, dim, one_by_one[row] + dim);
        *record = (struct sl_row){.key = row, .count = counts[row]};
        memcpy(record->values, one_by_one[row], sizeof one_by_one[row]);
    }
    for (uint32_t i = 0; i < VISITS * dim; i++) {
        gradients[i] = random_float(&seed);
    }
    for (uint32_t i = 0; i < VISITS; i++) {
        const uint32_t row = i * 2 % ROWS;
        float *w = one_by_one[row];
        visit.count = counts[row];
        counts[row] += counts[row] < SL_ROW_COUNT_MAX;
        apply(update, scalar, &visit, w, w + dim, w + own, gradients + (size_t)i * dim);
        records[i] = (void *)together[row];
    }
    const struct sl_optimizer_rows rows = {VISITS, records, gradients};
    if (sl_update_is_asked(update)) {
        sl_update_apply_rows(update, sl_optimizer_find(spec->kind, form), &visit, &rows);
    } else {
        sl_optimizer_find(spec->kind, form)->apply_rows(&visit, &rows);
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        const struct sl_row *record = (void *)together[row];
        assert_true(record->last_step == STEP && record->count == counts[row]);
        if (memcmp(record->values, one_by_one[row], sizeof one_by_one[row]) != 0) {
            fail_msg("%s: form %d differs over rows of %u", scalar->name, (int)form, dim);
        }
    }
}

SL_CASE(optimizer_apply_rows__same_bits_as_apply)
{
    for (int form = SL_OPTIMIZER_SIMD_SCALAR; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
        for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
            const struct sl_optimizer_spec spec = spec_of((enum sl_optimizer_kind)kind);
            if (sl_optimizer_find(spec.kind, (enum sl_optimizer_simd)form) == NULL) {
                continue;
            }
            for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
                visit_rows(&spec, &updates[dim % UPDATE_COUNT], (enum sl_optimizer_simd)form, dim);
                visit_rows(&spec, &updates[0], (enum sl_optimizer_simd)form, dim);
            }
        }
    }
}

SL_CASE(optimizer_find__best_is_a_form_of_this_machine)
{
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        const enum sl_optimizer_kind k = (enum sl_optimizer_kind)kind;
        const struct sl_optimizer *best = sl_optimizer_find(k, SL_OPTIMIZER_SIMD_BEST);
        bool found = false;
        for (int form = SL_OPTIMIZER_SIMD_SCALAR; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
            found |= best == sl_optimizer_find(k, (enum sl_optimizer_simd)form);
        }
        assert_non_null(best);
        assert_true(found);
        assert_non_null(sl_optimizer_find(k, SL_OPTIMIZER_SIMD_SCALAR));
    }
    assert_null(
        sl_optimizer_find((enum sl_optimizer_kind)SL_OPTIMIZER_KIND_COUNT, SL_OPTIMIZER_SIMD_BEST));
    assert_true(strcmp(sl_optimizer_best_form_name(), "best") != 0);
}

/* A part of a block with the block's stride moves as a row of its own would, and nothing else. */
SL_CASE(optimizer_apply__part_of_a_block)
{
    enum { FIRST = 5, PART = 19 };
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        const struct sl_optimizer_spec spec = spec_of((enum sl_optimizer_kind)kind);
        uint64_t seed = 7;
        struct row block;
        struct row before;
        struct row degraded;
        row_init(&block, &spec, SL_OPTIMIZER_SIMD_BEST, DIM_MAX, 1);
        row_init(&degraded, &spec, SL_OPTIMIZER_SIMD_BEST, PART, 1);
        memcpy(degraded.w, block.w + FIRST, PART * sizeof(float));
        before = block;
        float g[PART];
        for (uint32_t i = 0; i < PART; i++) {
            g[i] = random_float(&seed);
        }
        const struct sl_optimizer_visit visit = {.spec = &spec,
                                                 .state = &block.state,
                                                 .lr = spec.lr,
                                                 .dim = PART,
                                                 .slot_stride = DIM_MAX};
        const size_t own = (size_t)block.optimizer->slots_per_value * DIM_MAX;
        block.optimizer->apply(&visit, block.w + FIRST, block.slots + FIRST, block.slots + own, g);
        row_push(&degraded, g, 0);
        assert_memory_equal(block.w + FIRST, degraded.w, PART * sizeof(float));
        assert_memory_equal(block.w, before.w, FIRST * sizeof(float));
        assert_memory_equal(block.w + FIRST + PART, before.w + FIRST + PART,
                            (DIM_MAX - FIRST - PART) * sizeof(float));
        for (uint32_t slot = 0; slot < block.optimizer->slots_per_value; slot++) {
            const float *base = block.slots + slot * DIM_MAX;
            const float *base_before = before.slots + slot * DIM_MAX;
            assert_memory_equal(base + FIRST, degraded.slots + slot * PART, PART * sizeof(float));
            assert_memory_equal(base, base_before, FIRST * sizeof(float));
            assert_memory_equal(base + FIRST + PART, base_before + FIRST + PART,
                                (DIM_MAX - FIRST - PART) * sizeof(float));
        }
    }
}

SL_CASE(optimizer_adagrad_decay__one_period_a_visit)
{
    const struct sl_optimizer_spec spec = spec_of(SL_OPTIMIZER_ADAGRAD_DECAY);
    const float zero = 0.0F;
    struct row row;
    row_init(&row, &spec, SL_OPTIMIZER_SIMD_BEST, 1, 1);
    row.slots[0] = 100.0F;
    row_push(&row, &zero, DECAY_STEP - 1); /* not yet a period */
    assert_true(row.slots[0] == 100.0F);
    row_push(&row, &zero, 3 * DECAY_STEP); /* three have passed: one is made up for */
    assert_true(row.slots[0] == spec.rho * 100.0F);
    row_push(&row, &zero, 3 * DECAY_STEP);
    row_push(&row, &zero, 3 * DECAY_STEP);
    const float thrice = spec.rho * (spec.rho * (spec.rho * 100.0F));
    assert_true(row.slots[0] == thrice);
    row_push(&row, &zero, 3 * DECAY_STEP); /* all are */
    assert_true(row.slots[0] == thrice);
    row.slots[0] = 0.25F; /* under the floor of 0.5 */
    row_push(&row, &zero, 4 * DECAY_STEP);
    assert_true(row.slots[0] == spec.decay_baseline);
}

/* After so many visits that the powers have vanished, Adam's step is the plain quotient. */
SL_CASE(optimizer_adam__correction_ends)
{
    const struct sl_optimizer_spec spec = spec_of(SL_OPTIMIZER_ADAM);
    const float g = 0.5F;
    struct row row;
    row_init(&row, &spec, SL_OPTIMIZER_SIMD_BEST, 1, 1);
    row.count = SL_ROW_COUNT_MAX;
    row.w[0] = 1.0F;
    row.slots[0] = 0.5F;
    row.slots[1] = 0.25F;
    row_push(&row, &g, 0);
    assert_float_equal(row.w[0], 1.0F - spec.lr, 1e-6F);
}

/* Nothing is ever divided by nothing, whatever the gradient. */
SL_CASE(optimizer_apply__stays_finite)
{
    static const float gradients[] = {0.0F, -0.0F, 1e-30F, -1e-30F, 1e15F};
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        struct sl_optimizer_spec spec = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
        spec.initial_accumulator = 0.0F;
        for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++) {
            struct row row;
            row_init(&row, &spec, SL_OPTIMIZER_SIMD_BEST, 1, 1);
            row_push(&row, &gradients[i], 0);
            row_push(&row, &gradients[i], 0);
            assert_true(isfinite(row.w[0]));
        }
    }
}

/* A client that pushes NaN gets NaN back: no kernel may take it for a zero, or leave the value as
 * it was. */
static void check_no_number(enum sl_optimizer_kind kind, enum sl_optimizer_simd form, uint32_t dim)
{
    const struct sl_optimizer_spec spec = spec_of(kind);
    uint64_t storage[(sizeof(struct sl_row) / 4 + DIM_MAX + SLOTS_MAX + 1) / 2] = {0};
    struct sl_row *record = (void *)storage;
    for (uint32_t at = 0; at < dim; at++) {
        float g[DIM_MAX] = {0};
        struct row row;
        row_init(&row, &spec, form, dim, 1);
        g[at] = NAN;
        *record = (struct sl_row){.key = 1};
        memcpy(record->values, row.w, dim * sizeof(float));
        memcpy(record->values + dim, row.slots, sizeof row.slots);
        const struct sl_optimizer_visit visit = {.spec = &spec,
                                                 .state = &row.state,
                                                 .lr = spec.lr,
                                                 .dim = dim,
                                                 .slot_stride = dim,
                                                 .step = 1};
        const struct sl_optimizer_rows rows = {1, &record, g};
        row.optimizer->apply_rows(&visit, &rows);
        row_push(&row, g, 1);
        if (!isnan(row.w[at]) || !isnan(record->values[at])) {
            fail_msg("%s: form %d makes %g and %g of no number at %u of %u", row.optimizer->name,
                     (int)form, (double)row.w[at], (double)record->values[at], at, dim);
        }
    }
}

SL_CASE(optimizer_apply__no_number_makes_no_number)
{
    for (int form = SL_OPTIMIZER_SIMD_SCALAR; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
        for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
            for (size_t d = 0; d < DIM_COUNT; d++) {
                if (sl_optimizer_find((enum sl_optimizer_kind)kind, (enum sl_optimizer_simd)form) !=
                    NULL) {
                    check_no_number((enum sl_optimizer_kind)kind, (enum sl_optimizer_simd)form,
                                    dims[d]);
                }
            }
        }
    }
}

SL_CASE(optimizer_kind_from_name__round_trip)
{
    enum sl_optimizer_kind out = SL_OPTIMIZER_SUM;
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        const struct sl_optimizer *optimizer =
            sl_optimizer_find((enum sl_optimizer_kind)kind, SL_OPTIMIZER_SIMD_SCALAR);
        assert_string_equal(optimizer->name, sl_table_names_optimizer[kind]);
        assert_int_equal(sl_optimizer_kind_from_name(optimizer->name, &out), 0);
        assert_int_equal(out, kind);
    }
    assert_int_equal(sl_optimizer_kind_from_name("adagrad_", &out), SL_ERR_NOT_FOUND);
    assert_int_equal(sl_optimizer_kind_from_name("", &out), SL_ERR_NOT_FOUND);
}
