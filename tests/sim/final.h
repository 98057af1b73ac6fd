/* The end of a run: all is healed, the observer pulls everything, the oracle judges, and the ps
 * processes are looked into: is all memory back? */
#ifndef SL_TESTS_SIM_FINAL_H
#define SL_TESTS_SIM_FINAL_H

#include "tests/sim/cluster.h"

void sl_sim_final_run(struct sl_sim_cluster *cluster);

/* A step of the observer has ended. */
void sl_sim_final_ended(void *ctx, struct sl_sim_work *work, int err);

#endif
