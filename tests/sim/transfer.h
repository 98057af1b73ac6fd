/* One run of the simulation of transfer engines: several processes, the network between them, the
 * faults, and the order of steps. One thread. */
#ifndef SL_TESTS_SIM_TRANSFER_H
#define SL_TESTS_SIM_TRANSFER_H

#include "tests/sim/plan.h"

sl_sim_run_fn sl_sim_transfer_run; /* of the choice, faults alone */

#endif
