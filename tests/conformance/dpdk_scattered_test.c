#include "dpdk.h"

/* Packets come to any of a process's reactors, in jumbo frames, and full queues lose them. */
int main(void)
{
    return dpdk_run(&(struct dpdk_target){.name = "dpdk scattered",
                                          .device = {.steering = SL_WIRE_SCATTER,
                                                     .drops = true,
                                                     .queue_packets = 64,
                                                     .frame_bytes_max = 9014}});
}
