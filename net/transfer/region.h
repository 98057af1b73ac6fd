/* A region is a range of memory, registered with the devices of one reactor that have one-sided
 * operations. Peers connect to such devices of the first reactor only: there, a region grants peers
 * their access and has a token for each device. Every reactor also registers the range for local
 * access, if the device needs that (RDMA). If a device refuses the range, another transport carries
 * it. Owner reactor. */
#ifndef SL_NET_TRANSFER_REGION_H
#define SL_NET_TRANSFER_REGION_H

#include "net/transfer/table.h"

struct sl_transfer_io;

/* Events of all transports with one-sided operations; ctx is the device. */
extern const struct sl_transport_rma_events sl_transfer_region_events;

/* Starts to add a region to the devices; it is already in the table. region->pending_count is the
 * number of devices that have not answered. When it falls to 0, io->change_work is scheduled. */
void sl_transfer_region_add(struct sl_transfer_io *io, struct sl_transfer_region *region);

/* Stops new access. While region->pending_count is not 0, devices or peers may still access the
 * memory. */
void sl_transfer_region_remove(struct sl_transfer_io *io, struct sl_transfer_region *region);

#endif
