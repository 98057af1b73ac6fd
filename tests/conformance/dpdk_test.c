/* The suite over ports of devices that exist in memory only (tests/support/wire_port.h), in the
 * ways of the table. A world's last node is a process by itself, with an address of its own, the
 * others share one: so a connection goes from one process to another, and is handed over within
 * one. */
#include <stdio.h>
#include <stdlib.h>

#include "conformance.h"
#include "core/log.h"
#include "dpdk_faults.h"
#include "net/dpdk/dpdk.h"
#include "tests/support/wire_port.h"

#define PORT_BASE 4000
#define QUEUES    4

static const struct dpdk_variant {
    const char *name;
    bool polling, is_v6;
    /* Of all devices; addresses, and whose they are, are filled in. */
    struct sl_wire_device_options device;
    /* As STARLING_TEST_FAULTS has them, which counts instead where it is set; NULL: none. */
    const char *faults;
} variants[] = {
    {.name = "sleeping"},
    {.name = "polling", .polling = true},
    /* Ports that wake their reactors, gather and sum. */
    {.name = "waking",
     .is_v6 = true,
     .device = {.rx_interrupt = true, .tx_gather = true, .tx_checksum = true}},
    /* Packets come to any of a process's reactors, in jumbo frames, and full queues lose them. */
    {.name = "scattered",
     .device = {.steering = SL_WIRE_SCATTER,
                .drops = true,
                .queue_packets = 64,
                .frame_bytes_max = 9014}},
    /* A network with each kind of fault, now and then. */
    {.name = "faulty",
     .faults = "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.01,truncate=0.01,short=0.01"},
    /* One of twenty packets is lost each way. */
    {.name = "faulty_lossy",
     .is_v6 = true,
     .device = {.rx_interrupt = true, .tx_gather = true, .tx_checksum = true},
     .faults = "loss=0.05,corrupt=0.01,duplicate=0.01,delay_us=500"},
};

/* What a world's transports are opened with. */
struct world_medium {
    struct sl_dpdk_medium outer; /* the wire's, or with faults around it */
    struct sl_dpdk_fault_medium faulty;
    struct sl_wire_host *host;
};

static const struct dpdk_variant *chosen;
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

int main(int argc, char **argv)
{
    chosen = CONFORMANCE_VARIANT(argc, argv, variants);
    enum sl_log_level least = SL_LOG_OFF; /* a peer that is turned away is no news here */
    const char *wanted = getenv("STARLING_LOG");
    if (wanted != NULL) {
        (void)sl_log_parse_level(wanted, &least);
    }
    sl_log_setup(least, chosen->name);
    has_faults = dpdk_faults_read(chosen->faults, &faults);
    const struct conformance_target target = {
        .name = chosen->name,
        .ops = &sl_dpdk_ops,
        .endpoint = chosen->is_v6 ? "dpdk://[::]:0" : "dpdk://0.0.0.0:0",
        .polling = chosen->polling,
        .shakes_hands = true,
        .is_lossy = chosen->device.drops || has_faults,
        .peer_timeout_ms = has_faults ? DPDK_FAULTS_PATIENCE_MS : 0,
        .medium_open = medium_open,
        .medium_close = medium_close,
    };
    wire = sl_wire_create(&(struct sl_wire_options){0});
    const int failed = conformance_run(&target);
    if (failed > 0) {
        return 1; /* a case that failed leaves its world behind */
    }
    sl_wire_destroy(&wire);
    return 0;
}
