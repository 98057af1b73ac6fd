#include "transfer/route.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "transfer/engine.h"

/* A lane gets up to this much before another one gets the next slices: enough for few frames,
 * little enough for lanes to share a batch. */
#define GROUP_BYTES (4U << 20)

/* How long slices wait for a scheme that connects for the first time, before they take the next. */
#define START_NS    (SL_CLOCK_NS_PER_S)
/* After a refusal. */
#define PAUSE_NS    (60 * SL_CLOCK_NS_PER_S)
/* How long a small request counts as in use. */
#define SMALL_NS    (SL_CLOCK_NS_PER_S)

static const struct sl_transfer_lane_events lane_events;

/* Requests */

int sl_transfer_route_resolve(const struct sl_transfer_route *route,
                              const struct sl_transfer_region *local, struct sl_transfer_item *item,
                              const char **text)
{
    if (route->err != 0) {
        *text = route->reason;
        return route->err;
    }
    const struct sl_transfer_remote_buffer *buffer =
        sl_transfer_remote_find(route->remote, item->remote);
    const uint64_t offset = buffer != NULL ? item->remote - buffer->address : 0;
    if (buffer == NULL || offset >= buffer->bytes || item->bytes > buffer->bytes - offset) {
        *text = "the peer has not registered this memory";
        return SL_ERR_INVALID;
    }
    const unsigned wanted =
        item->op == SL_TRANSFER_READ ? SL_TRANSFER_PEERS_READ : SL_TRANSFER_PEERS_WRITE;
    if ((buffer->access & wanted) == 0) {
        *text = item->op == SL_TRANSFER_READ ? "the peer's memory is not registered for reading"
                                             : "the peer's memory is not registered for writing";
        return SL_ERR_INVALID;
    }
    item->key = buffer->key;
    item->offset = offset;
    const uint32_t near = sl_rail_near(route->pairs, route->rail_count, local->preferred);
    const uint32_t both = near & buffer->near;
    item->near = both != 0 ? both : near != 0 ? near : buffer->near;
    return 0;
}

/* Rails */

static const struct sl_transfer_device *device_of(const struct sl_transfer_route *route,
                                                  const struct sl_transfer_route_rail *rail)
{
    return &route->io->devices[rail->pair->device];
}

static bool is_up(const struct sl_transfer_route_rail *rail)
{
    for (uint32_t i = 0; i < rail->lane_count; i++) {
        if (rail->lanes[i].is_open) {
            return true;
        }
    }
    return false;
}

/* This host lacks the device or its address. */
static bool is_gone(const struct sl_transfer_route_rail *rail)
{
    int err = 0;
    for (uint32_t i = 0; i < rail->lane_count && err == 0; i++) {
        err = rail->lanes[i].session != NULL ? sl_session_local_err(rail->lanes[i].session) : 0;
    }
    return err == SL_ERR_NOT_FOUND || err == SL_ERR_UNSUPPORTED;
}

static uint32_t count_in_flight(const struct sl_transfer_route_rail *rail)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rail->lane_count; i++) {
        count += rail->lanes[i].in_flight_count;
    }
    return count;
}

/* It connects for the first time, and no attempt has failed. */
static bool is_starting(const struct sl_transfer_route *route,
                        const struct sl_transfer_route_rail *rail)
{
    bool has_failed = rail->opened_ns == 0 || rail->is_down;
    for (uint32_t i = 0; i < rail->lane_count; i++) {
        has_failed = has_failed || sl_transfer_lane_has_failed(&rail->lanes[i]);
    }
    return !has_failed && sl_reactor_now_ns(route->io->reactor) - rail->opened_ns < START_NS;
}

/* "127.0.0.1:12345 over tcp://127.0.0.1:4242 from 127.0.0.1" */
static void name_rail(const struct sl_transfer_route *route,
                      const struct sl_transfer_route_rail *rail,
                      char text[SL_TRANSFER_LANE_NAME_BYTES])
{
    const struct sl_transfer_device *device = device_of(route, rail);
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&route->endpoints[rail->pair->remote], endpoint, sizeof endpoint);
    (void)snprintf(text, SL_TRANSFER_LANE_NAME_BYTES, "%s over %s%s%.60s", route->name, endpoint,
                   device->is_bound ? " from " : "", device->is_bound ? device->endpoint.host : "");
}

static const char *last_error(const struct sl_transfer_route_rail *rail)
{
    const char *error = "";
    for (uint32_t i = 0; i < rail->lane_count && error[0] == '\0'; i++) {
        error = rail->lanes[i].is_open ? "" : sl_transfer_lane_last_error(&rail->lanes[i]);
    }
    return error;
}

/* Logs a change of state. reason: of the last lane's end; NULL: none has ended now. */
static void look_at_rail(struct sl_transfer_route *route, struct sl_transfer_route_rail *rail,
                         const char *reason)
{
    char name[SL_TRANSFER_LANE_NAME_BYTES];
    const bool is_down = !is_up(rail);
    if (rail->opened_ns == 0 || rail->is_down == is_down ||
        (is_down && reason == NULL && is_starting(route, rail))) {
        return;
    }
    rail->is_down = is_down;
    name_rail(route, rail, name);
    if (!is_down) {
        sl_log_info("transfer: rail up: %s", name);
    } else if (reason != NULL) {
        sl_log_warn("transfer: rail down: %s; reconnecting", reason);
    } else {
        sl_log_warn("transfer: rail down: %s: %s; still connecting", name, last_error(rail));
    }
}

/* Lanes of all rails and reactors of the engine have different numbers, and are spread over the
 * reactors of the peer. */
static int open_lane(struct sl_transfer_route *route, uint32_t rail_index, uint32_t index)
{
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    const struct sl_transfer_route_rail *rail = &route->rails[rail_index];
    const struct sl_transfer_device *device = device_of(route, rail);
    const uint32_t first = route->io->index * settings->lanes;
    const struct sl_endpoint endpoint =
        sl_transfer_device_route(device, sl_rail_endpoint(rail->pair, route->endpoints,
                                                          route->endpoint_count, first + index));
    const struct sl_transfer_lane_options options = {
        .events = &lane_events,
        .ctx = route,
        .io = route->io,
        .transport = device->transport,
        .peer_name = route->name,
        .endpoint = &endpoint,
        .incarnation = route->incarnation,
        .client_id = route->client_id,
        .number = rail_index * settings->reactor_count * settings->lanes + first + index + 1,
        .rail = rail_index,
    };
    return sl_transfer_lane_open(&rail->lanes[index], &options);
}

/* No effect on lanes that are open, or were refused a short time ago. */
static void open_rail(struct sl_transfer_route *route, uint32_t index)
{
    struct sl_transfer_route_rail *rail = &route->rails[index];
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    if (now_ns < rail->pause_end_ns || device_of(route, rail)->transport == NULL) {
        return;
    }
    if (rail->opened_ns == 0) {
        rail->opened_ns = now_ns;
    }
    for (uint32_t i = 0; i < rail->lane_count; i++) {
        if (rail->lanes[i].session == NULL && open_lane(route, index, i) != 0) {
            rail->pause_end_ns = now_ns + PAUSE_NS;
        }
    }
}

/* Frames over RDMA would need memory that is registered there, as one-sided operations do. */
static bool carries_frames(const struct sl_transfer_route_rail *rail)
{
    return rail->pair->scheme != SL_ENDPOINT_RDMA;
}

/* Returns the rails that carry slices now, as bits: those that are up of the first scheme that has
 * such. Opens the rails that it looks at. *connects: set if a scheme has none yet. */
static uint32_t usable_rails(struct sl_transfer_route *route, bool needs_frames, bool *connects)
{
    uint32_t usable = 0;
    bool starts = false;
    for (uint32_t i = 0; i < route->rail_count; i++) {
        const struct sl_transfer_route_rail *rail = &route->rails[i];
        if (needs_frames && !carries_frames(rail)) {
            continue;
        }
        if (i > 0 && rail->pair->scheme != rail[-1].pair->scheme && (usable != 0 || starts)) {
            break;
        }
        open_rail(route, i);
        usable |= is_up(rail) ? 1U << i : 0;
        starts = starts || is_starting(route, rail);
    }
    *connects = *connects || (starts && usable == 0);
    return usable;
}

/* The next part opens them again. */
static void close_rails(struct sl_transfer_route *route)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        sl_transfer_lane_close(&route->lanes[i]);
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        route->rails[i].opened_ns = 0;
    }
}

/* Sending */

/* Where small requests are in use, the first lane of a rail is kept short while another one is
 * open: it has one slice of a large request in flight, so that small requests, which it takes
 * before their turn, do not wait for more. Without them it would cost 10 % of the processor's time.
 */
static bool is_kept_short(const struct sl_transfer_route *route,
                          const struct sl_transfer_lane *lane)
{
    const struct sl_transfer_route_rail *rail = &route->rails[lane->rail];
    bool has_other = false;
    if (sl_reactor_now_ns(route->io->reactor) > route->small_ns + SMALL_NS) {
        return false;
    }
    for (uint32_t i = 1; i < rail->lane_count && lane == rail->lanes; i++) {
        has_other = has_other || rail->lanes[i].is_open;
    }
    return has_other;
}

/* Whether the part's next slice may go over the rail: of the usable rails, those near its memory
 * come first. */
static bool may_use(const struct sl_transfer_route *route, struct sl_transfer_part *part,
                    uint32_t rail)
{
    const struct sl_transfer_item *item = sl_transfer_part_peek(part);
    const uint32_t usable = route->usable[part->needs_frames];
    const uint32_t near = item != NULL ? usable & item->near : 0;
    return ((near != 0 ? near : usable) >> rail & 1) != 0;
}

/* The part whose turn it is; NULL: none. more_bytes: that the lane gets already. A lane without
 * free slices sends again what others have lost. */
static struct sl_transfer_part *next_part(const struct sl_transfer_route *route,
                                          const struct sl_transfer_lane *lane, uint64_t more_bytes)
{
    const bool is_busy = lane->in_flight_bytes + more_bytes > 0;
    const bool wants_small = is_busy && is_kept_short(route, lane);
    SL_LIST_FOREACH (link, &route->schedule.turns) {
        struct sl_transfer_part *part = SL_CONTAINER_OF(link, struct sl_transfer_part, turn.link);
        if ((part->is_small || !wants_small) && may_use(route, part, lane->rail) &&
            (!sl_list_empty(&lane->free) || !sl_list_empty(&part->again))) {
            return part;
        }
    }
    return NULL;
}

/* The lane with room that would be done with its slices first; NULL: none. */
static struct sl_transfer_lane *choose_lane(struct sl_transfer_route *route)
{
    const uint32_t slice_bytes = route->schedule.turn_bytes;
    struct sl_transfer_lane *best = NULL;
    double best_s = 0;
    for (uint32_t i = 0; i < route->lane_count; i++) {
        struct sl_transfer_lane *lane = &route->lanes[i];
        if (sl_transfer_lane_has_room(lane, slice_bytes, 0, 0) &&
            next_part(route, lane, 0) != NULL) {
            const double s = (double)(lane->in_flight_bytes + slice_bytes) /
                             route->rails[lane->rail].rate.bytes_per_s;
            if (best == NULL || s < best_s) {
                best = lane;
                best_s = s;
            }
        }
    }
    return best;
}

static uint32_t budget_us(const struct sl_transfer_route *route, uint64_t deadline_ns)
{
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    const uint64_t us = deadline_ns > now_ns ? (deadline_ns - now_ns) / SL_CLOCK_NS_PER_US : 0;
    return us == 0 ? 1 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* Removes a part that is over and reports it. */
static void end_if_over(struct sl_transfer_part *part)
{
    if (sl_list_linked(&part->link) && sl_transfer_part_is_over(part)) {
        sl_transfer_schedule_remove(&part->turn);
        sl_list_remove(&part->link);
        part->over(part);
    }
}

/* A device that accesses memory by itself needs to know the local memory too. */
static bool knows_local(const struct sl_transfer_route *route,
                        const struct sl_transfer_route_rail *rail, const struct sl_rma_slice *slice)
{
    if ((device_of(route, rail)->transport->ops->capabilities & SL_TRANSPORT_REGISTERS) == 0) {
        return true;
    }
    const struct sl_transfer_region *region =
        sl_transfer_table_at(route->io->table, slice->local, slice->bytes);
    return region != NULL && region->offers[rail->pair->device].is_added;
}

/* Names the slice's remote memory for a one-sided operation on the lane; NULL: it goes as frames.
 */
static const struct sl_transport_rma_token *find_token(const struct sl_transfer_route *route,
                                                       const struct sl_transfer_lane *lane,
                                                       const struct sl_transfer_slice *slice)
{
    const struct sl_transfer_route_rail *rail = &route->rails[lane->rail];
    if (!device_of(route, rail)->is_one_sided || slice->needs_frames ||
        !knows_local(route, rail, &slice->rma)) {
        return NULL;
    }
    const struct sl_transfer_remote_buffer *buffer =
        sl_transfer_remote_find(route->remote, slice->part->items[slice->item].remote);
    return buffer != NULL && buffer->key == slice->rma.key
               ? sl_transfer_remote_token(buffer, rail->pair->remote)
               : NULL;
}

/* Slices that are sent together. */
struct group {
    struct sl_rma_slice *slices[SL_TRANSFER_LANE_GROUP_COUNT];
    const struct sl_transport_rma_token *tokens[SL_TRANSFER_LANE_GROUP_COUNT]; /* of posts */
    uint32_t count;
};

struct sending {
    struct group frames, posts;
    uint64_t bytes, deadline_ns;
    bool is_limited; /* bytes_per_s_max allows no more */
};

/* Takes slices from the parts, in their turns, as far as the lane has room. */
static void gather(struct sl_transfer_route *route, struct sl_transfer_lane *lane,
                   struct sending *sending)
{
    const uint32_t slice_bytes = route->schedule.turn_bytes;
    struct sl_transfer_part *part;
    uint32_t count = 0;
    while (count < SL_TRANSFER_LANE_GROUP_COUNT && sending->bytes < GROUP_BYTES &&
           sl_transfer_lane_has_room(lane, slice_bytes, count, sending->bytes) &&
           (part = next_part(route, lane, sending->bytes)) != NULL) {
        struct sl_transfer_slice *slice = sl_transfer_part_next(part, slice_bytes, &lane->free);
        if (slice == NULL) {
            sl_transfer_schedule_remove(&part->turn);
            end_if_over(part);
            continue;
        }
        const struct sl_transport_rma_token *token = find_token(route, lane, slice);
        if (token == NULL && !carries_frames(&route->rails[lane->rail])) {
            sl_transfer_part_return(part, slice);
            part->needs_frames = true;
            sl_transfer_io_wake(route->io, &route->work);
            continue;
        }
        if (slice->rma.op == SL_RMA_WRITE &&
            !sl_transfer_io_may_send(route->io, slice->rma.bytes)) {
            sl_transfer_part_return(part, slice);
            sending->is_limited = true;
            return;
        }
        struct group *group = token != NULL ? &sending->posts : &sending->frames;
        group->tokens[group->count] = token;
        group->slices[group->count++] = &slice->rma;
        count++;
        sending->bytes += slice->rma.bytes;
        sl_transfer_schedule_spend(&route->schedule, &part->turn, slice->rma.bytes);
        if (part->deadline_ns > sending->deadline_ns) {
            sending->deadline_ns = part->deadline_ns;
        }
    }
}

/* Takes back what the lane did not take. */
static void return_rest(struct sl_transfer_route *route, const struct group *group, uint32_t taken)
{
    for (uint32_t i = group->count; i > taken; i--) {
        struct sl_transfer_slice *slice = sl_transfer_lane_slice(group->slices[i - 1]);
        sl_transfer_part_return(slice->part, slice);
        sl_transfer_schedule_add(&route->schedule, &slice->part->turn);
    }
}

/* Gives the lane its next slices. False: it took fewer, or bytes_per_s_max is reached. */
static bool fill(struct sl_transfer_route *route, struct sl_transfer_lane *lane)
{
    struct sending sending;
    sending.frames.count = sending.posts.count = 0;
    sending.bytes = sending.deadline_ns = 0;
    sending.is_limited = false;
    struct sl_transfer_route_rail *rail = &route->rails[lane->rail];
    const bool was_idle = count_in_flight(rail) == 0;
    uint32_t posted = 0, sent = 0;
    gather(route, lane, &sending);
    if (sending.posts.count > 0) {
        posted = sl_transfer_lane_post(lane, sending.posts.slices, sending.posts.tokens,
                                       sending.posts.count);
    }
    if (sending.frames.count > 0) {
        sent = sl_transfer_lane_send(lane, sending.frames.slices, sending.frames.count,
                                     budget_us(route, sending.deadline_ns));
    }
    return_rest(route, &sending.posts, posted);
    return_rest(route, &sending.frames, sent);
    if (was_idle) {
        sl_rail_rate_begin(&rail->rate, sl_reactor_now_ns(route->io->reactor));
    }
    return posted == sending.posts.count && sent == sending.frames.count && !sending.is_limited;
}

/* The counter is raised before a batch ends whose WRITEs may still be applied: whoever submits the
 * next batch, to whichever reactor, has seen that end. */
static bool is_fencing(const struct sl_transfer_route *route)
{
    return atomic_load_explicit(route->fences, memory_order_acquire) > 0;
}

/* True: rails connect for the first time, for which slices wait. */
static bool find_usable(struct sl_transfer_route *route)
{
    bool is_wanted[2] = {false, false}, connects = false;
    SL_LIST_FOREACH (link, &route->schedule.turns) {
        is_wanted[SL_CONTAINER_OF(link, struct sl_transfer_part, turn.link)->needs_frames] = true;
    }
    for (uint32_t i = 0; i < 2; i++) {
        route->usable[i] = is_wanted[i] ? usable_rails(route, i == 1, &connects) : 0;
    }
    return connects;
}

static bool pump(struct sl_transfer_work *work)
{
    struct sl_transfer_route *route = SL_CONTAINER_OF(work, struct sl_transfer_route, work);
    struct sl_transfer_lane *lane;
    bool waits = false;
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (route->lanes[i].is_open && route->lanes[i].rma.unsent != NULL) {
            sl_rma_initiator_pump(&route->lanes[i].rma);
        }
    }
    const bool connects = find_usable(route);
    while (!waits && !is_fencing(route) && (lane = choose_lane(route)) != NULL) {
        waits = !fill(route, lane);
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        waits = waits || (route->lanes[i].is_open && route->lanes[i].rma.unsent != NULL);
    }
    return waits || connects;
}

/* Closes lanes that were not used for long. A lane whose peer answers nothing, though slices are in
 * flight, is broken. */
static void look_for_stalls(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_route *route = SL_CONTAINER_OF(timer, struct sl_transfer_route, stall);
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    const uint64_t stall_ns = settings->stall_ms * SL_CLOCK_NS_PER_MS;
    if (!sl_list_empty(&route->parts)) {
        route->used_ns = now_ns;
    } else if (now_ns - route->used_ns >= settings->idle_ns) {
        close_rails(route);
        return;
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (now_ns > stall_ns && sl_transfer_lane_is_stalled(&route->lanes[i], now_ns - stall_ns)) {
            char why[64];
            (void)snprintf(why, sizeof why, "it has answered nothing for %u ms",
                           settings->stall_ms);
            sl_transfer_lane_break(&route->lanes[i], why);
        }
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        look_at_rail(route, &route->rails[i], NULL);
    }
    sl_reactor_arm(route->io->reactor, timer, stall_ns / 4 + 1);
}

/* Events of lanes */

static void ready(void *ctx, struct sl_transfer_lane *lane)
{
    struct sl_transfer_route *route = ctx;
    look_at_rail(route, &route->rails[lane->rail], NULL);
    sl_transfer_io_wake(route->io, &route->work);
}

static void lost(void *ctx, struct sl_transfer_lane *lane, const char *reason)
{
    struct sl_transfer_route *route = ctx;
    look_at_rail(route, &route->rails[lane->rail], reason);
    if (sl_transfer_lane_owes_writes(lane)) {
        route->fence(route, lane->number, lane->epoch);
    }
}

/* What a lost connection has not answered is sent again; WRITEs only behind a fence. What a
 * one-sided operation cannot move goes as frames: then the target says what is wrong with it. */
static bool may_retry(const struct sl_transfer_route *route, const struct sl_transfer_lane *lane,
                      struct sl_transfer_slice *slice)
{
    if (lane->is_open) {
        slice->needs_frames = slice->is_posted;
        return slice->is_posted && !slice->part->is_stopped;
    }
    return slice->attempts++ <= route->rail_count && !slice->part->is_stopped;
}

static void fail_slice(const struct sl_transfer_route *route, const struct sl_transfer_lane *lane,
                       struct sl_transfer_slice *slice, int err, const char *text)
{
    char cause[SL_TRANSFER_REASON_BYTES], rails[SL_TRANSFER_REASON_BYTES - 64];
    if (lane->is_open || slice->part->is_stopped) {
        (void)snprintf(cause, sizeof cause, "%.280s: %.220s", lane->name, text);
    } else {
        sl_transfer_route_describe(route, rails, sizeof rails);
        (void)snprintf(cause, sizeof cause, "its lane was lost %u times: %s", slice->attempts,
                       rails);
    }
    sl_transfer_part_done(slice->part, slice, err,
                          sl_transfer_part_cause(slice->part->causes, cause));
}

static void done(void *ctx, struct sl_transfer_lane *lane, struct sl_transfer_slice *slice, int err,
                 const char *text)
{
    struct sl_transfer_route *route = ctx;
    struct sl_transfer_part *part = slice->part;
    if (err != 0 && !lane->is_open &&
        !sl_transfer_table_is_mapped(slice->rma.local, slice->rma.bytes)) {
        sl_transfer_part_done(
            part, slice, SL_ERR_INVALID,
            sl_transfer_part_cause(part->causes, "the local memory has been unmapped"));
        end_if_over(part);
    } else if (err != 0 && may_retry(route, lane, slice)) {
        sl_transfer_part_return(part, slice);
        sl_transfer_schedule_add(&route->schedule, &part->turn);
    } else if (err != 0) {
        fail_slice(route, lane, slice, err, text);
        end_if_over(part);
    } else {
        sl_rail_rate_add(&route->rails[lane->rail].rate, slice->rma.bytes,
                         sl_reactor_now_ns(route->io->reactor));
        sl_transfer_part_done(part, slice, 0, 0);
        end_if_over(part);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

/* Without any rail that may be opened, the peer is gone: it was restarted, or denies access. */
static void refused(void *ctx, struct sl_transfer_lane *lane, int err, const char *text)
{
    struct sl_transfer_route *route = ctx;
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    bool is_refused = true;
    if (err == SL_ERR_CANCELLED) {
        return;
    }
    route->rails[lane->rail].pause_end_ns = now_ns + PAUSE_NS;
    look_at_rail(route, &route->rails[lane->rail], text);
    for (uint32_t i = 0; i < route->lane_count; i++) {
        is_refused = is_refused && route->lanes[i].session == NULL;
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        is_refused = is_refused && (route->rails[i].pause_end_ns > now_ns ||
                                    device_of(route, &route->rails[i])->transport == NULL);
    }
    if (is_refused) {
        sl_transfer_route_fail(route, SL_ERR_CLOSED, text);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

static const struct sl_transfer_lane_events lane_events = {
    .ready = ready,
    .lost = lost,
    .done = done,
    .refused = refused,
};

/* Parts */

void sl_transfer_route_add(struct sl_transfer_route *route, struct sl_transfer_part *part)
{
    part->route = route;
    if (part->is_small) {
        route->small_ns = sl_reactor_now_ns(route->io->reactor);
    }
    sl_list_append(&route->parts, &part->link);
    sl_transfer_schedule_add(&route->schedule, &part->turn);
    if (!sl_timer_armed(&route->stall)) {
        route->used_ns = sl_reactor_now_ns(route->io->reactor);
        look_for_stalls(&route->stall, route->used_ns);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

bool sl_transfer_route_stop(struct sl_transfer_route *route, struct sl_transfer_part *part)
{
    sl_transfer_part_stop(part);
    const bool is_over = sl_transfer_part_is_over(part);
    if (is_over) {
        sl_list_remove(&part->link);
    }
    return is_over;
}

void sl_transfer_route_break(struct sl_transfer_route *route, const struct sl_transfer_part *part,
                             const char *why)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (sl_transfer_lane_carries(&route->lanes[i], part)) {
            sl_transfer_lane_break(&route->lanes[i], why);
        }
    }
}

void sl_transfer_route_fail(struct sl_transfer_route *route, int err, const char *reason)
{
    if (route->err != 0) {
        return;
    }
    route->err = err;
    (void)snprintf(route->reason, sizeof route->reason, "%s", reason);
    SL_LIST_FOREACH (link, &route->parts) {
        struct sl_transfer_part *part = SL_CONTAINER_OF(link, struct sl_transfer_part, link);
        sl_transfer_part_fail(part, err, SL_TRANSFER_FAILED,
                              sl_transfer_part_cause(part->causes, reason));
        sl_transfer_part_stop(part);
        end_if_over(part);
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (route->lanes[i].in_flight_count > 0) {
            sl_transfer_lane_break(&route->lanes[i], reason);
        }
    }
}

/* Start and end */

void sl_transfer_route_init(struct sl_transfer_route *route, struct sl_transfer_io *io,
                            const char *name)
{
    route->io = io;
    route->name = name;
    route->work.run = pump;
    route->stall.run = look_for_stalls;
    sl_list_init(&route->parts);
    sl_transfer_schedule_init(&route->schedule, io->engine->settings.slice_bytes);
}

int sl_transfer_route_set_rails(struct sl_transfer_route *route,
                                const struct sl_endpoint *endpoints, uint32_t endpoint_count,
                                const struct sl_rail *rails, uint32_t rail_count)
{
    const uint32_t lanes = route->io->engine->settings.lanes;
    if (route->rail_count > 0) {
        return 0;
    }
    route->rails = calloc(rail_count, sizeof *route->rails);
    route->lanes = calloc((size_t)rail_count * lanes, sizeof *route->lanes);
    if (route->rails == NULL || route->lanes == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    route->endpoints = endpoints;
    route->endpoint_count = endpoint_count;
    route->pairs = rails;
    route->rail_count = rail_count;
    for (uint32_t i = 0; i < rail_count; i++) {
        struct sl_transfer_route_rail *rail = &route->rails[i];
        rail->pair = &rails[i];
        sl_rail_rate_init(&rail->rate);
        rail->lanes = &route->lanes[route->lane_count];
        /* Each connection of shared memory maps the peer's memory: one is enough. */
        rail->lane_count = rails[i].scheme == SL_ENDPOINT_SHM ? 1 : lanes;
        route->lane_count += rail->lane_count;
    }
    return 0;
}

void sl_transfer_route_set_remote(struct sl_transfer_route *route,
                                  struct sl_transfer_remote *remote)
{
    free(route->remote);
    route->remote = remote;
}

void sl_transfer_route_fini(struct sl_transfer_route *route)
{
    sl_assert(sl_list_empty(&route->parts));
    close_rails(route);
    free(route->rails);
    free(route->lanes);
    sl_list_remove(&route->work.link);
    sl_reactor_disarm(route->io->reactor, &route->stall);
    sl_transfer_route_set_remote(route, NULL);
}

/* Reports */

static void append(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a clause. */
static void append(char *text, size_t text_bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    if (used > 0 && used + 3 < text_bytes) {
        text[used++] = ';';
        text[used++] = ' ';
    }
    (void)vsnprintf(text + used, text_bytes - used, format, args);
    va_end(args);
}

void sl_transfer_route_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes)
{
    bool owes_writes = is_fencing(route);
    text[0] = '\0';
    for (uint32_t i = 0; i < route->rail_count; i++) {
        const struct sl_transfer_route_rail *rail = &route->rails[i];
        char name[SL_TRANSFER_LANE_NAME_BYTES];
        const uint32_t unanswered = count_in_flight(rail);
        for (uint32_t k = 0; k < rail->lane_count; k++) {
            owes_writes = owes_writes || sl_transfer_lane_owes_writes(&rail->lanes[k]);
        }
        const char *error = rail->opened_ns != 0 ? last_error(rail) : "";
        name_rail(route, rail, name);
        if (error[0] != '\0') {
            append(text, text_bytes, "%s: %s", name, error);
        }
        if (unanswered > 0) {
            append(text, text_bytes, "%s: %u unanswered", name, unanswered);
        }
    }
    if (owes_writes) {
        append(text, text_bytes, "WRITEs may still be applied");
    }
}

void sl_transfer_route_report(const struct sl_transfer_route *route, struct sl_transfer_rail *rails)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        const struct sl_transfer_lane *lane = &route->lanes[i];
        struct sl_transfer_rail *out = &rails[lane->rail];
        out->bytes_read += lane->bytes_read;
        out->bytes_written += lane->bytes_written;
        out->failures += lane->failures;
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        const struct sl_transfer_route_rail *rail = &route->rails[i];
        const enum sl_transfer_rail_state state = !rail->is_down  ? SL_TRANSFER_RAIL_UP
                                                  : is_gone(rail) ? SL_TRANSFER_RAIL_GONE
                                                                  : SL_TRANSFER_RAIL_PAUSED;
        rails[i].state = state > rails[i].state ? state : rails[i].state;
    }
}
