#include "ps/shard/hot_keys.h"

/* Keeps counts within 32 bits if no view halves them. */
#define SAMPLED_MAX (1ULL << 31)

static uint32_t next_step(struct sl_hot_keys_sampler *sampler)
{
    const uint32_t steps = 2 * SL_HOT_KEYS_STEP - 1; /* SL_HOT_KEYS_STEP on average */
    return 1 + (uint32_t)(sl_hash_random(&sampler->random) % steps);
}

void sl_hot_keys_sampler_init(struct sl_hot_keys_sampler *sampler, uint64_t seed)
{
    sampler->random = seed;
    sampler->left = next_step(sampler);
}

static uint8_t *chain_of(struct sl_hot_keys *hot, uint64_t key)
{
    return &hot->chains[sl_hash_key(key) % SL_HOT_KEYS_COUNTERS];
}

/* Takes the counter out of its chain, if it is in one. */
static void unlink_counter(struct sl_hot_keys *hot, uint32_t index)
{
    uint8_t *link = chain_of(hot, hot->keys[index]);
    while (*link != 0 && *link != index + 1) {
        link = &hot->next[*link - 1];
    }
    *link = *link == 0 ? 0 : hot->next[index];
}

/* Returns a counter with the smallest count. The hand passes all of them before it begins again, so
 * that it rarely needs to look for the smallest count. */
static uint32_t find_least(struct sl_hot_keys *hot)
{
    while (hot->hand == SL_HOT_KEYS_COUNTERS || hot->counts[hot->hand] > hot->least) {
        if (hot->hand < SL_HOT_KEYS_COUNTERS) {
            hot->hand++;
            continue;
        }
        hot->hand = 0;
        hot->least = hot->counts[0];
        for (uint32_t i = 1; i < SL_HOT_KEYS_COUNTERS; i++) {
            hot->least = hot->counts[i] < hot->least ? hot->counts[i] : hot->least;
        }
    }
    return hot->hand++;
}

/* Gives the key a counter at the start of its chain; returns its index. */
static uint32_t add(struct sl_hot_keys *hot, uint64_t key, uint8_t *chain)
{
    const uint32_t index = find_least(hot);
    unlink_counter(hot, index);
    hot->keys[index] = key;
    hot->errors[index] = hot->counts[index];
    hot->next[index] = *chain;
    *chain = (uint8_t)(index + 1);
    return index;
}

static void count(struct sl_hot_keys *hot, uint64_t key)
{
    uint8_t *chain = chain_of(hot, key);
    uint32_t at = *chain; /* 1 + an index */
    while (at != 0 && hot->keys[at - 1] != key) {
        at = hot->next[at - 1];
    }
    hot->counts[at != 0 ? at - 1 : add(hot, key, chain)]++;
    if (++hot->sampled == SAMPLED_MAX) {
        sl_hot_keys_halve(hot);
    }
}

void sl_hot_keys_sample(struct sl_hot_keys_sampler *sampler, struct sl_hot_keys *hot,
                        const uint64_t *keys, uint64_t key_count)
{
    uint64_t next = sampler->left; /* from 1 */
    for (; next <= key_count; next += next_step(sampler)) {
        count(hot, keys[next - 1]);
    }
    sampler->left = (uint32_t)(next - key_count);
}

void sl_hot_keys_halve(struct sl_hot_keys *hot)
{
    hot->sampled /= 2;
    hot->least /= 2;
    hot->hand = 0;
    for (uint32_t i = 0; i < SL_HOT_KEYS_COUNTERS; i++) {
        hot->counts[i] /= 2;
        hot->errors[i] /= 2;
    }
}

static uint32_t certain(const struct sl_hot_key *key)
{
    return key->count - key->error;
}

/* Inserts the key where it belongs, if it does. */
static void insert(struct sl_hot_keys_view *view, const struct sl_hot_key *key)
{
    uint32_t at = view->count;
    if (at == SL_HOT_KEYS_SHOWN && certain(key) <= certain(&view->keys[at - 1])) {
        return;
    }
    at = at == SL_HOT_KEYS_SHOWN ? at - 1 : view->count++;
    for (; at > 0 && certain(&view->keys[at - 1]) < certain(key); at--) {
        view->keys[at] = view->keys[at - 1];
    }
    view->keys[at] = *key;
}

void sl_hot_keys_show(const struct sl_hot_keys *hot, struct sl_hot_keys_view *out)
{
    out->sampled = hot->sampled;
    out->count = 0;
    for (uint32_t i = 0; i < SL_HOT_KEYS_COUNTERS; i++) {
        const struct sl_hot_key key = {hot->keys[i], hot->counts[i], hot->errors[i]};
        if (key.count > key.error) {
            insert(out, &key);
        }
    }
}
