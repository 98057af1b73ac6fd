/* One run of the simulation of objects: nodes, the network between them, the faults, and the order
 * of steps. One thread. */
#ifndef SL_TESTS_SIM_OBJECTS_H
#define SL_TESTS_SIM_OBJECTS_H

#include "tests/sim/plan.h"

sl_sim_run_fn sl_sim_objects_run; /* of the choice, faults alone */

#endif
