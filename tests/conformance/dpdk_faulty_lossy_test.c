#include "dpdk.h"

/* One of twenty packets is lost each way. Ports that wake their reactors, gather and sum. */
int main(void)
{
    return dpdk_run(&(struct dpdk_target){
        .name = "dpdk faulty lossy",
        .device = {.rx_interrupt = true, .tx_gather = true, .tx_checksum = true},
        .is_v6 = true,
        .faults = "loss=0.05,corrupt=0.01,duplicate=0.01,delay_us=500"});
}
