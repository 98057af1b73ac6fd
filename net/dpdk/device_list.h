/* device_list converts devices as users name them (core/endpoint_device.h) into the options of a
 * transport. Before start. */
#ifndef SL_NET_DPDK_DEVICE_LIST_H
#define SL_NET_DPDK_DEVICE_LIST_H

#include "core/endpoint.h"
#include "core/endpoint_device.h"
#include "core/reason.h"
#include "net/dpdk/dpdk.h"

#define SL_DPDK_DEVICE_LIST_MAX 64

/* Allocated. The options point into it, so that it must outlive the last transport. */
struct sl_dpdk_device_list;

/* Parses `text`, devices separated by ';', for all reactors. listens: the dpdk endpoint of a
 * listener, or NULL. Its device is added unless the text names it too, and its port becomes the
 * port base. *out is NULL if there is no device. Errors: INVALID, TOO_LARGE, with a reason;
 * NO_MEMORY. */
int sl_dpdk_device_list_create(const char *text, const struct sl_endpoint *listens,
                               struct sl_dpdk_device_list **out, struct sl_reason *reason);
void sl_dpdk_device_list_destroy(struct sl_dpdk_device_list **list);

/* Assigns the devices to the reactors first to first + count - 1. */
void sl_dpdk_device_list_share(struct sl_dpdk_device_list *list, uint32_t first, uint16_t count);

/* NULL for NULL. */
const struct sl_dpdk_options *sl_dpdk_device_list_options(const struct sl_dpdk_device_list *list);

/* Whether a device has the endpoint's address; true for the unspecified address. The host is
 * numeric. */
bool sl_dpdk_device_list_has(const struct sl_dpdk_device_list *list,
                             const struct sl_endpoint *endpoint);

#endif
