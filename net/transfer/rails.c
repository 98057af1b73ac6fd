#include "net/transfer/rails.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/format.h"
#include "core/log.h"
#include "net/transfer/engine.h"

/* How long slices wait for a transport that connects for the first time, before they use the next.
 */
#define START_NS (SL_CLOCK_NS_PER_S)
/* A rail that was lost is used only as a last resort for so long. Otherwise a rail that comes and
 * goes could use up the attempts of a slice. */
#define REST_NS  (SL_CLOCK_NS_PER_S)
/* How long a rail stays closed after a refusal, or after a lane could not be opened. */
#define PAUSE_NS (60 * SL_CLOCK_NS_PER_S)

static bool rails_is_up(const struct sl_transfer_route_rail *rail)
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

/* The first connect is in progress, and no attempt has failed. */
static bool is_starting(const struct sl_transfer_route *route,
                        const struct sl_transfer_route_rail *rail)
{
    bool has_failed = rail->opened_ns == 0 || rail->is_down; /* or not begun */
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
    const struct sl_transfer_device *device = sl_transfer_route_device(route, rail);
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

void sl_transfer_rails_update(struct sl_transfer_route *route, struct sl_transfer_route_rail *rail,
                              const char *reason)
{
    char name[SL_TRANSFER_LANE_NAME_BYTES];
    const bool is_down = !rails_is_up(rail);
    if (rail->opened_ns == 0 || rail->is_down == is_down ||
        (is_down && reason == NULL && is_starting(route, rail))) {
        return;
    }
    rail->is_down = is_down;
    if (is_down) {
        rail->rest_end_ns = sl_reactor_now_ns(route->io->reactor) + REST_NS;
    }
    name_rail(route, rail, name);
    if (route->err != 0) {
        return; /* the log says that the segment is closed */
    }
    if (!is_down) {
        sl_log_info("transfer: rail up: %s", name);
    } else if (reason != NULL) {
        sl_log_warn("transfer: rail down: %s; reconnecting", reason);
    } else {
        sl_log_warn("transfer: rail down: %s: %s; still connecting", name, last_error(rail));
    }
}

/* Lane numbers are unique over all rails and reactors of the engine. Over TCP and DPDK, lanes are
 * spread over the reactors of the peer. */
static int open_lane(struct sl_transfer_route *route, uint32_t rail_index, uint32_t index)
{
    const struct sl_transfer_settings *settings = &route->io->engine->settings;
    const struct sl_transfer_route_rail *rail = &route->rails[rail_index];
    const struct sl_transfer_device *device = sl_transfer_route_device(route, rail);
    const uint32_t first = route->io->index * settings->lanes;
    const struct sl_endpoint endpoint =
        sl_transfer_device_route(device, sl_rail_endpoint(rail->pair, route->endpoints,
                                                          route->endpoint_count, first + index));
    const struct sl_transfer_lane_options options = {
        .events = route->lane_events,
        .ctx = route,
        .io = route->io,
        .transport = device->transport,
        .peer_name = route->name,
        .endpoint = &endpoint,
        .incarnation = route->incarnation,
        .client_id = route->client_id,
        .number = rail_index * settings->reactors.count * settings->lanes + first + index + 1,
        .rail = rail_index,
    };
    return sl_transfer_lane_open(&rail->lanes[index], &options);
}

/* Opens the lanes that are closed, unless the rail is paused. */
static void open_rail(struct sl_transfer_route *route, uint32_t index)
{
    struct sl_transfer_route_rail *rail = &route->rails[index];
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    if (now_ns < rail->pause_end_ns || sl_transfer_route_device(route, rail)->transport == NULL) {
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

bool sl_transfer_rails_carry_frames(const struct sl_transfer_route_rail *rail)
{
    return rail->pair->scheme != SL_ENDPOINT_RDMA;
}

uint32_t sl_transfer_rails_usable(struct sl_transfer_route *route, bool needs_frames,
                                  bool *connects)
{
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    uint32_t usable = 0, resting = 0;
    bool starts = false;
    for (uint32_t i = 0; i < route->rail_count; i++) {
        const struct sl_transfer_route_rail *rail = &route->rails[i];
        if (needs_frames && !sl_transfer_rails_carry_frames(rail)) {
            continue;
        }
        if (i > 0 && rail->pair->scheme != rail[-1].pair->scheme && (usable != 0 || starts)) {
            break;
        }
        open_rail(route, i);
        const uint32_t up = rails_is_up(rail) ? 1U << i : 0;
        if (now_ns < rail->rest_end_ns) {
            resting |= up;
        } else {
            usable |= up;
        }
        starts = starts || is_starting(route, rail);
    }
    *connects = *connects || (starts && usable == 0);
    return usable != 0 ? usable : resting;
}

void sl_transfer_rails_close(struct sl_transfer_route *route)
{
    for (uint32_t i = 0; i < route->lane_count; i++) {
        sl_transfer_lane_close(&route->lanes[i]);
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        route->rails[i].opened_ns = 0;
    }
}

int sl_transfer_rails_create(struct sl_transfer_route *route, const struct sl_endpoint *endpoints,
                             uint32_t endpoint_count, const struct sl_rail *rails,
                             uint32_t rail_count)
{
    const uint32_t lanes = route->io->engine->settings.lanes;
    if (route->rail_count > 0) {
        return 0;
    }
    route->rails = calloc(rail_count, sizeof *route->rails);
    route->lanes = calloc((size_t)rail_count * lanes, sizeof *route->lanes);
    if (route->rails == NULL || route->lanes == NULL) {
        free(route->rails);
        free(route->lanes);
        route->rails = NULL;
        route->lanes = NULL;
        return SL_ERR_NO_MEMORY;
    }
    route->endpoints = endpoints;
    route->endpoint_count = endpoint_count;
    route->pairs = rails;
    route->rail_count = rail_count;
    for (uint32_t i = 0; i < rail_count; i++) {
        struct sl_transfer_route_rail *rail = &route->rails[i];
        rail->pair = &rails[i];
        rail->lanes = &route->lanes[route->lane_count];
        /* Each connection of shared memory maps the peer's memory: one is enough. */
        rail->lane_count = rails[i].scheme == SL_ENDPOINT_SHM ? 1 : lanes;
        route->lane_count += rail->lane_count;
    }
    return 0;
}

bool sl_transfer_rails_refused(struct sl_transfer_route *route, const struct sl_transfer_lane *lane,
                               const char *reason)
{
    const uint64_t now_ns = sl_reactor_now_ns(route->io->reactor);
    bool is_left = false;
    route->rails[lane->rail].pause_end_ns = now_ns + PAUSE_NS;
    sl_transfer_rails_update(route, &route->rails[lane->rail], reason);
    for (uint32_t i = 0; i < route->lane_count; i++) {
        is_left = is_left || route->lanes[i].session != NULL;
    }
    for (uint32_t i = 0; i < route->rail_count; i++) {
        const struct sl_transfer_route_rail *rail = &route->rails[i];
        is_left = is_left || (rail->pause_end_ns <= now_ns &&
                              sl_transfer_route_device(route, rail)->transport != NULL);
    }
    return is_left;
}

/* Reports */

void sl_transfer_rails_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes)
{
    bool owes_writes = sl_transfer_route_is_fencing(route);
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
            (void)sl_format_add(text, text_bytes, "; ", "%s: %s", name, error);
        }
        if (unanswered > 0) {
            (void)sl_format_add(text, text_bytes, "; ", "%s: %u unanswered", name, unanswered);
        }
    }
    if (owes_writes) {
        (void)sl_format_add(text, text_bytes, "; ", "WRITEs may still be applied");
    }
}

void sl_transfer_rails_report(const struct sl_transfer_route *route, struct sl_transfer_rail *rails)
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
