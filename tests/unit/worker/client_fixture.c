#include "tests/unit/worker/client_fixture.h"

#include <stdio.h>
#include <string.h>

#include "worker/client_internal.h"

bool fixture_caller_driven, fixture_shm;

void fixture_expect_ways(struct sl_client *client, bool shm)
{
    for (uint32_t shard = 0; shard < client->shard_count; shard++) {
        assert_non_null(strstr(client->links[shard].name, shm ? "(shm://" : "(tcp://"));
    }
}

struct sl_client *fixture_client(struct sl_cluster *cluster, const struct shape *shape,
                                 int32_t task_index)
{
    const struct sl_client_options options = {
        .coordinator = sl_cluster_coordinator(cluster),
        .task_index = task_index,
        .reactor_count = fixture_caller_driven ? 1 : shape->reactor_count,
        .caller_driven = fixture_caller_driven,
        .protocol = shape->protocol,
        .start_timeout_ms = TIMEOUT_MS,
    };
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), 0);
    fixture_expect_ways(client, fixture_shm);
    return client;
}

struct fixture fixture_start(const struct shape *shape)
{
    const struct sl_cluster_options options = {
        .ps_count = shape->ps_count, .shards_of_ps = shape->shards_of_ps, .shm = fixture_shm};
    struct fixture fixture = {.cluster = sl_cluster_start(&options)};
    fixture.client = fixture_client(fixture.cluster, shape, -1);
    assert_int_equal(sl_client_shard_count(fixture.client), shape->ps_count * shape->shards_of_ps);
    return fixture;
}

void fixture_stop(struct fixture *fixture)
{
    sl_client_destroy(&fixture->client);
    assert_null(fixture->client);
    sl_cluster_stop(&fixture->cluster);
}

struct sl_table_spec fixture_sparse(const char *name, uint32_t dim)
{
    struct sl_table_spec spec = {.kind = SL_TABLE_SPARSE, .dim = dim};
    snprintf(spec.name, sizeof spec.name, "%s", name);
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    return spec;
}

struct sl_table_spec fixture_dense(const char *name, uint64_t length)
{
    struct sl_table_spec spec = {.kind = SL_TABLE_DENSE, .length = length};
    snprintf(spec.name, sizeof spec.name, "%s", name);
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    return spec;
}

struct sl_table *fixture_table(struct sl_client *client, const struct sl_table_spec *spec)
{
    struct sl_table *table = NULL;
    assert_int_equal(sl_client_table_open(client, spec, TIMEOUT_MS, &table), 0);
    assert_non_null(table);
    return table;
}

struct sl_step *fixture_step(struct sl_client *client, uint32_t clock)
{
    struct sl_step *step = NULL;
    assert_int_equal(sl_step_begin(client, clock, &step), 0);
    return step;
}

void fixture_run(struct sl_step *step)
{
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    int err = sl_step_wait(step);
    assert_string_equal(sl_step_error(step), "");
    assert_int_equal(err, 0);
    assert_true(sl_step_done(step));
    sl_step_end(&step);
    assert_null(step);
}
