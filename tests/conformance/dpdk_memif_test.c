#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk_real.h"

static char folder[] = "/tmp/starling-memif-XXXXXX";
static char server[128], client[128];

/* As a server that was killed leaves it. */
static bool leave_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", folder);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const bool is_left = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    return close(fd) == 0 && is_left;
}

int main(void)
{
    if (mkdtemp(folder) == NULL || !leave_socket()) {
        perror(folder);
        return 1;
    }
    (void)snprintf(server, sizeof server, "role=server,id=0,socket=%s/socket,socket-abstract=no",
                   folder);
    (void)snprintf(client, sizeof client, "role=client,id=0,socket=%s/socket,socket-abstract=no",
                   folder);
    /* Two nodes on one side, one on the other. */
    const struct dpdk_real_target target = {
        .name = "dpdk memif",
        .is_lossy = true, /* until the two ends have found each other */
        .devices = {
            {.name = "net_memif0", .arguments = server, .address = "10.0.0.1", .queues = 2},
            {.name = "net_memif1", .arguments = client, .address = "10.0.0.2", .queues = 2},
        }};
    const int status = dpdk_real_run(&target);
    char path[160];
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    return status;
}
