/* Devices lists the host's network and RDMA devices, and where they are: NUMA node, PCI bridge,
 * state and addresses, from sysfs. Before start; any thread; blocks on files; allocates nothing. */
#ifndef SL_REACTOR_DEVICES_H
#define SL_REACTOR_DEVICES_H

#include <ifaddrs.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define SL_DEVICES_MAX          64
#define SL_DEVICES_NODES_MAX    64
#define SL_DEVICE_NAME_BYTES    64 /* with NUL */
#define SL_DEVICE_ADDRESSES_MAX 8
#define SL_DEVICE_ADDRESS_BYTES 46 /* INET6_ADDRSTRLEN */
#define SL_DEVICE_PCI_BYTES     32 /* "0000:17:00.0" */

struct sl_device {
    char name[SL_DEVICE_NAME_BYTES]; /* "mlx5_0", "eth0" */
    bool is_rdma;
    bool is_up;                        /* the link, or an RDMA port, is up */
    int node;                          /* NUMA node; -1: unknown */
    char pci[SL_DEVICE_PCI_BYTES];     /* address of its PCI function; "": no PCI device */
    char bridge[SL_DEVICE_PCI_BYTES];  /* the PCI bridge above it; "": none */
    char netdev[SL_DEVICE_NAME_BYTES]; /* RDMA: its network device; "": none */
    bool is_infiniband; /* RDMA: addressed by the subnet manager, needs no IP address */
    uint32_t address_count;
    /* IP addresses that peers can use: neither loopback nor link-local. RDMA: those of `netdev`. */
    char addresses[SL_DEVICE_ADDRESSES_MAX][SL_DEVICE_ADDRESS_BYTES];
};

struct sl_devices {
    uint32_t count;
    struct sl_device list[SL_DEVICES_MAX]; /* RDMA devices, then network devices, each by name */
    uint32_t node_count;
    int nodes[SL_DEVICES_NODES_MAX]; /* NUMA nodes with cores that this process may use, ascending
                                      */
};

/* Reads the files below root ("": this host). addresses: of its network devices; NULL: none. Left
 * out are loopback, bridges, and network devices that have neither hardware nor a usable address.
 * What cannot be read is missing in *out; more devices than SL_DEVICES_MAX are left out. */
void sl_devices_read(const char *root, const struct ifaddrs *addresses, struct sl_devices *out);

/* The same of this host, with its addresses. */
void sl_devices_read_host(struct sl_devices *out);

/* NULL: there is none with this name. */
const struct sl_device *sl_devices_find(const struct sl_devices *devices, const char *name);

/* Whether the device has an address at which peers can reach it. */
bool sl_devices_is_reachable(const struct sl_device *device);

/* Whether the process may use a core on the device's NUMA node, or the node is unknown. */
bool sl_devices_is_near(const struct sl_devices *devices, const struct sl_device *device);

/* Writes the names, separated by ", ", to text[bytes]; truncates. */
void sl_devices_names(const struct sl_devices *devices, char *text, size_t bytes);

#endif
