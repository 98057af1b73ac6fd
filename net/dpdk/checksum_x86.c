/* x86-64: checks the processor at each call. Resolution by the loader (ifunc) does not work with
 * sanitizers. */
#include "net/dpdk/checksum_blocks.h"

extern const struct sl_dpdk_checksum_form sl_dpdk_checksum_form_plain, sl_dpdk_checksum_form_avx2;

const struct sl_dpdk_checksum_form *sl_dpdk_checksum_form_best(void)
{
    return __builtin_cpu_supports("avx2") ? &sl_dpdk_checksum_form_avx2
                                          : &sl_dpdk_checksum_form_plain;
}
