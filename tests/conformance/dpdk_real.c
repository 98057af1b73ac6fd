#include "dpdk_real.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "dpdk_faults.h"
#include "net/dpdk/module.h"

static const struct dpdk_real_target *chosen;

/* Of one world. */
struct real {
    struct sl_dpdk_device devices[2];
    struct sl_dpdk_options options;
    struct sl_dpdk_medium medium;
    struct sl_dpdk_fault_medium faulty;
    struct sl_dpdk_medium outer; /* the same, or with faults around it */
};

static struct real first, second; /* the second is beside the first */
static uint32_t worlds;
static struct sl_dpdk_faults faults;
static bool has_faults;

/* Nobody talks to it. */
static const struct sl_dpdk_device lone_device = {
    .name = "net_null0", .arguments = "no-rx=1", .address = "10.0.0.3"};

static void make(struct real *real, const struct sl_dpdk_device devices[2], uint32_t node_count)
{
    const uint32_t together = node_count > 1 ? node_count - 1 : 1;
    real->devices[0] = devices[0];
    real->devices[0].reactors = (uint16_t)together;
    real->devices[1] = devices[1];
    real->devices[1].first_reactor = together;
    real->devices[1].reactors = 1;
    real->options =
        (struct sl_dpdk_options){.devices = real->devices, .device_count = node_count > 1 ? 2 : 1};
}

static void *medium_open(uint32_t node_count)
{
    struct real *real = worlds++ == 0 ? &first : &second;
    real->medium.ctx = &real->options;
    if (real == &second) {
        real->devices[0] = lone_device;
        real->options = (struct sl_dpdk_options){.devices = real->devices, .device_count = 1};
    } else {
        make(real, chosen->devices, node_count);
    }
    real->outer =
        has_faults ? dpdk_faults_wrap(&real->faulty, &real->medium, &faults) : real->medium;
    return &real->outer;
}

static void medium_close(void *closing)
{
    worlds--;
}

bool dpdk_real_open(const struct dpdk_real_target *target, struct conformance_target *out)
{
    const char *why;
    enum sl_log_level least = SL_LOG_ERROR; /* a peer that is turned away is no news here */
    const char *wanted = getenv("STARLING_LOG");
    if (wanted != NULL) {
        (void)sl_log_parse_level(wanted, &least);
    }
    sl_log_setup(least, target->name);
    first.medium.ops = second.medium.ops = sl_dpdk_module_ports(&why);
    if (first.medium.ops == NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return false;
    }
    has_faults = dpdk_faults_read(NULL, &faults);
    *out = (struct conformance_target){
        .name = target->name,
        .ops = &sl_dpdk_ops,
        .endpoint = target->is_v6 ? "dpdk://[::]:0" : "dpdk://0.0.0.0:0",
        .shakes_hands = true,
        .is_slow = true,
        .is_lossy = target->is_lossy || has_faults,
        .peer_timeout_ms = has_faults ? DPDK_FAULTS_PATIENCE_MS : 0,
        .medium_open = medium_open,
        .medium_close = medium_close,
    };
    chosen = target;
    return true;
}

int dpdk_real_run(const struct dpdk_real_target *target)
{
    struct conformance_target conformance;
    if (!dpdk_real_open(target, &conformance)) {
        return SKIPPED;
    }
    /* Of two worlds that reach each other: these devices have two ends. */
    cmocka_set_skip_filter("listen__turns_away_more_than_the_limit");
    return conformance_run(&conformance) == 0 ? 0 : 1;
}
