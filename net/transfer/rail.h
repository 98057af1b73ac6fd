/* A rail is a device of this engine and a device of the peer that reach each other. A device of the
 * peer is the set of its endpoints with the same scheme and host: one for each of its reactors.
 * Pure. */
#ifndef SL_NET_TRANSFER_RAIL_H
#define SL_NET_TRANSFER_RAIL_H

#include "net/transfer/device.h"
#include "net/transfer/matrix.h"

struct sl_rail {
    enum sl_endpoint_scheme scheme;
    uint32_t device;                /* of this engine: index of io->devices */
    uint32_t remote;                /* the peer's: index of its first endpoint */
    char nic[SL_DEVICE_NAME_BYTES]; /* of the peer's device, in its matrix; "": unknown */
};

/* Returns the device that the endpoint belongs to: the index of its first endpoint. */
uint32_t sl_rail_remote(const struct sl_endpoint *endpoints, uint32_t index);

/* Returns endpoint number `nth` of the rail, counted round. */
const struct sl_endpoint *sl_rail_endpoint(const struct sl_rail *rail,
                                           const struct sl_endpoint *endpoints,
                                           uint32_t endpoint_count, uint32_t nth);

/* Pairs the n-th device of each scheme here with the n-th at the peer; the side with fewer counts
 * round. Preferred schemes come first: shm, rdma, dpdk, tcp. Devices that this host does not have
 * are left out, and endpoints with port 0. Returns how many rails there are, at most rails_max. */
uint32_t sl_rail_pair(const struct sl_transfer_device *devices, uint32_t device_count,
                      const struct sl_endpoint *endpoints, uint32_t endpoint_count,
                      struct sl_rail *rails, uint32_t rails_max);

/* The result has a bit for each rail that is preferred: by `preferred`, a bit for each device that
 * is near to memory here; or by the peer's matrix for memory at that location. 0: all are the same.
 */
uint32_t sl_rail_near(const struct sl_rail *rails, uint32_t rail_count, uint32_t preferred);
uint32_t sl_rail_near_remote(const struct sl_rail *rails, uint32_t rail_count,
                             const struct sl_matrix *matrix, const char *location);

#endif
