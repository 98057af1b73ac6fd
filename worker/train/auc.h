/* The area under the ROC curve, exactly: the share of (positive, negative) pairs that the scores
 * put in order, a tie counting one half. By the rank sum of the positives (Mann and Whitney 1947),
 * tied scores sharing their mean rank. Memory: 8 bytes an example. Owned by one thread. */
#ifndef SL_WORKER_TRAIN_AUC_H
#define SL_WORKER_TRAIN_AUC_H

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

/* Errors: NO_MEMORY, INVALID (a score that is no number). */
int sl_auc_add(struct sl_auc *auc, float score, float label);

/* Sorts the examples. Errors: INVALID when all labels are the same: no pair exists. */
int sl_auc_compute(struct sl_auc *auc, double *out);

#endif
