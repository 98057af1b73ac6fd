/* What threads of a simulated application do with views: they subscribe, open versions, and look at
 * their bytes. In a fiber. */
#ifndef SL_TESTS_SIM_OBJECTS_VIEWS_H
#define SL_TESTS_SIM_OBJECTS_VIEWS_H

#include "tests/sim/objects_actions.h"

/* Views of a name that is drawn. */
void sl_sim_objects_act_view(struct sl_sim_objects_app *app);

/* A view of the name of the proof, which must succeed. False: the pool is too small, or full. */
bool sl_sim_objects_prove_view(struct sl_sim_objects_app *app);

#endif
