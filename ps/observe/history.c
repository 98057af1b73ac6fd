#include "ps/observe/history.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/err.h"

const char *const sl_history_names[SL_HISTORY_SERIES] = {
    [SL_HISTORY_REQUESTS] = "requests_s", [SL_HISTORY_KEYS] = "keys_s",
    [SL_HISTORY_BYTES] = "bytes_s",       [SL_HISTORY_P99_US] = "p99_us",
    [SL_HISTORY_STALENESS] = "staleness", [SL_HISTORY_MEMORY] = "memory",
    [SL_HISTORY_SAMPLES] = "samples_s",   [SL_HISTORY_LOSS] = "loss",
};

const struct sl_history_point sl_history_unknown = {{NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}};

static size_t history_bytes_of(uint32_t step_s)
{
    return SL_HISTORY_SECONDS / step_s * sizeof(struct sl_history_point);
}

static struct sl_history_point *point_at(const struct sl_history_track *track, uint64_t at)
{
    return &track->points[at % track->point_count];
}

static int history_allocate(struct sl_history_track *track, uint32_t step_s)
{
    struct sl_history_point *points = malloc(history_bytes_of(step_s));
    if (points == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    track->points = points;
    track->step_s = step_s;
    track->point_count = SL_HISTORY_SECONDS / step_s;
    track->first = track->newest = 0;
    for (uint32_t i = 0; i < track->point_count; i++) {
        points[i] = sl_history_unknown;
    }
    return 0;
}

/* Peaks stay; of other values the later ones weigh more. */
static void merge(struct sl_history_point *into, const struct sl_history_point *point)
{
    for (int i = 0; i < SL_HISTORY_SERIES; i++) {
        const float a = into->values[i];
        const float b = point->values[i];
        const bool is_peak = i == SL_HISTORY_P99_US || i == SL_HISTORY_STALENESS;
        into->values[i] = isnan(a) ? b : isnan(b) ? a : is_peak ? fmaxf(a, b) : (a + b) / 2;
    }
}

void sl_history_add(struct sl_history_track *track, uint64_t second,
                    const struct sl_history_point *point)
{
    const uint64_t at = second / track->step_s + 1;
    if (at <= track->newest) {
        merge(point_at(track, track->newest), point);
        return;
    }
    const uint64_t gap = track->newest == 0 ? 0 : at - track->newest - 1;
    track->first = track->newest == 0 ? at : track->first;
    for (uint64_t i = 0; i < gap && i < track->point_count; i++) {
        *point_at(track, at - 1 - i) = sl_history_unknown;
    }
    *point_at(track, at) = *point;
    track->newest = at;
}

/* Time of the oldest point that is kept, in steps. */
static uint64_t oldest(const struct sl_history_track *track)
{
    const uint64_t count = track->newest - track->first + 1;
    return count > track->point_count ? track->newest - track->point_count + 1 : track->first;
}

static int coarsen(struct sl_history_track *track)
{
    const struct sl_history_track old = *track;
    int err = history_allocate(track, 2 * old.step_s);
    if (err != 0) {
        return err;
    }
    for (uint64_t at = oldest(&old); at <= old.newest && at > 0; at++) {
        sl_history_add(track, (at - 1) * old.step_s, point_at(&old, at));
    }
    free(old.points);
    return 0;
}

void sl_history_init(struct sl_history *history)
{
    *history = (struct sl_history){.step_s = 1};
    sl_list_init(&history->tracks);
}

void sl_history_fini(struct sl_history *history)
{
    SL_LIST_EACH (struct sl_history_track, track, link, &history->tracks) {
        sl_history_close(history, track);
    }
}

/* Halves the points of all tracks but the first. */
static int make_room(struct sl_history *history)
{
    if (2 * history->step_s > SL_HISTORY_STEP_MAX_S) {
        return SL_ERR_TOO_LARGE;
    }
    SL_LIST_EACH (struct sl_history_track, track, link, &history->tracks) {
        if (&track->link != history->tracks.head.next && track->step_s == history->step_s) {
            const int err = coarsen(track);
            if (err != 0) {
                return err; /* the next call continues with the others */
            }
            history->bytes -=
                history_bytes_of(history->step_s) - history_bytes_of(2 * history->step_s);
        }
    }
    history->step_s *= 2;
    return 0;
}

int sl_history_open(struct sl_history *history, struct sl_history_track *track)
{
    sl_assert(track->points == NULL);
    int err = 0;
    while (err == 0 && history->bytes + history_bytes_of(history->step_s) > SL_HISTORY_BYTES_MAX) {
        err = make_room(history);
    }
    err = err != 0 ? err : history_allocate(track, history->step_s);
    if (err == 0) {
        history->bytes += history_bytes_of(track->step_s);
        sl_list_append(&history->tracks, &track->link);
    }
    return err;
}

void sl_history_close(struct sl_history *history, struct sl_history_track *track)
{
    if (track->points != NULL) {
        history->bytes -= history_bytes_of(track->step_s);
        sl_list_remove(&track->link);
        free(track->points);
        *track = (struct sl_history_track){0};
    }
}

static json_t *describe_series(const struct sl_history_track *track, uint64_t first, int series)
{
    json_t *list = json_array();
    for (uint64_t at = first; at <= track->newest && track->newest > 0; at++) {
        const float value = point_at(track, at)->values[series];
        (void)json_array_append_new(list, isnan(value) ? json_null() : json_real((double)value));
    }
    return list;
}

json_t *sl_history_describe(const struct sl_history_track *track, uint64_t since,
                            uint64_t unix_offset)
{
    const uint64_t step_s = track->step_s;
    const uint64_t after = since <= unix_offset ? 0 : (since - unix_offset) / step_s + 1;
    const uint64_t from = after < oldest(track) ? oldest(track) : after + 1;
    json_t *series = json_object();
    for (int i = 0; i < SL_HISTORY_SERIES; i++) {
        (void)json_object_set_new(series, sl_history_names[i], describe_series(track, from, i));
    }
    const uint64_t end = track->newest == 0 ? 0 : (track->newest - 1) * step_s;
    return json_pack("{s:I, s:I, s:o}", "step_s", (json_int_t)step_s, "end",
                     (json_int_t)(end + unix_offset), "series", series);
}
