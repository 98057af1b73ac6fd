/* A shard and its backup, in two servers of one reactor: the first is the primary of shard 0, the
 * one behind it has the backup. */

#include <string.h>

#include "pair.h"
#include "ps/shard/state.h"
#include "tests/support/unit.h"

/* The primary is gone; the peer goes to the backup, which has taken over. */
static const struct sl_message *take_over(struct pair *pair, struct stepped_peer *peer)
{
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    peer->hello.shard = 1;
    return stepped_again(peer);
}

PAIR_CASE(replica__nobody_is_welcomed_before_there_is_a_backup)
{
    struct stepped_peer *peer = &pair->peer;
    tell(pair, pair->stepped.server, 1, true, true);
    peer->world = &pair->stepped;
    peer->hello = (struct sl_message_hello){.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                            .purpose = SL_MESSAGE_PURPOSE_DATA,
                                            .role = SL_MESSAGE_ROLE_CLIENT,
                                            .client_id = 7};
    assert_int_equal(stepped_again(peer)->error.err, SL_ERR_AGAIN);
    turns(pair, 100);
    assert_int_equal(stepped_attach(peer)->error.err, SL_ERR_AGAIN);
    assert_int_equal(pair->in_sync_count, 0);
    tell(pair, pair->backup, 1, false, false); /* until now it had not heard of the epoch */
    stepped_pass(&pair->stepped, 3 * SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->in_sync_count, 1);
    assert_int_equal(pair->epoch, 1);
    assert_int_equal(stepped_attach(peer)->kind, SL_MESSAGE_WELCOME);
}

PAIR_CASE(replica__a_backup_that_never_comes_is_given_up)
{
    tell(pair, pair->stepped.server, 1, true, true);
    stepped_pass(&pair->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 1);
    tell(pair, pair->stepped.server, 2, true, true); /* it is not waited for again */
    stepped_join(&pair->peer, &pair->stepped, UINT32_MAX, 7);
}

/* The coordinator has died with the primary: it takes long until the client knows where to go. */
PAIR_CASE(replica__a_client_that_comes_late_is_known)
{
    begin(pair, 0);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, 10);
    tell(pair, pair->backup, 2, true, false);
    stepped_pass(&pair->stepped, 5 * STEPPED_LEASE / 2);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
}

/* The backup has taken over, and refuses: nothing is acknowledged, nor does anybody read what is
 * not so any more. */
PAIR_CASE(replica__a_deposed_primary_answers_nothing)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    tell(pair, pair->backup, 2, true, false);
    stepped_push(&pair->peer, 1, ASP, 10);
    stepped_pass(&pair->stepped, 2 * STEPPED_LEASE);
    assert_int_equal(pair->err, SL_ERR_REFUSED);
    stepped_pull(&pair->peer, 2, 0, ASP);
    tell(pair, pair->stepped.server, 2, false, false);
    turns(pair, 50);
    assert_int_equal(pair->peer.reply_count, 0);
}

static struct sl_message_stats stats_of(const struct sl_server *server)
{
    struct sl_message message = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_server_stats(server, &message.stats), 0);
    const struct sl_message_stats stats = message.stats;
    sl_message_fini(&message);
    return stats;
}

/* The coordinator says that there is no backup any more: the primary goes on alone. */
PAIR_CASE(replica__the_coordinators_word_lets_it_go_on_degraded)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    tell(pair, pair->backup, 2, false, false);
    stepped_push(&pair->peer, 1, ASP, 10);
    turns(pair, 200);
    assert_int_equal(pair->peer.reply_count, 0);
    assert_true(stats_of(pair->stepped.server).degraded_writes == 0);
    assert_true(stats_of(pair->stepped.server).degraded_ms == 0);
    tell(pair, pair->stepped.server, 2, true, false);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    stepped_push_done(&pair->peer, 2, ASP, 10);
    assert_true(stats_of(pair->stepped.server).degraded_writes == 2);
    assert_true(stats_of(pair->stepped.server).degraded_ms > 0);
    assert_true(stats_of(pair->backup).degraded_ms == 0); /* it does not serve */
}

/* A broken connection between the two costs time, and nothing else. */
PAIR_CASE(replica__the_log_goes_on_after_a_broken_connection)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    for (uint64_t id = 1; id <= 20; id++) {
        stepped_push(&pair->peer, id, ASP, 10);
        turns(pair, (uint32_t)(id % 4));
        if (id % 3 == 0 && pair->backup->replica->backup.feed != NULL) {
            sl_transport_disconnect(pair->backup->replica->backup.feed->conn);
        }
    }
    for (uint64_t id = 1; id <= 20; id++) {
        stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S);
    }
    assert_int_equal(pair->peer.reply_count, 20);
    assert_int_equal(pair->failed_count, 0);
    assert_int_equal(take_over(pair, &pair->peer)->kind, SL_MESSAGE_WELCOME);
    stepped_pull(&pair->peer, 21, 0, ASP);
    assert_true(stepped_reply(&pair->peer, 21)->value == 20.0F);
}

/* An erase is in the log: the backup has not the rows either, and does not erase twice. */
PAIR_CASE(replica__erased_rows_are_gone_there)
{
    struct shard_request *request = &pair->stepped.request;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, 10);
    shard_request_begin(request, 0);
    shard_request_erase(request, ASP, pair->stepped.keys, 4);
    stepped_send(&pair->peer, 2, STEPPED_BUDGET);
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, 0);
    const struct sl_shard_table *table = pair->backup->shard->tables[ASP];
    assert_int_equal(sl_sparse_table_row_count(table->sparse), 6);
    stepped_push_done(&pair->peer, 3, ASP, 1);
    assert_true(take_over(pair, &pair->peer)->welcome.resumed);
    shard_request_begin(request, 0);
    shard_request_erase(request, ASP, pair->stepped.keys, 4);
    stepped_send(&pair->peer, 2, STEPPED_BUDGET);
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, 0);
    stepped_pull(&pair->peer, 4, 0, ASP);
    assert_true(stepped_reply(&pair->peer, 4)->value == 1.0F);
}

/* A failure that was told is told again at the backup, and not tried anew. */
PAIR_CASE(replica__failures_are_remembered_too)
{
    begin(pair, 0);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_tick(&pair->peer, 1, 5); /* of another iteration than its own */
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, SL_ERR_PROTOCOL);
    stepped_tick_done(&pair->peer, 2, 0);
    turns(pair, 50);
    assert_true(take_over(pair, &pair->peer)->welcome.resumed);
    assert_int_equal(pair->peer.answer.welcome.clock, 1);
    stepped_tick(&pair->peer, 1, 5);
    const struct stepped_reply *reply = stepped_reply(&pair->peer, 1);
    assert_int_equal(reply->status, SL_ERR_PROTOCOL);
    assert_non_null(strstr(reply->text, "failed before"));
}

/* worker/0 pushes, ticks, pulls, pushes and ticks again, in one request: it waits for worker/1 with
 * the pull. Table 0 is BSP. */
static void send_in_part(struct pair *pair)
{
    const float ones[STEPPED_DIM] = {1, 1, 1, 1};
    const uint64_t key = 3;
    struct shard_request *request = &pair->stepped.request;
    shard_request_begin(request, 0);
    shard_request_push(request, SL_REQUEST_PUSH, ASP, &key, 1, ones, STEPPED_DIM);
    shard_request_tick(request);
    shard_request_pull(request, 0, &key, 1);
    shard_request_push(request, SL_REQUEST_PUSH, ASP, &key, 1, ones, STEPPED_DIM);
    shard_request_tick(request);
    stepped_send(&pair->peer, 1, STEPPED_BUDGET);
    turns(pair, 50);
}

static void begin_in_part(struct pair *pair)
{
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    send_in_part(pair);
}

/* What a worker that is lost has done in part, others have seen: it is done at the backup too. */
PAIR_CASE(replica__what_was_done_in_part_is_done_there)
{
    struct shard_request *request = &pair->stepped.request;
    const uint64_t key = 3;
    begin(pair, 0);
    begin_in_part(pair);
    assert_int_equal(pair->peer.reply_count, 0);
    stepped_break(&pair->peer);
    stepped_pass(&pair->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S); /* it is lost */
    pair->other.hello.shard = 1;
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    pair->other.world = &pair->stepped;
    pair->other.hello = (struct sl_message_hello){.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                                  .purpose = SL_MESSAGE_PURPOSE_DATA,
                                                  .role = SL_MESSAGE_ROLE_WORKER,
                                                  .task_index = 1,
                                                  .client_id = 8,
                                                  .shard = 1};
    assert_int_equal(stepped_again(&pair->other)->kind, SL_MESSAGE_WELCOME);
    shard_request_begin(request, 0);
    shard_request_pull(request, ASP, &key, 1);
    stepped_send(&pair->other, 1, STEPPED_BUDGET);
    assert_true(stepped_reply(&pair->other, 1)->value == 1.0F);
    /* worker/0 counts no more: the other one waits for nobody. */
    stepped_tick_done(&pair->other, 2, 0);
    stepped_tick_done(&pair->other, 3, 1);
    stepped_pull(&pair->other, 4, 2, 0);
    assert_int_equal(stepped_reply(&pair->other, 4)->status, 0);
}

/* worker/1 erases the row while worker/0's request waits. At the backup too its first push comes
 * before the erase, and is not repeated. */
PAIR_CASE(replica__what_waits_comes_before_what_overtook_it)
{
    struct shard_request *request = &pair->stepped.request;
    const uint64_t key = 3;
    begin(pair, 0);
    begin_in_part(pair);
    stepped_join(&pair->other, &pair->stepped, 1, 8);
    shard_request_begin(request, 0);
    shard_request_erase(request, ASP, &key, 1);
    stepped_send(&pair->other, 1, STEPPED_BUDGET);
    stepped_expect_ok(&pair->other, 1);
    assert_int_equal(pair->peer.reply_count, 0);
    assert_true(take_over(pair, &pair->peer)->welcome.resumed);
    pair->other.hello.shard = 1;
    assert_true(stepped_again(&pair->other)->welcome.resumed);
    send_in_part(pair);
    stepped_tick_done(&pair->other, 2, 0);
    stepped_expect_ok(&pair->peer, 1);
    shard_request_begin(request, 0);
    shard_request_pull(request, ASP, &key, 1);
    stepped_send(&pair->other, 3, STEPPED_BUDGET);
    assert_true(stepped_reply(&pair->other, 3)->value == 1.0F);
}

PAIR_CASE(replica__the_rest_follows_what_was_done_in_part)
{
    struct shard_request *request = &pair->stepped.request;
    const uint64_t key = 3;
    begin(pair, 0);
    begin_in_part(pair);
    stepped_join(&pair->other, &pair->stepped, 1, 8);
    stepped_tick_done(&pair->other, 1, 0);
    stepped_expect_ok(&pair->peer, 1);
    assert_true(take_over(pair, &pair->peer)->welcome.resumed);
    assert_int_equal(pair->failed_count, 0);
    assert_int_equal(pair->peer.answer.welcome.clock, 2);
    shard_request_begin(request, 0);
    shard_request_pull(request, ASP, &key, 1);
    stepped_send(&pair->peer, 2, STEPPED_BUDGET);
    assert_true(stepped_reply(&pair->peer, 2)->value == 2.0F);
}

PAIR_CASE(replication_metrics__show_a_backup_that_is_late)
{
    const struct sl_replication_cells *primary = pair->stepped.server->replica->cells;
    const struct sl_replication_cells *backup = pair->backup->replica->cells;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    assert_int_equal(sl_cell_get(&primary->is_primary), 1);
    assert_int_equal(sl_cell_get(&primary->is_in_sync), 1);
    const uint64_t before_ns = sl_cell_get(&primary->degraded_ns);
    tell(pair, pair->stepped.server, 2, true, false);
    assert_int_equal(sl_cell_get(&primary->is_in_sync), 0);
    stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S);
    assert_true(sl_cell_get(&primary->degraded_ns) >= before_ns + SL_CLOCK_NS_PER_S / 2);
    tell(pair, pair->backup, 3, false, false);
    tell(pair, pair->stepped.server, 3, true, true);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    for (uint32_t i = 0; i < 1000 && sl_cell_get(&primary->is_in_sync) == 0; i++) {
        turns(pair, 1);
    }
    assert_int_equal(sl_cell_get(&primary->is_in_sync), 1);
    const uint64_t after_ns = sl_cell_get(&primary->degraded_ns);
    stepped_push(&pair->peer, 2, ASP, STEPPED_KEYS);
    for (uint32_t i = 0; i < 1000 && sl_cell_get(&primary->lag_entries) == 0; i++) {
        turns(pair, 1);
    }
    assert_true(sl_cell_get(&primary->lag_bytes) > 0);
    assert_int_equal(stepped_reply(&pair->peer, 2)->status, 0);
    assert_int_equal(sl_cell_get(&primary->lag_entries), 0);
    assert_int_equal(sl_cell_get(&primary->lag_bytes), 0);
    assert_int_equal(sl_cell_get(&primary->degraded_ns), after_ns);
    assert_int_equal(sl_cell_get(&backup->is_primary), 0);
}

PAIR_CASE(replica__a_backup_that_comes_later_gets_a_snapshot)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    begin_later(pair);
    /* Pushes during the snapshot are acknowledged, and sent after it. */
    uint64_t id = 2;
    while (pair->in_sync_count < 2) {
        assert_true(id < 1000);
        stepped_push_done(&pair->peer, id, ASP, 10);
        id++;
    }
    assert_int_equal(pair->epoch, 2);
    const uint64_t degraded = stats_of(pair->stepped.server).degraded_writes;
    assert_true(degraded > 0);
    assert_true(degraded <= id - 2);
    assert_true(stats_of(pair->stepped.server).degraded_ms == 0);
    stepped_push_done(&pair->peer, id, ASP, 10);
    assert_true(stats_of(pair->stepped.server).degraded_writes == degraded);
    tell(pair, pair->backup, 3, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    stepped_push(&pair->peer, id, ASP, 10); /* again: it is not done twice */
    assert_int_equal(stepped_reply(&pair->peer, id)->status, 0);
    stepped_pull(&pair->peer, id + 1, 0, ASP);
    assert_true(stepped_reply(&pair->peer, id + 1)->value == (float)id);
    assert_int_equal(pair->failed_count, 0);
}

/* A client of the checkpoint that its primary began from is told so by the backup, too. */
PAIR_CASE(replica__a_backup_says_who_was_restored)
{
    begin(pair, UINT32_MAX);
    stepped_join(&pair->other, &pair->stepped, UINT32_MAX, 8);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_open_table(&pair->other, ASP, SL_CONSISTENCY_ASP);
    sl_server_session_find(pair->stepped.server, 7)->restored = true;
    begin_later(pair);
    turns(pair, 200);
    tell(pair, pair->backup, 3, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = pair->other.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.restored);
    assert_false(stepped_again(&pair->other)->welcome.restored);
}

/* A worker of the job is lost, as the coordinator says. */
static void lose_worker(struct sl_server *server, uint32_t worker, uint64_t client_id)
{
    const struct sl_message_expired lost = {.role = SL_MESSAGE_ROLE_WORKER,
                                            .task_index = worker,
                                            .client_id = client_id,
                                            .why = "of the test"};
    sl_server_on_expired(server, &lost);
}

/* Of two workers only worker/0 is there: it waits for nobody. */
static void expect_degraded(struct stepped_peer *peer, uint64_t id, uint32_t clock)
{
    stepped_tick_done(peer, id, clock);
    stepped_pull(peer, id + 1, clock + 1, 0);
    assert_int_equal(stepped_reply(peer, id + 1)->status, 0);
}

/* worker/1, whose client was 9, counts neither here nor at the backup. */
static void expect_lost_at_both(struct pair *pair)
{
    stepped_join(&pair->peer, &pair->stepped, 0, 7);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    expect_degraded(&pair->peer, 1, 0);
    stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S);
    tell(pair, pair->backup, 9, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    expect_degraded(&pair->peer, 3, 1);
}

/* A ps that was started anew is told at once who does not count. */
PAIR_CASE(replica__a_loss_while_it_waits_for_a_backup_is_not_forgotten)
{
    tell(pair, pair->stepped.server, 1, true, true);
    lose_worker(pair->stepped.server, 1, 9);
    turns(pair, 5);
    tell(pair, pair->backup, 1, false, false);
    stepped_pass(&pair->stepped, 3 * SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->in_sync_count, 1);
    expect_lost_at_both(pair);
}

PAIR_CASE(replica__a_loss_before_there_is_a_backup_is_in_its_snapshot)
{
    tell(pair, pair->stepped.server, 1, true, false);
    lose_worker(pair->stepped.server, 1, 9);
    begin_later(pair);
    stepped_pass(&pair->stepped, 3 * SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->in_sync_count, 1);
    expect_lost_at_both(pair);
}

/* The coordinator tells it at once; the backup has yet to carry out what came before. */
PAIR_CASE(replica__a_loss_while_the_backup_takes_over_is_not_forgotten)
{
    begin(pair, 0);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push(&pair->peer, 1, ASP, STEPPED_KEYS);
    for (uint32_t i = 0; !sl_replication_receiver_waits(pair->backup); i++) {
        assert_true(i < 1000);
        turns(pair, 1);
    }
    tell(pair, pair->backup, 2, true, false);
    assert_int_equal(pair->backup->replica->stage, SL_REPLICATION_PROMOTING);
    lose_worker(pair->backup, 1, 9);
    turns(pair, 100);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    expect_degraded(&pair->peer, 2, 0);
}

/* A reply that waited is not sent to a connection that is no more. */
PAIR_CASE(replica__a_client_that_is_lost_while_its_reply_waits)
{
    begin(pair, 0);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    tell(pair, pair->backup, 2, false, false);
    stepped_push(&pair->peer, 1, ASP, 10);
    turns(pair, 200);
    lose_worker(pair->stepped.server, 0, 7);
    tell(pair, pair->stepped.server, 2, true, false);
    turns(pair, 50);
    assert_int_equal(pair->peer.reply_count, 0);
    assert_true(sl_server_is_idle(pair->stepped.server));
}

/* Likewise of one whose client has connected anew. */
PAIR_CASE(replica__a_client_that_comes_again_while_its_reply_waits)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    tell(pair, pair->backup, 2, false, false);
    stepped_push(&pair->peer, 1, ASP, 10);
    turns(pair, 50);
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    tell(pair, pair->stepped.server, 2, true, false);
    turns(pair, 50);
    assert_int_equal(pair->peer.reply_count, 0);
}

/* The snapshot has a part of a request: the rest is sent after it. */
PAIR_CASE(replica__the_rest_of_a_request_follows_the_snapshot)
{
    struct shard_request *request = &pair->stepped.request;
    const uint64_t key = 3;
    begin(pair, 0);
    stepped_join(&pair->other, &pair->stepped, 1, 8);
    begin_in_part(pair);
    begin_later(pair);
    turns(pair, 500);
    assert_int_equal(pair->in_sync_count, 2);
    stepped_tick_done(&pair->other, 1, 0);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    tell(pair, pair->backup, 3, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    assert_int_equal(pair->peer.answer.welcome.clock, 2);
    shard_request_begin(request, 2);
    shard_request_pull(request, ASP, &key, 1);
    stepped_send(&pair->peer, 2, STEPPED_BUDGET);
    assert_true(stepped_reply(&pair->peer, 2)->value == 2.0F);
    assert_int_equal(pair->failed_count, 0);
}

/* A backup that keeps its connection, and says nothing: replies wait a lease at most. */
PAIR_CASE(replica__a_backup_that_says_nothing_is_given_up)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER; /* it does nothing more */
    stepped_push(&pair->peer, 1, ASP, 10);
    stepped_pass(&pair->stepped, STEPPED_LEASE - SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 0);
    stepped_pass(&pair->stepped, 2 * SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 1);
    assert_int_equal(pair->peer.reply_count, 0); /* that is the coordinator's to say */
    tell(pair, pair->stepped.server, 2, true, true);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
}

/* The same after the snapshot: the size of the log is limited. */
PAIR_CASE(replica__a_backup_that_says_nothing_of_its_snapshot_is_given_up)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    begin_later(pair);
    turns(pair, 1);
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER;
    stepped_push_done(&pair->peer, 1, ASP, 10);
    stepped_pass(&pair->stepped, 3 * STEPPED_LEASE);
    assert_int_equal(pair->failed_count, 1);
}

/* A backup that cannot apply an entry is no longer in sync; it is never promoted. */
PAIR_CASE(replica__a_backup_that_is_not_in_sync_reports_it)
{
    begin(pair, UINT32_MAX);
    const struct sl_table_spec other = {.name = "other",
                                        .kind = SL_TABLE_SPARSE,
                                        .dim = 2,
                                        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)};
    assert_int_equal(sl_shard_table_open(pair->backup->shard, ASP, &other, NULL), 0);
    struct sl_message open = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = 5,
        .table_open = {.table_id = ASP,
                       .spec = {.name = "mine",
                                .kind = SL_TABLE_SPARSE,
                                .dim = STEPPED_DIM,
                                .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)}},
    };
    pair->peer.answer_count = 0;
    stepped_tell(&pair->peer, &open);
    /* Its refusal is not trusted for a lease, since there is no secret. */
    stepped_pass(&pair->stepped, 2 * STEPPED_LEASE);
    assert_int_equal(pair->peer.answer_count, 0); /* held, as pushes are */
    assert_int_equal(pair->failed_count, 1);
    tell(pair, pair->backup, 2, true, false);
    assert_int_equal(pair->err, SL_ERR_CORRUPT);
    tell(pair, pair->stepped.server, 2, true, false);
    turns(pair, 50);
    assert_int_equal(pair->peer.answer.kind, SL_MESSAGE_TABLE_OPENED);
}
