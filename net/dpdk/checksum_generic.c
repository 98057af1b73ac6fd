#include "net/dpdk/checksum_blocks.h"

extern const struct sl_dpdk_checksum_form sl_dpdk_checksum_form_plain;

const struct sl_dpdk_checksum_form *sl_dpdk_checksum_form_best(void)
{
    return &sl_dpdk_checksum_form_plain;
}
