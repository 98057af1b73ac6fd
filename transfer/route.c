#include "transfer/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "transfer/engine.h"

/* A lane gets up to this many slices and bytes before another one gets the next: enough for few
 * frames, little enough for lanes to share a batch. */
#define GROUP_SLICES 128
#define GROUP_BYTES  (4U << 20)

/* How often a slice is sent again because its lane was lost. */
#define ATTEMPTS_MAX 4

static const struct sl_transfer_lane_events lane_events;

/* Requests */

static const struct sl_transfer_remote_buffer *find_buffer(const struct sl_transfer_remote *remote,
                                                           uint64_t address)
{
    uint32_t low = 0, high = remote != NULL ? remote->count : 0;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (remote->buffers[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &remote->buffers[low - 1] : NULL;
}

int sl_transfer_route_resolve(const struct sl_transfer_route *route, struct sl_transfer_item *item,
                              const char **text)
{
    if (route->err != 0) {
        *text = route->reason;
        return route->err;
    }
    const struct sl_transfer_remote_buffer *buffer = find_buffer(route->remote, item->remote);
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
    item->is_mapped = buffer->is_mapped && route->mapped.endpoint != NULL;
    return 0;
}

/* Lanes */

/* Lanes of all reactors of the engine have different numbers, and are spread over the reactors of
 * the peer. */
static int open_lanes(struct sl_transfer_route *route)
{
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    int err = 0;
    if (route->lanes == NULL) {
        route->lanes = calloc(settings->lanes, sizeof *route->lanes);
    }
    if (route->lanes == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; err == 0 && i < settings->lanes; i++) {
        const uint32_t number = route->io->index * settings->lanes + i;
        const struct sl_transfer_lane_options options = {
            .events = &lane_events,
            .ctx = route,
            .io = route->io,
            .peer_name = route->name,
            .endpoint = &route->endpoints[number % route->endpoint_count],
            .incarnation = route->incarnation,
            .client_id = route->client_id,
            .number = number + 1,
        };
        err = sl_transfer_lane_open(&route->lanes[i], &options);
        route->lane_count += err == 0 ? 1 : 0;
    }
    return route->lane_count > 0 ? 0 : err;
}

/* The part whose turn it is; NULL: none. A lost lane has no free slices while they wait in parts to
 * be sent again: then these come first. */
static struct sl_transfer_part *next_part(const struct sl_transfer_route *route,
                                          const struct sl_transfer_lane *lane)
{
    struct sl_transfer_turn *turn = sl_transfer_schedule_first(&route->schedule);
    if (turn == NULL || !sl_list_empty(&lane->free)) {
        return turn == NULL ? NULL : SL_CONTAINER_OF(turn, struct sl_transfer_part, turn);
    }
    SL_LIST_FOREACH (link, &route->parts) {
        struct sl_transfer_part *part = SL_CONTAINER_OF(link, struct sl_transfer_part, link);
        if (!part->is_mapped && !sl_list_empty(&part->again)) {
            return part;
        }
    }
    return NULL;
}

/* The lane with the fewest bytes in flight of those with room for a part; NULL: none. */
static struct sl_transfer_lane *choose_lane(struct sl_transfer_route *route)
{
    struct sl_transfer_lane *best = NULL;
    for (uint32_t i = 0; i < route->lane_count; i++) {
        struct sl_transfer_lane *lane = &route->lanes[i];
        if (sl_transfer_lane_has_room(lane, route->schedule.turn_bytes) &&
            next_part(route, lane) != NULL &&
            (best == NULL || lane->rma.in_flight_bytes < best->rma.in_flight_bytes)) {
            best = lane;
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

/* Slices that are sent together. */
struct group {
    struct sl_rma_slice *slices[GROUP_SLICES];
    uint32_t count;
    uint64_t bytes, deadline_ns;
    bool is_limited; /* bytes_per_s_max allows no more */
};

/* Takes slices from the parts, in their turns, as far as the lane has credit. */
static void gather(struct sl_transfer_route *route, struct sl_transfer_lane *lane,
                   struct group *group)
{
    const uint32_t slice_bytes = route->schedule.turn_bytes;
    struct sl_transfer_part *part;
    while (group->count < GROUP_SLICES && group->count < lane->rma.credit.requests &&
           lane->rma.in_flight_count + group->count < SL_LIMIT_TRANSFER_SLICES &&
           group->bytes < GROUP_BYTES && group->bytes + slice_bytes <= lane->rma.credit.bytes &&
           (part = next_part(route, lane)) != NULL) {
        struct sl_transfer_slice *slice = sl_transfer_part_next(part, slice_bytes, &lane->free);
        if (slice == NULL) {
            sl_transfer_schedule_remove(&part->turn);
            end_if_over(part);
            continue;
        }
        if (slice->rma.op == SL_RMA_WRITE &&
            !sl_transfer_io_may_send(route->io, slice->rma.bytes)) {
            sl_transfer_part_return(part, slice);
            group->is_limited = true;
            return;
        }
        sl_transfer_schedule_spend(&route->schedule, slice->rma.bytes);
        group->slices[group->count++] = &slice->rma;
        group->bytes += slice->rma.bytes;
        if (part->deadline_ns > group->deadline_ns) {
            group->deadline_ns = part->deadline_ns;
        }
    }
}

/* Gives the lane its next slices. False: the outbox has no room, or bytes_per_s_max is reached. */
static bool fill(struct sl_transfer_route *route, struct sl_transfer_lane *lane)
{
    struct group group = {.count = 0};
    gather(route, lane, &group);
    const uint32_t sent = group.count == 0
                              ? 0
                              : sl_rma_initiator_send(&lane->rma, group.slices, group.count,
                                                      budget_us(route, group.deadline_ns));
    for (uint32_t i = group.count; i > sent; i--) {
        struct sl_transfer_slice *slice = sl_transfer_lane_slice(group.slices[i - 1]);
        sl_transfer_part_return(slice->part, slice);
        sl_transfer_schedule_add(&route->schedule, &slice->part->turn);
    }
    return sent == group.count && !group.is_limited;
}

/* The counter is raised before a batch ends whose WRITEs may still be applied: whoever submits the
 * next batch, to whichever reactor, has seen that end. */
static bool is_fencing(const struct sl_transfer_route *route)
{
    return atomic_load_explicit(route->fences, memory_order_acquire) > 0;
}

/* The path through shared memory. What it cannot move, the lanes do; the target then answers what
 * is wrong with a request. */

static void use_lanes(struct sl_transfer_route *route, struct sl_transfer_part *part)
{
    const int err = route->lane_count == 0 ? open_lanes(route) : 0;
    if (err != 0) {
        sl_transfer_part_fail(part, err, SL_TRANSFER_FAILED,
                              sl_transfer_part_cause(part->causes, "no memory for a lane"));
    }
    if (part->is_mapped) {
        part->is_mapped = false;
        sl_transfer_schedule_remove(&part->turn);
    }
    sl_transfer_schedule_add(&route->schedule, &part->turn);
}

static bool use_mapped(struct sl_transfer_route *route, struct sl_transfer_part *part)
{
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    const struct sl_transfer_mapped_options options = {
        .peer_name = route->name,
        .incarnation = route->incarnation,
        .client_id = route->client_id,
        .number = settings->reactor_count * settings->lanes + route->io->index + 1,
    };
    if (!part->is_mapped || !sl_transfer_mapped_open(&route->mapped, &options)) {
        return false;
    }
    sl_transfer_schedule_add(&route->mapped_schedule, &part->turn);
    return true;
}

/* Gives a slice to the path. False: the buffer is gone, or the connection is closing. */
static bool post(struct sl_transfer_route *route, struct sl_transfer_slice *slice)
{
    const struct sl_transfer_item *item = &slice->part->items[slice->item];
    const struct sl_transfer_remote_buffer *buffer = find_buffer(route->remote, item->remote);
    return buffer != NULL && buffer->is_mapped && buffer->key == slice->rma.key &&
           sl_transfer_mapped_post(&route->mapped, slice, &buffer->token);
}

/* False: bytes_per_s_max is reached. */
static bool fill_mapped(struct sl_transfer_route *route)
{
    struct sl_transfer_mapped *mapped = &route->mapped;
    struct sl_transfer_turn *turn;
    while ((turn = sl_transfer_schedule_first(&route->mapped_schedule)) != NULL) {
        struct sl_transfer_part *part = SL_CONTAINER_OF(turn, struct sl_transfer_part, turn);
        if (!sl_transfer_mapped_is_usable(mapped)) {
            use_lanes(route, part);
            continue;
        }
        if (!sl_transfer_mapped_has_room(mapped)) {
            return true;
        }
        struct sl_transfer_slice *slice =
            sl_transfer_part_next(part, route->mapped_schedule.turn_bytes, &mapped->free);
        if (slice == NULL) {
            sl_transfer_schedule_remove(turn);
            end_if_over(part);
        } else if (slice->rma.op == SL_RMA_WRITE &&
                   !sl_transfer_io_may_send(route->io, slice->rma.bytes)) {
            sl_transfer_part_return(part, slice);
            return false;
        } else if (post(route, slice)) {
            sl_transfer_schedule_spend(&route->mapped_schedule, slice->rma.bytes);
        } else {
            sl_transfer_part_return(part, slice);
            use_lanes(route, part);
        }
    }
    return true;
}

static bool pump(struct sl_transfer_work *work)
{
    struct sl_transfer_route *route = SL_CONTAINER_OF(work, struct sl_transfer_route, work);
    struct sl_transfer_lane *lane;
    const bool is_limited = !is_fencing(route) && !fill_mapped(route);
    bool waits = false;
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (route->lanes[i].is_open && route->lanes[i].rma.unsent != NULL) {
            sl_rma_initiator_pump(&route->lanes[i].rma);
        }
    }
    while (!waits && !is_fencing(route) && (lane = choose_lane(route)) != NULL) {
        waits = !fill(route, lane);
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        waits = waits || (route->lanes[i].is_open && route->lanes[i].rma.unsent != NULL);
    }
    return waits || is_limited;
}

/* The next part opens them again. */
static void close_lanes(struct sl_transfer_route *route)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        sl_transfer_lane_close(&route->lanes[i]);
    }
    route->lane_count = 0;
}

/* Closes lanes that were not used for long. A lane whose peer answers nothing, though slices are in
 * flight, is broken. */
static void look_for_stalls(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_route *route = SL_CONTAINER_OF(timer, struct sl_transfer_route, stall);
    const uint64_t stall_ns = route->io->engine->settings.stall_ms * SL_CLOCK_NS_PER_MS;
    if (!sl_list_empty(&route->parts)) {
        route->used_ns = now_ns;
    } else if (now_ns - route->used_ns >= route->io->engine->settings.idle_ns) {
        close_lanes(route);
        sl_transfer_mapped_close(&route->mapped);
        return;
    }
    for (uint32_t i = 0; i < route->lane_count; i++) {
        struct sl_transfer_lane *lane = &route->lanes[i];
        if (lane->rma.in_flight_count > 0 && now_ns - lane->rma.answered_ns > stall_ns) {
            char why[64];
            (void)snprintf(why, sizeof why, "it has answered nothing for %u ms",
                           route->io->engine->settings.stall_ms);
            sl_transfer_lane_break(lane, why);
        }
    }
    if (route->mapped.in_flight_count > 0 && now_ns - route->mapped.answered_ns > stall_ns) {
        sl_transfer_mapped_break(&route->mapped, "it has answered nothing for stall_ms");
    }
    sl_reactor_arm(route->io->reactor, timer, stall_ns / 4 + 1);
}

/* Events of lanes */

static void ready(void *ctx, struct sl_transfer_lane *lane)
{
    struct sl_transfer_route *route = ctx;
    sl_transfer_io_wake(route->io, &route->work);
}

static void broken(void *ctx, struct sl_transfer_lane *lane, uint64_t epoch)
{
    struct sl_transfer_route *route = ctx;
    route->fence(route, lane->number, epoch);
}

/* What a lost connection has not answered is sent again; WRITEs only behind a fence. */
static bool may_retry(const struct sl_transfer_lane *lane, const struct sl_transfer_slice *slice)
{
    return !lane->is_open && !slice->part->is_stopped && slice->attempts < ATTEMPTS_MAX;
}

static void done(void *ctx, struct sl_transfer_lane *lane, struct sl_transfer_slice *slice, int err,
                 const char *text)
{
    struct sl_transfer_route *route = ctx;
    struct sl_transfer_part *part = slice->part;
    if (err != 0 && may_retry(lane, slice)) {
        slice->attempts++;
        sl_transfer_part_return(part, slice);
        sl_transfer_schedule_add(&route->schedule, &part->turn);
    } else {
        char cause[SL_TRANSFER_REASON_BYTES];
        if (err != 0) {
            (void)snprintf(cause, sizeof cause, "%.280s: %.220s", lane->name, text);
        }
        sl_transfer_part_done(part, slice, err,
                              err != 0 ? sl_transfer_part_cause(part->causes, cause) : 0);
        end_if_over(part);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

static void refused(void *ctx, struct sl_transfer_lane *lane, int err, const char *text)
{
    struct sl_transfer_route *route = ctx;
    if (err != SL_ERR_CANCELLED) {
        sl_transfer_route_fail(route, SL_ERR_CLOSED, text);
    }
}

static const struct sl_transfer_lane_events lane_events = {
    .ready = ready,
    .broken = broken,
    .done = done,
    .refused = refused,
};

static void mapped_changed(void *ctx)
{
    struct sl_transfer_route *route = ctx;
    sl_transfer_io_wake(route->io, &route->work);
}

static void mapped_done(void *ctx, struct sl_transfer_slice *slice, int err)
{
    struct sl_transfer_route *route = ctx;
    struct sl_transfer_part *part = slice->part;
    if (err != 0 && !part->is_stopped) {
        sl_transfer_part_return(part, slice);
        use_lanes(route, part);
    } else {
        const uint8_t cause =
            err != 0 ? sl_transfer_part_cause(part->causes, "shared memory of the peer was lost")
                     : 0;
        sl_transfer_part_done(part, slice, err, cause);
        end_if_over(part);
    }
    sl_transfer_io_wake(route->io, &route->work);
}

static const struct sl_transfer_mapped_events mapped_events = {.changed = mapped_changed,
                                                               .done = mapped_done};

/* Parts */

void sl_transfer_route_add(struct sl_transfer_route *route, struct sl_transfer_part *part)
{
    part->route = route;
    sl_list_append(&route->parts, &part->link);
    if (!use_mapped(route, part)) {
        use_lanes(route, part);
    }
    if (!sl_timer_armed(&route->stall)) {
        route->used_ns = sl_reactor_now_ns(route->io->reactor);
        look_for_stalls(&route->stall, sl_reactor_now_ns(route->io->reactor));
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

static bool has_slices_of(const struct sl_list *in_flight, const struct sl_transfer_part *part)
{
    SL_LIST_FOREACH (link, in_flight) {
        if (SL_CONTAINER_OF(link, struct sl_transfer_slice, rma.link)->part == part) {
            return true;
        }
    }
    return false;
}

void sl_transfer_route_break(struct sl_transfer_route *route, const struct sl_transfer_part *part,
                             const char *why)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        if (has_slices_of(&route->lanes[i].rma.in_flight, part)) {
            sl_transfer_lane_break(&route->lanes[i], why);
        }
    }
    if (route->mapped.in_flight_count > 0 && has_slices_of(&route->mapped.in_flight, part)) {
        sl_transfer_mapped_break(&route->mapped, why);
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
        if (route->lanes[i].rma.in_flight_count > 0) {
            sl_transfer_lane_break(&route->lanes[i], reason);
        }
    }
    if (route->mapped.in_flight_count > 0) {
        sl_transfer_mapped_break(&route->mapped, reason);
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
    sl_transfer_schedule_init(&route->mapped_schedule, io->engine->settings.slice_bytes);
    route->mapped = (struct sl_transfer_mapped){.events = &mapped_events, .ctx = route, .io = io};
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
    close_lanes(route);
    sl_transfer_mapped_close(&route->mapped);
    free(route->lanes);
    route->lanes = NULL;
    sl_list_remove(&route->work.link);
    sl_reactor_disarm(route->io->reactor, &route->stall);
    sl_transfer_route_set_remote(route, NULL);
}

void sl_transfer_route_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes)
{
    size_t used = 0;
    bool owes_writes = is_fencing(route);
    text[0] = '\0';
    for (uint32_t i = 0; i < route->lane_count && used + 1 < text_bytes; i++) {
        const struct sl_transfer_lane *lane = &route->lanes[i];
        if (!lane->is_open) {
            (void)snprintf(text + used, text_bytes - used, "%s%s: %s", used > 0 ? "; " : "",
                           lane->name, sl_transfer_lane_last_error(lane));
        } else if (lane->rma.in_flight_count > 0) {
            (void)snprintf(text + used, text_bytes - used, "%s%s: %u unanswered",
                           used > 0 ? "; " : "", lane->name, lane->rma.in_flight_count);
        }
        owes_writes = owes_writes || sl_transfer_lane_owes_writes(lane);
        used = strlen(text);
    }
    if (route->mapped.in_flight_count > 0 && used + 1 < text_bytes) {
        (void)snprintf(text + used, text_bytes - used, "%sshared memory: %u not copied",
                       used > 0 ? "; " : "", route->mapped.in_flight_count);
        used = strlen(text);
    }
    if (owes_writes) {
        (void)snprintf(text + used, text_bytes - used, "%sWRITEs may still be applied",
                       used > 0 ? "; " : "");
    }
}
