/* Every operation of the client against real servers, over both protocols, one and several shards,
 * one and several reactors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "starling.h"
#include "tests/support/cluster.h"

#define TIMEOUT_MS 20000

struct shape {
    uint32_t ps_count, shards_of_ps, reactor_count;
    enum sl_protocol protocol;
};

static const struct shape shapes[] = {
    {1, 1, 1, SL_PROTOCOL_STAR_SERVER},
    {1, 3, 2, SL_PROTOCOL_STAR_SERVER_LITE},
    {2, 2, 2, SL_PROTOCOL_STAR_SERVER},
};
#define SHAPE_COUNT (sizeof shapes / sizeof *shapes)

struct fixture {
    struct sl_cluster *cluster;
    struct sl_client *client;
};

static struct sl_client *connect_client(struct sl_cluster *cluster, const struct shape *shape,
                                        int32_t task_index)
{
    const struct sl_client_options options = {
        .coordinator = sl_cluster_coordinator(cluster),
        .task_index = task_index,
        .reactor_count = shape->reactor_count,
        .protocol = shape->protocol,
        .start_timeout_ms = TIMEOUT_MS,
    };
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), 0);
    return client;
}

static struct fixture fixture_start(const struct shape *shape)
{
    const struct sl_cluster_options options = {.ps_count = shape->ps_count,
                                               .shards_of_ps = shape->shards_of_ps};
    struct fixture fixture = {.cluster = sl_cluster_start(&options)};
    fixture.client = connect_client(fixture.cluster, shape, -1);
    assert_int_equal(sl_client_shard_count(fixture.client), shape->ps_count * shape->shards_of_ps);
    return fixture;
}

static void fixture_stop(struct fixture *fixture)
{
    sl_client_destroy(&fixture->client);
    assert_null(fixture->client);
    sl_cluster_stop(&fixture->cluster);
}

static struct sl_table_spec sparse_spec(const char *name, uint32_t dim)
{
    struct sl_table_spec spec = {.kind = SL_TABLE_SPARSE, .dim = dim};
    strcpy(spec.name, name);
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    return spec;
}

static struct sl_table *open_table(struct sl_client *client, const struct sl_table_spec *spec)
{
    struct sl_table *table = NULL;
    assert_int_equal(sl_client_table_open(client, spec, TIMEOUT_MS, &table), 0);
    assert_non_null(table);
    return table;
}

static void check_push_then_pull(const struct shape *shape)
{
    struct fixture fixture = fixture_start(shape);
    const struct sl_table_spec spec = sparse_spec("t", 4);
    struct sl_table *table = open_table(fixture.client, &spec);
    uint64_t keys[100];
    float gradients[400], rows[400];
    for (uint32_t i = 0; i < 100; i++) {
        keys[i] = sl_hash_key(i / 2); /* each key twice */
        for (uint32_t column = 0; column < 4; column++) {
            gradients[i * 4 + column] = (float)(i + column);
        }
    }
    assert_int_equal(sl_client_push(fixture.client, table, keys, 100, gradients, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(fixture.client, table, keys, 100, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t pair = i / 2 * 2;
        for (uint32_t column = 0; column < 4; column++) {
            assert_true(rows[i * 4 + column] == (float)(2 * (pair + column) + 1));
        }
    }
    fixture_stop(&fixture);
}

static void client_push__is_seen_by_the_next_pull(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        check_push_then_pull(&shapes[i]);
    }
}

int main(void)
{
    sl_log_setup(SL_LOG_WARN, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_push__is_seen_by_the_next_pull),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
