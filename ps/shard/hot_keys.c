#include "ps/shard/hot_keys.h"

/* Keeps counts within 32 bits if no view halves them. */
#define SAMPLED_MAX (1ULL << 31)

static uint32_t next_step(struct sl_hot_keys_sampler *sampler)
{
    const uint32_t steps = 2 * SL_HOT_KEYS_STEP - 1; /* 1 to 127, 64 on average */
    return 1 + (uint32_t)(sl_hash_random(&sampler->random) % steps);
}

void sl_hot_keys_sampler_init(struct sl_hot_keys_sampler *sampler, uint64_t seed)
{
    sampler->random = seed;
    sampler->left = next_step(sampler);
}

/* Returns the key's counter; SL_HOT_KEYS_WAYS: it has none. */
static uint32_t find(const struct sl_hot_keys_set *set, uint64_t key)
{
    uint32_t way = 0;
    while (way < SL_HOT_KEYS_WAYS && (set->keys[way] != key || set->counts[way] == 0)) {
        way++;
    }
    return way;
}

static uint32_t replace_least(struct sl_hot_keys_set *set, uint64_t key)
{
    uint32_t least = 0;
    for (uint32_t way = 1; way < SL_HOT_KEYS_WAYS; way++) {
        least = set->counts[way] < set->counts[least] ? way : least;
    }
    set->keys[least] = key;
    set->errors[least] = set->counts[least];
    return least;
}

static void count(struct sl_hot_keys *hot, uint64_t key)
{
    struct sl_hot_keys_set *set = &hot->sets[sl_hash_key(key) % SL_HOT_KEYS_SETS];
    const uint32_t way = find(set, key);
    set->counts[way < SL_HOT_KEYS_WAYS ? way : replace_least(set, key)]++;
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
    for (uint32_t i = 0; i < SL_HOT_KEYS_SETS; i++) {
        for (uint32_t way = 0; way < SL_HOT_KEYS_WAYS; way++) {
            hot->sets[i].counts[way] /= 2;
            hot->sets[i].errors[way] /= 2;
        }
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
    for (uint32_t i = 0; i < SL_HOT_KEYS_SETS; i++) {
        const struct sl_hot_keys_set *set = &hot->sets[i];
        for (uint32_t way = 0; way < SL_HOT_KEYS_WAYS; way++) {
            const struct sl_hot_key key = {set->keys[way], set->counts[way], set->errors[way]};
            if (key.count > key.error) {
                insert(out, &key);
            }
        }
    }
}
