#include "net/transfer/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/transfer/engine.h"
#include "net/transfer/rails.h"

/* A lane gets up to this much before another one gets the next slices: enough for few frames,
 * little enough for lanes to share a batch. */
#define GROUP_BYTES        (4U << 20)
/* With several rails, so that they share short batches too. */
#define GROUP_BYTES_SHARED (256U << 10)

/* How long a small request counts as in use. */
#define SMALL_NS           (SL_CLOCK_NS_PER_S)

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

/* Sending */

/* While small requests are in use, the first lane of a rail carries nothing else if another lane is
 * open: then they wait neither behind large slices, nor for long system calls of the transport,
 * which moves less at once while a connection has short frames only. It costs WRITEs up to a
 * quarter of their rate. */
static bool is_for_small(const struct sl_transfer_route *route, const struct sl_transfer_lane *lane)
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

/* The part whose turn it is; NULL: none. A lane without free slices sends again what others have
 * lost. */
static struct sl_transfer_part *next_part(const struct sl_transfer_route *route,
                                          const struct sl_transfer_lane *lane)
{
    const bool wants_small = is_for_small(route, lane);
    SL_LIST_EACH (struct sl_transfer_part, part, turn.link, &route->schedule.turns) {
        if ((part->is_small || !wants_small) && may_use(route, part, lane->rail) &&
            (!sl_list_empty(&lane->free) || !sl_list_empty(&part->again))) {
            return part;
        }
    }
    return NULL;
}

/* The lane of the rail with room that has the least in flight; NULL: none. *bytes: in flight on all
 * of its lanes. */
static struct sl_transfer_lane *choose_lane_of(const struct sl_transfer_route *route,
                                               const struct sl_transfer_route_rail *rail,
                                               uint64_t *bytes)
{
    struct sl_transfer_lane *best = NULL;
    *bytes = 0;
    for (uint32_t i = 0; i < rail->lane_count; i++) {
        struct sl_transfer_lane *lane = &rail->lanes[i];
        *bytes += lane->in_flight_bytes;
        if (sl_transfer_lane_has_room(lane, route->schedule.turn_bytes, 0, 0) &&
            next_part(route, lane) != NULL &&
            (best == NULL || lane->in_flight_bytes < best->in_flight_bytes)) {
            best = lane;
        }
    }
    return best;
}

/* The same of the rail with the least in flight: a faster rail has its slices answered sooner, so
 * it gets more. A rate that was measured would not do: a rail that gets little looks slow. */
static struct sl_transfer_lane *choose_lane(const struct sl_transfer_route *route)
{
    struct sl_transfer_lane *best = NULL;
    uint64_t best_bytes = 0;
    for (uint32_t i = 0; i < route->rail_count; i++) {
        uint64_t bytes;
        struct sl_transfer_lane *lane = choose_lane_of(route, &route->rails[i], &bytes);
        if (lane != NULL && (best == NULL || bytes < best_bytes)) {
            best = lane;
            best_bytes = bytes;
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
    if ((sl_transfer_route_device(route, rail)->transport->ops->capabilities &
         SL_TRANSPORT_REGISTERS) == 0) {
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
    if (!sl_transfer_route_device(route, rail)->is_one_sided || slice->needs_frames ||
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
    const uint32_t usable = route->usable[0] | route->usable[1];
    const uint32_t group_bytes = (usable & (usable - 1)) != 0 ? GROUP_BYTES_SHARED : GROUP_BYTES;
    struct sl_transfer_part *part;
    uint32_t count = 0;
    while (count < SL_TRANSFER_LANE_GROUP_COUNT && sending->bytes < group_bytes &&
           sl_transfer_lane_has_room(lane, slice_bytes, count, sending->bytes) &&
           (part = next_part(route, lane)) != NULL) {
        struct sl_transfer_slice *slice = sl_transfer_part_next(part, slice_bytes, &lane->free);
        if (slice == NULL) {
            sl_transfer_schedule_remove(&part->turn);
            end_if_over(part);
            continue;
        }
        const struct sl_transport_rma_token *token = find_token(route, lane, slice);
        if (token == NULL && !sl_transfer_rails_carry_frames(&route->rails[lane->rail])) {
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
    return posted == sending.posts.count && sent == sending.frames.count && !sending.is_limited;
}

/* True: rails connect for the first time, for which slices wait. */
static bool find_usable(struct sl_transfer_route *route)
{
    bool is_wanted[2] = {false, false}, connects = false;
    SL_LIST_EACH (struct sl_transfer_part, part, turn.link, &route->schedule.turns) {
        is_wanted[part->needs_frames] = true;
    }
    for (uint32_t i = 0; i < 2; i++) {
        route->usable[i] = is_wanted[i] ? sl_transfer_rails_usable(route, i == 1, &connects) : 0;
    }
    return connects;
}

static bool transfer_route_pump(struct sl_transfer_work *work)
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
    while (!waits && !sl_transfer_route_is_fencing(route) && (lane = choose_lane(route)) != NULL) {
        waits = !fill(route, lane);
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        waits = waits || (route->lanes[i].is_open && route->lanes[i].rma.unsent != NULL);
    }
    return waits || connects;
}

/* Closes lanes that were not used for long, and those to a peer that is gone. A lane whose peer
 * answers nothing, though slices are in flight, is broken. */
static void check_lanes(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_route *route = SL_CONTAINER_OF(timer, struct sl_transfer_route, stall);
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    const uint64_t stall_ns = settings->stall_ms * SL_CLOCK_NS_PER_MS;
    if (!sl_list_empty(&route->parts)) {
        route->used_ns = now_ns;
    } else if (route->err != 0 || now_ns - route->used_ns >= settings->idle_ns) {
        sl_transfer_rails_close(route);
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
        sl_transfer_rails_update(route, &route->rails[i], NULL);
    }
    sl_reactor_arm(route->io->reactor, timer, stall_ns / 4 + 1);
}

/* Events of lanes */

static void ready(void *ctx, struct sl_transfer_lane *lane)
{
    struct sl_transfer_route *route = ctx;
    sl_transfer_rails_update(route, &route->rails[lane->rail], NULL);
    sl_transfer_io_wake(route->io, &route->work);
}

static void transfer_route_lost(void *ctx, struct sl_transfer_lane *lane, const char *reason)
{
    struct sl_transfer_route *route = ctx;
    sl_transfer_rails_update(route, &route->rails[lane->rail], reason);
    if (sl_transfer_lane_owes_writes(lane)) {
        route->fence(route, lane->number, lane->epoch);
    }
    sl_transfer_io_wake(route->io, &route->work); /* another rail may be needed now */
}

/* Slices that a lost connection has not answered are sent again; WRITEs only behind a fence. Slices
 * that a one-sided operation cannot move are sent as frames: then the target says what is wrong. */
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
        sl_transfer_rails_describe(route, rails, sizeof rails);
        (void)snprintf(cause, sizeof cause, "lost %u times, at last: %.200s%s%.240s",
                       slice->attempts, text, rails[0] != '\0' ? "; " : "", rails);
    }
    sl_transfer_part_done(slice->part, slice, err,
                          sl_transfer_part_cause(slice->part->causes, cause));
}

static void transfer_route_done(void *ctx, struct sl_transfer_lane *lane,
                                struct sl_transfer_slice *slice, int err, const char *text)
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
        sl_transfer_part_done(part, slice, 0, 0);
        end_if_over(part);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

/* Without any rail that may be opened, the peer is gone: it was restarted, or denies access. */
static void transfer_route_refused(void *ctx, struct sl_transfer_lane *lane, int err,
                                   const char *text)
{
    struct sl_transfer_route *route = ctx;
    if (err != SL_ERR_CANCELLED && !sl_transfer_rails_refused(route, lane, text)) {
        sl_transfer_route_fail(route, SL_ERR_CLOSED, text);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

static const struct sl_transfer_lane_events lane_events = {
    .ready = ready,
    .lost = transfer_route_lost,
    .done = transfer_route_done,
    .refused = transfer_route_refused,
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
        check_lanes(&route->stall, route->used_ns);
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
    SL_LIST_EACH (struct sl_transfer_part, part, link, &route->parts) {
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
    route->work.run = transfer_route_pump;
    route->stall.run = check_lanes;
    route->lane_events = &lane_events;
    sl_list_init(&route->parts);
    sl_transfer_schedule_init(&route->schedule, io->engine->settings.slice_bytes);
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
    sl_transfer_rails_close(route);
    free(route->rails);
    free(route->lanes);
    sl_list_remove(&route->work.link);
    sl_reactor_disarm(route->io->reactor, &route->stall);
    sl_transfer_route_set_remote(route, NULL);
}
