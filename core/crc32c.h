/* The two forms of the CRC-32C behind sl_hash_crc32c, for it and for its tests. Each takes and
 * returns the finished checksum, so that one form can continue what the other began. Pure; any
 * thread. */
#ifndef SL_CORE_CRC32C_H
#define SL_CORE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One byte at a time from a table; runs everywhere. */
uint32_t sl_crc32c_table(uint32_t crc, const void *base, size_t bytes);

/* Whether this processor has an instruction for it that this build knows: a load and a test. */
bool sl_crc32c_hardware_present(void);

/* By that instruction. Only where it is present. */
uint32_t sl_crc32c_hardware(uint32_t crc, const void *base, size_t bytes);

#endif
