/* A bucket of a table's index: one cache line, twelve entries. */
#ifndef SL_PS_TABLE_BUCKET_H
#define SL_PS_TABLE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SL_TABLE_BUCKET_SLOTS 12

struct sl_table_bucket {
    uint8_t tags[SL_TABLE_BUCKET_SLOTS]; /* eight bits of each entry's hash */
    uint8_t used;                        /* entries: the first so many */
    uint8_t depth;    /* of a segment's first bucket: bits of the hash that its entries share */
    uint16_t entries; /* of a segment's first bucket: entries of the segment */
    uint32_t records[SL_TABLE_BUCKET_SLOTS];
};
_Static_assert(sizeof(struct sl_table_bucket) == 64, "a bucket is a cache line");

/* The entries whose tag fits, as the high bits of the bytes of two words. Compared eight at a time
 * in plain registers: measured within the noise of the SSE2 instructions for it, and the same on
 * every processor. */
struct sl_table_matches {
    uint64_t low;  /* slots 0 to 7 */
    uint64_t high; /* slots 8 to 11 */
};

/* 0x80 in each byte of `word` that is 0, exactly. */
static inline uint64_t sl_table_zero_bytes(uint64_t word)
{
    const uint64_t low_bits = 0x7f7f7f7f7f7f7f7fULL;
    return ~(((word & low_bits) + low_bits) | word | low_bits);
}

/* The bytes below `count`, 0 to 8. */
static inline uint64_t sl_table_byte_mask(uint32_t count)
{
    return count >= 8 ? ~0ULL : (1ULL << (8 * count)) - 1;
}

static inline struct sl_table_matches sl_table_bucket_match(const struct sl_table_bucket *bucket,
                                                            uint8_t tag)
{
    const uint64_t wanted = tag * 0x0101010101010101ULL;
    uint64_t low;
    uint64_t high; /* the last four bytes are not tags: `used` masks them */
    memcpy(&low, bucket, sizeof low);
    memcpy(&high, (const uint8_t *)bucket + sizeof low, sizeof high);
    const uint32_t used = bucket->used;
    return (struct sl_table_matches){
        .low = sl_table_zero_bytes(low ^ wanted) & sl_table_byte_mask(used),
        .high = sl_table_zero_bytes(high ^ wanted) & sl_table_byte_mask(used > 8 ? used - 8 : 0),
    };
}

static inline bool sl_table_matches_any(struct sl_table_matches matches)
{
    return (matches.low | matches.high) != 0;
}

/* Takes the first match out and returns its slot. */
static inline uint32_t sl_table_matches_pop(struct sl_table_matches *matches)
{
    if (matches->low != 0) {
        const uint32_t slot = (uint32_t)__builtin_ctzll(matches->low) / 8;
        matches->low &= matches->low - 1;
        return slot;
    }
    const uint32_t slot = 8 + (uint32_t)__builtin_ctzll(matches->high) / 8;
    matches->high &= matches->high - 1;
    return slot;
}

#endif
