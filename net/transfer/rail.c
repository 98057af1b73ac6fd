#include "net/transfer/rail.h"

#include <string.h>

#include "net/session/message_transfer.h"

static const enum sl_endpoint_scheme preference[] = {SL_ENDPOINT_SHM, SL_ENDPOINT_RDMA,
                                                     SL_ENDPOINT_DPDK, SL_ENDPOINT_TCP};

uint32_t sl_rail_remote(const struct sl_endpoint *endpoints, uint32_t index)
{
    uint32_t first = 0;
    while (endpoints[first].scheme != endpoints[index].scheme || endpoints[first].port == 0 ||
           strcmp(endpoints[first].host, endpoints[index].host) != 0) {
        first++;
    }
    return first;
}

static bool belongs(const struct sl_rail *rail, const struct sl_endpoint *endpoints, uint32_t index)
{
    return endpoints[index].port != 0 && sl_rail_remote(endpoints, index) == rail->remote;
}

const struct sl_endpoint *sl_rail_endpoint(const struct sl_rail *rail,
                                           const struct sl_endpoint *endpoints,
                                           uint32_t endpoint_count, uint32_t nth)
{
    uint32_t count = 0, at = rail->remote;
    for (uint32_t i = at; i < endpoint_count; i++) {
        count += belongs(rail, endpoints, i) ? 1 : 0;
    }
    for (nth %= count; nth > 0; nth -= belongs(rail, endpoints, at) ? 1 : 0) {
        at++;
    }
    return &endpoints[at];
}

/* Lists the devices of a scheme that the peer has. */
static uint32_t list_remotes(enum sl_endpoint_scheme scheme, const struct sl_endpoint *endpoints,
                             uint32_t endpoint_count, uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < endpoint_count; i++) {
        if (endpoints[i].scheme == scheme && endpoints[i].port != 0 &&
            sl_rail_remote(endpoints, i) == i) {
            list[count++] = i;
        }
    }
    return count;
}

static uint32_t list_devices(enum sl_endpoint_scheme scheme,
                             const struct sl_transfer_device *devices, uint32_t device_count,
                             uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < device_count; i++) {
        if (devices[i].scheme == scheme && devices[i].transport != NULL) {
            list[count++] = i;
        }
    }
    return count;
}

uint32_t sl_rail_pair(const struct sl_transfer_device *devices, uint32_t device_count,
                      const struct sl_endpoint *endpoints, uint32_t endpoint_count,
                      struct sl_rail *rails, uint32_t rails_max)
{
    uint32_t here[SL_TRANSFER_SETTINGS_ENDPOINTS_MAX], there[SL_MESSAGE_ENDPOINTS_MAX];
    uint32_t rail_count = 0;
    for (uint32_t i = 0; i < sizeof preference / sizeof preference[0]; i++) {
        const uint32_t here_count = list_devices(preference[i], devices, device_count, here);
        const uint32_t there_count = list_remotes(preference[i], endpoints, endpoint_count, there);
        const uint32_t most = here_count > there_count ? here_count : there_count;
        const uint32_t count = here_count == 0 || there_count == 0 ? 0 : most;
        for (uint32_t n = 0; n < count && rail_count < rails_max; n++) {
            rails[rail_count++] = (struct sl_rail){.scheme = preference[i],
                                                   .device = here[n % here_count],
                                                   .remote = there[n % there_count]};
        }
    }
    return rail_count;
}

uint32_t sl_rail_near(const struct sl_rail *rails, uint32_t rail_count, uint32_t preferred)
{
    uint32_t near = 0;
    for (uint32_t i = 0; i < rail_count; i++) {
        near |= (preferred >> rails[i].device & 1) << i;
    }
    return near;
}

uint32_t sl_rail_near_remote(const struct sl_rail *rails, uint32_t rail_count,
                             const struct sl_matrix *matrix, const char *location)
{
    uint32_t near = 0;
    for (uint32_t i = 0; i < rail_count; i++) {
        near |= sl_matrix_prefers(matrix, location, rails[i].nic) ? 1U << i : 0;
    }
    return near;
}
