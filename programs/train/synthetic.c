#include "programs/train/synthetic.h"

#include <math.h>
#include <stdlib.h>

#include "core/array.h"
#include "core/hash.h"
#include "programs/train/reader.h"

/* Standard deviations of the weights; together a logit's is about 1.4. */
#define CATEGORY_DEVIATION    0.35
#define INTEGER_DEVIATION     0.25
#define INTERACTION_DEVIATION 0.40

#define CLICK_RATE            0.25
#define CALIBRATION_ROWS      4096
#define RARE_RANK             30.0 /* from about here on, categories weigh less */
#define INTEGER_CLASSES       128  /* more than the largest integer's */
#define INTERACTION_SIDE                                                                           \
    16 /* values of a field in an interaction: the last one stands for the rest */

struct category_field {
    uint32_t count;
    double *cumulative; /* [count]: probability of this rank or a lower one */
    float *weights;     /* [count] */
    double missing;     /* probability */
    float missing_weight;
};

struct integer_field {
    double log_most; /* integers are log-uniform up to e^log_most */
    double missing;
    float missing_weight;
    float weights[INTEGER_CLASSES];
};

struct interaction {
    uint32_t fields[2];
    float weights[INTERACTION_SIDE][INTERACTION_SIDE];
};

struct sl_synthetic {
    uint64_t random; /* state */
    double bias;
    struct category_field categories[SL_SYNTHETIC_CATEGORIES];
    struct integer_field integers[SL_SYNTHETIC_INTEGERS];
    uint32_t interaction_count;
    struct interaction interactions[SL_SYNTHETIC_INTERACTIONS_MAX];
};

/* [0, 1) */
static double draw_uniform(uint64_t *state)
{
    return (double)(sl_hash_random(state) >> 11) / 9007199254740992.0;
}

/* Box and Muller 1958. */
static float draw_normal(uint64_t *state, double deviation)
{
    double radius = sqrt(-2 * log(1 - draw_uniform(state)));
    return (float)(deviation * radius * cos(2 * M_PI * draw_uniform(state)));
}

static int plant_category(struct category_field *field, uint32_t count, double exponent,
                          uint64_t *random)
{
    field->count = count;
    field->cumulative = malloc(count * sizeof *field->cumulative);
    field->weights = malloc(count * sizeof *field->weights);
    if (field->cumulative == NULL || field->weights == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    double sum = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        sum += pow(rank + 1, -exponent);
        field->cumulative[rank] = sum;
        field->weights[rank] = draw_normal(random, CATEGORY_DEVIATION / (1 + rank / RARE_RANK));
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        field->cumulative[rank] /= sum;
    }
    /* Every third field is sometimes empty. */
    uint32_t third = (uint32_t)(sl_hash_random(random) % 3);
    field->missing = third == 0 ? 0.2 * draw_uniform(random) : 0;
    field->missing_weight = draw_normal(random, CATEGORY_DEVIATION);
    return 0;
}

static void plant_integer(struct integer_field *field, uint64_t *random)
{
    field->log_most = 1 + 3 * draw_uniform(random);
    field->missing = 0.2 * draw_uniform(random);
    field->missing_weight = draw_normal(random, INTEGER_DEVIATION);
    for (uint32_t i = 0; i < INTEGER_CLASSES; i++) {
        field->weights[i] = draw_normal(random, INTEGER_DEVIATION);
    }
}

static void plant_interaction(struct interaction *interaction, uint64_t *random)
{
    uint32_t first = (uint32_t)(sl_hash_random(random) % SL_SYNTHETIC_CATEGORIES);
    uint32_t step = 1 + (uint32_t)(sl_hash_random(random) % (SL_SYNTHETIC_CATEGORIES - 1));
    interaction->fields[0] = first;
    interaction->fields[1] = (first + step) % SL_SYNTHETIC_CATEGORIES;
    for (uint32_t a = 0; a < INTERACTION_SIDE; a++) {
        for (uint32_t b = 0; b < INTERACTION_SIDE; b++) {
            interaction->weights[a][b] = draw_normal(random, INTERACTION_DEVIATION);
        }
    }
}

static double sigmoid(double logit)
{
    return 1 / (1 + exp(-logit));
}

/* Chooses the bias with which some examples' mean click rate is the one wanted, by bisection. */
static void calibrate(struct sl_synthetic *model)
{
    float logits[CALIBRATION_ROWS];
    struct sl_synthetic_row row;
    for (uint32_t i = 0; i < CALIBRATION_ROWS; i++) {
        sl_synthetic_draw(model, &row);
        logits[i] = row.logit;
    }
    double low = -30;
    double high = 30;
    for (uint32_t round = 0; round < 40; round++) {
        double sum = 0;
        model->bias = (low + high) / 2;
        for (uint32_t i = 0; i < CALIBRATION_ROWS; i++) {
            sum += sigmoid((double)logits[i] + model->bias);
        }
        if (sum < CLICK_RATE * CALIBRATION_ROWS) {
            low = model->bias;
        } else {
            high = model->bias;
        }
    }
}

int sl_synthetic_create(const struct sl_synthetic_options *options, struct sl_synthetic **out)
{
    struct sl_synthetic *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    model->random = options->seed;
    double ratio = (double)options->categories_most / options->categories_least;
    for (uint32_t i = 0; i < SL_SYNTHETIC_CATEGORIES; i++) {
        double count = options->categories_least * pow(ratio, i / (SL_SYNTHETIC_CATEGORIES - 1.0));
        int err = plant_category(&model->categories[i], (uint32_t)(count + 0.5),
                                 options->zipf_exponent, &model->random);
        if (err != 0) {
            sl_synthetic_destroy(&model);
            return err;
        }
    }
    for (uint32_t i = 0; i < SL_SYNTHETIC_INTEGERS; i++) {
        plant_integer(&model->integers[i], &model->random);
    }
    model->interaction_count = options->interactions;
    for (uint32_t i = 0; i < options->interactions; i++) {
        plant_interaction(&model->interactions[i], &model->random);
    }
    calibrate(model);
    *out = model;
    return 0;
}

void sl_synthetic_destroy(struct sl_synthetic **model)
{
    for (uint32_t i = 0; *model != NULL && i < SL_SYNTHETIC_CATEGORIES; i++) {
        free((*model)->categories[i].cumulative);
        free((*model)->categories[i].weights);
    }
    free(*model);
    *model = NULL;
}

uint64_t sl_synthetic_category_count(const struct sl_synthetic *model)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < SL_SYNTHETIC_CATEGORIES; i++) {
        count += model->categories[i].count + (model->categories[i].missing > 0 ? 1 : 0);
    }
    return count;
}

/* The first rank whose cumulative probability exceeds a uniform draw. */
static uint32_t draw_rank(const struct category_field *field, uint64_t *random)
{
    double at = draw_uniform(random);
    uint32_t rank = 0;
    SL_ARRAY_BISECT(rank, field->count - 1, i, field->cumulative[i] <= at);
    return rank;
}

static float draw_integer(struct integer_field *field, uint64_t *random, bool *missing,
                          uint32_t *value)
{
    *missing = draw_uniform(random) < field->missing;
    *value = (uint32_t)exp(draw_uniform(random) * field->log_most) - 1;
    return *missing ? field->missing_weight : field->weights[sl_reader_criteo_class(*value, false)];
}

static float interaction_weight(const struct interaction *interaction, const uint32_t *ranks)
{
    uint32_t side[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rank = ranks[interaction->fields[i]];
        side[i] = rank < INTERACTION_SIDE ? rank : INTERACTION_SIDE - 1;
    }
    return interaction->weights[side[0]][side[1]];
}

void sl_synthetic_draw(struct sl_synthetic *model, struct sl_synthetic_row *row)
{
    uint64_t *random = &model->random;
    uint32_t ranks[SL_SYNTHETIC_CATEGORIES];
    double logit = model->bias;
    for (uint32_t i = 0; i < SL_SYNTHETIC_INTEGERS; i++) {
        logit += (double)draw_integer(&model->integers[i], random, &row->integer_missing[i],
                                      &row->integers[i]);
    }
    for (uint32_t i = 0; i < SL_SYNTHETIC_CATEGORIES; i++) {
        const struct category_field *field = &model->categories[i];
        row->category_missing[i] = draw_uniform(random) < field->missing;
        ranks[i] = draw_rank(field, random);
        logit +=
            (double)(row->category_missing[i] ? field->missing_weight : field->weights[ranks[i]]);
        /* A word that tells nothing about the rank; two of one field may rarely be the same. */
        row->categories[i] = (uint32_t)sl_hash_key((uint64_t)(i + 1) << 32 | ranks[i]);
        ranks[i] = row->category_missing[i] ? UINT32_MAX : ranks[i];
    }
    for (uint32_t i = 0; i < model->interaction_count; i++) {
        logit += (double)interaction_weight(&model->interactions[i], ranks);
    }
    row->logit = (float)logit;
    row->label = draw_uniform(random) < sigmoid(logit);
}
