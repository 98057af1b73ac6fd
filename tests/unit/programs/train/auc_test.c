#include <math.h>

#include "core/hash.h"
#include "programs/train/auc.h"
#include "tests/support/unit.h"

/* By the definition: over all pairs. */
static double by_pairs(const struct sl_auc *auc)
{
    double won = 0;
    double pairs = 0;
    for (size_t p = 0; p < auc->count; p++) {
        for (size_t n = 0; n < auc->count; n++) {
            if (auc->examples[p].label != 0 && auc->examples[n].label == 0) {
                pairs++;
                won += auc->examples[p].score > auc->examples[n].score    ? 1
                       : auc->examples[p].score == auc->examples[n].score ? 0.5
                                                                          : 0;
            }
        }
    }
    return won / pairs;
}

SL_CASE(auc_compute__agrees_with_the_definition_on_ties)
{
    uint64_t seed = 3;
    const uint64_t distinct_scores[] = {1, 2, 5, 100, 1000000};
    for (size_t d = 0; d < 5; d++) {
        struct sl_auc auc;
        sl_auc_init(&auc);
        for (uint32_t i = 0; i < 400; i++) {
            float label = sl_hash_random(&seed) % 3 == 0 ? 1 : 0;
            float score = (float)(sl_hash_random(&seed) % distinct_scores[d]) + label;
            assert_int_equal(sl_auc_add(&auc, score, label), 0);
        }
        double expected = by_pairs(&auc);
        double got = 0;
        assert_int_equal(sl_auc_compute(&auc, &got), 0);
        assert_float_equal(got, expected, 1e-12);
        sl_auc_fini(&auc);
    }
}

SL_CASE(auc_compute__of_the_extremes)
{
    const float scores[] = {-INFINITY, -1, 0, 1, INFINITY, 2};
    for (uint32_t turned = 0; turned < 2; turned++) {
        struct sl_auc auc;
        double got = -1;
        sl_auc_init(&auc);
        for (uint32_t i = 0; i < 6; i++) {
            float label = (scores[i] > 0) != (turned == 1) ? 1 : 0;
            assert_int_equal(sl_auc_add(&auc, scores[i], label), 0);
        }
        assert_int_equal(sl_auc_compute(&auc, &got), 0);
        assert_float_equal(got, turned == 1 ? 0 : 1, 0);
        sl_auc_fini(&auc);
    }
}

SL_CASE(auc_compute__needs_both_labels)
{
    struct sl_auc auc;
    double got = 7;
    sl_auc_init(&auc);
    assert_int_equal(sl_auc_compute(&auc, &got), SL_ERR_INVALID);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sl_auc_add(&auc, (float)i, 1), 0);
        assert_int_equal(sl_auc_compute(&auc, &got), SL_ERR_INVALID);
    }
    assert_float_equal(got, 7, 0);
    sl_auc_fini(&auc);
}

SL_CASE(auc_add__refuses_what_is_no_number)
{
    struct sl_auc auc;
    sl_auc_init(&auc);
    assert_int_equal(sl_auc_add(&auc, NAN, 1), SL_ERR_INVALID);
    assert_int_equal(auc.count, 0);
    sl_auc_fini(&auc);
}
