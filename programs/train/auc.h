/* sl_auc computes the exact area under the ROC curve: the share of (positive, negative) pairs that
 * the scores order correctly, a tie counting one half. By the rank sum of the positives (Mann and
 * Whitney 1947); tied scores share their mean rank. 8 bytes of memory an example. Owned by one
 * thread. */
#ifndef SL_PROGRAMS_TRAIN_AUC_H
#define SL_PROGRAMS_TRAIN_AUC_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_auc_example {
    float score; /* not NaN */
    float label; /* 0 or 1 */
};

struct sl_auc {
    struct sl_auc_example *examples;
    size_t count, room;
};

void sl_auc_init(struct sl_auc *auc);
void sl_auc_fini(struct sl_auc *auc);

/* Errors: NO_MEMORY, INVALID (score is NaN). */
int sl_auc_add(struct sl_auc *auc, float score, float label);

/* Sorts the examples. Errors: INVALID (all labels are equal: there is no pair). */
int sl_auc_compute(struct sl_auc *auc, double *out);

#endif
