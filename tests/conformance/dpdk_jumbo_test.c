#include <stdio.h>

#include "dpdk_real.h"
#include "tests/support/veth.h"

/* Frames of 9000 bytes, and neighbours that are found by IPv6. */
int main(void)
{
    const char *why = veth_enter();
    why = why != NULL ? why : veth_add("cable", 1, 9000);
    if (why != NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return SKIPPED;
    }
    return dpdk_real_run(&(struct dpdk_real_target){.name = "dpdk jumbo",
                                                    .is_lossy = true, /* full rings are */
                                                    .is_v6 = true,
                                                    .devices = {
                                                        {.name = "net_af_packet0",
                                                         .arguments = "iface=cablea",
                                                         .address = "fd00::1/64",
                                                         .mtu = 9000},
                                                        {.name = "net_af_packet1",
                                                         .arguments = "iface=cableb",
                                                         .address = "fd00::2/64",
                                                         .mtu = 9000},
                                                    }});
}
