#include "dpdk_real.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "net/dpdk/module.h"

static const struct dpdk_real_target *chosen;
static struct sl_dpdk_device devices[2];
static struct sl_dpdk_options options = {.devices = devices};
static struct sl_dpdk_medium medium = {.ctx = &options};
static uint32_t worlds;

/* Of a world beside another, which nobody talks to. */
static const struct sl_dpdk_device lone_device = {
    .name = "net_null0", .arguments = "no-rx=1", .address = "10.0.0.3"};
static struct sl_dpdk_options lone_options = {.devices = &lone_device, .device_count = 1};
static struct sl_dpdk_medium lone = {.ctx = &lone_options};

static void *medium_open(uint32_t node_count)
{
    const uint32_t together = node_count > 1 ? node_count - 1 : 1;
    if (worlds++ > 0) {
        return &lone;
    }
    devices[0] = chosen->devices[0];
    devices[0].reactors = (uint16_t)together;
    devices[1] = chosen->devices[1];
    devices[1].first_reactor = together;
    devices[1].reactors = 1;
    options.device_count = node_count > 1 ? 2 : 1;
    return &medium;
}

static void medium_close(void *closing)
{
    (void)closing; /* the devices stay for the next world */
    worlds--;
}

int dpdk_real_run(const struct dpdk_real_target *target)
{
    const char *why;
    enum sl_log_level least = SL_LOG_ERROR; /* a peer that is turned away is no news here */
    const char *wanted = getenv("STARLING_LOG");
    if (wanted != NULL) {
        (void)sl_log_parse_level(wanted, &least);
    }
    sl_log_setup(least, target->name);
    medium.ops = sl_dpdk_module_ports(&why);
    lone.ops = medium.ops;
    if (medium.ops == NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return SKIPPED;
    }
    cmocka_set_test_filter(getenv("CONFORMANCE_CASE"));
    /* Of two worlds that reach each other: these devices have two ends. */
    cmocka_set_skip_filter("listen__turns_away_more_than_the_limit");
    struct conformance_target conformance = {
        .name = target->name,
        .ops = &sl_dpdk_ops,
        .endpoint = "dpdk://0.0.0.0:0",
        .polling = target->polling,
        .shakes_hands = true,
        .is_slow = true,
        .is_lossy = target->is_lossy,
        .medium_open = medium_open,
        .medium_close = medium_close,
    };
    chosen = target;
    return conformance_run(&conformance) == 0 ? 0 : 1;
}
