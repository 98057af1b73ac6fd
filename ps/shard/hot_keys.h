/* Hot keys of a table: how often each key is pulled or pushed, by samples. One key in 64 is
 * counted, on average. The steps between samples are random, so that no order of keys hides one.
 *
 * Space-saving counters (Metwally, Agrawal, El Abbadi 2005): a new key takes the counter with the
 * smallest count and continues it, though nothing of it may be its own. That part is its `error`.
 * So a key with more than a 128th of the samples has a counter for certain. When a state
 * view is filled, counts halve if SL_HOT_KEYS_HALF_NS have passed since the last time: they show
 * the recent past, as long as somebody looks. Owner reactor. */
#ifndef SL_PS_SHARD_HOT_KEYS_H
#define SL_PS_SHARD_HOT_KEYS_H

#include "core/clock.h"
#include "core/hash.h"

#define SL_HOT_KEYS_STEP     64 /* keys per sample, on average */
#define SL_HOT_KEYS_COUNTERS 128
#define SL_HOT_KEYS_SHOWN    16 /* of a table, in a view */
#define SL_HOT_KEYS_HALF_NS  (30 * SL_CLOCK_NS_PER_S)

/* Zeroed at first. */
struct sl_hot_keys {
    uint64_t sampled; /* all samples; halved like the counts */
    uint64_t keys[SL_HOT_KEYS_COUNTERS];
    uint32_t counts[SL_HOT_KEYS_COUNTERS];
    uint32_t errors[SL_HOT_KEYS_COUNTERS]; /* at most this part of the count is of other keys */
    uint32_t least;                        /* no count is smaller */
    uint32_t hand;                         /* of the counters before it none has count `least` */
    /* Chains of the counters in use, by the hash of their keys: 1 + an index; 0: the end. */
    uint8_t chains[SL_HOT_KEYS_COUNTERS], next[SL_HOT_KEYS_COUNTERS];
};

/* Chooses the samples, for all tables of a shard. */
struct sl_hot_keys_sampler {
    uint64_t random;
    uint32_t left; /* the next sample is this many keys on; 1: the next key */
};

struct sl_hot_keys_view {
    uint64_t sampled;
    uint32_t count;
    struct sl_hot_key {
        uint64_t key;
        uint32_t count, error;
    } keys[SL_HOT_KEYS_SHOWN]; /* by count - error, descending */
};

/* seed: any; the same seed chooses the same samples. */
void sl_hot_keys_sampler_init(struct sl_hot_keys_sampler *sampler, uint64_t seed);

/* For sl_hot_keys_see alone: counts the samples among the keys; there is at least one. */
void sl_hot_keys_sample(struct sl_hot_keys_sampler *sampler, struct sl_hot_keys *hot,
                        const uint64_t *keys, uint64_t count);

/* Notes that keys were pulled or pushed. */
static inline void sl_hot_keys_see(struct sl_hot_keys_sampler *sampler, struct sl_hot_keys *hot,
                                   const uint64_t *keys, uint64_t count)
{
    if (count < sampler->left) {
        sampler->left -= (uint32_t)count;
    } else {
        sl_hot_keys_sample(sampler, hot, keys, count);
    }
}

void sl_hot_keys_halve(struct sl_hot_keys *hot);
void sl_hot_keys_show(const struct sl_hot_keys *hot, struct sl_hot_keys_view *out);

#endif
