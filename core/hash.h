/* Hashes of keys, checksums and a small seeded generator. Pure functions; any thread. */
#ifndef SL_CORE_HASH_H
#define SL_CORE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Mixes a key by a bijection (the finalizer of MurmurHash3 with Stafford's "Mix13" constants):
 * every u64 is a valid key, and no two keys share a hash. The partition uses the high 16 bits, the
 * table index the bits below. Keep these disjoint, or the tables of a shard fill unevenly. */
static inline uint64_t sl_hash_key(uint64_t key)
{
    key ^= key >> 30;
    key *= 0xbf58476d1ce4e5b9ULL;
    key ^= key >> 27;
    key *= 0x94d049bb133111ebULL;
    return key ^ (key >> 31);
}

/* XXH3 of a byte string: maps feature names to keys. */
uint64_t sl_hash_bytes(const void *base, size_t bytes, uint64_t seed);

/* XXH3 with 128 bits (seed 0), for digests of data. It finds accidents, not forgery. */
struct sl_hash_128 {
    uint64_t low, high;
};

struct sl_hash_128 sl_hash_bytes_128(const void *base, size_t bytes);

static inline bool sl_hash_128_equal(struct sl_hash_128 a, struct sl_hash_128 b)
{
    return a.low == b.low && a.high == b.high;
}

/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), continued from `crc` (initially 0). */
uint32_t sl_hash_crc32c(uint32_t crc, const void *base, size_t bytes);

/* SplitMix64 (Steele, Lea, Flood 2014): advances *state and returns the mixed value. */
static inline uint64_t sl_hash_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ULL;
    return sl_hash_key(*state);
}

#endif
