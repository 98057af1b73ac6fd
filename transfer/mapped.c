#include "transfer/mapped.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "transfer/engine.h"
#include "transfer/memory.h"
#include "transfer/target.h"

/* Until a peer on the same host has welcomed the connection. */
#define START_NS (SL_CLOCK_NS_PER_S)
/* After a refusal. */
#define PAUSE_NS (60 * SL_CLOCK_NS_PER_S)

/* The target's side */

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

/* The initiator's side */

static struct sl_transfer_slice *slice_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_transfer_slice, rma.link);
}

static void finish(struct sl_transfer_mapped *mapped, struct sl_transfer_slice *slice, int err)
{
    sl_list_remove(&slice->rma.link);
    mapped->in_flight_count--;
    mapped->in_flight_bytes -= slice->rma.bytes;
    mapped->answered_ns = sl_reactor_now_ns(mapped->io->reactor);
    if (err == 0) {
        *(slice->rma.op == SL_RMA_READ ? &mapped->bytes_read : &mapped->bytes_written) +=
            slice->rma.bytes;
    }
    mapped->events->done(mapped->ctx, slice, err);
}

static void completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    struct sl_transfer_slice *slice = cookie;
    finish(SL_CONTAINER_OF(slice->home, struct sl_transfer_mapped, free), slice, err);
}

const struct sl_transport_rma_events sl_transfer_mapped_rma_events = {
    .region_added = region_added, .region_removed = region_removed, .completed = completed};

static void end_all(struct sl_transfer_mapped *mapped, int err)
{
    struct sl_list_link *link;
    mapped->is_open = false;
    mapped->has_failed = true;
    mapped->failures++;
    while ((link = sl_list_first(&mapped->in_flight)) != NULL) {
        finish(mapped, slice_of(link), err);
    }
    mapped->events->changed(mapped->ctx);
}

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    struct sl_transfer_mapped *mapped = ctx;
    mapped->is_open = true;
    mapped->has_failed = false;
    mapped->events->changed(mapped->ctx);
}

static void received(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message)
{
    sl_transport_release(sl_session_conn(session), message);
    sl_session_reconnect(session, "it sent data on a connection that carries none");
}

static void *sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    sl_session_reconnect(session, "it sent data on a connection that carries none");
    return NULL;
}

static void lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_mapped *mapped = ctx;
    sl_log_warn("transfer: shared memory lost, going on over TCP: %s; reconnecting", reason);
    sl_session_set_lane_epoch(session, ++mapped->epoch);
    end_all(mapped, err);
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_mapped *mapped = ctx;
    if (err != SL_ERR_CANCELLED) {
        sl_log_warn("transfer: no shared memory, going on over TCP: %s", reason);
    }
    sl_session_close(&mapped->session);
    mapped->pause_end_ns = sl_reactor_now_ns(mapped->io->reactor) + PAUSE_NS;
    end_all(mapped, err);
}

static const struct sl_session_events session_events = {
    .welcomed = welcomed,
    .received = received,
    .sink = sink,
    .lost = lost,
    .closed = closed,
};

static int open_session(struct sl_transfer_mapped *mapped,
                        const struct sl_transfer_mapped_options *options)
{
    const struct sl_transfer_settings *settings = &mapped->io->engine->settings;
    char peer_name[SL_MESSAGE_NAME_BYTES];
    (void)snprintf(peer_name, sizeof peer_name, "%.40s shared memory", options->peer_name);
    const struct sl_session_options session = {
        .transport = sl_transfer_device_find(mapped->io, SL_ENDPOINT_SHM)->transport,
        .outbox = &mapped->io->outbox,
        .endpoint = *mapped->endpoint,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                  .role = SL_MESSAGE_ROLE_CLIENT,
                  .client_id = options->client_id,
                  .checksum = settings->checksum,
                  .incarnation = options->incarnation,
                  .lane = options->number,
                  .lane_epoch = ++mapped->epoch},
        .events = &session_events,
        .ctx = mapped,
        .peer_name = peer_name,
        .start_timeout_ns = START_NS,
        .persistent = true,
        .secret = &settings->secret,
    };
    return sl_session_open(&session, &mapped->session);
}

static int allocate(struct sl_transfer_mapped *mapped)
{
    if (mapped->slices != NULL) {
        return 0;
    }
    mapped->slices = calloc(SL_LIMIT_TRANSFER_SLICES, sizeof *mapped->slices);
    if (mapped->slices == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_list_init(&mapped->free);
    sl_list_init(&mapped->in_flight);
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        mapped->slices[i].home = &mapped->free;
        sl_list_append(&mapped->free, &mapped->slices[i].rma.link);
    }
    return 0;
}

bool sl_transfer_mapped_open(struct sl_transfer_mapped *mapped,
                             const struct sl_transfer_mapped_options *options)
{
    if (mapped->session != NULL || mapped->endpoint == NULL ||
        sl_reactor_now_ns(mapped->io->reactor) < mapped->pause_end_ns) {
        return sl_transfer_mapped_is_usable(mapped);
    }
    mapped->has_failed = false;
    return allocate(mapped) == 0 && open_session(mapped, options) == 0;
}

void sl_transfer_mapped_close(struct sl_transfer_mapped *mapped)
{
    sl_assert(mapped->in_flight_count == 0);
    mapped->is_open = false;
    if (mapped->session != NULL) {
        sl_session_close(&mapped->session);
    }
    free(mapped->slices);
    mapped->slices = NULL;
}

bool sl_transfer_mapped_has_room(const struct sl_transfer_mapped *mapped)
{
    return mapped->is_open && mapped->in_flight_bytes < SL_LIMIT_TRANSFER_CREDIT_BYTES &&
           !sl_list_empty(&mapped->free);
}

bool sl_transfer_mapped_post(struct sl_transfer_mapped *mapped, struct sl_transfer_slice *slice,
                             const struct sl_transport_rma_token *token)
{
    const struct sl_transport_rma_op op = {
        .kind = slice->rma.op == SL_RMA_READ ? SL_TRANSPORT_RMA_READ : SL_TRANSPORT_RMA_WRITE,
        .bytes = slice->rma.bytes,
        .local = slice->rma.local,
        .token = token,
        .offset = slice->rma.offset,
        .cookie = slice,
    };
    if (sl_transport_rma_post(sl_session_conn(mapped->session), &op, 1) == 0) {
        return false;
    }
    if (mapped->in_flight_count == 0) {
        mapped->answered_ns = sl_reactor_now_ns(mapped->io->reactor);
    }
    mapped->in_flight_count++;
    mapped->in_flight_bytes += slice->rma.bytes;
    sl_list_append(&mapped->in_flight, &slice->rma.link);
    return true;
}

void sl_transfer_mapped_break(struct sl_transfer_mapped *mapped, const char *why)
{
    if (mapped->is_open) {
        sl_session_conn(mapped->session)->is_abrupt = true;
        sl_session_reconnect(mapped->session, why);
    }
}
