#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpdk_real.h"

static char folder[] = "/tmp/starling-vhost-XXXXXX";
static char server[128], client[128];

/* A virtual machine's device and its host's, both in this process: they have interrupts. */
int main(void)
{
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    (void)snprintf(server, sizeof server, "iface=%s/socket", folder);
    (void)snprintf(client, sizeof client, "path=%s/socket", folder);
    const struct dpdk_real_target target = {
        .name = "dpdk vhost",
        .is_lossy = true, /* until the two ends have found each other */
        .devices = {
            {.name = "net_vhost0", .arguments = server, .address = "10.0.0.1"},
            {.name = "net_virtio_user0", .arguments = client, .address = "10.0.0.2"},
        }};
    const int status = dpdk_real_run(&target);
    char path[160];
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    return status;
}
