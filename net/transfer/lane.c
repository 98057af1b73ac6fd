#include "net/transfer/lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/transfer/engine.h"

/* A lane connects as long as its segment is open: batches have deadlines. */
#define CONNECT_NS (2 * SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)

static struct sl_transfer_slice *lane_slice_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_transfer_slice, rma.link);
}

static uint64_t lane_now_ns(const struct sl_transfer_lane *lane)
{
    return sl_reactor_now_ns(lane->io->reactor);
}

static void count_sent(struct sl_transfer_lane *lane, struct sl_rma_slice *const *slices,
                       uint32_t count, bool is_posted)
{
    for (uint32_t i = 0; i < count; i++) {
        lane->in_flight_bytes += slices[i]->bytes;
        sl_transfer_lane_slice(slices[i])->is_posted = is_posted;
    }
    lane->in_flight_count += count;
}

static void slice_done(void *ctx, struct sl_rma_slice *slice, int err, const char *text)
{
    struct sl_transfer_lane *lane = ctx;
    lane->in_flight_count--;
    lane->in_flight_bytes -= slice->bytes;
    if (err == 0) {
        *(slice->op == SL_RMA_READ ? &lane->bytes_read : &lane->bytes_written) += slice->bytes;
    }
    lane->events->done(lane->ctx, lane, sl_transfer_lane_slice(slice), err, text);
}

static const struct sl_rma_initiator_events rma_events = {.done = slice_done};

/* One-sided operations */

static void posts_done(struct sl_transfer_lane *lane, struct sl_list *slices, int err,
                       const char *text)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(slices)) != NULL) {
        slice_done(lane, &lane_slice_of(link)->rma, err, text);
    }
}

/* A WRITE is applied when a FLUSH behind it has completed. Completions come in the order of
 * posting: a FLUSH is behind all WRITEs that have completed before it. */
void sl_transfer_lane_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    struct sl_transfer_slice *slice = cookie;
    struct sl_transfer_lane *lane = SL_CONTAINER_OF(slice->rma.lane, struct sl_transfer_lane, rma);
    lane->operation_count--;
    lane->completed_ns = lane_now_ns(lane);
    if (slice == &lane->flush) {
        posts_done(lane, &lane->written, err, sl_err_name(err));
    } else if (slice->rma.op == SL_RMA_WRITE && err == 0) {
        sl_list_append(&lane->written, &slice->rma.link);
    } else {
        sl_list_remove(&slice->rma.link);
        slice_done(lane, &slice->rma, err, sl_err_name(err));
    }
    lane->events->ready(lane->ctx, lane);
}

uint32_t sl_transfer_lane_post(struct sl_transfer_lane *lane, struct sl_rma_slice *const *slices,
                               const struct sl_transport_rma_token *const *tokens, uint32_t count)
{
    struct sl_transport_rma_op operations[SL_TRANSFER_LANE_GROUP_COUNT + 1];
    const struct sl_transport_rma_token *written = NULL;
    uint32_t operation_count = 0;
    sl_assert(count > 0);
    sl_assert(count <= SL_TRANSFER_LANE_GROUP_COUNT);
    for (; operation_count < count; operation_count++) {
        struct sl_rma_slice *slice = slices[operation_count];
        const bool is_read = slice->op == SL_RMA_READ;
        operations[operation_count] = (struct sl_transport_rma_op){
            .kind = is_read ? SL_TRANSPORT_RMA_READ : SL_TRANSPORT_RMA_WRITE,
            .bytes = slice->bytes,
            .local = slice->local,
            .token = tokens[operation_count],
            .offset = slice->offset,
            .cookie = sl_transfer_lane_slice(slice),
        };
        written = is_read ? written : tokens[operation_count];
    }
    if (written != NULL) {
        operations[operation_count++] = (struct sl_transport_rma_op){
            .kind = SL_TRANSPORT_RMA_FLUSH, .token = written, .cookie = &lane->flush};
    }
    if (lane->operation_count == 0) {
        lane->completed_ns = lane_now_ns(lane);
    }
    const uint32_t taken = sl_transport_rma_post(lane->rma.conn, operations, operation_count);
    const uint32_t posted = taken < count ? taken : count;
    for (uint32_t i = 0; i < posted; i++) {
        slices[i]->lane = &lane->rma;
        sl_list_append(&lane->posted, &slices[i]->link);
    }
    lane->operation_count += taken;
    count_sent(lane, slices, posted, true);
    return posted;
}

static void posts_closed(struct sl_transfer_lane *lane, int err, const char *text)
{
    struct sl_list over;
    sl_list_init(&over);
    sl_list_append_all(&over, &lane->written);
    sl_list_append_all(&over, &lane->posted);
    lane->operation_count = 0;
    posts_done(lane, &over, err, text);
}

/* Events of the session */

static void lane_welcomed(void *ctx, struct sl_session *session,
                          const struct sl_message_welcome *welcome)
{
    struct sl_transfer_lane *lane = ctx;
    struct sl_conn *conn = sl_session_conn(session);
    const struct sl_credit credit = {.bytes = welcome->credit_bytes,
                                     .requests = welcome->credit_requests};
    sl_rma_initiator_open(&lane->rma, conn, sl_session_outbox(session), sl_session_queue(session),
                          credit);
    lane->is_open = true;
    if (conn->transport->ops->rma != NULL && sl_transport_rma_admit(conn) != 0) {
        sl_session_reconnect(session, "it cannot be admitted to one-sided operations");
        return;
    }
    lane->events->ready(lane->ctx, lane);
}

static void lane_received(void *ctx, struct sl_session *session,
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

static void *lane_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    struct sl_transfer_lane *lane = ctx;
    void *memory = sl_rma_initiator_sink(&lane->rma, header);
    if (memory == NULL) {
        sl_session_reconnect(session, "it sent bytes that no request in flight has asked for");
    }
    return memory;
}

static void lane_writable(void *ctx, struct sl_session *session)
{
    struct sl_transfer_lane *lane = ctx;
    lane->events->ready(lane->ctx, lane);
}

static void lane_end(struct sl_transfer_lane *lane, int err, const char *reason)
{
    sl_rma_initiator_closed(&lane->rma, err, reason);
    posts_closed(lane, err, reason);
}

static void lane_lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_lane *lane = ctx;
    lane->is_open = false;
    lane->failures++;
    sl_log_debug("transfer: lane lost: %s; reconnecting", reason);
    lane->events->lost(lane->ctx, lane, reason);
    sl_session_set_lane_epoch(session, ++lane->epoch);
    lane_end(lane, err, reason);
}

static void lane_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_lane *lane = ctx;
    sl_session_close(&lane->session);
    if (lane->is_open) { /* the transport is closing */
        lane->is_open = false;
        lane_end(lane, err, reason);
    }
    lane->events->refused(lane->ctx, lane, err, reason);
}

static const struct sl_session_events session_events = {
    .welcomed = lane_welcomed,
    .received = lane_received,
    .sink = lane_sink,
    .writable = lane_writable,
    .lost = lane_lost,
    .closed = lane_closed,
};

/* Opening and closing */

static int allocate(struct sl_transfer_lane *lane)
{
    if (lane->slices != NULL) { /* it was refused: its slices may wait to be sent again */
        return 0;
    }
    lane->slices = calloc(SL_LIMIT_TRANSFER_SLICES, sizeof *lane->slices);
    if (lane->slices == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_list_init(&lane->free);
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        lane->slices[i].home = &lane->free;
        sl_list_append(&lane->free, &lane->slices[i].rma.link);
    }
    sl_list_init(&lane->posted);
    sl_list_init(&lane->written);
    lane->flush.rma.lane = &lane->rma;
    return 0;
}

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
    lane->rail = options->rail;
    lane->epoch++;
    if (allocate(lane) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    sl_rma_initiator_init(&lane->rma, &rma_events, lane);
    sl_endpoint_format(options->endpoint, endpoint, sizeof endpoint);
    (void)snprintf(lane->name, sizeof lane->name, "%s lane %u (%s)", options->peer_name,
                   options->number, endpoint);
    (void)snprintf(peer_name, sizeof peer_name, "%.40s lane %u", options->peer_name,
                   options->number);
    const struct sl_session_options session = {
        .transport = options->transport,
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
    return sl_session_open(&session, &lane->session);
}

void sl_transfer_lane_close(struct sl_transfer_lane *lane)
{
    sl_assert(lane->in_flight_count == 0);
    lane->is_open = false;
    lane->operation_count = 0; /* a FLUSH behind WRITEs that have failed */
    if (lane->session != NULL) {
        sl_session_close(&lane->session);
    }
    free(lane->slices);
    lane->slices = NULL;
}

/* Slices */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A full lane waits until a fourth of the credit is back: else each answer would let one slice go,
 * in a frame of its own. */
static bool has_group_credit(const struct sl_transfer_lane *lane)
{
    const struct sl_credit *credit = &lane->rma.credit;
    return credit->requests >= least(SL_LIMIT_TRANSFER_SLICES / 4, lane->in_flight_count) &&
           credit->bytes >= least(SL_LIMIT_TRANSFER_CREDIT_BYTES / 4, lane->in_flight_bytes);
}

bool sl_transfer_lane_has_room(const struct sl_transfer_lane *lane, uint32_t bytes,
                               uint32_t more_count, uint64_t more_bytes)
{
    const struct sl_rma_initiator *rma = &lane->rma;
    return (more_count > 0 || has_group_credit(lane)) && lane->is_open &&
           rma->conn->state == SL_CONN_OPEN && rma->unsent == NULL &&
           rma->credit.requests > more_count && rma->credit.bytes >= more_bytes + bytes &&
           lane->in_flight_count + more_count < SL_LIMIT_TRANSFER_SLICES &&
           lane->in_flight_bytes + more_bytes + bytes <= SL_LIMIT_TRANSFER_CREDIT_BYTES &&
           lane->operation_count + more_count + 1 < SL_LIMIT_TRANSFER_SLICES; /* and a FLUSH */
}

uint32_t sl_transfer_lane_send(struct sl_transfer_lane *lane, struct sl_rma_slice *const *slices,
                               uint32_t count, uint32_t budget_us)
{
    const uint32_t sent = sl_rma_initiator_send(&lane->rma, slices, count, budget_us);
    count_sent(lane, slices, sent, false);
    return sent;
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

static bool any(const struct sl_transfer_lane *lane, const struct sl_transfer_part *part,
                enum sl_rma_op op)
{
    const struct sl_list *lists[] = {&lane->rma.in_flight, &lane->posted, &lane->written};
    for (uint32_t i = 0; lane->in_flight_count > 0 && i < sizeof lists / sizeof lists[0]; i++) {
        SL_LIST_FOREACH (link, lists[i]) {
            const struct sl_transfer_slice *slice = lane_slice_of(link);
            if (part != NULL ? slice->part == part : slice->rma.op == op) {
                return true;
            }
        }
    }
    return false;
}

bool sl_transfer_lane_owes_writes(const struct sl_transfer_lane *lane)
{
    return any(lane, NULL, SL_RMA_WRITE);
}

bool sl_transfer_lane_carries(const struct sl_transfer_lane *lane,
                              const struct sl_transfer_part *part)
{
    return any(lane, part, SL_RMA_READ);
}

bool sl_transfer_lane_is_stalled(const struct sl_transfer_lane *lane, uint64_t since_ns)
{
    return (lane->rma.in_flight_count > 0 && lane->rma.answered_ns < since_ns) ||
           (lane->operation_count > 0 && lane->completed_ns < since_ns);
}

bool sl_transfer_lane_has_failed(const struct sl_transfer_lane *lane)
{
    return lane->session == NULL || sl_session_has_failed(lane->session);
}

const char *sl_transfer_lane_last_error(const struct sl_transfer_lane *lane)
{
    return lane->session != NULL ? sl_session_last_error(lane->session) : "it was refused";
}
