#include "dpdk.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "net/dpdk/dpdk.h"

#define PORT_BASE 4000
#define QUEUES    4

static const struct dpdk_target *chosen;
static struct sl_wire *wire;
static uint32_t hosts; /* that there ever were */

static void add_device(struct sl_wire_host *host, uint32_t first, uint32_t count)
{
    char address[64];
    struct sl_wire_device_options options = chosen->device;
    hosts++;
    (void)snprintf(address, sizeof address, chosen->is_v6 ? "fd00::%x:%x" : "10.0.%u.%u",
                   hosts / 200, 1 + hosts % 200);
    options.address = address;
    options.port_base = PORT_BASE;
    options.first_reactor = first;
    options.reactors = (uint16_t)count;
    options.queues = QUEUES; /* each process's reactors have some that lead to each other's */
    options.blocks = hosts % 2 == 0;
    (void)sl_wire_device_add(host, &options);
}

static void *medium_open(uint32_t node_count)
{
    struct sl_wire_host *host = sl_wire_host_add(wire);
    const uint32_t together = node_count > 1 ? node_count - 1 : 1;
    add_device(host, 0, together);
    if (together < node_count) {
        add_device(host, together, node_count - together);
    }
    return sl_wire_host_medium(host);
}

static void medium_close(void *medium)
{
    struct sl_wire_host *host = ((struct sl_dpdk_medium *)medium)->ctx;
    sl_wire_host_remove(&host);
}

int dpdk_run(const struct dpdk_target *target)
{
    sl_log_setup(SL_LOG_OFF, target->name); /* a peer that is turned away is no news here */
    cmocka_set_test_filter(getenv("CONFORMANCE_CASE"));
    struct conformance_target conformance = {
        .name = target->name,
        .ops = &sl_dpdk_ops,
        .endpoint = target->is_v6 ? "dpdk://[::]:0" : "dpdk://0.0.0.0:0",
        .polling = target->polling,
        .shakes_hands = true,
        .is_lossy = target->device.drops,
        .medium_open = medium_open,
        .medium_close = medium_close,
    };
    chosen = target;
    wire = sl_wire_create(&(struct sl_wire_options){0});
    int failed = conformance_run(&conformance);
    sl_wire_destroy(&wire);
    return failed == 0 ? 0 : 1;
}
