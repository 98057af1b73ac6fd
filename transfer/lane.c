#include "transfer/lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "transfer/engine.h"

/* A lane connects as long as its segment is open: batches have deadlines. */
#define CONNECT_NS (2 * SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)

static void slice_done(void *ctx, struct sl_rma_slice *slice, int err, const char *text)
{
    struct sl_transfer_lane *lane = ctx;
    if (err == 0) {
        *(slice->op == SL_RMA_READ ? &lane->bytes_read : &lane->bytes_written) += slice->bytes;
    }
    lane->events->done(lane->ctx, lane, sl_transfer_lane_slice(slice), err, text);
}

static const struct sl_rma_initiator_events rma_events = {.done = slice_done};

/* Events of the session */

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    struct sl_transfer_lane *lane = ctx;
    const struct sl_credit credit = {.bytes = welcome->credit_bytes,
                                     .requests = welcome->credit_requests};
    sl_rma_initiator_open(&lane->rma, sl_session_conn(session), sl_session_outbox(session),
                          sl_session_queue(session), credit);
    lane->is_open = true;
    lane->events->ready(lane->ctx, lane);
}

static void received(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message)
{
    struct sl_transfer_lane *lane = ctx;
    const char *text;
    if (sl_rma_initiator_received(&lane->rma, message, &text) != 0) {
        sl_session_reconnect(session, text);
    } else {
        lane->events->ready(lane->ctx, lane);
    }
}

static void *sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    struct sl_transfer_lane *lane = ctx;
    void *memory = sl_rma_initiator_sink(&lane->rma, header);
    if (memory == NULL) {
        sl_session_reconnect(session, "it sent bytes that no request in flight has asked for");
    }
    return memory;
}

static void writable(void *ctx, struct sl_session *session)
{
    struct sl_transfer_lane *lane = ctx;
    lane->events->ready(lane->ctx, lane);
}

bool sl_transfer_lane_owes_writes(const struct sl_transfer_lane *lane)
{
    SL_LIST_FOREACH (link, &lane->rma.in_flight) {
        if (SL_CONTAINER_OF(link, struct sl_rma_slice, link)->op == SL_RMA_WRITE) {
            return true;
        }
    }
    return false;
}

static void lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_lane *lane = ctx;
    lane->is_open = false;
    lane->failures++;
    sl_log_warn("transfer: lane lost: %s; reconnecting", reason);
    if (sl_transfer_lane_owes_writes(lane)) {
        lane->events->broken(lane->ctx, lane, lane->epoch);
    }
    sl_session_set_lane_epoch(session, ++lane->epoch);
    sl_rma_initiator_closed(&lane->rma, err, reason);
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_lane *lane = ctx;
    sl_session_close(&lane->session);
    if (lane->is_open) { /* the transport is closing */
        lane->is_open = false;
        sl_rma_initiator_closed(&lane->rma, err, reason);
    }
    lane->events->refused(lane->ctx, lane, err, reason);
}

static const struct sl_session_events session_events = {
    .welcomed = welcomed,
    .received = received,
    .sink = sink,
    .writable = writable,
    .lost = lost,
    .closed = closed,
};

/* Opening and closing */

int sl_transfer_lane_open(struct sl_transfer_lane *lane,
                          const struct sl_transfer_lane_options *options)
{
    struct sl_transfer_io *io = options->io;
    const struct sl_transfer *engine = io->engine;
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char peer_name[SL_MESSAGE_NAME_BYTES];
    lane->events = options->events;
    lane->ctx = options->ctx;
    lane->io = io;
    lane->number = options->number;
    lane->epoch++;
    sl_list_init(&lane->free);
    lane->slices = calloc(SL_LIMIT_TRANSFER_SLICES, sizeof *lane->slices);
    if (lane->slices == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        lane->slices[i].home = &lane->free;
        sl_list_append(&lane->free, &lane->slices[i].rma.link);
    }
    sl_rma_initiator_init(&lane->rma, &rma_events, lane);
    sl_endpoint_format(options->endpoint, endpoint, sizeof endpoint);
    (void)snprintf(lane->name, sizeof lane->name, "%s lane %u (%s)", options->peer_name,
                   options->number, endpoint);
    (void)snprintf(peer_name, sizeof peer_name, "%.40s lane %u", options->peer_name,
                   options->number);
    const struct sl_session_options session = {
        .transport = io->devices[0].transport,
        .outbox = &io->outbox,
        .endpoint = *options->endpoint,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                  .role = SL_MESSAGE_ROLE_CLIENT,
                  .client_id = options->client_id,
                  .checksum = engine->settings.checksum,
                  .incarnation = options->incarnation,
                  .lane = options->number,
                  .lane_epoch = lane->epoch},
        .events = &session_events,
        .ctx = lane,
        .peer_name = peer_name,
        .start_timeout_ns = CONNECT_NS,
        .persistent = true,
        .secret = &engine->settings.secret,
    };
    int err = sl_session_open(&session, &lane->session);
    if (err != 0) {
        free(lane->slices);
        lane->slices = NULL;
    }
    return err;
}

void sl_transfer_lane_close(struct sl_transfer_lane *lane)
{
    if (lane->slices == NULL) {
        return;
    }
    sl_assert(lane->rma.in_flight_count == 0);
    lane->is_open = false;
    if (lane->session != NULL) {
        sl_session_close(&lane->session);
    }
    free(lane->slices);
    lane->slices = NULL;
}

/* Slices */

bool sl_transfer_lane_has_room(const struct sl_transfer_lane *lane, uint32_t bytes)
{
    return lane->is_open && lane->rma.conn->state == SL_CONN_OPEN && lane->rma.unsent == NULL &&
           lane->rma.credit.requests > 0 && lane->rma.credit.bytes >= bytes &&
           lane->rma.in_flight_count < SL_LIMIT_TRANSFER_SLICES;
}

void sl_transfer_lane_break(struct sl_transfer_lane *lane, const char *why)
{
    if (lane->is_open) {
        struct sl_conn *conn = lane->rma.conn;
        conn->is_abrupt = true;
        sl_session_reconnect(lane->session, why);
        sl_transport_disconnect(conn); /* it may have been closing slowly already */
    }
}

const char *sl_transfer_lane_last_error(const struct sl_transfer_lane *lane)
{
    return lane->session != NULL ? sl_session_last_error(lane->session) : "it was refused";
}
