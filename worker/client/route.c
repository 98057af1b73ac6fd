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
    uint16_t *owners; /* of the keys, in the caller's order */
    uint32_t *next;   /* of a touched shard: its keys, then the index of its next key */
    struct sl_route_part *parts;
};

static_assert(SL_LIMIT_SHARDS <= UINT16_MAX, "a shard's number fits");

struct sl_route_part *sl_route_take_parts(struct sl_scratch *scratch, uint64_t count,
                                          uint32_t shard_count)
{
    const size_t parts = (count < shard_count ? (size_t)count : shard_count) + 1;
    return sl_scratch_take(scratch, parts * sizeof(struct sl_route_part));
}

static int take_sorted(struct sl_scratch *scratch, uint32_t key_count, uint32_t shard_count,
                       struct sorted *out)
{
    out->keys = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->keys);
    out->labels = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->labels);
    out->owners = sl_scratch_take(scratch, (size_t)key_count * sizeof *out->owners);
    out->next = sl_scratch_take(scratch, (size_t)shard_count * sizeof *out->next);
    out->parts = sl_route_take_parts(scratch, key_count, shard_count);
    if (out->keys == NULL || out->labels == NULL || out->owners == NULL || out->next == NULL ||
        out->parts == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

/* Sets next[s] to the number of keys of each shard. */
static void count_all(const uint64_t *keys, uint32_t key_count, uint32_t shard_count,
                      const struct sorted *sorted, uint64_t *touched)
{
    uint32_t *next = sorted->next;
    memset(next, 0, (size_t)shard_count * sizeof *next);
    memset(touched, 0xff, (shard_count + 63) / 64 * sizeof *touched);
    if (shard_count % 64 != 0) {
        touched[shard_count / 64] = ((uint64_t)1 << shard_count % 64) - 1;
    }
    for (uint32_t i = 0; i < key_count; i++) {
        const uint32_t owner = sl_partition_owner(keys[i], shard_count);
        sorted->owners[i] = (uint16_t)owner;
        next[owner]++;
    }
}

/* The same for the owners of keys alone: no other entry is written. */
static void count_touched(const uint64_t *keys, uint32_t key_count, uint32_t shard_count,
                          const struct sorted *sorted, uint64_t *touched)
{
    memset(touched, 0, (shard_count + 63) / 64 * sizeof *touched);
    for (uint32_t i = 0; i < key_count; i++) {
        const uint32_t owner = sl_partition_owner(keys[i], shard_count);
        const uint64_t bit = (uint64_t)1 << owner % 64;
        uint32_t *count = &sorted->next[owner];
        *count = (touched[owner / 64] & bit) == 0 ? 1 : *count + 1;
        touched[owner / 64] |= bit;
        sorted->owners[i] = (uint16_t)owner;
    }
}

/* Writes the parts of the counted shards, and sets next[s] to the index of shard s's first key. */
static void put_parts(const struct sorted *sorted, const uint64_t *touched, uint32_t shard_count)
{
    struct sl_route_part *part = sorted->parts;
    uint32_t first = 0;
    for (uint32_t shard = 0; shard < shard_count; shard += 64) {
        for (uint64_t left = touched[shard / 64]; left != 0; left &= left - 1) {
            const uint32_t owner = shard + (uint32_t)__builtin_ctzll(left);
            const uint32_t count = sorted->next[owner];
            sorted->next[owner] = first;
            if (count > 0) {
                *part++ =
                    (struct sl_route_part){.shard = owner, .first = first, .key_count = count};
            }
            first += count;
        }
    }
    part->shard = SL_ROUTE_END;
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
    uint64_t touched[(SL_LIMIT_SHARDS + 63) / 64];
    (key_count < shard_count ? count_touched : count_all)(keys, key_count, shard_count, &sorted,
                                                          touched);
    put_parts(&sorted, touched, shard_count);
    uint32_t bag = 0;
    for (uint32_t i = 0; i < key_count; i++) {
        while (bag_ends != NULL && bag_ends[bag] <= i) {
            bag++;
        }
        uint32_t at = sorted.next[sorted.owners[i]]++;
        sorted.keys[at] = keys[i];
        sorted.labels[at] = bag_ends != NULL ? bag : i;
    }
    *out = (struct sl_route){.keys = sorted.keys, .labels = sorted.labels, .next = sorted.parts};
    return 0;
}

int sl_route_rows(struct sl_scratch *scratch, const uint64_t *keys, uint32_t key_count,
                  uint32_t shard_count, struct sl_route *out)
{
    if (shard_count == 1) {
        struct sl_route_part *parts = sl_route_take_parts(scratch, key_count, 1);
        if (parts == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        parts[0] = (struct sl_route_part){.key_count = key_count};
        parts[key_count > 0].shard = SL_ROUTE_END;
        *out = (struct sl_route){.keys = keys, .next = parts};
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
