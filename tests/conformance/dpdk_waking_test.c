#include "dpdk.h"

/* Ports that wake their reactors, gather and sum. */
int main(void)
{
    return dpdk_run(&(struct dpdk_target){
        .name = "dpdk waking",
        .is_v6 = true,
        .device = {.rx_interrupt = true, .tx_gather = true, .tx_checksum = true}});
}
