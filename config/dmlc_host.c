/* Chooses the address of this machine by which other processes of a job reach it. */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/dmlc.h"
#include "core/format.h"

/* Ranks an address: IPv4 before IPv6; link-local addresses, which need a zone, never. */
static int rank_address(const struct sockaddr *address)
{
    if (address == NULL) {
        return 0;
    }
    if (address->sa_family == AF_INET) {
        return 2;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? 1 : 0;
}

static int write_address(const struct sockaddr *address, char host[SL_LIMIT_ENDPOINT_BYTES])
{
    struct sockaddr_storage storage = {0};
    struct sl_endpoint endpoint;
    memcpy(&storage, address,
           address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                         : sizeof(struct sockaddr_in6));
    int err = sl_endpoint_from_sockaddr(&storage, &endpoint);
    if (err == 0) {
        memcpy(host, endpoint.host, sizeof endpoint.host);
    }
    return err;
}

/* Lists interfaces once each, "lo, eth0", as far as they fit. */
static void name_interfaces(const struct ifaddrs *all, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        bool is_new = true;
        for (const struct ifaddrs *before = all; before != at; before = before->ifa_next) {
            is_new = is_new && strcmp(before->ifa_name, at->ifa_name) != 0;
        }
        if (is_new) {
            (void)sl_format_add(text, text_bytes, ", ", "%s", at->ifa_name);
        }
    }
}

static int find_interface(const char *name, char host[SL_LIMIT_ENDPOINT_BYTES],
                          struct sl_reason *reason)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return sl_reason_fail(reason, SL_ERR_IO, "the network interfaces cannot be listed: %s",
                              strerror(errno));
    }
    bool exists = false;
    const struct sockaddr *best = NULL;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) == 0) {
            exists = true;
            best = rank_address(at->ifa_addr) > rank_address(best) ? at->ifa_addr : best;
        }
    }
    int err = best == NULL ? SL_ERR_INVALID : write_address(best, host);
    if (!exists) {
        char names[256];
        name_interfaces(all, names, sizeof names);
        sl_reason_set(reason, "DMLC_INTERFACE=%s: there is no such network interface; accepts %s",
                      name, names);
    } else if (err != 0) {
        sl_reason_set(reason, "DMLC_INTERFACE=%s: it has no address that other machines could use",
                      name);
    }
    freeifaddrs(all);
    return err;
}

/* Connects a datagram socket, which sends nothing, to find the local address of the route. */
static int find_route(const struct sl_endpoint *root, char host[SL_LIMIT_ENDPOINT_BYTES],
                      struct sl_reason *reason)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_reason why;
    int err = sl_endpoint_resolve(root, false, &address, &bytes, &why);
    if (err != 0) {
        return sl_reason_fail(reason, err, "DMLC_PS_ROOT_URI=%s: %s", root->host, why.text);
    }
    struct sockaddr_storage own = {0};
    socklen_t own_bytes = sizeof own;
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0) {
        err = sl_reason_fail(reason, SL_ERR_NOT_FOUND, "DMLC_PS_ROOT_URI=%s: no route to it: %s",
                             root->host, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err != 0 ? err : write_address((const struct sockaddr *)&own, host);
}

int sl_dmlc_find_host(const struct sl_dmlc *dmlc, char host[SL_LIMIT_ENDPOINT_BYTES],
                      struct sl_reason *reason)
{
    if (dmlc->node_host[0] != '\0') {
        memcpy(host, dmlc->node_host, sizeof dmlc->node_host);
        return 0;
    }
    if (dmlc->interface[0] != '\0') {
        return find_interface(dmlc->interface, host, reason);
    }
    return find_route(&dmlc->root, host, reason);
}
