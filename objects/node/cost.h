/* What READs cost: a READ of x bytes takes about read_ns + x byte_ns, the line of least squares
 * through the last ones. Pure. Zero at first. */
#ifndef SL_OBJECTS_NODE_COST_H
#define SL_OBJECTS_NODE_COST_H

#include <stdint.h>

#define SL_OBJECTS_COST_SAMPLES 64

struct sl_objects_cost {
    struct {
        double bytes, ns;
    } samples[SL_OBJECTS_COST_SAMPLES]; /* a ring */
    uint64_t count;                     /* of all samples */
};

void sl_objects_cost_add(struct sl_objects_cost *cost, uint64_t bytes, uint64_t ns);

/* Neither is negative. Both are 0 without samples; *read_ns is 0 if all READs had one size. */
void sl_objects_cost_fit(const struct sl_objects_cost *cost, double *read_ns, double *byte_ns);

#endif
