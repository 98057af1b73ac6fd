#include "transfer/mapped.h"

#include "core/log.h"
#include "transfer/engine.h"
#include "transfer/lane.h"
#include "transfer/memory.h"
#include "transfer/target.h"

static void region_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token,
                         int err)
{
    struct sl_transfer_io *io = ((struct sl_transfer_device *)ctx)->io;
    struct sl_transfer_region *region = sl_transfer_table_find(io->table, key);
    struct sl_transfer_call *call = region->adding;
    region->adding = NULL;
    region->is_mapped = err == 0;
    if (err == 0) {
        region->token = *token;
    }
    struct sl_transfer_registration *added =
        SL_CONTAINER_OF(region, struct sl_transfer_registration, regions);
    sl_transfer_target_added(io, &added, 1);
    sl_transfer_io_answer(call, 0, "added");
}

/* DEADLINE: a stopped peer may still write. Only sl_transfer_memory_free removes such memory, and
 * unmaps it: the peer writes to pages that no process reads. */
static void region_removed(void *ctx, uint64_t key, int err)
{
    struct sl_transfer_io *io = ((struct sl_transfer_device *)ctx)->io;
    SL_LIST_FOREACH (link, &io->unmapping) {
        struct sl_transfer_region *region = SL_CONTAINER_OF(link, struct sl_transfer_region, link);
        if (region->memory.key == key) {
            sl_list_remove(link);
            region->is_unmapping = false;
        }
    }
    if (err != 0) {
        sl_log_warn("transfer: a peer that does not answer may still have freed memory mapped");
    }
    sl_transfer_io_wake(io, &io->removal_work);
}

bool sl_transfer_mapped_add(struct sl_transfer_io *io, struct sl_transfer_region *region,
                            struct sl_transfer_call *call)
{
    const struct sl_rma_memory *memory = &region->memory;
    const unsigned access = (memory->peers_read ? SL_TRANSPORT_RMA_PEERS_READ : 0U) |
                            (memory->peers_write ? SL_TRANSPORT_RMA_PEERS_WRITE : 0U);
    const struct sl_transfer_device *device = sl_transfer_device_find(io, SL_ENDPOINT_SHM);
    if (device == NULL || device->endpoint.port == 0 || access == 0 ||
        sl_transport_rma_region_add(device->transport, memory->key, memory->base, memory->bytes,
                                    access) != 0) {
        return false;
    }
    region->adding = call;
    return true;
}

void sl_transfer_mapped_remove(struct sl_transfer_io *io, struct sl_transfer_region *region)
{
    if (region->is_mapped) {
        region->is_mapped = false;
        region->is_unmapping = true;
        sl_list_append(&io->unmapping, &region->link);
        sl_transport_rma_region_remove(sl_transfer_device_find(io, SL_ENDPOINT_SHM)->transport,
                                       region->memory.key);
    }
}

const struct sl_transport_rma_events sl_transfer_mapped_rma_events = {
    .region_added = region_added,
    .region_removed = region_removed,
    .completed = sl_transfer_lane_completed};
