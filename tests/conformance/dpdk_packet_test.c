#include <stdio.h>

#include "dpdk_real.h"
#include "tests/support/veth.h"

/* AF_PACKET on both ends of a cable of the kernel's. */
int main(void)
{
    const char *why = veth_enter();
    why = why != NULL ? why : veth_add("cable", 1, 1500);
    if (why != NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return SKIPPED;
    }
    return dpdk_real_run(&(struct dpdk_real_target){
        .name = "dpdk packet",
        .is_lossy = true, /* full rings are */
        .devices = {
            {.name = "net_af_packet0", .arguments = "iface=cablea", .address = "10.0.0.1"},
            {.name = "net_af_packet1", .arguments = "iface=cableb", .address = "10.0.0.2"},
        }});
}
