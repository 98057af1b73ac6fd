#include "programs/train/auc.h"

#include <math.h>
#include <stdlib.h>

void sl_auc_init(struct sl_auc *auc)
{
    *auc = (struct sl_auc){0};
}

void sl_auc_fini(struct sl_auc *auc)
{
    free(auc->examples);
    *auc = (struct sl_auc){0};
}

int sl_auc_add(struct sl_auc *auc, float score, float label)
{
    if (isnan(score)) {
        return SL_ERR_INVALID;
    }
    if (auc->count == auc->room) {
        size_t room = auc->room == 0 ? 4096 : auc->room * 2;
        struct sl_auc_example *grown = realloc(auc->examples, room * sizeof *grown);
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        auc->examples = grown;
        auc->room = room;
    }
    auc->examples[auc->count++] = (struct sl_auc_example){.score = score, .label = label};
    return 0;
}

static int by_score(const void *a, const void *b)
{
    float left = ((const struct sl_auc_example *)a)->score;
    float right = ((const struct sl_auc_example *)b)->score;
    return (left > right) - (left < right);
}

int sl_auc_compute(struct sl_auc *auc, double *out)
{
    double rank_sum = 0; /* of positives, ranks from 1 */
    double positives = 0;
    if (auc->count > 0) {
        qsort(auc->examples, auc->count, sizeof *auc->examples, by_score);
    }
    for (size_t start = 0, end; start < auc->count; start = end) {
        double tied_positives = 0;
        for (end = start;
             end < auc->count && auc->examples[end].score == auc->examples[start].score; end++) {
            tied_positives += (double)auc->examples[end].label;
        }
        double mean_rank = ((double)start + 1 + (double)end) / 2;
        rank_sum += mean_rank * tied_positives;
        positives += tied_positives;
    }
    double negatives = (double)auc->count - positives;
    if (positives == 0 || negatives == 0) {
        return SL_ERR_INVALID;
    }
    *out = (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
    return 0;
}
