/* Models, their shared parts, and the loss. Gradients are held against differences of the loss. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "programs/models/loss.h"
#include "programs/models/model.h"
#include "programs/train/reader.h"
#include "tests/support/unit.h"

enum { ROWS = 5, FIELDS = 4, KEYS = 7 };

/* Every model has a tower's shape; those without ignore it. */
static const struct sl_model_shape SHAPE = {
    .factors = 3, .fields = FIELDS, .hidden = {6, 5}, .seed = 1};

struct problem {
    struct sl_batch batch;
    struct sl_key_index set;
    struct sl_table_spec specs[SL_MODEL_TABLES];
    uint32_t table_count;
    size_t floats[SL_MODEL_TABLES];
    float *params[SL_MODEL_TABLES], *grads[SL_MODEL_TABLES], *scratch;
    struct sl_model_pass pass;
};

static float draw(uint64_t *seed)
{
    return (float)((double)(sl_hash_random(seed) >> 11) / 9007199254740992.0 * 2 - 1);
}

/* Rows of one to FIELDS features, some of them twice in a row. */
static void make_batch(struct problem *problem)
{
    uint64_t seed = 5;
    struct sl_reader_row row = {0};
    assert_int_equal(sl_batch_init(&problem->batch, ROWS), 0);
    sl_batch_clear(&problem->batch, &problem->set);
    for (uint32_t r = 0; r < ROWS; r++) {
        row.label = r % 2 == 0 ? 1 : 0;
        row.feature_count = 0;
        for (uint32_t i = 0; i < 1 + r % FIELDS; i++) {
            uint64_t key = sl_hash_random(&seed) % KEYS;
            assert_int_equal(sl_reader_row_add(&row, key, 1 + draw(&seed) / 2), 0);
        }
        assert_int_equal(sl_batch_add(&problem->batch, &problem->set, &row), 0);
    }
    sl_reader_row_fini(&row);
}

static void begin(struct problem *problem, const struct sl_model *model)
{
    uint64_t seed = 17;
    *problem = (struct problem){.pass = {.shape = &SHAPE}};
    make_batch(problem);
    problem->table_count = model->tables(&SHAPE, problem->specs);
    assert_in_range(problem->table_count, 1, SL_MODEL_TABLES);
    for (uint32_t t = 0; t < problem->table_count; t++) {
        size_t floats = sl_model_floats(&problem->specs[t], &problem->batch);
        problem->floats[t] = floats;
        problem->params[t] = malloc(floats * sizeof(float));
        problem->grads[t] = calloc(floats, sizeof(float));
        for (size_t i = 0; i < floats; i++) {
            problem->params[t][i] = draw(&seed);
        }
        problem->pass.params[t] = problem->params[t];
        problem->pass.grads[t] = problem->grads[t];
    }
    problem->scratch = malloc((model->scratch_floats(&SHAPE) + 1) * sizeof(float));
    problem->pass.scratch = problem->scratch;
}

static void end(struct problem *problem)
{
    for (uint32_t t = 0; t < problem->table_count; t++) {
        free(problem->params[t]);
        free(problem->grads[t]);
    }
    free(problem->scratch);
    sl_batch_fini(&problem->batch);
    sl_key_index_fini(&problem->set);
}

static double loss_of(const struct sl_model *model, const struct problem *problem)
{
    float logits[ROWS];
    double loss = 0;
    sl_model_score(model, &problem->pass, &problem->batch, logits);
    for (uint32_t row = 0; row < ROWS; row++) {
        loss += sl_loss_logistic(logits[row], problem->batch.labels[row]);
    }
    return loss;
}

/* Central differences: their error here is of the order of float's rounding over the step. A
 * parameter whose ReLU changes sides within the step is rare; the draw above has none. */
static void check_gradients(const struct sl_model *model)
{
    struct problem problem;
    begin(&problem, model);
    double loss = sl_model_train(model, &problem.pass, &problem.batch);
    assert_float_equal(loss, loss_of(model, &problem), 1e-6);
    size_t not_zero = 0;
    for (uint32_t t = 0; t < problem.table_count; t++) {
        for (size_t i = 0; i < problem.floats[t]; i++) {
            const float step = 1.0F / 256;
            float *param = &problem.params[t][i];
            const float before = *param;
            *param = before + step;
            double above = loss_of(model, &problem);
            *param = before - step;
            double below = loss_of(model, &problem);
            *param = before;
            double expected = (above - below) / (2 * (double)step);
            assert_float_equal(problem.grads[t][i], expected, 2e-3);
            not_zero += problem.grads[t][i] != 0;
        }
    }
    assert_true(not_zero > problem.batch.key_count);
    end(&problem);
}

SL_CASE(model_lr__gradients_are_those_of_the_loss)
{
    check_gradients(&sl_model_lr);
}

SL_CASE(model_fm__gradients_are_those_of_the_loss)
{
    check_gradients(&sl_model_fm);
}

SL_CASE(model_deepfm__gradients_are_those_of_the_loss)
{
    check_gradients(&sl_model_deepfm);
}

/* The linear-time form against the sum over pairs that defines it. */
SL_CASE(model_fm__is_the_sum_over_pairs)
{
    struct problem problem;
    begin(&problem, &sl_model_fm);
    float logits[ROWS];
    sl_model_score(&sl_model_fm, &problem.pass, &problem.batch, logits);
    for (uint32_t row = 0; row < ROWS; row++) {
        const struct sl_batch *batch = &problem.batch;
        double expected = (double)problem.params[2][0];
        for (uint32_t i = sl_batch_row_start(batch, row); i < batch->row_ends[row]; i++) {
            const float *vi = problem.params[1] + (size_t)batch->features[i] * SHAPE.factors;
            double xi = (double)batch->values[i];
            expected += (double)problem.params[0][batch->features[i]] * xi;
            for (uint32_t j = i + 1; j < batch->row_ends[row]; j++) {
                const float *vj = problem.params[1] + (size_t)batch->features[j] * SHAPE.factors;
                for (uint32_t f = 0; f < SHAPE.factors; f++) {
                    expected += (double)vi[f] * (double)vj[f] * xi * (double)batch->values[j];
                }
            }
        }
        assert_float_equal(logits[row], expected, 1e-5);
    }
    end(&problem);
}

/* A row without features is the bias alone. */
SL_CASE(model_lr__of_no_features_is_the_bias)
{
    const float bias[] = {0.75F};
    const struct sl_model_pass pass = {.shape = &SHAPE, .params = {NULL, bias}};
    const struct sl_model_example none = {0};
    assert_float_equal(sl_model_lr.forward(&pass, &none), 0.75F, 0);
}

SL_CASE(model_tables__have_names_and_shapes_of_their_own)
{
    const struct sl_model *const models[] = {&sl_model_lr, &sl_model_fm, &sl_model_deepfm};
    for (size_t m = 0; m < 3; m++) {
        struct sl_table_spec specs[SL_MODEL_TABLES];
        uint32_t count = models[m]->tables(&SHAPE, specs);
        for (uint32_t t = 0; t < count; t++) {
            bool sparse = specs[t].kind == SL_TABLE_SPARSE;
            assert_true(sparse ? specs[t].dim >= 1 && specs[t].length == 0
                               : specs[t].length >= 1 && specs[t].dim == 0);
            assert_ptr_equal(strstr(specs[t].name, models[m]->name), specs[t].name);
            for (uint32_t other = 0; other < t; other++) {
                assert_string_not_equal(specs[t].name, specs[other].name);
            }
        }
    }
}

SL_CASE(loss_logistic__is_stable_far_out)
{
    assert_float_equal(sl_loss_logistic(0, 1), 0.69314718, 1e-7);
    assert_float_equal(sl_loss_logistic(1000, 0), 1000, 1e-9);
    assert_float_equal(sl_loss_logistic(1000, 1), 0, 1e-9);
    assert_float_equal(sl_loss_logistic(-1000, 1), 1000, 1e-9);
    assert_float_equal(sl_loss_sigmoid(1000), 1, 0);
    assert_float_equal(sl_loss_sigmoid(-1000), 0, 0);
    assert_float_equal(sl_loss_gradient(0, 1), -0.5F, 0);
    assert_float_equal(sl_loss_sigmoid(2) + sl_loss_sigmoid(-2), 1, 1e-6);
}
