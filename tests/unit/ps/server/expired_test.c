/* A worker that is lost is reported to every server, also when there is no memory for it. */

#include "fixture.h"
#include "tests/support/unit.h"

#define WORKER 1

static _Thread_local bool has_no_memory;
static struct sl_message_expired lost = {
    .role = SL_MESSAGE_ROLE_WORKER, .task_index = WORKER, .why = "of the test"};

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return has_no_memory ? NULL : __real_malloc(bytes);
}

static void report(struct server_fixture *fixture, uint32_t index)
{
    for (uint32_t to = 0; to < SERVER_COUNT; to++) {
        sl_server_post_expired(&fixture->servers[to], fixture->reactors[index], to, &lost);
    }
}

static void report_without_memory(struct server_fixture *fixture, uint32_t index)
{
    has_no_memory = true;
    report(fixture, index);
    has_no_memory = false;
}

/* The worker's connections end, on the reporting reactor and on another. */
static void check(struct server_fixture *fixture,
                  void (*run)(struct server_fixture *fixture, uint32_t index))
{
    struct peer *peers[SERVER_COUNT];
    for (uint32_t shard = 0; shard < SERVER_COUNT; shard++) {
        peers[shard] = peer_connect(fixture);
        const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_DATA,
                                               .role = SL_MESSAGE_ROLE_WORKER,
                                               .task_index = WORKER,
                                               .client_id = 4712,
                                               .shard = shard};
        assert_int_equal(peer_hello(peers[shard], &hello).kind, SL_MESSAGE_WELCOME);
    }
    lost.client_id = 4712;
    server_fixture_run_on(fixture, 0, run);
    for (uint32_t shard = 0; shard < SERVER_COUNT; shard++) {
        peer_expect_end(peers[shard]);
        peer_close(&peers[shard]);
    }
}

SERVER_CASE(server_post_lost__reaches_every_server, server_fixture_setup_least)
{
    check(fixture, report);
}

SERVER_CASE(server_post_lost__needs_no_memory, server_fixture_setup_least)
{
    check(fixture, report_without_memory);
}
