#include "bench/rdma_device.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"

#define PATH_BYTES  512
#define LINE_BYTES  128
#define GIDS_MAX    256
#define DEVICES_MAX 64

/* ---- Files of one line ----------------------------------------------------------------------- */

/* The first line of a file, without its end; false: there is none. */
static bool read_line(const char *folder, const char *file, char line[LINE_BYTES])
{
    char path[2 * PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.600s/%s", folder, file);
    FILE *stream = fopen(path, "re");
    const bool is_read = stream != NULL && fgets(line, LINE_BYTES, stream) != NULL;
    if (stream != NULL) {
        (void)fclose(stream);
    }
    if (is_read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return is_read && line[0] != '\0';
}

/* The first entry of a folder; false: there is none. */
static bool read_entry(const char *folder, const char *below, char name[LINE_BYTES])
{
    char path[2 * PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.600s/%s", folder, below);
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        found = entry->d_name[0] != '.';
        (void)snprintf(name, LINE_BYTES, "%.100s", entry->d_name);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return found;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

/* Of RoCE and InfiniBand each GID names its interface; a device of software has a parent, others
 * have theirs beside them. */
static bool find_interface(const char *folder, char interface[LINE_BYTES])
{
    return read_line(folder, "ports/1/gid_attrs/ndevs/0", interface) ||
           read_line(folder, "parent", interface) || read_entry(folder, "device/net", interface);
}

static bool find_address(const char *interface, char address[SL_BENCH_RDMA_NAME_BYTES])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *one = all; one != NULL && !found; one = one->ifa_next) {
        if (one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_INET &&
            (one->ifa_flags & IFF_UP) != 0 && strcmp(one->ifa_name, interface) == 0) {
            const struct sockaddr_in *ip = (const void *)one->ifa_addr;
            found = inet_ntop(AF_INET, &ip->sin_addr, address, SL_BENCH_RDMA_NAME_BYTES) != NULL;
        }
    }
    freeifaddrs(all);
    return found;
}

/* The GID of RoCE v2 that an IPv4 address has: ::ffff:a.b.c.d. */
static int find_gid(const char *folder, const char *address)
{
    char mapped[SL_BENCH_RDMA_NAME_BYTES + 8];
    struct in6_addr wanted;
    (void)snprintf(mapped, sizeof mapped, "::ffff:%s", address);
    if (inet_pton(AF_INET6, mapped, &wanted) != 1) {
        return -1;
    }
    for (int i = 0; i < GIDS_MAX; i++) {
        char file[64], line[LINE_BYTES];
        struct in6_addr gid;
        (void)snprintf(file, sizeof file, "ports/1/gids/%d", i);
        if (!read_line(folder, file, line) || inet_pton(AF_INET6, line, &gid) != 1 ||
            memcmp(&gid, &wanted, sizeof gid) != 0) {
            continue;
        }
        (void)snprintf(file, sizeof file, "ports/1/gid_attrs/types/%d", i);
        if (read_line(folder, file, line) && strstr(line, "RoCE v2") != NULL) {
            return i;
        }
    }
    return -1;
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* One device; false: *why says what it lacks. */
static bool describe(const char *folder, const char *name, const char *address,
                     struct sl_bench_rdma_device *out, const char **why)
{
    char line[LINE_BYTES], interface[LINE_BYTES];
    *out = (struct sl_bench_rdma_device){.gid = -1};
    (void)snprintf(out->name, sizeof out->name, "%.63s", name);
    if (read_line(folder, "node_type", line) && strstr(line, "RNIC") != NULL) {
        *why = "iWARP is not supported: use RoCE mode";
        return false;
    }
    if (!read_line(folder, "ports/1/state", line) || strstr(line, "ACTIVE") == NULL) {
        *why = "port 1 is not active";
        return false;
    }
    if (address != NULL) {
        (void)snprintf(out->address, sizeof out->address, "%.63s", address);
    } else if (!find_interface(folder, interface) || !find_address(interface, out->address)) {
        *why = "no IPv4 address of its network interface is known: name one by --address";
        return false;
    }
    out->gid = find_gid(folder, out->address);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* In order of their names. */
static size_t list_devices(const char *folder, char names[DEVICES_MAX][SL_BENCH_RDMA_NAME_BYTES])
{
    DIR *dir = opendir(folder);
    size_t count = 0;
    for (struct dirent *entry;
         dir != NULL && count < DEVICES_MAX && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(names[count++], SL_BENCH_RDMA_NAME_BYTES, "%.63s", entry->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    qsort(names, count, sizeof names[0], compare_names);
    return count;
}

int sl_bench_rdma_device_find(const char *sysfs, const char *name, const char *address,
                              struct sl_bench_rdma_device *out, char *reason, size_t reason_bytes)
{
    char folder[PATH_BYTES], names[DEVICES_MAX][SL_BENCH_RDMA_NAME_BYTES];
    (void)snprintf(folder, sizeof folder, "%s/class/infiniband", sysfs);
    const size_t count = list_devices(folder, names);
    int used = snprintf(reason, reason_bytes,
                        count == 0     ? "this machine has no RDMA device"
                        : name == NULL ? "no RDMA device of this machine can be measured"
                                       : "--device=%s: no RDMA device of this machine",
                        name);
    for (size_t i = 0; i < count; i++) {
        char path[2 * PATH_BYTES];
        const char *why = NULL;
        struct sl_bench_rdma_device device;
        if (name != NULL && strcmp(name, names[i]) != 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%.63s", folder, names[i]);
        if (describe(path, names[i], address, &device, &why)) {
            *out = device;
            return 0;
        }
        if (used > 0 && (size_t)used < reason_bytes) {
            used += snprintf(reason + used, reason_bytes - (size_t)used, "; %s: %s", names[i], why);
        }
    }
    return SL_ERR_NOT_FOUND;
}
