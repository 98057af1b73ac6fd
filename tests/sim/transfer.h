/* One run of the simulation of transfer engines: several processes, the network between them, the
 * faults, and the order of steps. One thread. */
#ifndef SL_TESTS_SIM_TRANSFER_H
#define SL_TESTS_SIM_TRANSFER_H

#include "tests/sim/transfer_plan.h"

/* Runs the plan. Returns true if all was well, else prints the breach; *trace: a hash over all that
 * happened. */
bool sl_sim_transfer_run(const struct sl_sim_transfer_plan *plan, bool verbose, uint64_t *trace);

#endif
