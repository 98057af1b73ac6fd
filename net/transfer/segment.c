#include "net/transfer/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/shm/shm.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"
#include "net/transfer/rails.h"

/* After a disconnect, the peer's process may be alive: it gets this long to welcome again. */
#define GONE_NS    (5 * SL_CLOCK_NS_PER_S)
/* How long a close waits for the answers to fences. */
#define CLOSE_NS   (2 * SL_CLOCK_NS_PER_S)
/* A page of the list of buffers. */
#define PAGE_NS    (10 * SL_CLOCK_NS_PER_S)
/* Between two looks whether an opening was abandoned. */
#define ABANDON_NS (20 * SL_CLOCK_NS_PER_MS)
/* The session repeats a request when it reconnects. */
#define FENCE_NS   (SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)

/* Mail to the routes. It is answered, so that the segment outlives it. */

/* It is closed, or could not be opened. */
static void finish_closing(struct sl_transfer_segment *segment)
{
    free(segment->offer.endpoints);
    free(segment->offer.matrix);
    free(segment->list.remote);
    if (segment->opening.is_done) {
        sl_transfer_io_answer(&segment->call, 0, "closed");
        return;
    }
    if (segment->engine->directory != NULL && segment->endpoint.port != 0) {
        sl_transfer_directory_explain(&segment->lookup.record, segment->reason);
    }
    sl_transfer_io_answer(&segment->call, segment->err, "%s", segment->reason);
}

static void segment_answered(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    sl_assert(segment->mails_out > 0);
    segment->mails_out--;
    if (segment->mails_out > 0) {
        return;
    }
    if (segment->is_closing) {
        finish_closing(segment);
    } else if (!segment->opening.is_done) {
        segment->opening.is_done = true;
        sl_reactor_disarm(segment->home->reactor, &segment->opening.late);
        sl_transfer_io_answer(&segment->call, 0, "open");
    }
}

static void segment_answer(struct sl_transfer_segment *segment)
{
    struct sl_reactor *here = sl_reactor_running();
    sl_reactor_post(here, segment->home->index,
                    (struct sl_mail){.run = segment_answered, .ctx = segment});
}

/* argument: of the mail, which has the index of the route too. */
static void segment_post(struct sl_transfer_segment *segment, uint32_t index, sl_mail_fn *run,
                         void *argument)
{
    segment->mails_out++;
    sl_reactor_post(
        segment->home->reactor, index,
        (struct sl_mail){.run = run, .ctx = segment, .a = index, .b = (uintptr_t)argument});
}

static void post_all(struct sl_transfer_segment *segment, sl_mail_fn *run)
{
    for (uint32_t i = 0; i < segment->engine->settings.reactors.count; i++) {
        segment_post(segment, i, run, NULL);
    }
}

static void fail_route(void *ctx, uint64_t index, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    sl_transfer_route_fail(&segment->routes[index], segment->err, segment->reason);
    segment_answer(segment);
}

static void take_list(void *ctx, uint64_t index, uint64_t remote)
{
    struct sl_transfer_segment *segment = ctx;
    struct sl_transfer_route *route = &segment->routes[index];
    route->incarnation = segment->incarnation;
    if (sl_transfer_rails_create(route, segment->offer.endpoints, segment->offer.endpoint_count,
                                 segment->offer.rails, segment->offer.rail_count) != 0) {
        free((void *)(uintptr_t)remote);
        sl_transfer_route_fail(route, SL_ERR_NO_MEMORY, "no memory for lanes");
    } else {
        sl_transfer_route_set_remote(route, (struct sl_transfer_remote *)(uintptr_t)remote);
    }
    segment_answer(segment);
}

static void segment_fail(struct sl_transfer_segment *segment, int err, const char *reason);

/* Sends every reactor its own copy of the list, one at a time: peers may change it without end. */
static bool segment_publish(struct sl_transfer_work *work)
{
    struct sl_transfer_segment *segment =
        SL_CONTAINER_OF(work, struct sl_transfer_segment, list.publishing);
    if (segment->mails_out > 0) {
        return true;
    }
    for (uint32_t i = 0; i < segment->list.remote->count && segment->offer.matrix != NULL; i++) {
        struct sl_transfer_remote_buffer *buffer = &segment->list.remote->buffers[i];
        buffer->near = sl_rail_near_remote(segment->offer.rails, segment->offer.rail_count,
                                           segment->offer.matrix, buffer->location);
    }
    for (uint32_t i = 0; i < segment->engine->settings.reactors.count; i++) {
        struct sl_transfer_remote *copy = sl_transfer_remote_copy(segment->list.remote);
        if (copy == NULL) {
            segment_fail(segment, SL_ERR_NO_MEMORY, "no memory for the list of its buffers");
            return false;
        }
        segment_post(segment, i, take_list, copy);
    }
    return false;
}

static void close_route(void *ctx, uint64_t index, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    struct sl_transfer_route *route = &segment->routes[index];
    sl_transfer_route_fail(route, SL_ERR_CANCELLED, "the segment was closed");
    if (!sl_list_empty(&route->parts)) {
        /* Lanes are being closed: look again in the next turn. */
        sl_reactor_post(route->io->reactor, route->io->index,
                        (struct sl_mail){.run = close_route, .ctx = segment, .a = index});
        return;
    }
    sl_transfer_route_fini(route);
    segment_answer(segment);
}

/* Nothing is sent from now on. `answered` goes on when the routes are at rest. */
static void close_all_routes(struct sl_transfer_segment *segment)
{
    segment->is_closing = true;
    post_all(segment, close_route);
}

static void end_watch(struct sl_transfer_segment *segment)
{
    if (segment->watch.is_on) {
        segment->watch.is_on = false;
        sl_transfer_io_answer(&segment->watch.call, segment->err, "%s", segment->reason);
    }
}

void sl_transfer_segment_watch(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_segment *segment =
        SL_CONTAINER_OF(call, struct sl_transfer_segment, watch.call);
    segment->watch.is_on = true;
    if (segment->err != 0) {
        end_watch(segment);
    }
}

/* The segment is closed for good. */
static void segment_fail(struct sl_transfer_segment *segment, int err, const char *reason)
{
    if (segment->err != 0) {
        return;
    }
    segment->err = err;
    (void)snprintf(segment->reason, sizeof segment->reason, "%s", reason);
    sl_session_close(&segment->session);
    sl_list_remove(&segment->list.publishing.link);
    sl_reactor_disarm(segment->home->reactor, &segment->opening.late);
    sl_reactor_disarm(segment->home->reactor, &segment->gone);
    if (!segment->opening.is_done) {
        close_all_routes(segment);
        return;
    }
    if (!segment->watch.is_on) { /* else its user learns of it at once, and may expect it */
        sl_log_warn("transfer: segment %s is closed: %s", segment->name, reason);
    }
    end_watch(segment);
    post_all(segment, fail_route);
}

/* The peer's endpoints, matrix and buffers */

static bool is_here(const char *host)
{
    char here[SL_SHM_HOST_BYTES];
    sl_shm_host(here);
    return here[0] != '\0' && strcmp(here, host) == 0;
}

/* Without one, all rails count the same. */
static void take_matrix(struct sl_transfer_segment *segment,
                        const struct sl_message_segment *message)
{
    struct sl_reason reason;
    segment->offer.matrix = message->matrix != NULL ? malloc(sizeof *segment->offer.matrix) : NULL;
    if (segment->offer.matrix != NULL && sl_matrix_parse(message->matrix, segment->name, NULL,
                                                         segment->offer.matrix, &reason) != 0) {
        sl_log_warn("transfer: its NIC priority matrix is not used: %s", reason.text);
        free(segment->offer.matrix);
        segment->offer.matrix = NULL;
    }
}

/* They do not change while the process lives. One that cannot be used from here gets port 0. */
static int take_endpoints(struct sl_transfer_segment *segment,
                          const struct sl_message_segment *message)
{
    if (segment->offer.endpoints != NULL) {
        return 0;
    }
    segment->offer.endpoints =
        calloc(message->endpoint_count + 1, sizeof *segment->offer.endpoints);
    if (segment->offer.endpoints == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    segment->offer.endpoint_count = message->endpoint_count;
    for (uint32_t i = 0; i < message->endpoint_count; i++) {
        struct sl_endpoint *to = &segment->offer.endpoints[i];
        if (sl_endpoint_parse(message->endpoints[i].endpoint, to, NULL) != 0 ||
            (to->scheme == SL_ENDPOINT_SHM && !is_here(message->host))) {
            *to = (struct sl_endpoint){.port = 0};
        }
    }
    segment->offer.rail_count = sl_rail_pair(
        segment->home->devices, segment->engine->settings.endpoint_count, segment->offer.endpoints,
        segment->offer.endpoint_count, segment->offer.rails, SL_TRANSFER_RAILS_MAX);
    for (uint32_t i = 0; i < segment->offer.rail_count; i++) {
        struct sl_rail *rail = &segment->offer.rails[i];
        (void)snprintf(rail->nic, sizeof rail->nic, "%s", message->endpoints[rail->remote].device);
    }
    take_matrix(segment, message);
    return segment->offer.rail_count > 0 ? 0 : SL_ERR_UNSUPPORTED;
}

static int add_buffers(struct sl_transfer_segment *segment,
                       const struct sl_message_buffers *buffers)
{
    return sl_transfer_remote_add(&segment->list.remote, buffers, segment->offer.endpoints,
                                  segment->offer.endpoint_count);
}

/* So a list has an end. */
static bool ascends(const struct sl_message_buffers *buffers, uint64_t above)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        if (buffers->items[i].address <= above) {
            return false;
        }
        above = buffers->items[i].address;
    }
    return true;
}

static void page_received(void *ctx, const struct sl_message *message, int err, const char *reason);

static void request_page(struct sl_transfer_segment *segment, uint64_t above)
{
    struct sl_message message = {.kind = SL_MESSAGE_SEGMENT_GET, .above = above};
    segment->list.state = SL_TRANSFER_LIST_REQUESTED;
    segment->list.above = above;
    sl_session_request(segment->session, &message, PAGE_NS, page_received, segment);
}

/* The session repeats a request in flight: the list begins anew with its answer. */
static void request_list(struct sl_transfer_segment *segment)
{
    if (segment->list.state == SL_TRANSFER_LIST_COMPLETE) {
        request_page(segment, 0);
    } else {
        segment->list.state = SL_TRANSFER_LIST_OUTDATED;
    }
}

static int take_page(struct sl_transfer_segment *segment, const struct sl_message_segment *page)
{
    const int err = take_endpoints(segment, page); /* tokens name them */
    return err != 0                                        ? err
           : !ascends(&page->buffers, segment->list.above) ? SL_ERR_PROTOCOL
                                                           : add_buffers(segment, &page->buffers);
}

static void page_received(void *ctx, const struct sl_message *message, int err, const char *reason)
{
    struct sl_transfer_segment *segment = ctx;
    const bool is_stale = segment->list.state == SL_TRANSFER_LIST_OUTDATED;
    segment->list.state = SL_TRANSFER_LIST_COMPLETE;
    if (segment->err != 0) {
        return;
    }
    if (err == 0 && is_stale) {
        request_list(segment);
        return;
    }
    if (err == 0) {
        err = take_page(segment, &message->segment);
        reason = err == SL_ERR_UNSUPPORTED ? "it offers no endpoint that this engine has too"
                 : err == SL_ERR_PROTOCOL  ? "it lists its buffers out of order"
                                           : sl_err_name(err);
    }
    if (err != 0) {
        segment_fail(segment, err, reason);
    } else if (message->segment.more && message->segment.buffers.count > 0) {
        const struct sl_message_buffers *buffers = &message->segment.buffers;
        request_page(segment, buffers->items[buffers->count - 1].address);
    } else {
        sl_transfer_io_wake(segment->home, &segment->list.publishing);
    }
}

/* Fences. A WRITE that has left this process may be applied although its connection was closed
 * here. So the peer is asked to close the connection, and nothing is sent before it has answered.
 */

static struct sl_transfer_segment *segment_of(struct sl_transfer_route *route)
{
    return SL_CONTAINER_OF(route - route->io->index, struct sl_transfer_segment, routes);
}

static void wake_route(void *ctx, uint64_t index, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    struct sl_transfer_route *route = &segment->routes[index];
    sl_transfer_io_wake(route->io, &route->work);
    segment_answer(segment);
}

static void fenced(void *ctx, const struct sl_message *message, int err, const char *reason)
{
    struct sl_transfer_segment *segment = ctx;
    if (segment->err != 0) {
        return; /* nothing is sent any more */
    }
    if (err != 0) {
        segment_fail(segment, SL_ERR_CLOSED, reason);
    } else if (atomic_fetch_sub_explicit(&segment->fences.count, 1, memory_order_acq_rel) == 1) {
        post_all(segment, wake_route);
    }
}

static void fence_here(void *ctx, uint64_t lane, uint64_t epoch)
{
    struct sl_transfer_segment *segment = ctx;
    struct sl_message message = {.kind = SL_MESSAGE_FENCE,
                                 .fence = {.lane = (uint32_t)lane, .epoch = epoch}};
    if (segment->err == 0 && segment->session != NULL) {
        sl_session_request(segment->session, &message, FENCE_NS, fenced, segment);
    }
}

/* On the route's reactor. The mail is delivered before the route's answer to a close. */
static void fence(struct sl_transfer_route *route, uint32_t lane, uint64_t epoch)
{
    struct sl_transfer_segment *segment = segment_of(route);
    atomic_fetch_add_explicit(&segment->fences.count, 1, memory_order_acq_rel);
    sl_reactor_post(route->io->reactor, segment->home->index,
                    (struct sl_mail){.run = fence_here, .ctx = segment, .a = lane, .b = epoch});
}

/* Events of the control session */

/* After the session's own timeout, which has more to say. async.c may abandon the opening:
 * that is looked for. */
static void arm_open_late(struct sl_transfer_segment *segment)
{
    const uint64_t now_ns = sl_reactor_now_ns(segment->home->reactor);
    const uint64_t left_ns = segment->until_ns > now_ns ? segment->until_ns - now_ns : 0;
    const bool looks = segment->call.async != NULL && left_ns > ABANDON_NS;
    sl_reactor_arm(segment->home->reactor, &segment->opening.late, looks ? ABANDON_NS : left_ns);
}

/* The session's start timeout is over with the welcome. */
static void open_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_segment *segment =
        SL_CONTAINER_OF(timer, struct sl_transfer_segment, opening.late);
    if (atomic_load_explicit(&segment->opening.is_abandoned, memory_order_relaxed)) {
        segment_fail(segment, SL_ERR_CANCELLED, "abandoned");
    } else if (now_ns < segment->until_ns) {
        arm_open_late(segment);
    } else {
        segment_fail(segment, SL_ERR_DEADLINE,
                     "a process listens there, but has not sent the list of its buffers");
    }
}

static void segment_welcomed(void *ctx, struct sl_session *session,
                             const struct sl_message_welcome *welcome)
{
    struct sl_transfer_segment *segment = ctx;
    segment->session = session; /* in the first event the owner does not have it yet */
    sl_reactor_disarm(segment->home->reactor, &segment->gone);
    const uint64_t recorded = segment->lookup.record.incarnation;
    if (segment->incarnation == 0 && recorded != 0 && recorded != welcome->incarnation) {
        char reason[SL_TRANSFER_REASON_BYTES];
        (void)snprintf(reason, sizeof reason,
                       "%s has another incarnation than its record: its process was restarted",
                       segment->name);
        segment_fail(segment, SL_ERR_REFUSED, reason);
        return;
    }
    if (segment->incarnation != 0 && segment->incarnation != welcome->incarnation) {
        segment_fail(segment, SL_ERR_CLOSED, "its process was restarted: open the segment again");
        return;
    }
    if (segment->incarnation == 0) { /* from then on other reactors read it */
        segment->incarnation = welcome->incarnation;
    }
    if (segment->list.remote != NULL) {
        segment->list.remote->count = 0; /* changes may have been missed */
    }
    sl_list_remove(&segment->list.publishing.link); /* until the list is complete again */
    request_list(segment);
}

static void segment_notified(void *ctx, struct sl_session *session,
                             const struct sl_message *message)
{
    struct sl_transfer_segment *segment = ctx;
    int err = 0;
    if (segment->err != 0 || segment->list.remote == NULL) {
        return; /* the requested list has it too */
    }
    if (message->kind == SL_MESSAGE_BUFFER_ADDED) {
        err = add_buffers(segment, &message->buffers);
    } else if (message->kind == SL_MESSAGE_BUFFER_GONE) {
        sl_transfer_remote_remove(segment->list.remote, &message->keys);
    } else {
        return;
    }
    if (err != 0) {
        segment_fail(segment, err, "it has too many buffers");
    } else if (segment->list.state == SL_TRANSFER_LIST_COMPLETE) {
        sl_transfer_io_wake(segment->home, &segment->list.publishing);
    }
}

static void peer_gone(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_segment *segment = SL_CONTAINER_OF(timer, struct sl_transfer_segment, gone);
    char reason[SL_TRANSFER_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s has ended or is unreachable: %.200s", segment->name,
                   sl_session_last_error(segment->session));
    segment_fail(segment, SL_ERR_CLOSED, reason);
}

static void segment_lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_segment *segment = ctx;
    if (segment->err == 0) {
        sl_reactor_arm(segment->home->reactor, &segment->gone,
                       segment->watch.ends_with_connection ? 0 : GONE_NS);
    }
}

static void segment_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_transfer_segment *segment = ctx;
    segment->session = session;
    segment_fail(segment, segment->incarnation != 0 ? SL_ERR_CLOSED : err, reason);
}

static void segment_received(void *ctx, struct sl_session *session,
                             const struct sl_transport_message *message)
{
    sl_transport_release(sl_session_conn(session), message);
    sl_session_reconnect(session, "it sent data on a control connection");
}

static void *segment_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    sl_session_reconnect(session, "it sent data on a control connection");
    return NULL;
}

static const struct sl_session_events session_events = {
    .welcomed = segment_welcomed,
    .received = segment_received,
    .sink = segment_sink,
    .notified = segment_notified,
    .lost = segment_lost,
    .closed = segment_closed,
};

/* Opening */

static void segment_open_session(struct sl_transfer_segment *segment)
{
    const struct sl_transfer *engine = segment->engine;
    struct sl_transfer_io *io = segment->home;
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    const struct sl_session_options options = {
        .transport = io->devices[0].transport,
        .outbox = &io->outbox,
        .endpoint = segment->endpoint,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                  .role = SL_MESSAGE_ROLE_CLIENT,
                  .client_id = segment->client_id,
                  .checksum = engine->settings.checksum},
        .events = &session_events,
        .ctx = segment,
        .peer_name = segment->name,
        .start_timeout_ns =
            segment->until_ns > now_ns ? segment->until_ns - now_ns : SL_CLOCK_NS_PER_MS,
        .persistent = true,
        /* A process listens there, or has ended: the store, or the user of async.h, has its
         * address from it. */
        .ends.if_refused = engine->directory != NULL || segment->call.async != NULL,
        .ends.with_process = segment->ends_with_process,
        .secret = &engine->settings.secret,
    };
    segment->until_ns = now_ns + options.start_timeout_ns + SL_CLOCK_NS_PER_MS;
    arm_open_late(segment);
    const int err = sl_session_open(&options, &segment->session);
    if (err != 0) {
        segment_fail(segment, err, "no memory for a session");
    }
}

static void take_address(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    if (segment->lookup.err != 0) {
        segment_fail(segment, segment->lookup.err, segment->lookup.reason);
    } else {
        segment->endpoint = segment->lookup.endpoint;
        segment_open_session(segment);
    }
}

static void looked_up(struct sl_transfer_lookup *lookup)
{
    struct sl_transfer_segment *segment =
        SL_CONTAINER_OF(lookup, struct sl_transfer_segment, lookup);
    sl_reactor_post(segment->engine->reactors[0], segment->home->index,
                    (struct sl_mail){.run = take_address, .ctx = segment});
}

/* On the first reactor. */
static void look_up(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_segment *segment = ctx;
    segment->lookup.name = segment->name;
    segment->lookup.done = looked_up;
    sl_transfer_directory_look_up(segment->engine, &segment->lookup,
                                  segment->opening.timeout_ms * SL_CLOCK_NS_PER_MS);
}

static void open_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_segment *segment = SL_CONTAINER_OF(call, struct sl_transfer_segment, call);
    segment->list.publishing.run = segment_publish;
    segment->opening.late.run = open_late;
    segment->gone.run = peer_gone;
    segment->until_ns =
        sl_reactor_now_ns(io->reactor) + segment->opening.timeout_ms * SL_CLOCK_NS_PER_MS;
    if (segment->engine->directory == NULL) {
        segment_open_session(segment);
        return;
    }
    sl_reactor_post(io->reactor, 0, (struct sl_mail){.run = look_up, .ctx = segment});
}

int sl_transfer_segment_create(struct sl_transfer *transfer, const char *name, uint32_t timeout_ms,
                               struct sl_transfer_segment **out)
{
    const uint32_t reactor_count = transfer->settings.reactors.count;
    struct sl_endpoint endpoint;
    int err = sl_transfer_settings_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_transfer_directory_check(transfer, name, &endpoint);
    if (err != 0) {
        return err;
    }
    struct sl_transfer_segment *made =
        calloc(1, sizeof *made + reactor_count * sizeof made->routes[0]);
    if (made == NULL) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "no memory for a segment");
    }
    made->engine = transfer;
    made->endpoint = endpoint;
    made->opening.timeout_ms = timeout_ms;
    made->client_id = sl_transfer_setup_random(&transfer->setup);
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    for (uint32_t i = 0; i < reactor_count; i++) {
        sl_transfer_route_init(&made->routes[i], &transfer->ios[i], made->name);
        made->routes[i].fence = fence;
        made->routes[i].fences = &made->fences.count;
        made->routes[i].client_id = made->client_id;
    }
    sl_port_set_lock(transfer->ports);
    if (transfer->segment_count == SL_LIMIT_TRANSFER_SEGMENTS) {
        err = SL_ERR_TOO_LARGE;
    } else {
        made->home = &transfer->ios[transfer->segment_count % reactor_count];
        sl_list_append(&transfer->segments, &made->link);
        transfer->segment_count++;
    }
    sl_port_set_unlock(transfer->ports);
    if (err != 0) {
        free(made);
        return sl_transfer_fail(err, "%d segments are open", SL_LIMIT_TRANSFER_SEGMENTS);
    }
    sl_list_init(&made->asking);
    made->call.run = open_here;
    made->call.io = made->home;
    *out = made;
    return 0;
}

/* Closing */

static void segment_close_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_segment *segment = SL_CONTAINER_OF(call, struct sl_transfer_segment, call);
    if (segment->err == 0) { /* else routes may be reading it */
        segment->err = SL_ERR_CANCELLED;
    }
    end_watch(segment);
    sl_list_remove(&segment->list.publishing.link);
    sl_reactor_disarm(io->reactor, &segment->gone);
    sl_session_close(&segment->session);
    close_all_routes(segment);
}

static void look_at_fences(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_segment *segment =
        SL_CONTAINER_OF(timer, struct sl_transfer_segment, fences.look);
    const bool has_fences = atomic_load_explicit(&segment->fences.count, memory_order_acquire) > 0;
    if (has_fences && segment->err == 0 && now_ns < segment->until_ns) {
        sl_reactor_arm(segment->home->reactor, timer, SL_CLOCK_NS_PER_MS);
        return;
    }
    if (has_fences) {
        sl_log_warn("transfer: segment %s is closed while WRITEs that have timed out may still be "
                    "applied",
                    segment->name);
    }
    segment_close_here(segment->home, &segment->call);
}

/* If it is opened again, it has lanes of its own, which no older fence holds back. */
static void wait_for_fences(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_segment *segment = SL_CONTAINER_OF(call, struct sl_transfer_segment, call);
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    segment->fences.look.run = look_at_fences;
    segment->until_ns = now_ns + CLOSE_NS;
    look_at_fences(&segment->fences.look, now_ns);
}

void sl_transfer_segment_prepare_close(struct sl_transfer_segment *segment)
{
    segment->call.run = wait_for_fences;
}

void sl_transfer_segment_free(struct sl_transfer_segment *segment)
{
    struct sl_transfer *transfer = segment->engine;
    sl_port_set_lock(transfer->ports);
    sl_list_remove(&segment->link);
    transfer->segment_count--;
    sl_port_set_unlock(transfer->ports);
    free(segment);
}

/* A thread that gets no port leaves the segment to the end of the engine. */
static void segment_close_and_free(struct sl_transfer_segment *segment)
{
    if (sl_transfer_io_call(segment->home, &segment->call) != 0) {
        sl_log_warn("transfer: segment %s stays open: %s", segment->name, sl_transfer_last_error());
        return;
    }
    sl_transfer_segment_free(segment);
}

void sl_transfer_segment_close_all(struct sl_transfer *transfer)
{
    SL_LIST_EACH (struct sl_transfer_segment, segment, link, &transfer->segments) {
        segment->call.run = segment_close_here;
        segment_close_and_free(segment);
    }
}

/* Public */

int sl_transfer_segment_open(struct sl_transfer *transfer, const char *name, uint32_t timeout_ms,
                             struct sl_transfer_segment **out)
{
    sl_assert(transfer != NULL);
    sl_assert(out != NULL);
    struct sl_transfer_segment *segment;
    int err = sl_transfer_segment_create(transfer, name, timeout_ms, &segment);
    if (err != 0) {
        return err;
    }
    err = sl_transfer_io_call(segment->home, &segment->call);
    if (err != 0) {
        sl_transfer_segment_free(segment);
        return err;
    }
    *out = segment;
    return sl_transfer_succeed();
}

void sl_transfer_segment_close(struct sl_transfer_segment **segment)
{
    sl_assert(segment != NULL);
    if (*segment != NULL) {
        sl_transfer_segment_prepare_close(*segment);
        segment_close_and_free(*segment);
        *segment = NULL;
    }
}
