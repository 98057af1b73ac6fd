/* What the tests of the key-value interface share: a cluster in this process, and workers of it
 * that find it by their environment. */
#ifndef SL_TESTS_UNIT_WORKER_KV_KV_FIXTURE_H
#define SL_TESTS_UNIT_WORKER_KV_KV_FIXTURE_H

#include <stdint.h>

#include <starling_kv.h>

#include "tests/support/cluster.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

/* Generous: no test may depend on how fast the machine is. */
#define TIMEOUT_MS SL_TEST_PATIENCE_MS

#define PS_COUNT   2U
#define SHARDS     4U /* of both */

struct fixture {
    struct sl_cluster *cluster;
    struct sl_kv *kv; /* of worker 0 */
};

/* Whether the workers are driven by their caller. */
extern bool fixture_manual_progress;

/* The ways of SL_UNIT_WAYS: either kind of worker. */
const char *fixture_way(uint32_t n);

/* Of a group: the cluster, with two workers to come, and worker 0. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
#define KV_CASE(name)                                                                              \
    static void name##_with(struct fixture *fixture);                                              \
    SL_CASE(name)                                                                                  \
    {                                                                                              \
        name##_with(*state);                                                                       \
    }                                                                                              \
    static void name##_with(struct fixture *fixture)

/* name NULL: a table of its own. */
struct sl_kv_options fixture_options(const char *name);
struct sl_kv *fixture_join(const struct sl_cluster *cluster, uint32_t worker,
                           const struct sl_kv_options *options);

/* Another table of the worker's. */
struct sl_kv *fixture_table(struct sl_kv *kv, uint32_t value_bytes);

/* count keys, spread over all servers. */
void fixture_keys(uint64_t *keys, uint32_t count);

#endif
