#include "net/dpdk/device_list.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct sl_dpdk_device_list {
    struct sl_endpoint_device said[SL_DPDK_DEVICE_LIST_MAX];
    struct sl_dpdk_device devices[SL_DPDK_DEVICE_LIST_MAX];
    struct sl_dpdk_options options;
};

static bool has_name(const struct sl_dpdk_device_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->options.device_count; i++) {
        if (strcmp(list->said[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int dpdk_device_list_add(struct sl_dpdk_device_list *list,
                                const struct sl_endpoint_device *said, struct sl_reason *reason)
{
    const uint32_t count = list->options.device_count;
    if (count == SL_DPDK_DEVICE_LIST_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "more than %d devices of DPDK's",
                              SL_DPDK_DEVICE_LIST_MAX);
    }
    if (has_name(list, said->name)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s is named twice; each device once",
                              said->name);
    }
    struct sl_endpoint_device *kept = &list->said[count];
    *kept = *said;
    list->devices[count] = (struct sl_dpdk_device){
        .name = kept->name,
        .arguments = kept->arguments[0] == '\0' ? NULL : kept->arguments,
        .address = kept->address,
        .gateway = kept->gateway[0] == '\0' ? NULL : kept->gateway,
        .mtu = kept->mtu,
        .queues = kept->queues,
    };
    list->options.device_count++;
    return 0;
}

/* Adds the endpoint's device, which comes first: a listener on the unspecified address announces
 * the first device's address. */
static int add_endpoints(struct sl_dpdk_device_list *list, const char *text,
                         const struct sl_endpoint *listens, struct sl_reason *reason)
{
    struct sl_endpoint_device own, other;
    int err = sl_endpoint_device_parse(listens->device, true, &own, reason);
    bool is_said = false;
    while (err == 0 && sl_endpoint_device_next(&text, &other, NULL) == 1) {
        is_said = is_said || strcmp(own.name, other.name) == 0;
    }
    return err != 0 || is_said ? err : dpdk_device_list_add(list, &own, reason);
}

static int fill(struct sl_dpdk_device_list *list, const char *text,
                const struct sl_endpoint *listens, struct sl_reason *reason)
{
    struct sl_endpoint_device said;
    int result = listens == NULL || listens->device[0] == '\0'
                     ? 0
                     : add_endpoints(list, text, listens, reason);
    while (result == 0 && (result = sl_endpoint_device_next(&text, &said, reason)) == 1) {
        result = dpdk_device_list_add(list, &said, reason);
        if (result != 0) {
            return result;
        }
    }
    list->options.port_base = listens == NULL ? 0 : listens->port;
    return result;
}

int sl_dpdk_device_list_create(const char *text, const struct sl_endpoint *listens,
                               struct sl_dpdk_device_list **out, struct sl_reason *reason)
{
    struct sl_dpdk_device_list *list = calloc(1, sizeof *list);
    if (list == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    list->options.devices = list->devices;
    int err = fill(list, text, listens, reason);
    if (err != 0 || list->options.device_count == 0) {
        free(list);
        list = NULL;
    }
    if (err == 0) {
        *out = list;
    }
    return err;
}

void sl_dpdk_device_list_destroy(struct sl_dpdk_device_list **list)
{
    free(*list);
    *list = NULL;
}

void sl_dpdk_device_list_share(struct sl_dpdk_device_list *list, uint32_t first, uint16_t count)
{
    for (uint32_t i = 0; i < list->options.device_count; i++) {
        list->devices[i].first_reactor = first;
        list->devices[i].reactors = count;
    }
}

const struct sl_dpdk_options *sl_dpdk_device_list_options(const struct sl_dpdk_device_list *list)
{
    return list == NULL ? NULL : &list->options;
}

/* Compares the values: an address has several notations. */
static bool is_same(const char *a, const char *b)
{
    const int family = strchr(a, ':') != NULL ? AF_INET6 : AF_INET;
    struct in6_addr one, other;
    const size_t bytes = family == AF_INET6 ? sizeof one : sizeof(struct in_addr);
    return inet_pton(family, a, &one) == 1 && inet_pton(family, b, &other) == 1 &&
           memcmp(&one, &other, bytes) == 0;
}

bool sl_dpdk_device_list_has(const struct sl_dpdk_device_list *list,
                             const struct sl_endpoint *endpoint)
{
    bool has = sl_endpoint_is_any(endpoint);
    for (uint32_t i = 0; !has && i < list->options.device_count; i++) {
        has = is_same(endpoint->host, list->said[i].host);
    }
    return has;
}
