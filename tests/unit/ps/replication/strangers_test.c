/* A shard and its backup: a primary that is none any more, a client of which the log has not told.
 */

#include "pair.h"
#include "tests/support/unit.h"

/* A process that has not heard that it is a primary no more. */
static const struct sl_message *come_as_primary(struct pair *pair, uint32_t shard, uint64_t epoch)
{
    pair->other.world = &pair->stepped;
    pair->other.hello = (struct sl_message_hello){.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                                  .purpose = SL_MESSAGE_PURPOSE_REPLICA,
                                                  .role = SL_MESSAGE_ROLE_PS,
                                                  .client_id = 4711,
                                                  .shard = shard,
                                                  .epoch = epoch,
                                                  .state = pair->backup->role.state};
    return stepped_again(&pair->other);
}

/* And says of itself that it is what the backup has: it changes nothing. */
PAIR_CASE(replica__who_comes_from_an_older_epoch_is_refused)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    begin_later(pair);
    turns(pair, 200);
    assert_int_equal(pair->in_sync_count, 2);
    const struct sl_server_conn *feed = pair->backup->replica->backup.feed;
    const struct sl_message *answer = come_as_primary(pair, 1, 1);
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_REFUSED);
    assert_ptr_equal(pair->backup->replica->backup.feed, feed);
    answer = come_as_primary(pair, 0, 2); /* the primary is nobody's backup */
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_EXISTS);
    assert_null(pair->stepped.server->replica->backup.feed);
    stepped_push_done(&pair->peer, 1, ASP, 10);
    assert_int_equal(pair->failed_count, 0);
}

/* Its worker ticks, and waits for nobody. */
static void expect_degraded(struct stepped_peer *peer, uint64_t id, uint32_t clock)
{
    stepped_tick_done(peer, id, clock);
    stepped_pull(peer, id + 1, clock + 1, 0);
    assert_int_equal(stepped_reply(peer, id + 1)->status, 0);
}

/* worker/1 has said hello and nothing more when it is lost: it counts at neither. */
PAIR_CASE(replica__the_end_of_an_unknown_client_is_heard_of)
{
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = 1, .client_id = 9, .why = "of the test"};
    begin(pair, 0);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_join(&pair->other, &pair->stepped, 1, 9);
    assert_null(sl_server_session_find(pair->backup, 9));
    sl_server_on_expired(pair->stepped.server, &lost);
    expect_degraded(&pair->peer, 1, 0);
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    expect_degraded(&pair->peer, 3, 1);
}
