/* NICs finds the RDMA devices of this host that an engine opens, each at one address. Before start;
 * any thread. */
#ifndef SL_TRANSFER_NICS_H
#define SL_TRANSFER_NICS_H

#include "core/endpoint.h"
#include "reactor/devices.h"

#define SL_TRANSFER_NICS_MAX 12

/* Whether the comma-separated names contain this one. NULL and "" contain all. */
bool sl_transfer_nics_names(const char *names, const char *name);

/* Checks option rdma_device: each name is an RDMA device of this host. Errors, with the reason in
 * sl_transfer_last_error: INVALID. */
int sl_transfer_nics_check(const struct sl_devices *devices, const char *names);

/* Finds the devices of an rdma endpoint. With an address: the device that has it. With 0.0.0.0 or
 * [::]: every device among the names that is up, at its first address of that family. Returns the
 * number of out[SL_TRANSFER_NICS_MAX]: their endpoints, `device` the name, or "" if it is unknown.
 */
uint32_t sl_transfer_nics_find(const struct sl_devices *devices, const char *names,
                               const struct sl_endpoint *endpoint, struct sl_endpoint *out);

#endif
