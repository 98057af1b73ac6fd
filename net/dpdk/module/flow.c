#include "net/dpdk/module/flow.h"

#include <rte_errno.h>
#include <rte_flow.h>

#include "net/dpdk/module/device.h"

static uint16_t first_queue(const struct sl_module_device *device, uint16_t reactor)
{
    uint16_t queue = 0;
    while (sl_module_device_owner(device, queue) != reactor) {
        queue++;
    }
    return queue;
}

static bool add_rule(const struct sl_module_device *device, uint16_t reactor)
{
    const struct rte_flow_attr attr = {.ingress = 1};
    const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&device->self.ip);
    struct rte_flow_item_udp udp = {0}, mask = {0};
    udp.hdr.dst_port = rte_cpu_to_be_16((uint16_t)(device->port_base + reactor));
    mask.hdr.dst_port = 0xffff;
    const struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = is_v4 ? RTE_FLOW_ITEM_TYPE_IPV4 : RTE_FLOW_ITEM_TYPE_IPV6},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    const struct rte_flow_action_queue queue = {.index = first_queue(device, reactor)};
    const struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };
    struct rte_flow_error error;
    return rte_flow_validate(device->id, &attr, pattern, actions, &error) == 0 &&
           rte_flow_create(device->id, &attr, pattern, actions, &error) != NULL;
}

void sl_module_flow_steer(const struct sl_module_device *device)
{
    struct rte_flow_error error;
    uint16_t done = 0;
    (void)rte_flow_flush(device->id, &error);
    while (device->rx_queues == device->queues && done < device->reactors &&
           add_rule(device, done)) {
        done++;
    }
    if (done < device->reactors) {
        (void)rte_flow_flush(device->id, &error);
        module_log(SL_LOG_INFO,
                   "dpdk: %s: takes no rule that leads UDP ports to queues: packets come to the "
                   "reactors by its hash, and are passed on among them",
                   device->name);
    }
}
