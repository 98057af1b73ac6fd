/* One run of the simulation of model serving: gateways, workers, the catalogue, the network between
 * them, the faults, and the order of steps. One thread. */
#ifndef SL_TESTS_SIM_SERVE_H
#define SL_TESTS_SIM_SERVE_H

#include "tests/sim/plan.h"

sl_sim_run_fn sl_sim_serve_run; /* of the choice, faults alone */

#endif
