/* The suite over devices of DPDK, in the ways of the table. CTest runs some cases only over the
 * devices that are slow. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk_real.h"
#include "tests/support/veth.h"

static const struct dpdk_variant {
    const char *name;
    uint32_t cable_mtu;    /* of a veth pair of the kernel, cablea and cableb; 0: none */
    bool has_socket;       /* the devices meet at a socket: their arguments end with its path */
    bool has_stale_socket; /* as a server that was killed leaves it */
    bool is_v6;
    struct sl_dpdk_device devices[2];
} variants[] = {
    /* Two nodes on one side, one on the other. */
    {.name = "memif",
     .has_socket = true,
     .has_stale_socket = true,
     .devices = {{.name = "net_memif0",
                  .arguments = "role=server,id=0,socket-abstract=no,socket=",
                  .address = "10.0.0.1",
                  .queues = 2},
                 {.name = "net_memif1",
                  .arguments = "role=client,id=0,socket-abstract=no,socket=",
                  .address = "10.0.0.2",
                  .queues = 2}}},
    /* The device of a virtual machine and that of its host, both in this process: these devices
     * have interrupts. */
    {.name = "vhost",
     .has_socket = true,
     .devices = {{.name = "net_vhost0", .arguments = "iface=", .address = "10.0.0.1"},
                 {.name = "net_virtio_user0", .arguments = "path=", .address = "10.0.0.2"}}},
    {.name = "packet",
     .cable_mtu = 1500,
     .devices = {{.name = "net_af_packet0", .arguments = "iface=cablea", .address = "10.0.0.1"},
                 {.name = "net_af_packet1", .arguments = "iface=cableb", .address = "10.0.0.2"}}},
    {.name = "xdp",
     .cable_mtu = 1500,
     .devices = {{.name = "net_af_xdp0", .arguments = "iface=cablea", .address = "10.0.0.1"},
                 {.name = "net_af_xdp1", .arguments = "iface=cableb", .address = "10.0.0.2"}}},
    /* Frames of 9000 bytes, and neighbours that are found by IPv6. */
    {.name = "jumbo",
     .cable_mtu = 9000,
     .is_v6 = true,
     .devices = {{.name = "net_af_packet0",
                  .arguments = "iface=cablea",
                  .address = "fd00::1/64",
                  .mtu = 9000},
                 {.name = "net_af_packet1",
                  .arguments = "iface=cableb",
                  .address = "fd00::2/64",
                  .mtu = 9000}}},
};

/* Binds a socket, and closes it without removing its name. */
static bool leave_socket(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const bool is_left = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    return close(fd) == 0 && is_left;
}

/* Runs the suite over devices that meet at a socket in a folder of its own. */
static int run_at_socket(const struct dpdk_variant *variant, struct dpdk_real_target *target)
{
    char folder[] = "/tmp/starling-dpdk-XXXXXX", path[64], arguments[2][128];
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(arguments[i], sizeof arguments[i], "%s%s", variant->devices[i].arguments,
                       path);
        target->devices[i].arguments = arguments[i];
    }
    const bool is_ready = !variant->has_stale_socket || leave_socket(path);
    const int status = is_ready ? dpdk_real_run(target) : 1;
    (void)unlink(path);
    (void)rmdir(folder);
    return status;
}

int main(int argc, char **argv)
{
    const struct dpdk_variant *variant = CONFORMANCE_VARIANT(argc, argv, variants);
    struct dpdk_real_target target = {
        .name = variant->name,
        .is_lossy = true, /* while the two ends find each other, and when rings are full */
        .is_v6 = variant->is_v6,
        .devices = {variant->devices[0], variant->devices[1]},
    };
    if (variant->cable_mtu != 0) {
        const char *why = veth_enter();
        why = why != NULL ? why : veth_add("cable", 1, variant->cable_mtu);
        if (why != NULL) {
            fprintf(stderr, "skipped: %s\n", why);
            return SKIPPED;
        }
    }
    return variant->has_socket ? run_at_socket(variant, &target) : dpdk_real_run(&target);
}
