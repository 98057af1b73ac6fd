/* Judges the state of the catalogue, from inside. */
#ifndef SL_TESTS_SIM_OBJECTS_CATALOGUE_H
#define SL_TESTS_SIM_OBJECTS_CATALOGUE_H

#include "tests/sim/objects_oracle.h"

struct sl_objects_catalogue;

/* No fetcher is among those that it fetches a stripe from, directly or through others. */
void sl_sim_objects_catalogue_judge_plans(const struct sl_objects_catalogue *catalogue,
                                          struct sl_sim_objects_oracle *oracle);

/* Everything is withdrawn, and these nodes are all there are. */
void sl_sim_objects_catalogue_judge_rest(const struct sl_objects_catalogue *catalogue,
                                         struct sl_sim_objects_oracle *oracle, uint32_t nodes);

#endif
