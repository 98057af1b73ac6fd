/* A click log whose truth is known: examples in Criteo's shape, 13 integers and 26 categories, with
 * labels drawn from a model planted beforehand. Its logit is a sum of a weight for each field's
 * value, and, if wished, for a few pairs of fields; so nobody can predict the labels better than
 * the planted model, and one that learns such weights comes close.
 *
 * Categories follow Zipf's law; their numbers grow from field to field, and rare ones weigh less,
 * so that what cannot be learnt from few examples matters little. From a seed; one thread. */
#ifndef SL_BENCH_PLANTED_H
#define SL_BENCH_PLANTED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define SL_PLANTED_INTEGERS         13
#define SL_PLANTED_CATEGORIES       26
#define SL_PLANTED_INTERACTIONS_MAX 64

struct sl_planted_options {
    uint64_t seed;
    uint32_t categories_least, categories_most; /* of the first and the last field; 2 and more */
    double zipf_exponent;                       /* > 0 */
    uint32_t interactions;                      /* pairs of fields, up to the maximum */
};

struct sl_planted_row {
    bool label;
    float logit;
    bool integer_missing[SL_PLANTED_INTEGERS];
    uint32_t integers[SL_PLANTED_INTEGERS];
    bool category_missing[SL_PLANTED_CATEGORIES];
    uint32_t categories[SL_PLANTED_CATEGORIES]; /* the words that the file has in hexadecimal */
};

struct sl_planted;

/* *out is owned by the caller. Errors: NO_MEMORY. */
int sl_planted_create(const struct sl_planted_options *options, struct sl_planted **out);
void sl_planted_destroy(struct sl_planted **planted);

/* The next example. */
void sl_planted_draw(struct sl_planted *planted, struct sl_planted_row *row);

/* Values that the 26 fields can take together, one for an empty field each included. */
uint64_t sl_planted_category_count(const struct sl_planted *planted);

#endif
