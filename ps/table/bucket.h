/* A bucket of a table's index: one cache line with twelve entries. */
#ifndef SL_PS_TABLE_BUCKET_H
#define SL_PS_TABLE_BUCKET_H

#include <stdint.h>
#include <string.h>

#define SL_TABLE_BUCKET_ENTRIES 12

struct sl_table_bucket {
    uint8_t tags[SL_TABLE_BUCKET_ENTRIES]; /* 8 bits of each entry's hash */
    uint8_t used;                          /* entries in use; they come first */
    uint8_t depth; /* in a segment's first bucket: hash bits that all its entries share; in the next
                      five: the segment's first entry in the directory */
    union {
        uint16_t entries; /* in a segment's first bucket: entries in the segment */
        uint16_t strays;  /* in the others: a bit for each entry that is not in its own bucket */
    };
    uint32_t records[SL_TABLE_BUCKET_ENTRIES];
};
_Static_assert(sizeof(struct sl_table_bucket) == 64, "a bucket is a cache line");

/* Returns 0x80 in each byte of `word` that is 0, exactly. */
static inline uint64_t sl_table_zero_bytes(uint64_t word)
{
    const uint64_t low_bits = 0x7f7f7f7f7f7f7f7fULL;
    return ~(((word & low_bits) + low_bits) | word | low_bits);
}

/* Returns the set of entries with this tag: bit 0 of byte i is entry i, bit 1 of byte i is entry 8
 * + i. Compares eight tags at a time in plain registers without branches. Vector instructions
 * measured no faster, and this is the same on every processor. */
static inline uint64_t sl_table_bucket_match(const struct sl_table_bucket *bucket, uint8_t tag)
{
    /* Mask of the entries in use, by their count. */
    static const uint64_t used[SL_TABLE_BUCKET_ENTRIES + 1] = {
        0,
        0x01,
        0x0101,
        0x010101,
        0x01010101,
        0x0101010101,
        0x010101010101,
        0x01010101010101,
        0x0101010101010101,
        0x0101010101010103,
        0x0101010101010303,
        0x0101010101030303,
        0x0101010103030303,
    };
    const uint64_t wanted = tag * 0x0101010101010101ULL;
    uint64_t low;  /* entries 0 to 7 */
    uint64_t high; /* entries 8 to 11, and four bytes that are not tags and that `used` masks */
    memcpy(&low, bucket, sizeof low);
    memcpy(&high, (const uint8_t *)bucket + sizeof low, sizeof high);
    return (sl_table_zero_bytes(low ^ wanted) >> 7 | sl_table_zero_bytes(high ^ wanted) >> 6) &
           used[bucket->used];
}

/* Removes an entry from a non-empty set and returns its index in the bucket. */
static inline uint32_t sl_table_bucket_pop(uint64_t *matches)
{
    const uint32_t bit = (uint32_t)__builtin_ctzll(*matches);
    *matches &= *matches - 1;
    return bit / 8 + bit % 8 * 8;
}

#endif
