/* The two implementations of sl_hash_crc32c, separate for its tests. Each takes and returns the
 * finished checksum, so either can continue the other's result. Pure; any thread. */
#ifndef SL_CORE_CRC32C_H
#define SL_CORE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Table lookup per byte; runs on every processor. */
uint32_t sl_crc32c_table(uint32_t crc, const void *base, size_t bytes);

/* Whether the processor has a CRC-32C instruction that this build supports: a load and a test. */
bool sl_crc32c_hardware_present(void);

/* Uses that instruction. Call only if it is present. */
uint32_t sl_crc32c_hardware(uint32_t crc, const void *base, size_t bytes);

#endif
