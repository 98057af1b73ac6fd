/* Regions: registered memory of one reactor, at its devices with one-sided operations. At the first
 * reactor, where peers reach these devices, a region has the access of peers, and a token that
 * names it to them. A device that accesses memory by itself needs it as local memory too, on every
 * reactor. Where a device does not take the memory, it moves as frames. Owner reactor. */
#ifndef SL_TRANSFER_REGION_H
#define SL_TRANSFER_REGION_H

#include "transfer/table.h"

struct sl_transfer_io;

/* Of all transports; their context is the device. */
extern const struct sl_transport_rma_events sl_transfer_region_events;

/* Starts to add a region, which is in the table, to the devices. While region->pending_count is not
 * 0, the outcome is open. When it falls to 0, io->change_work is woken. */
void sl_transfer_region_add(struct sl_transfer_io *io, struct sl_transfer_region *region);

/* No new access. While region->pending_count is not 0, devices or peers may still access the
 * memory. */
void sl_transfer_region_remove(struct sl_transfer_io *io, struct sl_transfer_region *region);

#endif
