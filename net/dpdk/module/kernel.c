/* Queries the kernel about devices that are also its interfaces: their drivers do not report link
 * and MTU. */
#include "net/dpdk/module/kernel.h"

#include <errno.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Opens a socket for ioctl and fills in the interface's name; -1: the interface is gone. */
static int open_asker(const struct rte_eth_dev_info *info, struct ifreq *out)
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *out = (struct ifreq){0};
    if (fd >= 0 && if_indextoname(info->if_index, out->ifr_name) == NULL) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int sl_module_kernel_look(const struct rte_eth_dev_info *info, struct sl_module_kernel *out)
{
    struct ifreq flags, mtu;
    const int fd = open_asker(info, &flags);
    if (fd < 0) {
        return SL_ERR_NOT_FOUND;
    }
    mtu = flags;
    const bool ok = ioctl(fd, SIOCGIFFLAGS, &flags) == 0 && ioctl(fd, SIOCGIFMTU, &mtu) == 0;
    (void)close(fd);
    if (!ok || mtu.ifr_mtu <= 0) {
        return SL_ERR_NOT_FOUND;
    }
    *out = (struct sl_module_kernel){.link_is_up = (flags.ifr_flags & IFF_RUNNING) != 0,
                                     .mtu = (uint32_t)mtu.ifr_mtu};
    return 0;
}

int sl_module_kernel_set_mtu(const struct rte_eth_dev_info *info, uint32_t mtu)
{
    struct ifreq request;
    struct sl_module_kernel now = {0};
    if (sl_module_kernel_look(info, &now) == 0 && now.mtu >= mtu) {
        return 0;
    }
    const int fd = open_asker(info, &request);
    if (fd < 0) {
        return ENODEV;
    }
    request.ifr_mtu = (int)mtu;
    const int code = ioctl(fd, SIOCSIFMTU, &request) == 0 ? 0 : errno;
    (void)close(fd);
    return code;
}
