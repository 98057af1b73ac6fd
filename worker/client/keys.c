#include <starling.h>

#include <stdlib.h>
#include <sys/random.h>

#include "core/err.h"
#include "core/hash.h"
#include "core/reason.h"

/* A hash table of numbers of keys, at most half full, with linear probing. Two random numbers,
 * drawn for each call, choose the slots: no list of keys collides in every call. */
struct numbering {
    uint32_t *slots; /* number of the key + 1; 0: free */
    uint64_t mask;
    int shift;
    uint64_t random[2];
};

static int init(struct numbering *numbering, size_t count)
{
    int bits = 4;
    while (((uint64_t)1 << bits) < 2 * (uint64_t)count) {
        bits++;
    }
    numbering->mask = ((uint64_t)1 << bits) - 1;
    numbering->shift = 64 - bits;
    if (getrandom(numbering->random, sizeof numbering->random, 0) !=
        (ssize_t)sizeof numbering->random) {
        return SL_ERR_IO;
    }
    numbering->random[1] |= 1;
    numbering->slots = calloc(numbering->mask + 1, sizeof *numbering->slots);
    return numbering->slots == NULL ? SL_ERR_NO_MEMORY : 0;
}

/* Returns the slot of the key, or a free slot for it. The product is the universal multiply-shift
 * hash (Dietzfelbinger et al. 1997) of the mixed key. */
static uint32_t *seek(const struct numbering *numbering, const uint64_t *unique, uint64_t key)
{
    uint64_t mixed = sl_hash_key(key ^ numbering->random[0]) * numbering->random[1];
    for (uint64_t at = mixed >> numbering->shift;; at++) {
        uint32_t *slot = &numbering->slots[at & numbering->mask];
        if (*slot == 0 || unique[*slot - 1] == key) {
            return slot;
        }
    }
}

int sl_keys_unique(const uint64_t *keys, size_t count, uint64_t *unique, uint32_t *inverse,
                   uint32_t *counts, size_t *unique_count)
{
    if (unique_count == NULL || (count > 0 && (keys == NULL || unique == NULL))) {
        return sl_reason_report(SL_ERR_INVALID, "keys_unique: %s is NULL",
                                unique_count == NULL ? "unique_count" : "keys or unique");
    }
    if (count > UINT32_MAX) {
        return sl_reason_report(SL_ERR_TOO_LARGE, "keys_unique: %zu keys: accepts at most %u",
                                count, UINT32_MAX);
    }
    struct numbering numbering;
    int err = init(&numbering, count);
    if (err != 0) {
        return sl_reason_report(err, "keys_unique of %zu keys: %s", count,
                                err == SL_ERR_IO ? "no random numbers" : "no memory");
    }
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = keys[i];
        uint32_t *slot = seek(&numbering, unique, key);
        if (*slot == 0) {
            if (counts != NULL) {
                counts[found] = 0;
            }
            unique[found++] = key;
            *slot = found;
        }
        if (inverse != NULL) {
            inverse[i] = *slot - 1;
        }
        if (counts != NULL) {
            counts[*slot - 1]++;
        }
    }
    free(numbering.slots);
    *unique_count = found;
    return 0;
}
