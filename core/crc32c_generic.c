#include "core/crc32c.h"

bool sl_crc32c_hardware_present(void)
{
    return false;
}

uint32_t sl_crc32c_hardware(uint32_t crc, const void *base, size_t bytes)
{
    return sl_crc32c_table(crc, base, bytes);
}
