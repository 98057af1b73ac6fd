/* What the tests of the client share: a cluster in this process, and clients of it. */
#ifndef SL_TESTS_UNIT_WORKER_CLIENT_FIXTURE_H
#define SL_TESTS_UNIT_WORKER_CLIENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "starling.h"
#include "tests/support/cluster.h"

/* Generous: no test may depend on how fast the machine is. */
#define TIMEOUT_MS 30000

struct shape {
    uint32_t ps_count, shards_of_ps, reactor_count;
    enum sl_protocol protocol;
};

struct fixture {
    struct sl_cluster *cluster;
    struct sl_client *client; /* without a clock */
};

struct fixture fixture_start(const struct shape *shape);
void fixture_stop(struct fixture *fixture);

/* True: the clients are driven by their caller, with one reactor whatever the shape says. */
extern bool fixture_caller_driven;

/* True: the shards are reached through shared memory. */
extern bool fixture_shm;

/* Runs the tests with either kind of client. */
#define FIXTURE_RUN_WITH_BOTH(tests, start, stop)                                                  \
    ((cmocka_run_group_tests_name(#tests, tests, start, stop) != 0)                                \
         ? 1                                                                                       \
         : (fixture_caller_driven = true,                                                          \
            cmocka_run_group_tests_name(#tests "_caller_driven", tests, start, stop)))

/* And both by either way. */
#define FIXTURE_RUN_BY_BOTH_WAYS(tests, start, stop)                                               \
    (FIXTURE_RUN_WITH_BOTH(tests, start, stop) != 0 ? 1                                            \
     : (fixture_shm = true, fixture_caller_driven = false,                                         \
        cmocka_run_group_tests_name(#tests "_shm", tests, start, stop) != 0)                       \
         ? 1                                                                                       \
         : (fixture_caller_driven = true,                                                          \
            cmocka_run_group_tests_name(#tests "_shm_caller_driven", tests, start, stop)))

/* task_index -1: without a clock. */
struct sl_client *fixture_client(struct sl_cluster *cluster, const struct shape *shape,
                                 int32_t task_index);

/* Every shard was reached so when the client last heard of it: by what it is called. */
void fixture_expect_ways(struct sl_client *client, bool shm);

/* Summing tables, that is w += g, of zeros at first. */
struct sl_table_spec fixture_sparse(const char *name, uint32_t dim);
struct sl_table_spec fixture_dense(const char *name, uint64_t length);
struct sl_table *fixture_table(struct sl_client *client, const struct sl_table_spec *spec);

/* Submits, waits, ends; every call must succeed. */
void fixture_run(struct sl_step *step);
struct sl_step *fixture_step(struct sl_client *client, uint32_t clock);

#endif
