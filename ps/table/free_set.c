#include "ps/table/free_set.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

#define LINE_WORDS  8 /* a cache line */
#define GROUP_WORDS (64 * LINE_WORDS)

static size_t free_set_bytes(uint32_t group_count)
{
    return (size_t)group_count * (GROUP_WORDS + 1) * sizeof(uint64_t);
}

/* Makes room for a group, and at least doubles the room. The system provides large memory on first
 * write. */
static bool free_set_grow(struct sl_free_set *set, struct sl_table_budget *budget, uint32_t group)
{
    const uint32_t count = group < 2 * set->group_count ? 2 * set->group_count : group + 1;
    uint64_t *words = calloc(1, free_set_bytes(count));
    if (words == NULL) {
        return false;
    }
    uint64_t *any = words + (size_t)count * GROUP_WORDS;
    if (set->group_count > 0) {
        memcpy(words, set->words,
               free_set_bytes(set->group_count) - set->group_count * sizeof *any);
        memcpy(any, set->any, set->group_count * sizeof *any);
    }
    free(set->words);
    sl_table_budget_give(budget, set->bytes_charged);
    set->bytes_charged =
        sl_table_budget_take(budget, free_set_bytes(count)) ? free_set_bytes(count) : 0;
    set->words = words;
    set->any = any;
    set->group_count = count;
    return true;
}

bool sl_free_set_add(struct sl_free_set *set, struct sl_table_budget *budget, uint32_t number)
{
    const uint32_t word = number / 64, line = word / LINE_WORDS;
    if (line / 64 >= set->group_count && !free_set_grow(set, budget, line / 64)) {
        return false;
    }
    sl_assert_slow(!sl_free_set_has(set, number));
    set->words[word] |= 1ULL << number % 64;
    set->any[line / 64] |= 1ULL << line % 64;
    set->first = set->count == 0 || number < set->first ? number : set->first;
    set->count++;
    return true;
}

/* Returns the lowest number; there is none before this line. */
static uint32_t lowest(const struct sl_free_set *set, uint32_t line)
{
    uint32_t group = line / 64;
    while (set->any[group] == 0) {
        group++;
    }
    uint32_t word = (group * 64 + (uint32_t)__builtin_ctzll(set->any[group])) * LINE_WORDS;
    while (set->words[word] == 0) {
        word++;
    }
    return word * 64 + (uint32_t)__builtin_ctzll(set->words[word]);
}

void sl_free_set_remove(struct sl_free_set *set, uint32_t number)
{
    const uint32_t line = number / 64 / LINE_WORDS;
    uint64_t left = 0;
    sl_assert_slow(sl_free_set_has(set, number));
    set->words[number / 64] &= ~(1ULL << number % 64);
    for (uint32_t word = 0; word < LINE_WORDS; word++) {
        left |= set->words[line * LINE_WORDS + word];
    }
    set->any[line / 64] &= ~((uint64_t)(left == 0) << line % 64);
    set->count--;
    if (number == set->first && set->count > 0) {
        set->first = lowest(set, line);
    }
}

bool sl_free_set_has(const struct sl_free_set *set, uint32_t number)
{
    return number / 64 / GROUP_WORDS < set->group_count &&
           (set->words[number / 64] >> number % 64 & 1) != 0;
}

void sl_free_set_fini(struct sl_free_set *set, struct sl_table_budget *budget)
{
    free(set->words);
    sl_table_budget_give(budget, set->bytes_charged);
    *set = (struct sl_free_set){0};
}
