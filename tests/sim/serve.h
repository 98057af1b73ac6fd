/* One run of the simulation of model serving: gateways, workers, the catalogue, the network between
 * them, the faults, and the order of steps. One thread. */
#ifndef SL_TESTS_SIM_SERVE_H
#define SL_TESTS_SIM_SERVE_H

#include "tests/sim/serve_plan.h"

/* Runs the plan. Returns true if all was well, else prints the breach; *trace: a hash over all that
 * happened. */
bool sl_sim_serve_run(const struct sl_sim_serve_plan *plan, bool verbose, uint64_t *trace);

#endif
