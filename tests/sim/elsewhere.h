/* The end of a run with disks: the newest checkpoint is restored by another cluster, which has
 * another number of ps, or of reactors, and their folders in one. */
#ifndef SL_TESTS_SIM_ELSEWHERE_H
#define SL_TESTS_SIM_ELSEWHERE_H

#include "tests/sim/cluster.h"

/* Nobody is there any more but the ps. They make another checkpoint of what they are then, and the
 * other cluster must be the same: rows, slots and steps, bit for bit. */
void sl_sim_elsewhere_run(struct sl_sim_cluster *cluster);

#endif
