#include "objects/node/cost.h"

void sl_objects_cost_add(struct sl_objects_cost *cost, uint64_t bytes, uint64_t ns)
{
    const uint64_t at = cost->count++ % SL_OBJECTS_COST_SAMPLES;
    cost->samples[at].bytes = (double)bytes;
    cost->samples[at].ns = (double)ns;
}

void sl_objects_cost_fit(const struct sl_objects_cost *cost, double *read_ns, double *byte_ns)
{
    const uint32_t count =
        cost->count < SL_OBJECTS_COST_SAMPLES ? (uint32_t)cost->count : SL_OBJECTS_COST_SAMPLES;
    double bytes = 0, ns = 0, squares = 0, products = 0;
    *read_ns = *byte_ns = 0;
    if (count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        bytes += cost->samples[i].bytes / count;
        ns += cost->samples[i].ns / count;
    }
    for (uint32_t i = 0; i < count; i++) {
        const double from_mean = cost->samples[i].bytes - bytes;
        squares += from_mean * from_mean;
        products += from_mean * (cost->samples[i].ns - ns);
    }
    *byte_ns = products > 0 ? products / squares : 0;
    *read_ns = ns - *byte_ns * bytes;
    if (*byte_ns == 0 || *read_ns < 0) { /* through the origin */
        *byte_ns = ns / bytes;
        *read_ns = 0;
    }
}
