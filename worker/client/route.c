#include "worker/client/route.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "core/limits.h"
#include "core/partition.h"

#define RADIX_BITS   11
#define RADIX_DIGITS (1U << RADIX_BITS)

struct labelled {
    uint64_t key;
    uint32_t label;
};

struct sorted {
    uint64_t *keys;
    uint32_t *labels;
    uint32_t *starts;
    uint16_t *owners; /* of the keys, in the caller's order */
};

static_assert(SL_LIMIT_SHARDS <= UINT16_MAX, "a shard's number fits");

static int take_sorted(struct sl_scratch *scratch, uint32_t key_count, uint32_t shard_count,
                       struct sorted *out)
{
    out->keys = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->keys);
    out->labels = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->labels);
    /* One extra: count_owners counts two entries ahead, and the sort advances starts[s + 1]. */
    out->starts = sl_scratch_take(scratch, ((size_t)shard_count + 2) * sizeof *out->starts);
    out->owners = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->owners);
    if (out->keys == NULL || out->labels == NULL || out->starts == NULL || out->owners == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

/* Sets starts[s + 1] to the index of shard s's first key. */
static void count_owners(const uint64_t *keys, uint32_t key_count, uint32_t shard_count,
                         const struct sorted *sorted)
{
    uint32_t *starts = sorted->starts;
    memset(starts, 0, ((size_t)shard_count + 2) * sizeof *starts);
    for (uint32_t i = 0; i < key_count; i++) {
        uint32_t owner = sl_partition_owner(keys[i], shard_count);
        sorted->owners[i] = (uint16_t)owner;
        starts[owner + 2]++;
    }
    for (uint32_t shard = 2; shard < shard_count + 2; shard++) {
        starts[shard] += starts[shard - 1];
    }
}

/* bag_ends NULL: labels are indices, else bags. */
static inline int sort_by_owner(struct sl_scratch *scratch, const uint64_t *keys,
                                uint32_t key_count, const uint32_t *bag_ends, uint32_t shard_count,
                                struct sl_route *out)
{
    struct sorted sorted;
    int err = take_sorted(scratch, key_count, shard_count, &sorted);
    if (err != 0) {
        return err;
    }
    count_owners(keys, key_count, shard_count, &sorted);
    uint32_t *next = sorted.starts + 1;
    uint32_t bag = 0;
    for (uint32_t i = 0; i < key_count; i++) {
        while (bag_ends != NULL && bag_ends[bag] <= i) {
            bag++;
        }
        uint32_t at = next[sorted.owners[i]]++;
        sorted.keys[at] = keys[i];
        sorted.labels[at] = bag_ends != NULL ? bag : i;
    }
    *out = (struct sl_route){.keys = sorted.keys, .labels = sorted.labels, .starts = sorted.starts};
    return 0;
}

int sl_route_rows(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  uint32_t shard_count, struct sl_route *out)
{
    if (shard_count == 1) {
        *out = (struct sl_route){.keys = keys, .starts = out->whole, .whole = {0, key_count}};
        return 0;
    }
    return sort_by_owner(scratch, keys, key_count, NULL, shard_count, out);
}

int sl_route_bags(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  const uint32_t *bag_ends, uint32_t shard_count, struct sl_route *out)
{
    return sort_by_owner(scratch, keys, key_count, bag_ends, shard_count, out);
}

/* One stable pass by the digit at `shift`. Returns false, and moves nothing, if all keys share the
 * digit. */
static bool radix_pass(const struct labelled *from, struct labelled *to, uint32_t count,
                       unsigned shift)
{
    uint32_t next[RADIX_DIGITS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        next[(from[i].key >> shift) & (RADIX_DIGITS - 1)]++;
    }
    uint32_t sum = 0;
    for (uint32_t digit = 0; digit < RADIX_DIGITS; digit++) {
        if (next[digit] == count) {
            return false;
        }
        uint32_t here = next[digit];
        next[digit] = sum;
        sum += here;
    }
    for (uint32_t i = 0; i < count; i++) {
        to[next[(from[i].key >> shift) & (RADIX_DIGITS - 1)]++] = from[i];
    }
    return true;
}

int sl_route_group(struct sl_scratch *scratch, const uint64_t *keys, const uint32_t *labels,
                   uint32_t first_label, uint32_t key_count, const uint64_t **out_keys,
                   const uint32_t **out_labels)
{
    struct labelled *from = sl_scratch_take(scratch, (size_t)key_count * sizeof *from);
    struct labelled *to = sl_scratch_take(scratch, (size_t)key_count * sizeof *to);
    uint64_t *grouped = sl_scratch_take(scratch, (size_t)key_count * sizeof *grouped);
    uint32_t *places = sl_scratch_take(scratch, (size_t)key_count * sizeof *places);
    if (from == NULL || to == NULL || grouped == NULL || places == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < key_count; i++) {
        from[i].key = keys[i];
        from[i].label = labels == NULL ? first_label + i : labels[i];
    }
    for (unsigned shift = 0; shift < 64; shift += RADIX_BITS) {
        if (radix_pass(from, to, key_count, shift)) {
            struct labelled *swap = from;
            from = to;
            to = swap;
        }
    }
    for (uint32_t i = 0; i < key_count; i++) {
        grouped[i] = from[i].key;
        places[i] = from[i].label;
    }
    *out_keys = grouped;
    *out_labels = places;
    return 0;
}
