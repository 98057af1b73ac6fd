/* Checkpoints during which somebody pushed are read back as soon as they are complete: from each
 * ps's disk, into shards of their own, whose rows are held against the book. */
#ifndef SL_TESTS_SIM_INSPECT_H
#define SL_TESTS_SIM_INSPECT_H

#include "tests/sim/cluster.h"

/* Some of a run's, the first ones. */
void sl_sim_inspect(struct sl_sim_cluster *cluster, uint64_t number);

#endif
