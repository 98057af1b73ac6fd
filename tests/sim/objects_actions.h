/* What threads of a simulated application do with objects: each function is one action, with its
 * deadline judged. In a fiber. */
#ifndef SL_TESTS_SIM_OBJECTS_ACTIONS_H
#define SL_TESTS_SIM_OBJECTS_ACTIONS_H

#include "tests/sim/objects_app.h"

/* One action, drawn. */
void sl_sim_objects_act(struct sl_sim_objects_app *app);

/* Publishes the name of the proof; gets its newest version, which must succeed. */
void sl_sim_objects_prove_publish(struct sl_sim_objects_app *app);
void sl_sim_objects_prove_get(struct sl_sim_objects_app *app);

/* Withdraws all that the application has. */
void sl_sim_objects_withdraw_all(struct sl_sim_objects_app *app);

#endif
