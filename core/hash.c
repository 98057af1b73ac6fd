#include "core/hash.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h> /* XXH3 by what the processor has */
#else
#include <xxhash.h>
#endif

#include "core/crc32c.h"

uint64_t sl_hash_bytes(const void *base, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(base, bytes, seed);
}

struct sl_hash_128 sl_hash_bytes_128(const void *base, size_t bytes)
{
    const XXH128_hash_t hash = XXH3_128bits(base, bytes);
    return (struct sl_hash_128){.low = hash.low64, .high = hash.high64};
}

uint32_t sl_hash_crc32c(uint32_t crc, const void *base, size_t bytes)
{
    return sl_crc32c_hardware_present() ? sl_crc32c_hardware(crc, base, bytes)
                                        : sl_crc32c_table(crc, base, bytes);
}
