#include "tests/unit/worker/client/client_fixture.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "worker/client/client_internal.h"
#include "worker/client/shard_conn.h"

bool fixture_caller_driven, fixture_shm;
struct fixture fixture;
struct shape fixture_shape;

/* What a link is called, read on its reactor, which may give it another name at any time. */
struct look {
    char name[SL_SHARD_CONN_NAME_BYTES];
    sem_t done;
};

static void look_at(void *ctx, uint64_t link, uint64_t unused)
{
    struct look *look = ctx;
    memcpy(look->name, ((const struct sl_shard_conn *)(uintptr_t)link)->name, sizeof look->name);
    sem_post(&look->done);
}

static void look_from_afar(struct look *look, const struct sl_shard_conn *link)
{
    struct sl_mailbox_lane *lane = NULL;
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(link->io->reactor), &lane), 0);
    const struct sl_mail mail = {.run = look_at, .ctx = look, .a = (uintptr_t)link};
    assert_int_equal(sl_mailbox_post(lane, mail), 0);
    assert_int_equal(sem_wait(&look->done), 0);
    sl_mailbox_lane_close(&lane);
}

void fixture_expect_ways(struct sl_client *client, bool shm)
{
    struct look look;
    assert_int_equal(sem_init(&look.done, 0, 0), 0);
    for (uint32_t shard = 0; shard < client->shard_count; shard++) {
        const struct sl_shard_conn *link = &client->conns[shard];
        if (sl_reactor_is_owner(link->io->reactor)) {
            memcpy(look.name, link->name, sizeof look.name);
        } else {
            look_from_afar(&look, link);
        }
        assert_non_null(strstr(look.name, shm ? "(shm://" : "(tcp://"));
    }
    sem_destroy(&look.done);
}

struct sl_client *fixture_client(struct sl_cluster *cluster, const struct shape *shape,
                                 int32_t task_index)
{
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = sl_cluster_coordinator(cluster),
        .task_index = task_index,
        .reactor_count = fixture_caller_driven ? 1 : shape->reactor_count,
        .manual_progress = fixture_caller_driven,
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
    struct fixture made = {.cluster = sl_cluster_start(&options)};
    made.client = fixture_client(made.cluster, shape, -1);
    assert_int_equal(sl_client_shard_count(made.client), shape->ps_count * shape->shards_of_ps);
    return made;
}

void fixture_stop(struct fixture *made)
{
    sl_client_destroy(&made->client);
    assert_null(made->client);
    sl_cluster_stop(&made->cluster);
}

void fixture_setup(void)
{
    fixture = fixture_start(&fixture_shape);
}

const char *fixture_way(uint32_t n)
{
    static const char *const names[] = {"tcp", "tcp, caller driven", "shm", "shm, caller driven"};
    fixture_caller_driven = n % 2 == 1;
    fixture_shm = n / 2 == 1;
    return n < sizeof names / sizeof names[0] ? names[n] : NULL;
}

struct sl_table_spec fixture_sparse(const char *name, uint32_t dim)
{
    struct sl_table_spec spec = {.struct_size = sizeof spec, .kind = SL_TABLE_SPARSE, .dim = dim};
    snprintf(spec.name, sizeof spec.name, "%s", name);
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    return spec;
}

struct sl_table_spec fixture_dense(const char *name, uint64_t length)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec, .kind = SL_TABLE_DENSE, .length = length};
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
    sl_step_destroy(&step);
    assert_null(step);
}
