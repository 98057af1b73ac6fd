/* What the tests of the client share: a cluster in this process, and clients of it. */
#ifndef SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_FIXTURE_H
#define SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_FIXTURE_H

#include <stdint.h>

#include "starling.h"
#include "tests/support/cluster.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

/* Generous: no test may depend on how fast the machine is. */
#define TIMEOUT_MS SL_TEST_PATIENCE_MS

struct shape {
    uint32_t ps_count, shards_of_ps, reactor_count;
    enum sl_protocol protocol;
};

struct fixture {
    struct sl_cluster *cluster;
    struct sl_client *client; /* without a clock */
};

struct fixture fixture_start(const struct shape *shape);
void fixture_stop(struct fixture *made);

/* True: the clients are driven by their caller, with one reactor whatever the shape says. */
extern bool fixture_caller_driven;

/* True: the shards are reached through shared memory. */
extern bool fixture_shm;

/* The ways of SL_UNIT_WAYS: clients with threads and driven by their caller, over TCP and through
 * shared memory. */
const char *fixture_way(uint32_t n);

/* What the cases of a file share; SL_UNIT_SETUP says of which shape it is. */
extern struct fixture fixture;
extern struct shape fixture_shape;
void fixture_setup(void);
#define CLIENT_CASE(name) SL_CASE_WITH(name, fixture_setup(), fixture_stop(&fixture))

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
