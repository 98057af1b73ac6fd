#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ps/shard/hot_keys.h"
#include "tests/support/unit.h"

#define KEYS  100000
#define BATCH 100

/* Draws from a Zipf distribution over KEYS ranks, by its cumulative sums. */
static void zipf_sums(double exponent, double *sums)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < KEYS; rank++) {
        sum += pow(rank + 1, -exponent);
        sums[rank] = sum;
    }
}

static uint32_t zipf_draw(const double *sums, uint64_t *random)
{
    const double at = (double)(sl_hash_random(random) >> 11) * 0x1p-53 * sums[KEYS - 1];
    uint32_t first = 0, last = KEYS - 1;
    while (first < last) {
        const uint32_t middle = (first + last) / 2;
        if (sums[middle] < at) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

/* Draws `count` keys, in requests of BATCH, and counts each exactly in truth[KEYS], by rank. The
 * key of a rank is its hash plus `base`. */
static void pull(struct sl_hot_keys_sampler *sampler, struct sl_hot_keys *hot, uint64_t base,
                 uint32_t count, uint32_t *truth)
{
    double *sums = malloc(KEYS * sizeof *sums);
    assert_non_null(sums);
    zipf_sums(1.1, sums);
    uint64_t random = base + 1;
    for (uint32_t done = 0; done < count; done += BATCH) {
        uint64_t keys[BATCH];
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint32_t rank = zipf_draw(sums, &random);
            truth[rank]++;
            keys[i] = sl_hash_key(rank) + base;
        }
        sl_hot_keys_see(sampler, hot, keys, BATCH);
    }
    free(sums);
}

/* Counts how many of the ten most drawn keys are among the first ten shown. */
static uint32_t found(const struct sl_hot_keys_view *view, uint64_t base, uint32_t *truth)
{
    uint32_t right = 0;
    for (uint32_t n = 0; n < 10; n++) {
        uint32_t best = 0;
        for (uint32_t rank = 0; rank < KEYS; rank++) {
            best = truth[rank] > truth[best] ? rank : best;
        }
        truth[best] = 0;
        for (uint32_t i = 0; i < 10 && i < view->count; i++) {
            right += view->keys[i].key == sl_hash_key(best) + base;
        }
    }
    return right;
}

struct fixture {
    struct sl_hot_keys_sampler sampler;
    struct sl_hot_keys hot;
    struct sl_hot_keys_view view;
    uint32_t truth[KEYS];
};

#define CASE(name) SL_CASE_USING(name, struct fixture, f, sl_unit_nothing, sl_unit_nothing)

CASE(hot_keys__finds_nine_of_the_true_top_ten_at_zipf_1_1)
{
    for (uint32_t seed = 0; seed < 3; seed++) {
        const uint64_t base = (uint64_t)seed << 32;
        memset(f, 0, sizeof *f);
        sl_hot_keys_sampler_init(&f->sampler, seed);
        pull(&f->sampler, &f->hot, base, 1500000, f->truth);
        const double drawn = f->truth[0];
        sl_hot_keys_show(&f->hot, &f->view);
        assert_in_range(f->hot.sampled, 1500000 / 64 * 19 / 20, 1500000 / 64 * 21 / 20);
        const double share = (double)f->view.keys[0].count / (double)f->view.sampled;
        assert_true(fabs(share - drawn / 1500000) < 0.01);
        assert_in_range(found(&f->view, base, f->truth), 9, 10);
    }
}

CASE(hot_keys_show__counts_are_within_the_error)
{
    uint64_t random = 1;
    for (uint32_t i = 0; i < 20000; i++) {
        const uint64_t drawn = sl_hash_random(&random) % 400;
        const uint64_t key = drawn < 200 ? drawn % 4 : drawn;
        f->truth[key]++;
        f->sampler.left = 1; /* every key */
        sl_hot_keys_see(&f->sampler, &f->hot, &key, 1);
    }
    sl_hot_keys_show(&f->hot, &f->view);
    assert_int_equal(f->view.count, SL_HOT_KEYS_SHOWN);
    assert_int_equal(f->view.sampled, 20000);
    for (uint32_t i = 0; i < f->view.count; i++) {
        const struct sl_hot_key *key = &f->view.keys[i];
        assert_in_range(f->truth[key->key], key->count - key->error, key->count);
        assert_true(i < 4 ? key->key < 4 : key->key >= 4);
    }
}

CASE(hot_keys__strides_hide_no_key)
{
    sl_hot_keys_sampler_init(&f->sampler, 7);
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t keys[64] = {0}; /* a period of 64, as long as the mean step */
        keys[i % 2 == 0 ? 3 : 40] = 1;
        sl_hot_keys_see(&f->sampler, &f->hot, keys, 64);
    }
    sl_hot_keys_show(&f->hot, &f->view);
    assert_int_equal(f->view.count, 2);
    assert_int_equal(f->view.keys[1].key, 1);
    assert_in_range(f->view.keys[1].count, 100000 / 64 * 8 / 10, 100000 / 64 * 12 / 10);
}

/* The sampler's state runs on from request to request, however the keys are divided. */
CASE(hot_keys_see__samples_the_same_keys_in_any_division)
{
    struct sl_hot_keys whole = {0};
    uint64_t keys[5000];
    for (uint32_t i = 0; i < 5000; i++) {
        keys[i] = i;
    }
    sl_hot_keys_sampler_init(&f->sampler, 3);
    sl_hot_keys_see(&f->sampler, &whole, keys, 5000);
    sl_hot_keys_sampler_init(&f->sampler, 3);
    for (uint32_t done = 0, more = 0; done < 5000; done += more) {
        more = (more * 7 + 1) % 300;
        more = more < 5000 - done ? more : 5000 - done;
        sl_hot_keys_see(&f->sampler, &f->hot, keys + done, more);
    }
    assert_memory_equal(&whole, &f->hot, sizeof whole);
}

CASE(hot_keys_halve__a_new_hot_key_passes_an_old_one)
{
    uint64_t key = 1;
    for (uint32_t i = 0; i < 1000; i++) {
        f->sampler.left = 1;
        sl_hot_keys_see(&f->sampler, &f->hot, &key, 1);
    }
    for (uint32_t half = 0; half < 2; half++) {
        sl_hot_keys_halve(&f->hot);
    }
    key = 2;
    for (uint32_t i = 0; i < 300; i++) {
        f->sampler.left = 1;
        sl_hot_keys_see(&f->sampler, &f->hot, &key, 1);
    }
    sl_hot_keys_show(&f->hot, &f->view);
    assert_int_equal(f->view.sampled, 550);
    assert_int_equal(f->view.keys[0].key, 2);
    assert_int_equal(f->view.keys[1].count, 250);
}
