/* A backup that is promoted while entries of the log wait: what fails meanwhile, and what the
 * coordinator decides meanwhile. A primary that hands over to it in good order. */

#include "pair.h"
#include "ps/shard/state.h"
#include "tests/support/unit.h"

#define OTHER 2 /* another table */

static bool has_no_memory;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return has_no_memory ? NULL : __real_malloc(bytes);
}

/* The backup executes nothing while it is held. */
static void hold(struct pair *pair, bool held)
{
    pair->backup->role.switchover = held ? SL_SERVER_SWITCHED_OVER : SL_SERVER_NO_SWITCHOVER;
}

/* So many entries reach the held backup. */
static void until_they_wait(struct pair *pair, uint64_t count)
{
    const struct sl_replication_backup *backup = &pair->backup->replica->backup;
    for (uint32_t i = 0; backup->received - backup->position < count; i++) {
        assert_true(i < 5000);
        turns(pair, 1);
    }
}

/* One request with two sections: 10 rows of one table, many of another. */
static void push_two_sections(struct pair *pair, uint64_t id)
{
    struct stepped *world = &pair->stepped;
    shard_request_begin(&world->request, 0);
    shard_request_push(&world->request, SL_REQUEST_PUSH, ASP, world->keys, 10, world->gradients,
                       STEPPED_DIM);
    shard_request_push(&world->request, SL_REQUEST_PUSH, OTHER, world->keys, 15000,
                       world->gradients, STEPPED_DIM);
    stepped_send(&pair->peer, id, STEPPED_BUDGET);
}

/* Another process comes in the place of the primary, with nothing. */
static void replace_primary(struct pair *pair)
{
    struct stepped *world = &pair->stepped;
    struct sl_server_options options = world->server->options;
    options.replication = &pair->replication;
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    sl_server_destroy(&world->server);
    assert_int_equal(sl_server_create(&options, &world->server), 0);
    world->servers[0] = world->server;
    assert_int_equal(sl_server_listen(world->server, &any, &world->endpoint), 0);
    sl_server_set_lease(world->server, STEPPED_LEASE);
    assert_int_equal(sl_server_set_shard(world->server, 0, 1), 0);
}

/* The primary is lost while entries wait at the backup, which has memory for a part of the request
 * only. The push was never acknowledged, so the client would send it again, and the backup has
 * executed its first section already. */
PAIR_CASE(replica__a_backup_that_fails_while_it_takes_over_never_serves)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_open_table(&pair->peer, OTHER, SL_CONSISTENCY_ASP);
    turns(pair, 50);
    struct sl_shard *shard = pair->backup->shard;
    shard->options.memory_bytes_max = shard->memory_bytes + (600U << 10);
    hold(pair, true);
    push_two_sections(pair, 1);
    until_they_wait(pair, 2); /* the first section, then the rest */
    assert_int_equal(pair->peer.reply_count, 0);
    replace_primary(pair);
    hold(pair, false);
    tell(pair, pair->backup, 2, true, false);
    assert_int_equal(pair->backup->replica->stage, SL_REPLICATION_PROMOTING);
    turns(pair, 300);
    assert_true(pair->backup->replica->backup.is_broken);
    assert_int_equal(pair->err, SL_ERR_CORRUPT); /* the process ends */
    shard->options.memory_bytes_max = 0;
    pair->peer.hello.shard = 1;
    assert_int_equal(stepped_again(&pair->peer)->kind, SL_MESSAGE_ERROR);
    assert_false(pair->backup->role.serves);
}

/* Likewise of one that has a part of its snapshot. */
PAIR_CASE(replica__a_backup_with_half_a_snapshot_never_serves)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    begin_later(pair);
    for (uint32_t i = 0; !pair->backup->replica->backup.is_loading; i++) {
        assert_true(i < 5000);
        turns(pair, 1);
    }
    hold(pair, true);
    until_they_wait(pair, 1);
    replace_primary(pair);
    hold(pair, false);
    tell(pair, pair->backup, 3, true, false);
    turns(pair, 300);
    assert_int_equal(pair->err, SL_ERR_CORRUPT);
    assert_false(pair->backup->role.serves);
}

static void tell_new_backup(struct pair *pair, uint64_t epoch)
{
    const struct sl_replica_config told = {.epoch = epoch,
                                           .is_primary = true,
                                           .has_backup = true,
                                           .backup_task = 0,
                                           .backup = pair->stepped.endpoint};
    sl_replication_set_config(pair->backup, &told);
}

/* A worker is lost during the promotion, and there is no memory to remember it: others would wait
 * for its clock for ever, so the process ends. */
PAIR_CASE(replica__a_loss_that_cannot_be_kept_ends_the_process)
{
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = 1, .client_id = 9, .why = "of the test"};
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    turns(pair, 50);
    hold(pair, true);
    stepped_push(&pair->peer, 1, ASP, 10);
    until_they_wait(pair, 1);
    replace_primary(pair);
    tell(pair, pair->backup, 2, true, false);
    assert_int_equal(pair->backup->replica->stage, SL_REPLICATION_PROMOTING);
    assert_int_equal(pair->err, 0);
    has_no_memory = true;
    sl_server_on_expired(pair->backup, &lost);
    has_no_memory = false;
    assert_int_equal(pair->err, SL_ERR_NO_MEMORY);
    hold(pair, false);
    turns(pair, 50);
}

/* The process that replaces the lost primary becomes the backup before the promotion is complete:
 * it gets a snapshot all the same, and no write is lost. */
PAIR_CASE(replica__a_new_backup_during_a_promotion_gets_a_snapshot)
{
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = 1, .client_id = 9, .why = "of the test"};
    begin(pair, 0);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, 10);
    hold(pair, true);
    stepped_push(&pair->peer, 2, ASP, 10);
    until_they_wait(pair, 1);
    const uint64_t client_id = pair->peer.hello.client_id;
    replace_primary(pair);
    tell(pair, pair->backup, 2, true, false);
    sl_server_on_expired(pair->backup, &lost);
    tell(pair, pair->stepped.server, 3, false, false);
    tell_new_backup(pair, 3);
    assert_int_equal(pair->backup->replica->stage, SL_REPLICATION_PROMOTING);
    turns(pair, 100);
    assert_int_equal(pair->in_sync_count, 1); /* of the first epoch */
    hold(pair, false);
    turns(pair, 100);
    stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->err, 0);
    assert_int_equal(pair->in_sync_count, 2);
    assert_non_null(sl_server_session_find(pair->stepped.server, client_id));
    tell(pair, pair->stepped.server, 4, true, false);
    turns(pair, 50);
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    stepped_push(&pair->peer, 2, ASP, 10); /* it had no answer */
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, 0);
    stepped_pull(&pair->peer, 3, 0, ASP);
    assert_true(stepped_reply(&pair->peer, 3)->value == 2.0F);
    stepped_tick(&pair->peer, 4, 0); /* worker/1 is lost there too: it is not waited for */
    assert_int_equal(stepped_reply(&pair->peer, 4)->status, 0);
    stepped_pull(&pair->peer, 5, 1, 0);
    assert_int_equal(stepped_reply(&pair->peer, 5)->status, 0);
}

/* A pull waits for worker/1 at the primary, whose backup is in sync. */
static void begin_to_wait(struct pair *pair)
{
    begin(pair, 0);
    stepped_join(&pair->other, &pair->stepped, 1, 8);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_tick_done(&pair->peer, 1, 0);
    stepped_pull(&pair->peer, 2, 1, 0);
    turns(pair, 50);
    assert_int_equal(pair->peer.reply_count, 1);
}

/* The ps ends, and another of its shards has no backup in sync, so that the coordinator promotes no
 * backup: the client gets an error, although the backup of this shard could go on. */
PAIR_CASE(replica__a_shard_does_not_switch_over_without_the_others)
{
    begin_to_wait(pair);
    sl_server_drain(pair->stepped.server, STEPPED_LEASE, NULL, NULL);
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, SL_ERR_CANCELLED);
}

/* All backups are in sync: the client gets no error, and asks the backup. */
PAIR_CASE(replica__a_shard_switches_over_with_the_others)
{
    begin_to_wait(pair);
    sl_replication_set_switchover(pair->stepped.server, true);
    sl_server_drain(pair->stepped.server, STEPPED_LEASE, NULL, NULL);
    stepped_expect_end(&pair->peer);
    assert_int_equal(pair->peer.reply_count, 1);
}

/* What was decided in another epoch does not hold. */
PAIR_CASE(replica__an_epoch_ends_what_was_decided_before)
{
    begin_to_wait(pair);
    sl_replication_set_switchover(pair->stepped.server, true);
    begin_later(pair);
    turns(pair, 500);
    assert_int_equal(pair->in_sync_count, 2);
    sl_server_drain(pair->stepped.server, STEPPED_LEASE, NULL, NULL);
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, SL_ERR_CANCELLED);
}
