/* The tables of a job as versions (include/starling_objects.h): each ps of the job has a node,
 * which is a keeper and publishes the rows of its shards with the product's own code (ps/publish).
 * The catalogue, and the publisher that asks for the versions, are the first process of --serve,
 * whose workers read the versions as models. There is one in a run. One thread. Allocates. */
#ifndef SL_TESTS_SIM_PUBLISH_H
#define SL_TESTS_SIM_PUBLISH_H

#include <starling_objects.h>

#include "tests/sim/world.h"

/* Model k is table k of the job; model 0 has all of its tables. */
uint32_t sl_sim_publish_models(void);

/* In a thread of the publisher: publishes the version of the model, and records when. Returns the
 * error. */
int sl_sim_publish_version(struct sl_objects *node, uint32_t model, uint64_t version,
                           uint32_t timeout_ms);

/* Whether the job has BSP tables whose shards may never have the same number of iterations again:
 * one began anew from a checkpoint, and its workers have ended. */
bool sl_sim_publish_may_fail(void);

/* Whether a version of the model was acknowledged. */
bool sl_sim_publish_has(uint32_t model);

/* In a thread of the publisher, when all faults are over: judges that the newest versions that were
 * acknowledged are in the catalogue. */
void sl_sim_publish_judge_kept(struct sl_objects *node);

/* Judges the rows of a version that has arrived, against the pushes of the job's workers. */
void sl_sim_publish_judge_rows(uint32_t model, uint64_t version,
                               const struct sl_object_tensor *tensors, uint32_t count);

#endif
