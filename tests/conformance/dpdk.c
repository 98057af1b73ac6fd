#include "dpdk.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "dpdk_faults.h"
#include "net/dpdk/dpdk.h"

#define PORT_BASE 4000
#define QUEUES    4

/* What a world's transports are opened with. */
struct world_medium {
    struct sl_dpdk_medium outer; /* the wire's, or with faults around it */
    struct sl_dpdk_fault_medium faulty;
    struct sl_wire_host *host;
};

static const struct dpdk_target *chosen;
static struct sl_wire *wire;
static struct sl_dpdk_faults faults;
static bool has_faults;
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
    struct world_medium *medium = calloc(1, sizeof *medium);
    sl_assert(medium != NULL);
    medium->host = sl_wire_host_add(wire);
    const uint32_t together = node_count > 1 ? node_count - 1 : 1;
    add_device(medium->host, 0, together);
    if (together < node_count) {
        add_device(medium->host, together, node_count - together);
    }
    medium->outer = *sl_wire_host_medium(medium->host);
    if (has_faults) {
        faults.seed++; /* each world's are others */
        medium->outer =
            dpdk_faults_wrap(&medium->faulty, sl_wire_host_medium(medium->host), &faults);
    }
    return medium;
}

static void medium_close(void *closing)
{
    struct world_medium *medium = closing;
    sl_wire_host_remove(&medium->host);
    free(medium);
}

int dpdk_run(const struct dpdk_target *target)
{
    enum sl_log_level least = SL_LOG_OFF; /* a peer that is turned away is no news here */
    const char *wanted = getenv("STARLING_LOG");
    if (wanted != NULL) {
        (void)sl_log_parse_level(wanted, &least);
    }
    sl_log_setup(least, target->name);
    has_faults = dpdk_faults_read(target->faults, &faults);
    struct conformance_target conformance = {
        .name = target->name,
        .ops = &sl_dpdk_ops,
        .endpoint = target->is_v6 ? "dpdk://[::]:0" : "dpdk://0.0.0.0:0",
        .polling = target->polling,
        .shakes_hands = true,
        .is_lossy = target->device.drops || has_faults,
        .peer_timeout_ms = has_faults ? DPDK_FAULTS_PATIENCE_MS : 0,
        .medium_open = medium_open,
        .medium_close = medium_close,
    };
    chosen = target;
    wire = sl_wire_create(&(struct sl_wire_options){0});
    int failed = conformance_run(&conformance);
    if (failed > 0) {
        return 1; /* a case that failed leaves its world behind */
    }
    sl_wire_destroy(&wire);
    return 0;
}
