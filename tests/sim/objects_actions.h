/* What threads of a simulated application do with objects: each function is one action, with its
 * deadline judged. In a fiber. */
#ifndef SL_TESTS_SIM_OBJECTS_ACTIONS_H
#define SL_TESTS_SIM_OBJECTS_ACTIONS_H

#include "tests/sim/objects_app.h"

#define SL_SIM_OBJECTS_PROOF_MS  60000
#define SL_SIM_OBJECTS_FOLLOW_MS 4000 /* of a wait for versions, at most */

/* Calls and their deadlines */

struct sl_sim_objects_timing {
    uint64_t began_ns, paused_ns; /* by the clock of the process */
    uint64_t since_ns;            /* by that of the network */
};

struct sl_sim_objects_timing sl_sim_objects_begin(const struct sl_sim_objects_app *app);

/* Judges that the call has ended in time. about: for the log. */
void sl_sim_objects_judge(struct sl_sim_objects_app *app,
                          const struct sl_sim_objects_timing *timing, const char *what,
                          const char *about, uint32_t timeout_ms, int err);

/* A call that needs the catalogue alone must end in good time, unless there was a fault. */
void sl_sim_objects_judge_reached(struct sl_sim_objects_app *app,
                                  const struct sl_sim_objects_timing *timing, const char *what,
                                  uint32_t timeout_ms, int err);

uint32_t sl_sim_objects_draw_timeout(struct sl_sim_objects_app *app);

/* "n1" */
void sl_sim_objects_name(uint32_t name, char text[16]);

int sl_sim_objects_subscribe(struct sl_sim_objects_app *app, uint32_t name, bool fetches,
                             uint32_t timeout_ms, struct sl_subscription **out);

/* Actions */

/* One action, drawn. */
void sl_sim_objects_act(struct sl_sim_objects_app *app);

/* Publishes the name of the proof; gets its newest version, which must succeed. */
void sl_sim_objects_prove_publish(struct sl_sim_objects_app *app);
void sl_sim_objects_prove_get(struct sl_sim_objects_app *app);

/* Removes all versions: keepers have some that no application holds. */
void sl_sim_objects_remove_all(struct sl_sim_objects_app *app);

/* Withdraws all that the application has. */
void sl_sim_objects_withdraw_all(struct sl_sim_objects_app *app);

#endif
