/* A click log whose truth is known: examples in Criteo's shape, 13 integers and 26 categories, with
 * labels drawn from a model of random weights. Its logit is a sum of a weight for each field's
 * value and, on request, for a few pairs of fields; so nobody can predict the labels better than
 * this model, and one that learns such weights comes close.
 *
 * Categories follow Zipf's law; their numbers grow from field to field, and rare ones weigh less,
 * so that what cannot be learnt from few examples matters little. From a seed; one thread. */
#ifndef SL_PROGRAMS_TRAIN_SYNTHETIC_H
#define SL_PROGRAMS_TRAIN_SYNTHETIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define SL_SYNTHETIC_INTEGERS         13
#define SL_SYNTHETIC_CATEGORIES       26
#define SL_SYNTHETIC_INTERACTIONS_MAX 64

struct sl_synthetic_options {
    uint64_t seed;
    uint32_t categories_least, categories_most; /* of the first and the last field; 2 and more */
    double zipf_exponent;                       /* > 0 */
    uint32_t interactions;                      /* pairs of fields, up to the maximum */
};

struct sl_synthetic_row {
    bool label;
    float logit;
    bool integer_missing[SL_SYNTHETIC_INTEGERS];
    uint32_t integers[SL_SYNTHETIC_INTEGERS];
    bool category_missing[SL_SYNTHETIC_CATEGORIES];
    uint32_t categories[SL_SYNTHETIC_CATEGORIES]; /* the words that the file has in hexadecimal */
};

struct sl_synthetic;

/* *out is owned by the caller. Errors: NO_MEMORY. */
int sl_synthetic_create(const struct sl_synthetic_options *options, struct sl_synthetic **out);
void sl_synthetic_destroy(struct sl_synthetic **model);

/* The next example. */
void sl_synthetic_draw(struct sl_synthetic *model, struct sl_synthetic_row *row);

/* Values that the 26 fields can take together, one for an empty field each included. */
uint64_t sl_synthetic_category_count(const struct sl_synthetic *model);

#endif
