#include "net/transfer/region.h"

#include "core/assert.h"
#include "core/log.h"
#include "net/transfer/engine.h"
#include "net/transfer/lane.h"
#include "net/transfer/memory.h"
#include "net/transfer/target.h"

/* No medium lets peers write but not read. */
static unsigned access_at(const struct sl_transfer_device *device,
                          const struct sl_rma_memory *memory)
{
    const bool is_reached = device->endpoint.port != 0 && memory->peers_read;
    return !is_reached           ? SL_TRANSPORT_RMA_LOCAL
           : memory->peers_write ? SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE
                                 : SL_TRANSPORT_RMA_PEERS_READ;
}

void sl_transfer_region_add(struct sl_transfer_io *io, struct sl_transfer_region *region)
{
    const struct sl_rma_memory *memory = &region->memory;
    for (uint32_t i = 0; i < io->engine->settings.endpoint_count; i++) {
        const struct sl_transfer_device *device = &io->devices[i];
        const unsigned access = access_at(device, memory);
        if (!device->is_one_sided ||
            (access == SL_TRANSPORT_RMA_LOCAL &&
             (device->transport->ops->capabilities & SL_TRANSPORT_REGISTERS) == 0)) {
            continue;
        }
        const int err = sl_transport_rma_region_add(device->transport, memory->key, memory->base,
                                                    memory->bytes, access);
        region->pending_count += err == 0 ? 1 : 0;
        if (err != 0) {
            sl_log_debug("transfer: %s does not take memory at %p, which moves as frames: %s",
                         sl_endpoint_scheme_name(device->scheme), (void *)memory->base,
                         sl_err_name(err));
        }
    }
}

/* Peers receive the region's new tokens. */
static void announce(struct sl_transfer_io *io, struct sl_transfer_region *region)
{
    struct sl_transfer_registration *changed =
        SL_CONTAINER_OF(region - io->index, struct sl_transfer_registration, regions);
    if (io->index == 0) {
        sl_transfer_target_added(io, &changed, 1);
    }
}

static void transfer_region_settle(struct sl_transfer_io *io, struct sl_transfer_region *region)
{
    sl_assert(region->pending_count > 0);
    region->pending_count--;
    if (region->pending_count == 0) {
        sl_list_remove(&region->link);
        sl_transfer_io_wake(io, &io->change_work);
    }
}

static void region_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token,
                         int err)
{
    const struct sl_transfer_device *device = ctx;
    struct sl_transfer_io *io = device->io;
    struct sl_transfer_region *region = sl_transfer_table_find(io->table, key);
    struct sl_transfer_offer *offer = &region->offers[device - io->devices];
    const bool is_first = !offer->is_known; /* later its device is back, or has memory for it */
    offer->is_known = true;
    offer->is_added = err == 0;
    if (err == 0) {
        offer->token = *token;
    } else { /* the transport has logged the remedy */
        sl_log_info("transfer: %s does not take memory at %p, which moves as frames: %s",
                    sl_endpoint_scheme_name(device->scheme), (void *)region->memory.base,
                    sl_err_name(err));
    }
    if (is_first) {
        transfer_region_settle(io, region);
    } else {
        announce(io, region);
    }
}

void sl_transfer_region_remove(struct sl_transfer_io *io, struct sl_transfer_region *region)
{
    for (uint32_t i = 0; i < io->engine->settings.endpoint_count; i++) {
        struct sl_transfer_offer *offer = &region->offers[i];
        if (offer->is_known) {
            offer->is_known = offer->is_added = false;
            region->pending_count++;
            sl_transport_rma_region_remove(io->devices[i].transport, region->memory.key);
        }
    }
    if (region->pending_count > 0) {
        sl_list_append(&io->leaving, &region->link);
    }
}

/* DEADLINE: a stopped peer may still write to memory that it has mapped. Only
 * sl_transfer_memory_free removes such memory, and unmaps it: the peer writes to pages that no
 * process reads. */
static void region_removed(void *ctx, uint64_t key, int err)
{
    const struct sl_transfer_device *device = ctx;
    if (err != 0) {
        sl_log_warn("transfer: a peer that does not answer may still have freed memory mapped");
    }
    SL_LIST_EACH (struct sl_transfer_region, region, link, &device->io->leaving) {
        if (region->memory.key == key) {
            transfer_region_settle(device->io, region);
            return;
        }
    }
}

const struct sl_transport_rma_events sl_transfer_region_events = {.region_added = region_added,
                                                                  .region_removed = region_removed,
                                                                  .completed =
                                                                      sl_transfer_lane_completed};
