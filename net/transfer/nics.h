/* NICs finds the network and RDMA devices of this host that belong to endpoints of an engine.
 * Before start; any thread. */
#ifndef SL_NET_TRANSFER_NICS_H
#define SL_NET_TRANSFER_NICS_H

#include "core/endpoint.h"
#include "net/transfer/matrix.h"

#define SL_TRANSFER_NICS_MAX 12

/* Checks option rdma_device: each name is an RDMA device of this host. Errors, with the reason in
 * sl_transfer_last_error: INVALID. */
int sl_transfer_nics_check(const struct sl_devices *devices, const char *names);

/* Finds the devices of an rdma endpoint. With an address: the device that has it. With 0.0.0.0 or
 * [::]: every device among the names that is up, at its first address of that family. Returns the
 * number of out[SL_TRANSFER_NICS_MAX]: their endpoints, `device` the name, or "" if it is unknown.
 */
uint32_t sl_transfer_nics_find(const struct sl_devices *devices, const char *names,
                               const struct sl_endpoint *endpoint, struct sl_endpoint *out);

/* Writes the name of the device with the address of a local endpoint: that which the matrix has, of
 * an RDMA device and its network device. "": the host is a name, or no device has the address. */
void sl_transfer_nics_name(const struct sl_devices *devices, const struct sl_matrix *matrix,
                           const struct sl_endpoint *endpoint, char name[SL_DEVICE_NAME_BYTES]);

#endif
