/* Judges the state of the catalogue, from inside. */
#ifndef SL_TESTS_SIM_OBJECTS_CATALOGUE_H
#define SL_TESTS_SIM_OBJECTS_CATALOGUE_H

#include "tests/sim/objects_oracle.h"

struct sl_objects_catalogue;

/* After each step of its host: no fetcher is among those that it fetches a stripe from, directly or
 * through others; and versions that have left had a reason to. */
void sl_sim_objects_catalogue_judge(const struct sl_objects_catalogue *catalogue,
                                    struct sl_sim_objects_oracle *oracle);

/* The directory of node 1 had so many versions when the run began, and all are found. */
void sl_sim_objects_catalogue_judge_old(const struct sl_objects_catalogue *catalogue,
                                        struct sl_sim_objects_oracle *oracle);

/* Everything is withdrawn, and these nodes are all there are. */
void sl_sim_objects_catalogue_judge_rest(const struct sl_objects_catalogue *catalogue,
                                         struct sl_sim_objects_oracle *oracle, uint32_t nodes);

#endif
