/* Finds or creates a device named by the options, and explains why that failed. */
#include "net/dpdk/module/find.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/dpdk/module/memif_arguments.h"

#define PACKET_FRAME_BYTES  2048U /* default of framesz= */
#define PACKET_HEADER_BYTES 64U   /* of each frame in the ring of a packet socket */
#define XDP_PACKETS_KEPT    4096U /* in the rings of an XDP socket, 2048 each way */
#define ARGUMENTS_BYTES     512U

/* The value of `key=` in a device's arguments, up to the next comma; or NULL. */
static const char *find_value(const char *arguments, const char *key)
{
    const size_t bytes = strlen(key);
    const char *at = arguments;
    while (at != NULL) {
        if (strncmp(at, key, bytes) == 0 && at[bytes] == '=') {
            return at + bytes + 1;
        }
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return NULL;
}

/* Explanations */

static bool find_is_pci(const char *name)
{
    unsigned domain, bus, slot, function;
    char tail;
    return sscanf(name, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &tail) == 4;
}

static int explain_pci(const char *name)
{
    char path[256], target[256];
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", name);
    if (access(path, F_OK) != 0) {
        module_log(SL_LOG_ERROR, "dpdk: %s: this machine has no such PCI device: see lspci -D",
                   name);
        return SL_ERR_NOT_FOUND;
    }
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/driver", name);
    const ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    const char *driver = strrchr(target, '/') != NULL ? strrchr(target, '/') + 1 : "none";
    if (strcmp(driver, "vfio-pci") != 0 && strcmp(driver, "uio_pci_generic") != 0 &&
        strcmp(driver, "igb_uio") != 0) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s: its driver is %s, which leaves it to no program: dpdk-devbind.py "
                   "--bind=vfio-pci %s (a Mellanox device keeps its own: it needs librte-net-mlx5)",
                   name, driver, name);
    } else if (access("/dev/vfio/vfio", R_OK | W_OK) != 0) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s: /dev/vfio/vfio: %s: run as root, or give the user /dev/vfio/*", name,
                   strerror(errno));
    } else {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s: no driver of DPDK took it: is its librte-net-... installed, and may "
                   "this user open its /dev/vfio/*? STARLING_LOG=debug shows more",
                   name);
    }
    return SL_ERR_NOT_FOUND;
}

static bool is_kind(const char *name, const char *kind)
{
    return strncmp(name, kind, strlen(kind)) == 0;
}

static bool is_kernels(const char *name)
{
    return is_kind(name, "net_af_packet") || is_kind(name, "net_af_xdp");
}

/* Drivers return -1 for every cause, so test the permission. */
static bool is_refused(void)
{
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    const bool refused = fd < 0 && (errno == EPERM || errno == EACCES);
    if (fd >= 0) {
        (void)close(fd);
    }
    return refused;
}

/* Whether iface= names an existing interface. */
static bool has_iface(const char *arguments, char iface[IF_NAMESIZE])
{
    const char *at = find_value(arguments, "iface");
    const size_t bytes = at != NULL ? strcspn(at, ",") : 0;
    (void)snprintf(iface, IF_NAMESIZE, "%.*s", (int)bytes, at != NULL ? at : "");
    return bytes > 0 && bytes < IF_NAMESIZE && if_nametoindex(iface) != 0;
}

static void explain_kernels(const struct sl_dpdk_device *wanted)
{
    char iface[IF_NAMESIZE];
    if (!has_iface(wanted->arguments, iface)) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s,%s: this machine has no network device \"%s\": iface= names one of "
                   "those that `ip link` shows",
                   wanted->name, wanted->arguments, iface);
    } else if (is_refused()) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s,%s: no permission: run as root, or give the program CAP_NET_RAW "
                   "(net_af_xdp, and to change the mtu: also CAP_NET_ADMIN and CAP_BPF)",
                   wanted->name, wanted->arguments);
    } else {
        module_log(
            SL_LOG_ERROR,
            "dpdk: %s,%s: cannot be made: are its arguments right, has %s as many channels as "
            "it is to have queues (net_af_xdp: combined ones, see ethtool -l), is blocksz= a "
            "multiple of framesz=? With several queues of net_af_packet another process of "
            "this network may have the same number by chance: start this one again. "
            "STARLING_LOG=debug shows more",
            wanted->name, wanted->arguments, iface);
    }
}

static void explain_virtual(const struct sl_dpdk_device *wanted)
{
    if (is_kernels(wanted->name)) {
        explain_kernels(wanted);
        return;
    }
    module_log(SL_LOG_ERROR, "dpdk: %s,%s: cannot be made: %s", wanted->name, wanted->arguments,
               is_kind(wanted->name, "net_memif")
                   ? "with socket-abstract=no the socket is a path whose folder exists and is "
                     "writable; no other process listens at it; each device has its own id"
                   : "are its arguments right, is its librte-net-... installed, and may this user "
                     "make it? STARLING_LOG=debug shows more");
}

static int explain(const struct sl_dpdk_device *wanted)
{
    if (wanted->arguments != NULL) {
        explain_virtual(wanted);
        return SL_ERR_NOT_FOUND;
    }
    if (find_is_pci(wanted->name)) {
        return explain_pci(wanted->name);
    }
    module_log(SL_LOG_ERROR,
               "dpdk: there is no device %s: name a PCI device, or one that STARLING_DPDK_EAL_ARGS "
               "makes by --vdev",
               wanted->name);
    return SL_ERR_NOT_FOUND;
}

/* Devices that cannot start again */

struct gone {
    struct gone *next;
    char name[64];
    char arguments[];
};

static struct gone *gone; /* under the lock of device.c */

void sl_module_find_give_back(const struct sl_module_device *device)
{
    const struct rte_devargs *devargs = rte_dev_devargs(device->info.device);
    const char *arguments = devargs != NULL && devargs->args != NULL ? devargs->args : "";
    struct gone *one = calloc(1, sizeof *one + strlen(arguments) + 1);
    if (one == NULL) {
        return; /* the device stays, and its next start fails */
    }
    memcpy(one->name, device->name, sizeof one->name);
    memcpy(one->arguments, arguments, strlen(arguments));
    if (rte_eal_hotplug_remove("vdev", one->name) != 0) {
        free(one);
        return;
    }
    one->next = gone;
    gone = one;
}

/* Creates removed devices that `wanted` may name; one with arguments of its own is created from
 * these later. */
static void make_again(const struct sl_dpdk_device *wanted)
{
    struct gone **at = &gone;
    while (*at != NULL) {
        struct gone *one = *at;
        if (wanted->name != NULL && strcmp(wanted->name, one->name) != 0) {
            at = &one->next;
            continue;
        }
        if (wanted->arguments == NULL) {
            (void)rte_eal_hotplug_add("vdev", one->name, one->arguments);
        }
        *at = one->next;
        free(one);
    }
}

/* The device */

static bool is_named(const struct sl_dpdk_options *options, uint16_t id)
{
    for (uint32_t i = 0; i < options->device_count; i++) {
        const char *name = options->devices[i].name;
        uint16_t other;
        if (name != NULL && rte_eth_dev_get_port_by_name(name, &other) == 0 && other == id) {
            return true;
        }
    }
    return false;
}

/* Entries without a name take the unnamed devices in order. */
static int find_any(const struct sl_dpdk_options *options, uint32_t which, uint16_t *out)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < which; i++) {
        before += options->devices[i].name == NULL;
    }
    for (uint64_t id = rte_eth_find_next(0); id < RTE_MAX_ETHPORTS;
         id = rte_eth_find_next((uint16_t)(id + 1))) {
        if (!is_named(options, (uint16_t)id) && before-- == 0) {
            *out = (uint16_t)id;
            return 0;
        }
    }
    module_log(SL_LOG_ERROR,
               "dpdk: there is no device (DPDK has %u, of which others may be taken "
               "by name): bind one by dpdk-devbind.py --bind=vfio-pci, or make one "
               "by --vdev in STARLING_DPDK_EAL_ARGS",
               (unsigned)rte_eth_dev_count_avail());
    return SL_ERR_NOT_FOUND;
}

/* Completes the arguments: a queue for each reactor and, for rings shared with the kernel, frames
 * that hold the MTU. */
static void complete(const struct sl_dpdk_device *wanted, uint32_t queues,
                     char arguments[ARGUMENTS_BYTES])
{
    size_t used = (size_t)snprintf(arguments, ARGUMENTS_BYTES, "%s", wanted->arguments);
    const bool packet = is_kind(wanted->name, "net_af_packet");
    const bool xdp = is_kind(wanted->name, "net_af_xdp");
    const char *key = packet ? "qpairs" : "queue_count";
    used = used < ARGUMENTS_BYTES ? used : ARGUMENTS_BYTES - 1;
    if ((packet || xdp) && queues > 1 && find_value(wanted->arguments, key) == NULL) {
        (void)snprintf(arguments + used, ARGUMENTS_BYTES - used, ",%s=%u", key, queues);
        used = strlen(arguments);
    }
    const uint32_t frame = wanted->mtu + RTE_ETHER_HDR_LEN + PACKET_HEADER_BYTES;
    if (packet && frame > PACKET_FRAME_BYTES && find_value(wanted->arguments, "framesz") == NULL) {
        const uint32_t room = rte_align32pow2(frame);
        (void)snprintf(arguments + used, ARGUMENTS_BYTES - used, ",framesz=%u,blocksz=%u", room,
                       room > 4096 ? room : 4096);
    }
}

/* Removes the socket that a killed memif server left behind: the driver could not listen there. If
 * a process listens, the kernel refuses a datagram socket with another error and does not notify
 * it.
 */
static void remove_stale_socket(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno == ECONNREFUSED) {
            (void)unlink(path);
        }
        (void)close(fd);
    }
}

/* Errors: INVALID; logged. */
static int read_memif(const char *name, const char *text, struct sl_module_memif_arguments *out)
{
    const char *wrong = sl_module_memif_arguments_read(text, out);
    if (wrong != NULL) {
        module_log(SL_LOG_ERROR, "dpdk: %s,%s: %s", name, text, wrong);
    }
    return wrong != NULL ? SL_ERR_INVALID : 0;
}

static int prepare_memif(const struct sl_dpdk_device *wanted)
{
    struct sl_module_memif_arguments arguments;
    const int err = read_memif(wanted->name, wanted->arguments, &arguments);
    if (err == 0 && arguments.is_server && !arguments.is_abstract) {
        remove_stale_socket(arguments.path);
    }
    return err;
}

int sl_module_find(const struct sl_dpdk_options *options, uint32_t which, uint32_t queues,
                   uint16_t *id)
{
    const struct sl_dpdk_device *wanted = &options->devices[which];
    char arguments[ARGUMENTS_BYTES];
    make_again(wanted);
    if (wanted->name == NULL) {
        return find_any(options, which, id);
    }
    if (rte_eth_dev_get_port_by_name(wanted->name, id) == 0) {
        return 0;
    }
    if (wanted->arguments != NULL) {
        const int err = is_kind(wanted->name, "net_memif") ? prepare_memif(wanted) : 0;
        if (err != 0) {
            return err;
        }
        complete(wanted, queues, arguments);
        (void)rte_eal_hotplug_add("vdev", wanted->name, arguments);
    } else if (find_is_pci(wanted->name)) {
        (void)rte_eal_hotplug_add("pci", wanted->name, "");
    }
    return rte_eth_dev_get_port_by_name(wanted->name, id) == 0 ? 0 : explain(wanted);
}

/* Its address */

static bool parse_ip(const char *text, struct in6_addr *out)
{
    *out = (struct in6_addr){0};
    if (inet_pton(AF_INET6, text, out) == 1) {
        return true;
    }
    out->s6_addr[10] = out->s6_addr[11] = 0xff;
    return inet_pton(AF_INET, text, out->s6_addr + 12) == 1;
}

static bool parse_self(const struct sl_dpdk_device *wanted, struct sl_dpdk_self *out)
{
    char ip[INET6_ADDRSTRLEN];
    const char *slash = strchr(wanted->address, '/');
    const size_t bytes =
        slash != NULL ? (size_t)(slash - wanted->address) : strlen(wanted->address);
    if (bytes >= sizeof ip) {
        return false;
    }
    (void)snprintf(ip, sizeof ip, "%.*s", (int)bytes, wanted->address);
    if (!parse_ip(ip, &out->ip) || IN6_IS_ADDR_MULTICAST(&out->ip)) {
        return false;
    }
    const unsigned long bits_max = IN6_IS_ADDR_V4MAPPED(&out->ip) ? 32 : 128;
    char *end = NULL;
    const unsigned long bits = slash != NULL ? strtoul(slash + 1, &end, 10) : 0;
    if (slash != NULL && (end == slash + 1 || *end != '\0' || bits > bits_max)) {
        return false;
    }
    out->prefix_bits = (uint8_t)bits;
    out->has_gateway = wanted->gateway != NULL;
    return !out->has_gateway || (parse_ip(wanted->gateway, &out->gateway) &&
                                 IN6_IS_ADDR_V4MAPPED(&out->gateway) == (bits_max == 32));
}

int sl_module_find_self(const struct sl_dpdk_device *wanted, struct sl_dpdk_self *out)
{
    *out = (struct sl_dpdk_self){0};
    if (wanted->address != NULL && parse_self(wanted, out)) {
        return 0;
    }
    module_log(SL_LOG_ERROR,
               "dpdk: %s: its address is %s%s%s: give one as 10.0.0.1/24, of this network and "
               "nobody else's, and a gateway of the same kind or none",
               wanted->name != NULL ? wanted->name : "a device",
               wanted->address != NULL ? wanted->address : "missing",
               wanted->gateway != NULL ? ", its gateway " : "",
               wanted->gateway != NULL ? wanted->gateway : "");
    return SL_ERR_INVALID;
}

/* Driver properties */

/* The value of `key=` in the arguments that created the device, or NULL. */
static const char *argument_of(const struct rte_eth_dev_info *info, const char *key)
{
    const struct rte_devargs *devargs = rte_dev_devargs(info->device);
    return devargs != NULL ? find_value(devargs->args, key) : NULL;
}

static int find_memif(const struct rte_eth_dev_info *info, struct sl_module_traits *out)
{
    const struct rte_devargs *devargs = rte_dev_devargs(info->device);
    struct sl_module_memif_arguments arguments;
    const int err =
        read_memif(rte_dev_name(info->device), devargs != NULL ? devargs->args : NULL, &arguments);
    out->flags |= SL_MODULE_STRAIGHT | SL_MODULE_COPIES;
    out->flags |= arguments.is_server ? 0U : SL_MODULE_DIALS | SL_MODULE_BLOCKS;
    out->frame_bytes_max = arguments.buffer_bytes;
    return err;
}

/* DPDK has no capability flag for this. Of the virtual devices only vhost's have interrupts. A
 * NIC's driver has them if the kernel's vfio gives each queue a vector. */
static bool has_interrupts(const struct rte_eth_dev_info *info)
{
    return strcmp(info->driver_name, "net_vhost") == 0 ||
           strcmp(info->driver_name, "net_virtio_user") == 0;
}

int sl_module_find_traits(const struct rte_eth_dev_info *info, struct sl_module_traits *out)
{
    *out = (struct sl_module_traits){0};
    out->flags = has_interrupts(info) ? SL_MODULE_WAKES : 0;
    if (strcmp(info->driver_name, "net_memif") == 0) {
        return find_memif(info, out);
    }
    if (strcmp(info->driver_name, "net_af_packet") == 0) {
        const char *bytes = argument_of(info, "framesz");
        out->flags |= SL_MODULE_COPIES | SL_MODULE_ONCE | SL_MODULE_KERNELS;
        out->head_bytes = PACKET_HEADER_BYTES;
        out->room_bytes_min =
            bytes != NULL ? (uint32_t)strtoul(bytes, NULL, 10) : PACKET_FRAME_BYTES;
    } else if (strcmp(info->driver_name, "net_af_xdp") == 0) {
        out->flags |= SL_MODULE_SINGLE | SL_MODULE_KERNELS;
        out->packets_kept = XDP_PACKETS_KEPT;
    }
    return 0;
}
