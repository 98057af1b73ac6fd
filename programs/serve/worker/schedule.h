/* The schedule of a cold model: which layers each transfer brings, so that layers are computed
 * while later ones arrive. Transfers follow each other without a gap; the k-th ends at k *
 * transfer_us + byte_us * (missing bytes up to its end), and then its layers are computed in turn.
 * The layers before the first missing byte are computed at once.
 *
 * Pure functions, times in microseconds; any thread; no allocation. */
#ifndef SL_SERVE_SCHEDULE_H
#define SL_SERVE_SCHEDULE_H

#include <stdint.h>

#define SL_SERVE_GROUPS_MAX 64 /* stops of a view (starling_objects.h) */
/* Units of the search: a layer with missing bytes, and those after it that miss none. Models with
 * more of them are searched at the boundaries of pairs, triples, and so on. */
#define SL_SERVE_UNITS_MAX  512

struct sl_serve_layer {
    double missing_bytes; /* >= 0 */
    double compute_us;    /* >= 0 */
};

struct sl_serve_costs {
    double transfer_us; /* of each transfer, whatever its size */
    double byte_us;
    double group_us; /* of each group at the worker, before its layers are computed */
};

enum sl_serve_rule {
    SL_SERVE_OPTIMAL = 0, /* the least finish */
    SL_SERVE_LAYER,       /* a group per layer; with more than GROUPS_MAX, merged evenly */
    SL_SERVE_BYTES,       /* greedy: groups of at least `bytes` bytes, or of a 64th of all */
    SL_SERVE_WHOLE        /* one group */
};

struct sl_serve_schedule {
    double finish_us; /* from the first transfer's start to the end of the last layer */
    uint32_t group_count;
    uint32_t ends[SL_SERVE_GROUPS_MAX]; /* one more than the last layer of each; the last: count */
};

struct sl_serve_search {
    uint32_t ends[SL_SERVE_UNITS_MAX + 1]; /* of units */
    double bytes[SL_SERVE_UNITS_MAX + 1],
        compute[SL_SERVE_UNITS_MAX + 1]; /* sums before each end */
    double finish[2][SL_SERVE_UNITS_MAX + 1];
    uint16_t from[SL_SERVE_GROUPS_MAX + 1][SL_SERVE_UNITS_MAX + 1];
};

/* Chooses the groups of layers[count], with *search as memory. Without missing bytes there are
 * none. OPTIMAL is exact up to SL_SERVE_UNITS_MAX units, in O(units^2) for each number of groups.
 */
void sl_serve_schedule_plan(enum sl_serve_rule rule, uint64_t bytes,
                            const struct sl_serve_costs *costs, const struct sl_serve_layer *layers,
                            uint32_t count, struct sl_serve_search *search,
                            struct sl_serve_schedule *out);

#endif
