/* History keeps the last 15 minutes of some numbers of the job, of each shard and of each table, in
 * at most SL_HISTORY_BYTES_MAX. A track has one point a second; when there are too many tracks, all
 * but the first merge neighbouring points: the mean, or of latency and staleness the maximum.
 * Owner: the observer's thread. */
#ifndef SL_PS_OBSERVE_HISTORY_H
#define SL_PS_OBSERVE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/list.h"

#define SL_HISTORY_SECONDS    900
#define SL_HISTORY_BYTES_MAX  (15U << 20)
#define SL_HISTORY_STEP_MAX_S 16

enum sl_history_series {
    SL_HISTORY_REQUESTS, /* a second, as keys and bytes */
    SL_HISTORY_KEYS,
    SL_HISTORY_BYTES,
    SL_HISTORY_P99_US,
    SL_HISTORY_STALENESS,
    SL_HISTORY_MEMORY,
    SL_HISTORY_SAMPLES, /* a second; this and the loss: of the job only */
    SL_HISTORY_LOSS,
    SL_HISTORY_SERIES
};

extern const char *const sl_history_names[SL_HISTORY_SERIES]; /* in JSON: "requests_s" */

/* Values at one time; NAN: not known. */
struct sl_history_point {
    float values[SL_HISTORY_SERIES];
};

/* Caller's storage; zero at first. */
struct sl_history_track {
    struct sl_list_link link;
    struct sl_history_point *points; /* ring, by time in steps; NULL: not open */
    uint32_t step_s;
    uint32_t point_count;   /* SL_HISTORY_SECONDS / step_s */
    uint64_t first, newest; /* times of the first point ever and of the newest, in steps; 0: none */
};

struct sl_history {
    struct sl_list tracks; /* the first one is never merged */
    size_t bytes;
    uint32_t step_s; /* of all tracks but the first */
};

extern const struct sl_history_point sl_history_unknown; /* all values */

struct json_t; /* of jansson */

void sl_history_init(struct sl_history *history);

/* Closes all tracks. */
void sl_history_fini(struct sl_history *history);

/* Adds an empty track. If memory is short, the others are merged first. Errors: NO_MEMORY,
 * TOO_LARGE. */
int sl_history_open(struct sl_history *history, struct sl_history_track *track);

/* Removes the track. It may be closed. */
void sl_history_close(struct sl_history *history, struct sl_history_track *track);

/* Adds the values of a second, which never descends. Seconds that are left out get NAN. */
void sl_history_add(struct sl_history_track *track, uint64_t second,
                    const struct sl_history_point *point);

/* Describes the points later than `since`, at most SL_HISTORY_SECONDS, for /api/history. All times
 * are in seconds; unix_offset: what makes them Unix times. NULL: no memory. */
struct json_t *sl_history_describe(const struct sl_history_track *track, uint64_t since,
                                   uint64_t unix_offset);

#endif
