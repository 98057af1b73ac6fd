/* Chooses the local address of a connection: the address determines the device. sysfs lists the
 * devices and their network interfaces. */
#include "net/rdma/address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/text_file.h"

#define DEVICES_MAX     16
#define CANDIDATES_MAX  32
#define PORTS_MAX       2
#define GIDS_MAX        256
#define GIDS_EMPTY      8 /* so many empty entries in a row end the table */
#define NODE_TYPE_IWARP 4 /* in sysfs: "4: RNIC" */
#define NAME_BYTES      64
#define PATH_BYTES      512

struct device {
    char name[NAME_BYTES];
    int numa_node; /* -1: unknown */
};

struct candidate {
    struct sockaddr_storage address;
    const struct device *device;
    uint8_t mask[16]; /* netmask */
};

struct search {
    struct device devices[DEVICES_MAX];
    uint32_t device_count;
    struct candidate candidates[CANDIDATES_MAX];
    uint32_t candidate_count;
};

static const char *sysfs = "/sys";

void sl_rdma_address_set_root(const char *root)
{
    sysfs = root;
}

/* First line of a file, without its newline. */
static bool rdma_address_read_line(const char *device, const char *file, char *line,
                                   size_t line_bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/%s", sysfs, device, file);
    return sl_text_file_line(path, line, line_bytes);
}

static bool is_iwarp(const char *device)
{
    char line[NAME_BYTES];
    return rdma_address_read_line(device, "node_type", line, sizeof line) &&
           atoi(line) == NODE_TYPE_IWARP;
}

static bool exists(const char *device)
{
    char line[NAME_BYTES];
    return device[0] != '\0' && strchr(device, '/') == NULL &&
           rdma_address_read_line(device, "node_type", line, sizeof line);
}

static void add_device(struct search *search, const char *name)
{
    if (search->device_count == DEVICES_MAX) {
        return;
    }
    struct device *device = &search->devices[search->device_count++];
    char line[NAME_BYTES];
    snprintf(device->name, sizeof device->name, "%s", name);
    device->numa_node = -1;
    if (rdma_address_read_line(name, "device/numa_node", line, sizeof line)) {
        device->numa_node = atoi(line);
    }
}

static int compare_devices(const void *a, const void *b)
{
    return strcmp(((const struct device *)a)->name, ((const struct device *)b)->name);
}

static void add_all_devices(struct search *search)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/class/infiniband", sysfs);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        if (entry->d_name[0] != '.' && !is_iwarp(entry->d_name)) {
            add_device(search, entry->d_name);
        }
    }
    closedir(directory);
    qsort(search->devices, search->device_count, sizeof search->devices[0], compare_devices);
}

/* Takes the next name from a comma-separated list. */
static bool rdma_address_next_name(const char **list, char *name, size_t name_bytes)
{
    *list += strspn(*list, ", ");
    size_t bytes = strcspn(*list, ", ");
    if (bytes == 0) {
        return false;
    }
    snprintf(name, name_bytes, "%.*s", (int)bytes, *list);
    *list += bytes;
    return true;
}

static void find_devices(const struct sl_rdma *rdma, struct search *search)
{
    const char *list = rdma->options.devices;
    char name[NAME_BYTES];
    if (list[0] == '\0') {
        add_all_devices(search);
        return;
    }
    while (rdma_address_next_name(&list, name, sizeof name)) {
        add_device(search, name);
    }
}

int sl_rdma_address_check(const struct sl_rdma *rdma)
{
    const char *list = rdma->options.devices;
    char name[NAME_BYTES];
    while (rdma_address_next_name(&list, name, sizeof name)) {
        if (!exists(name)) {
            sl_log_error("rdma: there is no device %s; starling-ps doctor lists those that there "
                         "are",
                         name);
            return SL_ERR_INVALID;
        }
        if (is_iwarp(name)) {
            sl_log_error("rdma: %s: " SL_RDMA_NO_IWARP, name);
            return SL_ERR_UNSUPPORTED;
        }
    }
    return 0;
}

/* The address of a GID */

static bool parse_gid(const char *device, uint32_t port, uint32_t index,
                      struct sockaddr_storage *out)
{
    char file[NAME_BYTES], line[NAME_BYTES];
    struct in6_addr gid;
    static const struct in6_addr none;
    snprintf(file, sizeof file, "ports/%u/gids/%u", port, index);
    if (!rdma_address_read_line(device, file, line, sizeof line) ||
        inet_pton(AF_INET6, line, &gid) != 1 || memcmp(&gid, &none, sizeof gid) == 0) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (IN6_IS_ADDR_V4MAPPED(&gid)) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, &gid.s6_addr[12], sizeof v4->sin_addr);
        return true;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = gid;
    snprintf(file, sizeof file, "ports/%u/gid_attrs/ndevs/%u", port, index);
    if (IN6_IS_ADDR_LINKLOCAL(&gid) && rdma_address_read_line(device, file, line, sizeof line)) {
        v6->sin6_scope_id = if_nametoindex(line);
    }
    return true;
}

static int choose_gid(const struct sl_rdma *rdma, const struct search *search, sa_family_t family,
                      struct sockaddr_storage *from)
{
    uint32_t index = rdma->options.gid_index;
    const char *name = search->device_count > 0 ? search->devices[0].name : "";
    if (search->device_count == 0 || !parse_gid(name, 1, index, from)) {
        sl_log_error("rdma: device %s has no GID of index %u; starling-ps doctor lists those that "
                     "there are",
                     name[0] != '\0' ? name : "(none)", index);
        return SL_ERR_INVALID;
    }
    if (from->ss_family != family) {
        sl_log_error("rdma: the GID of index %u of device %s is for %s, which the endpoint is not",
                     index, name, from->ss_family == AF_INET ? "IPv4" : "IPv6");
        return SL_ERR_INVALID;
    }
    return 0;
}

/* The addresses of a device */

static bool has_directory(const char *device, const char *directory, const char *entry)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/%s/%s", sysfs, device, directory, entry);
    DIR *stream = opendir(path);
    if (stream != NULL) {
        closedir(stream);
    }
    return stream != NULL;
}

/* RoCE: each GID belongs to an interface, possibly a VLAN's. The table is long and mostly empty
 * at its end. */
static bool has_gid_of(const char *device, uint32_t port, const char *interface)
{
    char file[NAME_BYTES], line[NAME_BYTES];
    uint32_t empty = 0;
    for (uint32_t i = 0; i < GIDS_MAX && empty < GIDS_EMPTY; i++) {
        snprintf(file, sizeof file, "ports/%u/gid_attrs/ndevs/%u", port, i);
        if (!rdma_address_read_line(device, file, line, sizeof line)) {
            empty++;
        } else if (strcmp(line, interface) == 0) {
            return true;
        } else {
            empty = 0;
        }
    }
    return false;
}

/* device/net lists InfiniBand's IPoIB interfaces. */
static bool is_of_device(const char *device, const char *interface)
{
    for (uint32_t port = 1; port <= PORTS_MAX; port++) {
        if (has_gid_of(device, port, interface)) {
            return true;
        }
    }
    return has_directory(device, "device/net", interface);
}

static uint32_t rdma_address_bytes_of(const struct sockaddr *address, const uint8_t **out)
{
    if (address->sa_family == AF_INET) {
        *out = (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
        return 4;
    }
    *out = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return 16;
}

static void add_candidate(struct search *search, const struct device *device,
                          const struct ifaddrs *interface)
{
    if (search->candidate_count == CANDIDATES_MAX) {
        return;
    }
    struct candidate *candidate = &search->candidates[search->candidate_count++];
    bool is_v4 = interface->ifa_addr->sa_family == AF_INET;
    *candidate = (struct candidate){.device = device};
    memcpy(&candidate->address, interface->ifa_addr,
           is_v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    if (interface->ifa_netmask != NULL) {
        const uint8_t *mask;
        uint32_t bytes = rdma_address_bytes_of(interface->ifa_netmask, &mask);
        memcpy(candidate->mask, mask, bytes);
    }
}

static bool shares_network(const struct candidate *candidate, const struct sockaddr_storage *to)
{
    const uint8_t *ours, *theirs;
    uint32_t bytes = rdma_address_bytes_of((const struct sockaddr *)&candidate->address, &ours);
    (void)rdma_address_bytes_of((const struct sockaddr *)to, &theirs);
    for (uint32_t i = 0; i < bytes; i++) {
        if (((ours[i] ^ theirs[i]) & candidate->mask[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* One address per device: the first in the network of `to`, else the first. */
static void find_candidates(struct search *search, const struct sockaddr_storage *to,
                            bool only_network)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (uint32_t i = 0; i < search->device_count; i++) {
        const struct device *device = &search->devices[i];
        uint32_t first = search->candidate_count;
        for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
            if (at->ifa_addr != NULL && at->ifa_addr->sa_family == to->ss_family &&
                (at->ifa_flags & IFF_UP) != 0 && is_of_device(device->name, at->ifa_name)) {
                add_candidate(search, device, at);
            }
        }
        uint32_t chosen = first;
        while (chosen < search->candidate_count &&
               !shares_network(&search->candidates[chosen], to)) {
            chosen++;
        }
        if (chosen < search->candidate_count) {
            search->candidates[first] = search->candidates[chosen];
        }
        bool any =
            chosen < search->candidate_count || (!only_network && first < search->candidate_count);
        search->candidate_count = any ? first + 1 : first;
    }
    freeifaddrs(list);
}

/* Keeps the candidates on this thread's NUMA node, if there are any. */
static void keep_near(struct search *search)
{
    unsigned cpu, node;
    if (getcpu(&cpu, &node) != 0) {
        return;
    }
    uint32_t near = 0;
    for (uint32_t i = 0; i < search->candidate_count; i++) {
        if (search->candidates[i].device->numa_node == (int)node) {
            struct candidate other = search->candidates[near];
            search->candidates[near++] = search->candidates[i];
            search->candidates[i] = other;
        }
    }
    search->candidate_count = near > 0 ? near : search->candidate_count;
}

bool sl_rdma_address_is_any(const struct sockaddr_storage *address)
{
    static const uint8_t zeros[16];
    const uint8_t *at;
    uint32_t bytes = rdma_address_bytes_of((const struct sockaddr *)address, &at);
    return memcmp(zeros, at, bytes) == 0;
}

int sl_rdma_address_choose(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                           const struct sockaddr_storage *to, struct sockaddr_storage *from)
{
    struct search search = {.device_count = 0};
    bool any = sl_rdma_address_is_any(to), named = rdma->options.devices[0] != '\0';
    memset(from, 0, sizeof *from);
    find_devices(rdma, &search);
    if (rdma->options.has_gid_index) {
        return choose_gid(rdma, &search, to->ss_family, from);
    }
    if (search.device_count < 2 && !named) {
        return 0;
    }
    if (any && search.device_count != 1) {
        return 0; /* listen on all devices */
    }
    find_candidates(&search, to, !named);
    if (search.candidate_count == 0 && named) {
        sl_log_error("rdma: no device of %s has an address that reaches %s", rdma->options.devices,
                     endpoint->host);
        return SL_ERR_NOT_FOUND;
    }
    if (search.candidate_count < 2 && !named) {
        return 0;
    }
    keep_near(&search);
    *from = search.candidates[rdma->next_nic++ % search.candidate_count].address;
    return 0;
}
