#include "worker/client/error_feedback.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/err.h"
#include "core/hash.h"
#include "core/limits.h"
#include "core/precision.h"

#define WAYS 4

/* A key of 0 is also that of an unused row, whose remainders are 0. */
struct feedback_set {
    uint64_t keys[WAYS], oldest;
};

struct sl_error_feedback {
    pthread_mutex_t lock;
    uint32_t dim;              /* dense: 0 */
    uint64_t set_count;        /* dense: 0 */
    struct feedback_set *sets; /* [set_count] */
    float *remainders;         /* [set_count][WAYS][dim]; dense: [length] */
};

static uint64_t set_bytes(const struct sl_table_spec *spec)
{
    return sizeof(struct feedback_set) + WAYS * spec->dim * sizeof(float);
}

uint64_t sl_error_feedback_bytes_min(const struct sl_table_spec *spec)
{
    return spec->kind == SL_TABLE_DENSE ? spec->length * sizeof(float) : set_bytes(spec);
}

int sl_error_feedback_create(const struct sl_table_spec *spec, uint64_t bytes,
                             struct sl_error_feedback **out)
{
    sl_assert(spec->kind != SL_TABLE_KV);
    sl_assert(bytes >= sl_error_feedback_bytes_min(spec));
    struct sl_error_feedback *feedback = calloc(1, sizeof *feedback);
    if (feedback == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    feedback->dim = spec->dim;
    uint64_t values = spec->length;
    if (spec->kind == SL_TABLE_SPARSE) {
        feedback->set_count = bytes / set_bytes(spec);
        feedback->sets = calloc(feedback->set_count, sizeof *feedback->sets);
        values = feedback->set_count * WAYS * spec->dim;
    }
    feedback->remainders = calloc(values, sizeof *feedback->remainders);
    if (feedback->remainders == NULL || (feedback->set_count > 0 && feedback->sets == NULL)) {
        free(feedback->remainders);
        free(feedback->sets);
        free(feedback);
        return SL_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&feedback->lock, NULL);
    *out = feedback;
    return 0;
}

void sl_error_feedback_destroy(struct sl_error_feedback **feedback)
{
    struct sl_error_feedback *ended = *feedback;
    *feedback = NULL;
    if (ended != NULL) {
        pthread_mutex_destroy(&ended->lock);
        free(ended->remainders);
        free(ended->sets);
        free(ended);
    }
}

/* Returns the remainders of a key: zeros, in place of another key, if it has none. */
static float *feedback_row(struct sl_error_feedback *feedback, uint64_t key)
{
    const uint64_t index = sl_hash_key(key) % feedback->set_count;
    struct feedback_set *set = &feedback->sets[index];
    uint64_t way = 0;
    while (way < WAYS && set->keys[way] != key) {
        way++;
    }
    const bool is_new = way == WAYS;
    if (is_new) {
        way = set->oldest;
        set->oldest = (way + 1) % WAYS;
        set->keys[way] = key;
    }
    float *row = feedback->remainders + (index * WAYS + way) * feedback->dim;
    if (is_new) {
        memset(row, 0, feedback->dim * sizeof *row);
    }
    return row;
}

/* Values that are not finite leave no remainder. */
static void feedback_narrow(enum sl_precision precision, float *restrict remainders,
                            const float *gradients, uint32_t count, void *to)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    float sent[SL_LIMIT_DIM];
    for (uint32_t i = 0; i < count; i++) {
        remainders[i] += gradients[i];
    }
    kernels->narrow(precision, remainders, count, to);
    kernels->widen(precision, to, count, sent);
    for (uint32_t i = 0; i < count; i++) {
        const float left = remainders[i] - sent[i];
        remainders[i] = isfinite(left) ? left : 0;
    }
}

void sl_error_feedback_narrow_row(struct sl_error_feedback *feedback, enum sl_precision precision,
                                  uint64_t key, const float *gradients, void *to)
{
    pthread_mutex_lock(&feedback->lock);
    feedback_narrow(precision, feedback_row(feedback, key), gradients, feedback->dim, to);
    pthread_mutex_unlock(&feedback->lock);
}

void sl_error_feedback_narrow_range(struct sl_error_feedback *feedback, enum sl_precision precision,
                                    uint64_t start, uint64_t count, const float *gradients,
                                    void *to)
{
    uint8_t *row = to;
    const size_t row_bytes = sl_precision_row_bytes(precision, SL_PRECISION_ARRAY_ROW);
    pthread_mutex_lock(&feedback->lock);
    for (uint64_t at = 0; at < count; at += SL_PRECISION_ARRAY_ROW, row += row_bytes) {
        const uint64_t left = count - at;
        const uint32_t here =
            left < SL_PRECISION_ARRAY_ROW ? (uint32_t)left : SL_PRECISION_ARRAY_ROW;
        feedback_narrow(precision, feedback->remainders + start + at, gradients + at, here, row);
    }
    pthread_mutex_unlock(&feedback->lock);
}
