#include "ps/table/key_filter.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/assert.h"

#define COUNTER_BITS    4U
#define COUNTER_MAX     15U
#define WORD_COUNTERS   8U /* in an element */
#define WORDS           SL_PARTITION_BLOCK_ELEMENTS
#define BLOCK_COUNTERS  (WORDS * WORD_COUNTERS)
#define PLACE_BITS      13U
#define PLACES          4U /* from one hash */
#define FALSE_POSITIVES 0.01

static_assert(BLOCK_COUNTERS == 1U << PLACE_BITS, "a place is a number of PLACE_BITS bits");
static_assert(sizeof(uint32_t) == sizeof(float), "an element holds a word of counters");

static double false_positives_of(const struct sl_policy_spec *policy)
{
    return policy->false_positives > 0 ? (double)policy->false_positives : FALSE_POSITIVES;
}

uint32_t sl_key_filter_hash_count(const struct sl_policy_spec *policy)
{
    const double wanted = round(-log2(false_positives_of(policy)));
    return wanted < 1                          ? 1
           : wanted > SL_KEY_FILTER_HASHES_MAX ? SL_KEY_FILTER_HASHES_MAX
                                               : (uint32_t)wanted;
}

uint64_t sl_key_filter_block_count(const struct sl_policy_spec *policy)
{
    const double hashes = sl_key_filter_hash_count(policy);
    const double counters = -hashes * (double)policy->keys_expected /
                            log1p(-pow(false_positives_of(policy), 1 / hashes));
    return (uint64_t)(counters / BLOCK_COUNTERS) + 1;
}

static uint64_t block_of(uint64_t block_count, uint64_t hash)
{
    return (hash >> 32) * block_count >> 32;
}

void sl_key_filter_range(uint64_t block_count, uint32_t shard, uint32_t shard_count,
                         uint64_t *first, uint64_t *end)
{
    const uint64_t next = sl_partition_hash_first(shard + 1, shard_count); /* 0: 2^64 */
    *first = block_of(block_count, sl_partition_hash_first(shard, shard_count));
    *end = block_of(block_count, next - 1) + 1;
}

/* Copies a block's counters, halved and rounded down once for each multiple of age_steps after
 * last_step, up to step. last_step has the low 32 bits of a step. Returns true when any was halved.
 * A block is halved only when it is next used. */
static bool age(const struct sl_key_filter *filter, const float *values, uint32_t last_step,
                uint64_t step, uint32_t words[WORDS])
{
    const uint64_t last = step - (uint32_t)((uint32_t)step - last_step);
    const uint64_t halvings =
        filter->age_steps == 0 ? 0 : step / filter->age_steps - last / filter->age_steps;
    const uint32_t shift = halvings < COUNTER_BITS ? (uint32_t)halvings : COUNTER_BITS;
    const uint32_t kept = (COUNTER_MAX >> shift) * 0x11111111U;
    memcpy(words, values, WORDS * sizeof *words);
    for (uint32_t i = 0; i < WORDS && halvings > 0; i++) {
        words[i] = words[i] >> shift & kept;
    }
    return halvings > 0;
}

static void set_words(const struct sl_key_filter *filter, uint64_t first, uint32_t count,
                      const uint32_t *words, uint64_t step)
{
    float values[WORDS];
    memcpy(values, words, count * sizeof *words);
    sl_dense_table_assign(filter->table, first, count, values, step);
}

/* Halves the key's block if that is due. Sets places[] to the positions of the key's counters in
 * the block. Returns the block's index in the table. */
static uint32_t age_block_of(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                             uint32_t places[SL_KEY_FILTER_HASHES_MAX])
{
    const uint64_t hash = sl_hash_key(key);
    const uint64_t first = sl_dense_table_start(filter->table) / WORDS;
    const uint32_t index = (uint32_t)(block_of(filter->block_count, hash) - first);
    uint64_t random = hash, bits = 0;
    sl_assert(index < sl_dense_table_block_count(filter->table));
    for (uint32_t i = 0; i < filter->hash_count; i++, bits >>= PLACE_BITS) {
        bits = i % PLACES == 0 ? sl_hash_random(&random) : bits;
        places[i] = bits & (BLOCK_COUNTERS - 1);
    }
    const struct sl_dense_block block = sl_dense_table_block(filter->table, index);
    uint32_t words[WORDS];
    if (block.last_step != (uint32_t)step &&
        age(filter, block.floats, block.last_step, step, words)) {
        set_words(filter, block.number * WORDS, WORDS, words, step);
    }
    return index;
}

static uint32_t counter(const struct sl_key_filter *filter, uint32_t index, uint32_t place)
{
    uint32_t word;
    memcpy(&word, sl_dense_table_block(filter->table, index).floats + place / WORD_COUNTERS,
           sizeof word);
    return word >> place % WORD_COUNTERS * COUNTER_BITS & COUNTER_MAX;
}

static void set_counter(const struct sl_key_filter *filter, uint32_t index, uint32_t place,
                        uint64_t step, uint32_t count)
{
    const struct sl_dense_block block = sl_dense_table_block(filter->table, index);
    const uint32_t shift = place % WORD_COUNTERS * COUNTER_BITS;
    uint32_t word;
    memcpy(&word, block.floats + place / WORD_COUNTERS, sizeof word);
    word = (word & ~(COUNTER_MAX << shift)) | count << shift;
    set_words(filter, block.number * WORDS + place / WORD_COUNTERS, 1, &word, step);
}

uint32_t sl_key_filter_add(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                           uint32_t most)
{
    uint32_t places[SL_KEY_FILTER_HASHES_MAX];
    const uint32_t index = age_block_of(filter, key, step, places);
    uint32_t least = COUNTER_MAX, raised = 0;
    sl_assert(most < COUNTER_MAX);
    for (uint32_t i = 0; i < filter->hash_count; i++) {
        const uint32_t count = counter(filter, index, places[i]);
        least = count < least ? count : least;
    }
    for (uint32_t i = 0; i < filter->hash_count && least < most; i++) {
        if (counter(filter, index, places[i]) == least) { /* once, if two places are the same */
            set_counter(filter, index, places[i], step, least + 1);
            raised |= 1U << i;
        }
    }
    return raised;
}

void sl_key_filter_take_back(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                             uint32_t raised)
{
    uint32_t places[SL_KEY_FILTER_HASHES_MAX];
    const uint32_t index = age_block_of(filter, key, step, places);
    for (uint32_t i = 0; i < filter->hash_count; i++) {
        if ((raised >> i & 1) != 0) {
            const uint32_t count = counter(filter, index, places[i]);
            sl_assert(count > 0);
            set_counter(filter, index, places[i], step, count - 1);
        }
    }
}

void sl_key_filter_merge(const struct sl_key_filter *filter, uint64_t number, uint32_t last_step,
                         uint64_t step, const float *values)
{
    const uint64_t first = sl_dense_table_start(filter->table) / WORDS;
    if (number < first || number - first >= sl_dense_table_block_count(filter->table)) {
        return;
    }
    const struct sl_dense_block block =
        sl_dense_table_block(filter->table, (uint32_t)(number - first));
    uint32_t own[WORDS], other[WORDS];
    (void)age(filter, block.floats, block.last_step, step, own);
    (void)age(filter, values, last_step, step, other);
    for (uint32_t i = 0; i < WORDS; i++) {
        for (uint32_t mask = COUNTER_MAX; mask != 0; mask <<= COUNTER_BITS) {
            own[i] =
                (other[i] & mask) > (own[i] & mask) ? (own[i] & ~mask) | (other[i] & mask) : own[i];
        }
    }
    set_words(filter, number * WORDS, WORDS, own, step);
}
