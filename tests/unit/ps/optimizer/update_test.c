/* What a table asks for beside its optimizer, at the limits of numbers. optimizer_test.c compares
 * ordinary updates with a reference. */
#include <math.h>

#include "ps/optimizer/update.h"
#include "tests/support/unit.h"

#define DIM 3

/* Pushes g to a row of SGD with lr 1 that is w; w becomes the result. */
static void push(const struct sl_update_spec *update, float *w, const float *g)
{
    const struct sl_optimizer_spec spec = {.kind = SL_OPTIMIZER_SGD, .lr = 1, .weight_decay = 0.5F};
    const struct sl_optimizer_visit visit = {.spec = &spec, .lr = 1, .dim = DIM};
    sl_update_apply(update, sl_optimizer_find(spec.kind, SL_OPTIMIZER_SIMD_BEST), &visit, w, NULL,
                    NULL, g);
}

static void assert_row(const float *w, float first, float second, float third)
{
    const float wanted[DIM] = {first, second, third};
    for (uint32_t i = 0; i < DIM; i++) {
        if (!(isnan(w[i]) && isnan(wanted[i]))) {
            assert_float_equal(w[i], wanted[i], 1e-6F);
        }
    }
}

SL_CASE(update__is_asked_by_any_field)
{
    const struct sl_update_spec none = {.decay = SL_DECAY_NONE};
    const struct sl_update_spec some[] = {
        {.decay = SL_DECAY_L2}, {.clip_norm = 1e-30F}, {.value_bound = 1e30F}};
    assert_false(sl_update_is_asked(&none));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sl_update_is_asked(&some[i]));
    }
}

SL_CASE(update_clip__squares_beyond_f32)
{
    const struct sl_update_spec update = {.clip_norm = 5};
    const float large[DIM] = {3e30F, 0, -4e30F};
    const float small[DIM] = {3e-30F, 0, -4e-30F};
    float w[DIM] = {0};
    push(&update, w, large);
    assert_row(w, -3, 0, 4);
    float same[DIM] = {0};
    push(&update, same, small);
    assert_true(same[0] == -small[0] && same[2] == -small[2]);
}

/* The result shows which gradient was infinite, and does not spread. */
SL_CASE(update_clip__infinite_becomes_nan)
{
    const struct sl_update_spec update = {.clip_norm = 5};
    const float infinite[DIM] = {1, INFINITY, 2};
    const float nan[DIM] = {1, NAN, 2};
    float w[DIM] = {1, 1, 1};
    push(&update, w, infinite);
    assert_row(w, 1, NAN, 1);
    float v[DIM] = {1, 1, 1};
    push(&update, v, nan);
    assert_row(v, 0, NAN, -1);
}

/* Values that an assign put beyond the bound return to it with their next update; NaN stays. */
SL_CASE(update_bound__holds_values_and_keeps_nan)
{
    const struct sl_update_spec update = {.value_bound = 2};
    const float g[DIM] = {0, 5, 0};
    float w[DIM] = {3, 1, NAN};
    push(&update, w, g);
    assert_row(w, 2, -2, NAN);
}

/* L2 decay is a gradient, after clipping; decoupled decay is none. */
SL_CASE(update_decay__is_not_clipped)
{
    const struct sl_update_spec l2 = {.decay = SL_DECAY_L2, .clip_norm = 1};
    const struct sl_update_spec decoupled = {.decay = SL_DECAY_DECOUPLED, .clip_norm = 1};
    const float g[DIM] = {10, 0, 0};
    float w[DIM] = {8, 4, 2};
    push(&l2, w, g);
    assert_row(w, 3, 2, 1);
    push(&decoupled, w, g);
    assert_row(w, 0.5F, 1, 0.5F);
}
