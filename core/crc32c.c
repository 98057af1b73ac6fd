#include "core/crc32c.h"

/* The remainder of a byte is the sum, modulo 2, of the remainders of its bits. That of bit 7 is the
 * reversed polynomial 0x1edc6f41, and each lower bit is one division step further. So eight
 * constants make the table at compile time. */
#define ENTRY(n)                                                                                   \
    (((n)&0x80U ? 0x82f63b78U : 0) ^ ((n)&0x40U ? 0x417b1dbcU : 0) ^                               \
     ((n)&0x20U ? 0x20bd8edeU : 0) ^ ((n)&0x10U ? 0x105ec76fU : 0) ^                               \
     ((n)&0x08U ? 0x8ad958cfU : 0) ^ ((n)&0x04U ? 0xc79a971fU : 0) ^                               \
     ((n)&0x02U ? 0xe13b70f7U : 0) ^ ((n)&0x01U ? 0xf26b8303U : 0))
#define ENTRIES_4(n)  ENTRY(n), ENTRY((n) + 1U), ENTRY((n) + 2U), ENTRY((n) + 3U)
#define ENTRIES_16(n) ENTRIES_4(n), ENTRIES_4((n) + 4U), ENTRIES_4((n) + 8U), ENTRIES_4((n) + 12U)
#define ENTRIES_64(n)                                                                              \
    ENTRIES_16(n), ENTRIES_16((n) + 16U), ENTRIES_16((n) + 32U), ENTRIES_16((n) + 48U)

static const uint32_t table[256] = {ENTRIES_64(0U), ENTRIES_64(64U), ENTRIES_64(128U),
                                    ENTRIES_64(192U)};

uint32_t sl_crc32c_table(uint32_t crc, const void *base, size_t bytes)
{
    const uint8_t *next = base;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc = table[(crc ^ next[i]) & 0xffU] ^ (crc >> 8);
    }
    return ~crc;
}
