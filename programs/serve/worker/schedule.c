#include "programs/serve/worker/schedule.h"

#include <float.h>
#include <stdbool.h>

#include "core/assert.h"

static double max(double a, double b)
{
    return a > b ? a : b;
}

/* The layers before the first one that misses bytes. */
static uint32_t resident_layers(const struct sl_serve_layer *layers, uint32_t count)
{
    uint32_t resident = 0;
    while (resident < count && layers[resident].missing_bytes <= 0) {
        resident++;
    }
    return resident;
}

/* When the last layer ends with these groups. */
static double finish_us(const struct sl_serve_costs *costs, const struct sl_serve_layer *layers,
                        uint32_t count, const uint32_t *ends, uint32_t group_count)
{
    double arrived = 0, finish = 0;
    uint32_t layer = 0;
    for (; layer < resident_layers(layers, count); layer++) {
        finish += layers[layer].compute_us;
    }
    for (uint32_t group = 0; group < group_count; group++) {
        double compute = costs->group_us;
        arrived += costs->transfer_us;
        for (; layer < ends[group]; layer++) {
            arrived += costs->byte_us * layers[layer].missing_bytes;
            compute += layers[layer].compute_us;
        }
        finish = max(finish, arrived) + compute;
    }
    return finish;
}

/* Fills in the units and their sums; returns their number. A boundary before a layer that misses
 * nothing is never better than the one after it, so it is none. */
static uint32_t find_units(const struct sl_serve_layer *layers, uint32_t count,
                           struct sl_serve_search *search)
{
    const uint32_t resident = resident_layers(layers, count);
    uint32_t missing = 0;
    for (uint32_t i = resident; i < count; i++) {
        missing += layers[i].missing_bytes > 0;
    }
    const uint32_t merged = (missing + SL_SERVE_UNITS_MAX - 1) / SL_SERVE_UNITS_MAX;
    double bytes = 0, compute = 0;
    uint32_t unit = 0, seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (layers[i].missing_bytes > 0) {
            if (seen % merged == 0) { /* a unit begins */
                search->ends[unit] = i;
                search->bytes[unit] = bytes;
                search->compute[unit] = compute;
                unit++;
            }
            seen++;
        }
        bytes += layers[i].missing_bytes;
        compute += layers[i].compute_us;
    }
    search->ends[unit] = count;
    search->bytes[unit] = bytes;
    search->compute[unit] = compute;
    return unit;
}

/* The least finish of the first `end` units in k groups, given those in k - 1. */
static double least(const struct sl_serve_costs *costs, struct sl_serve_search *search, uint32_t k,
                    uint32_t end)
{
    const double *before = search->finish[(k - 1) % 2];
    const double arrived = k * costs->transfer_us + costs->byte_us * search->bytes[end];
    double best = DBL_MAX;
    for (uint32_t i = k - 1; i < end; i++) {
        const double finish = max(before[i], arrived) + search->compute[end] - search->compute[i];
        if (finish < best) {
            best = finish;
            search->from[k][end] = (uint16_t)i;
        }
    }
    return best + costs->group_us;
}

/* The dynamic program; returns the number of groups. What arrives when depends only on the number
 * of groups and the end, so that the least finish of the units before is all that matters. More
 * groups are tried until even the last transfer's end, and the last unit, come later than the best.
 */
static uint32_t search_groups(const struct sl_serve_costs *costs, uint32_t units,
                              struct sl_serve_search *search)
{
    const double last = costs->group_us + search->compute[units] - search->compute[units - 1];
    double best = DBL_MAX;
    uint32_t groups = 0;
    for (uint32_t i = 0; i <= units; i++) { /* no group: only what is resident is computed */
        search->finish[0][i] = i == 0 ? search->compute[0] : DBL_MAX;
    }
    for (uint32_t k = 1; k <= SL_SERVE_GROUPS_MAX && k <= units; k++) {
        if (k * costs->transfer_us + costs->byte_us * search->bytes[units] + last >= best) {
            break;
        }
        double *finish = search->finish[k % 2];
        for (uint32_t end = k; end <= units; end++) {
            finish[end] = least(costs, search, k, end);
        }
        if (finish[units] < best) {
            best = finish[units];
            groups = k;
        }
    }
    return groups;
}

/* Whether a fixed rule ends a group at `end`; `begin`: of the group. */
static bool ends_group(enum sl_serve_rule rule, double bytes, const struct sl_serve_search *search,
                       uint32_t units, uint32_t group, uint32_t begin, uint32_t end)
{
    const uint32_t groups = units < SL_SERVE_GROUPS_MAX ? units : SL_SERVE_GROUPS_MAX;
    if (rule == SL_SERVE_LAYER) {
        return end == (uint64_t)units * (group + 1) / groups;
    }
    return rule == SL_SERVE_BYTES && search->bytes[end] - search->bytes[begin] >=
                                         max(bytes, search->bytes[units] / SL_SERVE_GROUPS_MAX);
}

void sl_serve_schedule_plan(enum sl_serve_rule rule, uint64_t bytes,
                            const struct sl_serve_costs *costs, const struct sl_serve_layer *layers,
                            uint32_t count, struct sl_serve_search *search,
                            struct sl_serve_schedule *out)
{
    const uint32_t units = find_units(layers, count, search);
    uint32_t groups = 0;
    if (units > 0 && rule == SL_SERVE_OPTIMAL) {
        groups = search_groups(costs, units, search);
        uint32_t end = units;
        for (uint32_t k = groups; k > 0; k--) {
            out->ends[k - 1] = search->ends[end];
            end = search->from[k][end];
        }
    } else {
        for (uint32_t end = 1, begin = 0; end <= units; end++) {
            if (end == units ||
                ends_group(rule, (double)bytes, search, units, groups, begin, end)) {
                sl_assert(groups < SL_SERVE_GROUPS_MAX);
                out->ends[groups++] = search->ends[end];
                begin = end;
            }
        }
    }
    out->group_count = groups;
    out->finish_us = finish_us(costs, layers, count, out->ends, groups);
}
