/* Devices that are the kernel's too: what it knows of them, which their drivers do not say. */
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/dpdk/module/module.h"

int sl_module_kernel_look(const struct rte_eth_dev_info *info, struct sl_module_kernel *out)
{
    struct ifreq flags = {0}, mtu = {0};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return SL_ERR_IO;
    }
    bool ok = if_indextoname(info->if_index, flags.ifr_name) != NULL;
    memcpy(mtu.ifr_name, flags.ifr_name, sizeof mtu.ifr_name);
    ok = ok && ioctl(fd, SIOCGIFFLAGS, &flags) == 0 && ioctl(fd, SIOCGIFMTU, &mtu) == 0;
    (void)close(fd);
    if (!ok || mtu.ifr_mtu <= 0) {
        return SL_ERR_NOT_FOUND;
    }
    *out = (struct sl_module_kernel){.link_is_up = (flags.ifr_flags & IFF_RUNNING) != 0,
                                     .mtu = (uint32_t)mtu.ifr_mtu};
    return 0;
}
