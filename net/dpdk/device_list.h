/* Devices as users name them (core/endpoint_device.h), as a transport takes them. Before start. */
#ifndef SL_NET_DPDK_DEVICE_LIST_H
#define SL_NET_DPDK_DEVICE_LIST_H

#include "core/endpoint.h"
#include "core/endpoint_device.h"
#include "net/dpdk/dpdk.h"

#define SL_DPDK_DEVICE_LIST_MAX 64

/* Allocated; options point into it, so that it stays until the last transport has closed. */
struct sl_dpdk_device_list;

/* What `text` says, with ';' between devices, for all reactors. And, where one listens, the device
 * that its endpoint of dpdk names, unless the text has that device too, and the endpoint's port as
 * the base of ports; NULL: none. *out is NULL where there is no device. Errors: INVALID, TOO_LARGE,
 * with a reason; NO_MEMORY. */
int sl_dpdk_device_list_create(const char *text, const struct sl_endpoint *listens,
                               struct sl_dpdk_device_list **out, char *reason, size_t reason_bytes);
void sl_dpdk_device_list_destroy(struct sl_dpdk_device_list **list);

/* Reactors first to first + count - 1 have them, and no others. */
void sl_dpdk_device_list_share(struct sl_dpdk_device_list *list, uint32_t first, uint16_t count);

/* NULL for NULL. */
const struct sl_dpdk_options *sl_dpdk_device_list_options(const struct sl_dpdk_device_list *list);

/* The i-th of options->devices; i < options->device_count. */
const struct sl_endpoint_device *sl_dpdk_device_list_get(const struct sl_dpdk_device_list *list,
                                                         uint32_t i);

/* Whether one of them has the endpoint's address; any address does for "any". The host is a
 * number. */
bool sl_dpdk_device_list_has(const struct sl_dpdk_device_list *list,
                             const struct sl_endpoint *endpoint);

#endif
