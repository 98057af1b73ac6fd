#include "reactor/devices.h"

#include "core/format.h"
#include "core/text_file.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 256 /* names read from one directory */
#define PORTS_MAX 8
#define NET       "/sys/class/net"
#define RDMA      "/sys/class/infiniband"
#define NODES     "/sys/devices/system/node"

struct reader {
    const char *root;
    const struct ifaddrs *addresses;
    struct sl_devices *out;
};

struct names {
    uint32_t count;
    char list[NAMES_MAX][SL_DEVICE_NAME_BYTES];
};

/* Files below the root */

static void path_of(const struct reader *reader, char path[PATH_MAX], const char *format,
                    va_list args)
{
    const int length = snprintf(path, PATH_MAX, "%s", reader->root);
    (void)vsnprintf(path + length, (size_t)(PATH_MAX - length), format, args);
}

/* Reads the first line of a file; false, and "": there is none. */
static bool devices_read_line(const struct reader *reader, char *line, size_t line_bytes,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

static bool devices_read_line(const struct reader *reader, char *line, size_t line_bytes,
                              const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, format);
    path_of(reader, path, format, args);
    va_end(args);
    return sl_text_file_line(path, line, line_bytes);
}

/* Resolves all links of a path; false, and "": it does not exist. */
static bool devices_resolve(const struct reader *reader, char resolved[PATH_MAX],
                            const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool devices_resolve(const struct reader *reader, char resolved[PATH_MAX],
                            const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, format);
    path_of(reader, path, format, args);
    va_end(args);
    const bool exists = realpath(path, resolved) != NULL;
    resolved[exists ? strlen(resolved) : 0] = '\0';
    return exists;
}

static int devices_compare_names(const void *a, const void *b)
{
    return strverscmp(a, b);
}

/* Lists the names in a directory that begin with `prefix`, in the order of numbers in them. */
static void list_names(const struct reader *reader, const char *directory, const char *prefix,
                       struct names *names)
{
    char path[PATH_MAX];
    names->count = 0;
    DIR *open = devices_resolve(reader, path, "%s", directory) ? opendir(path) : NULL;
    const struct dirent *entry;
    while (open != NULL && names->count < NAMES_MAX && (entry = readdir(open)) != NULL) {
        const size_t bytes = strlen(entry->d_name) + 1;
        if (entry->d_name[0] != '.' && bytes <= SL_DEVICE_NAME_BYTES &&
            strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            memcpy(names->list[names->count++], entry->d_name, bytes);
        }
    }
    if (open != NULL) {
        (void)closedir(open);
    }
    qsort(names->list, names->count, sizeof names->list[0], devices_compare_names);
}

/* NUMA nodes */

/* Parses a list such as "0-3,8". */
static void parse_cores(const char *text, cpu_set_t *cores)
{
    CPU_ZERO(cores);
    while (isdigit((unsigned char)*text)) {
        char *end;
        const unsigned long first = strtoul(text, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long core = first; core <= last && core < CPU_SETSIZE; core++) {
            CPU_SET(core, cores);
        }
        text = end + (*end == ',');
    }
}

/* The cores that this process may use; all if the kernel does not say. */
static void read_allowed(const struct reader *reader, cpu_set_t *allowed)
{
    static const char KEY[] = "Cpus_allowed_list:";
    char path[PATH_MAX], line[4096];
    memset(allowed, 0xff, sizeof *allowed);
    FILE *file = devices_resolve(reader, path, "/proc/self/status") ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, KEY, sizeof KEY - 1) == 0) {
            parse_cores(line + sizeof KEY - 1 + strspn(line + sizeof KEY - 1, " \t"), allowed);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Returns the only node of the host; -1: it has several. */
static int read_nodes(const struct reader *reader)
{
    struct sl_devices *out = reader->out;
    struct names names;
    cpu_set_t allowed, cores;
    uint32_t count = 0;
    int node = 0;
    read_allowed(reader, &allowed);
    list_names(reader, NODES, "node", &names);
    for (uint32_t i = 0; i < names.count; i++) {
        char line[4096];
        if (!isdigit((unsigned char)names.list[i][4])) {
            continue;
        }
        node = atoi(names.list[i] + 4);
        count++;
        (void)devices_read_line(reader, line, sizeof line, NODES "/%s/cpulist", names.list[i]);
        parse_cores(line, &cores);
        CPU_AND(&cores, &cores, &allowed);
        if (CPU_COUNT(&cores) > 0 && out->node_count < SL_DEVICES_NODES_MAX) {
            out->nodes[out->node_count++] = node;
        }
    }
    if (count == 0) { /* a kernel without NUMA */
        out->nodes[out->node_count++] = 0;
    }
    return count > 1 ? -1 : node;
}

/* Devices */

/* "0000:17:00.0" */
static bool is_pci(const char *name, size_t length)
{
    return length > 7 && length < SL_DEVICE_PCI_BYTES &&
           strspn(name, "0123456789abcdef:.") >= length && name[length - 2] == '.' &&
           name[length - 5] == ':';
}

/* Finds the PCI function of a directory in /sys/devices, and the bridge above it. Devices of virtio
 * and others are below their function. */
static void find_pci(const struct reader *reader, const char *directory, struct sl_device *device)
{
    char line[16];
    for (const char *at = directory; *at != '\0';) {
        at += *at == '/';
        const size_t length = strcspn(at, "/");
        if (is_pci(at, length)) {
            memcpy(device->bridge, device->pci, sizeof device->bridge);
            (void)snprintf(device->pci, sizeof device->pci, "%.*s", (int)length, at);
            const struct reader absolute = {.root = ""};
            if (devices_read_line(&absolute, line, sizeof line, "%.*s/numa_node",
                                  (int)(at + length - directory), directory)) {
                device->node = atoi(line);
            }
        }
        at += length;
    }
}

/* Adds the addresses of a network device. */
static void add_addresses(const struct reader *reader, const char *netdev, struct sl_device *device)
{
    for (const struct ifaddrs *at = reader->addresses; at != NULL; at = at->ifa_next) {
        const bool is_full = device->address_count == SL_DEVICE_ADDRESSES_MAX;
        if (is_full || at->ifa_addr == NULL || strcmp(at->ifa_name, netdev) != 0) {
            continue;
        }
        char *to = device->addresses[device->address_count];
        if (at->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;
            const uint32_t host = ntohl(in->sin_addr.s_addr);
            if (host >> 24 != 127 && host >> 16 != 0xa9fe) { /* loopback, 169.254.0.0/16 */
                (void)inet_ntop(AF_INET, &in->sin_addr, to, SL_DEVICE_ADDRESS_BYTES);
                device->address_count++;
            }
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;
            if (!IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr)) {
                (void)inet_ntop(AF_INET6, &in->sin6_addr, to, SL_DEVICE_ADDRESS_BYTES);
                device->address_count++;
            }
        }
    }
}

/* Finds the hardware of a network device: its own, or that of a device below a bond, a VLAN or a
 * bridge. False: it is virtual. */
static bool find_hardware(const struct reader *reader, const char *netdev, struct sl_device *device)
{
    struct names lower;
    char path[PATH_MAX];
    if (devices_resolve(reader, path, NET "/%s/device", netdev)) {
        find_pci(reader, path, device);
        return true;
    }
    (void)snprintf(path, sizeof path, NET "/%s", netdev);
    list_names(reader, path, "lower_", &lower);
    for (uint32_t i = 0; i < lower.count; i++) {
        if (devices_resolve(reader, path, NET "/%s/%s/device", netdev, lower.list[i])) {
            find_pci(reader, path, device);
            return true;
        }
    }
    return false;
}

static struct sl_device *new_device(const struct reader *reader, const char *name, bool is_rdma)
{
    struct sl_device *device = &reader->out->list[reader->out->count];
    *device = (struct sl_device){.is_rdma = is_rdma, .node = -1};
    (void)snprintf(device->name, sizeof device->name, "%s", name);
    return device;
}

static void read_rdma(const struct reader *reader, const char *name)
{
    struct names netdevs;
    struct sl_device *device = new_device(reader, name, true);
    char path[PATH_MAX], line[64];
    if (devices_resolve(reader, path, RDMA "/%s/device", name)) {
        find_pci(reader, path, device);
    }
    for (uint32_t port = 1; port <= PORTS_MAX; port++) {
        if (!devices_read_line(reader, line, sizeof line, RDMA "/%s/ports/%u/state", name, port)) {
            break;
        }
        device->is_up = device->is_up || strstr(line, "ACTIVE") != NULL;
    }
    (void)devices_read_line(reader, line, sizeof line, RDMA "/%s/ports/1/link_layer", name);
    device->is_infiniband = strcmp(line, "InfiniBand") == 0;
    (void)snprintf(path, sizeof path, RDMA "/%s/device/net", name);
    list_names(reader, path, "", &netdevs);
    if (netdevs.count > 0) {
        memcpy(device->netdev, netdevs.list[0], sizeof device->netdev);
    } else if (devices_read_line(reader, device->netdev, sizeof device->netdev, RDMA "/%s/parent",
                                 name)) {
        (void)find_hardware(reader, device->netdev, device); /* soft RoCE */
    }
    add_addresses(reader, device->netdev, device);
    reader->out->count++;
}

static void read_netdev(const struct reader *reader, const char *name)
{
    struct sl_device *device = new_device(reader, name, false);
    char line[32], path[PATH_MAX];
    const bool is_loopback = devices_read_line(reader, line, sizeof line, NET "/%s/type", name) &&
                             atoi(line) == ARPHRD_LOOPBACK;
    /* A member of a bond or bridge has no address: peers use the bond's. */
    if (is_loopback || devices_resolve(reader, path, NET "/%s/master", name)) {
        return;
    }
    const bool has_hardware = find_hardware(reader, name, device);
    add_addresses(reader, name, device);
    const bool is_bridge = devices_resolve(reader, path, NET "/%s/bridge", name);
    if (!has_hardware && (is_bridge || device->address_count == 0)) {
        return;
    }
    (void)devices_read_line(reader, line, sizeof line, NET "/%s/operstate", name);
    device->is_up = strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
    reader->out->count++;
}

void sl_devices_read(const char *root, const struct ifaddrs *addresses, struct sl_devices *out)
{
    struct names names;
    const struct reader reader = {.root = root, .addresses = addresses, .out = out};
    memset(out, 0, sizeof *out);
    const int only_node = read_nodes(&reader);
    list_names(&reader, RDMA, "", &names);
    for (uint32_t i = 0; i < names.count && out->count < SL_DEVICES_MAX; i++) {
        read_rdma(&reader, names.list[i]);
    }
    list_names(&reader, NET, "", &names);
    for (uint32_t i = 0; i < names.count && out->count < SL_DEVICES_MAX; i++) {
        read_netdev(&reader, names.list[i]);
    }
    for (uint32_t i = 0; i < out->count; i++) {
        struct sl_device *device = &out->list[i];
        device->node = device->node < 0 ? only_node : device->node;
    }
}

void sl_devices_read_host(struct sl_devices *out)
{
    struct ifaddrs *addresses = NULL;
    (void)getifaddrs(&addresses);
    sl_devices_read("", addresses, out);
    freeifaddrs(addresses);
}

/* Questions */

const struct sl_device *sl_devices_find(const struct sl_devices *devices, const char *name)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (strcmp(devices->list[i].name, name) == 0) {
            return &devices->list[i];
        }
    }
    return NULL;
}

bool sl_devices_is_reachable(const struct sl_device *device)
{
    return device->address_count > 0 || device->is_infiniband;
}

bool sl_devices_is_near(const struct sl_devices *devices, const struct sl_device *device)
{
    for (uint32_t i = 0; i < devices->node_count; i++) {
        if (devices->nodes[i] == device->node) {
            return true;
        }
    }
    return device->node < 0;
}

void sl_devices_names(const struct sl_devices *devices, char *text, size_t bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < devices->count; i++) {
        (void)sl_format_add(text, bytes, ", ", "%s", devices->list[i].name);
    }
}
