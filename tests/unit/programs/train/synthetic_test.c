#include <string.h>

#include "programs/train/synthetic.h"
#include "tests/support/unit.h"

static const struct sl_synthetic_options OPTIONS = {
    .seed = 3, .categories_least = 4, .categories_most = 500, .zipf_exponent = 1.5};

enum { ROWS = 20000 };

SL_CASE(synthetic_draw__is_the_same_for_a_seed)
{
    struct sl_synthetic *one;
    struct sl_synthetic *two;
    struct sl_synthetic *other;
    struct sl_synthetic_options changed = OPTIONS;
    changed.seed++;
    assert_int_equal(sl_synthetic_create(&OPTIONS, &one), 0);
    assert_int_equal(sl_synthetic_create(&OPTIONS, &two), 0);
    assert_int_equal(sl_synthetic_create(&changed, &other), 0);
    uint32_t different = 0;
    for (uint32_t i = 0; i < 100; i++) {
        struct sl_synthetic_row rows[3];
        memset(rows, 0, sizeof rows);
        sl_synthetic_draw(one, &rows[0]);
        sl_synthetic_draw(two, &rows[1]);
        sl_synthetic_draw(other, &rows[2]);
        assert_memory_equal(&rows[0], &rows[1], sizeof rows[0]);
        different += rows[0].logit != rows[2].logit;
    }
    assert_int_equal(different, 100);
    sl_synthetic_destroy(&one);
    sl_synthetic_destroy(&two);
    sl_synthetic_destroy(&other);
    assert_null(one);
}

/* The same fields, another logit. */
SL_CASE(synthetic_draw__adds_interactions)
{
    struct sl_synthetic_options options = OPTIONS;
    struct sl_synthetic *model;
    struct sl_synthetic_row row;
    options.interactions = SL_SYNTHETIC_INTERACTIONS_MAX;
    assert_int_equal(sl_synthetic_create(&options, &model), 0);
    double sum = 0;
    double squares = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        sl_synthetic_draw(model, &row);
        sum += (double)row.logit;
        squares += (double)row.logit * (double)row.logit;
    }
    /* 64 weights of deviation 0.4 a row add about 10 to the variance of about 2. */
    double variance = squares / ROWS - sum / ROWS * (sum / ROWS);
    assert_true(variance > 4);
    sl_synthetic_destroy(&model);
}
