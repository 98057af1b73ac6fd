/* The path through shared memory. Memory of sl_transfer_memory_create is a region of the first
 * reactor's shm transport; an initiator on the same host maps it and copies each slice once, while
 * the target is idle. Owner reactor. */
#ifndef SL_TRANSFER_MAPPED_H
#define SL_TRANSFER_MAPPED_H

#include "net/transport_rma.h"
#include "transfer/io.h"

/* Of a device; its context is the device. */
extern const struct sl_transport_rma_events sl_transfer_mapped_rma_events;

/* On the first reactor: begins to offer the region to peers on this host. True: the call is
 * answered, and the region announced, in a later turn. False: it cannot be mapped. */
bool sl_transfer_mapped_add(struct sl_transfer_io *io, struct sl_transfer_region *region,
                            struct sl_transfer_call *call);

/* No new access. region->is_unmapping until no peer reaches the memory once its owner has unmapped
 * it; then the removals are looked at. */
void sl_transfer_mapped_remove(struct sl_transfer_io *io, struct sl_transfer_region *region);

#endif
