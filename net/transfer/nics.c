#include "net/transfer/nics.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/format.h"
#include "net/transfer/error.h"

/* Takes the next name from a comma-separated list. */
static bool transfer_nics_next_name(const char **names, char name[SL_DEVICE_NAME_BYTES])
{
    *names += strspn(*names, ", ");
    const size_t length = strcspn(*names, ", ");
    (void)snprintf(name, SL_DEVICE_NAME_BYTES, "%.*s", (int)length, *names);
    *names += length;
    return length > 0;
}

/* Whether the comma-separated names contain this one. NULL and "" contain all. */
static bool has_name(const char *names, const char *name)
{
    char one[SL_DEVICE_NAME_BYTES];
    bool is_named = names == NULL || names[0] == '\0';
    while (!is_named && transfer_nics_next_name(&names, one)) {
        is_named = strcmp(one, name) == 0;
    }
    return is_named;
}

int sl_transfer_nics_check(const struct sl_devices *devices, const char *names)
{
    char name[SL_DEVICE_NAME_BYTES], all[256] = "";
    while (transfer_nics_next_name(&names, name)) {
        const struct sl_device *device = sl_devices_find(devices, name);
        if (device != NULL && device->is_rdma) {
            continue;
        }
        for (uint32_t i = 0; i < devices->count && devices->list[i].is_rdma; i++) {
            (void)sl_format_add(all, sizeof all, ", ", "%s", devices->list[i].name);
        }
        return sl_transfer_fail(SL_ERR_INVALID,
                                "rdma_device %s: there is no such device; accepted are names "
                                "separated by commas: %s",
                                name, all[0] != '\0' ? all : "this host has none");
    }
    return 0;
}

/* The value of an address, which has several notations. Returns its family; 0: it is a name. */
static int transfer_nics_parse(const char *host, struct in6_addr *out)
{
    memset(out, 0, sizeof *out);
    return inet_pton(AF_INET, host, out) == 1    ? AF_INET
           : inet_pton(AF_INET6, host, out) == 1 ? AF_INET6
                                                 : 0;
}

/* The device's address that is `wanted`, or its first one of that family; NULL: it has none. */
static const char *transfer_nics_address_of(const struct sl_device *device, int family,
                                            const struct in6_addr *wanted)
{
    struct in6_addr address;
    for (uint32_t i = 0; i < device->address_count; i++) {
        if (transfer_nics_parse(device->addresses[i], &address) == family &&
            (IN6_IS_ADDR_UNSPECIFIED(wanted) || IN6_ARE_ADDR_EQUAL(wanted, &address))) {
            return device->addresses[i];
        }
    }
    return NULL;
}

uint32_t sl_transfer_nics_find(const struct sl_devices *devices, const char *names,
                               const struct sl_endpoint *endpoint, struct sl_endpoint *out)
{
    struct in6_addr wanted;
    const int family = transfer_nics_parse(endpoint->host, &wanted);
    const bool is_any = sl_endpoint_is_any(endpoint);
    uint32_t count = 0;
    for (uint32_t i = 0; i < devices->count && count < SL_TRANSFER_NICS_MAX; i++) {
        const struct sl_device *device = &devices->list[i];
        const char *address = device->is_rdma && has_name(names, device->name)
                                  ? transfer_nics_address_of(device, family, &wanted)
                                  : NULL;
        if (address != NULL && (device->is_up || !is_any)) {
            struct sl_endpoint *to = &out[count++];
            *to = *endpoint;
            (void)snprintf(to->host, sizeof to->host, "%s", address);
            (void)snprintf(to->device, sizeof to->device, "%s", device->name);
        }
    }
    if (count == 0 && !is_any) { /* a name, or an address of a VLAN: rdma_cm finds the device */
        out[count++] = *endpoint;
    }
    return count;
}

static bool is_in(const struct sl_matrix *matrix, const char *device)
{
    uint32_t i = 0;
    while (i < matrix->device_count && strcmp(matrix->devices[i], device) != 0) {
        i++;
    }
    return i < matrix->device_count;
}

void sl_transfer_nics_name(const struct sl_devices *devices, const struct sl_matrix *matrix,
                           const struct sl_endpoint *endpoint, char name[SL_DEVICE_NAME_BYTES])
{
    struct in6_addr wanted;
    const int family = transfer_nics_parse(endpoint->host, &wanted);
    name[0] = '\0';
    for (uint32_t i = 0; i < devices->count && endpoint->scheme != SL_ENDPOINT_SHM; i++) {
        const struct sl_device *device = &devices->list[i];
        const bool is_its_own = strcmp(endpoint->device, device->name) == 0;
        if (is_its_own || (family != 0 && !sl_endpoint_is_any(endpoint) &&
                           transfer_nics_address_of(device, family, &wanted) != NULL &&
                           (name[0] == '\0' || is_in(matrix, device->name)))) {
            (void)snprintf(name, SL_DEVICE_NAME_BYTES, "%s", device->name);
        }
        if (is_its_own) {
            return;
        }
    }
}
