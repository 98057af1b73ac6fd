/* A shard and its backup, where there are more clients, less memory or more to send than one of the
 * two has room for. */

#include <string.h>

#include "pair.h"
#include "ps/shard/section.h"
#include "tests/support/unit.h"

/* A block of a snapshot has the rows of one table: less than the budget of a turn, and more than
 * half of it. */
#define TABLES 4
#define ROWS   5000
#define BUDGET 6000

/* At the backup those are away, too, who are connected to the primary: there may be more of them
 * than connections. */
PAIR_CASE(replica__a_backup_forgets_nobody_whom_its_primary_knows)
{
    pair->stepped.server->options.transports.options.connections_max = 2;
    pair->backup->options.transports.options.connections_max = 1;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_join(&pair->other, &pair->stepped, UINT32_MAX, 8);
    stepped_push(&pair->peer, 1, ASP, 10);
    stepped_push(&pair->other, 2, ASP, 10);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    assert_int_equal(stepped_reply(&pair->other, 2)->status, 0);
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    pair->other.hello.shard = 1;
    assert_true(stepped_again(&pair->other)->welcome.resumed);
}

/* There was none for another shard: there is in another epoch. */
PAIR_CASE(replica__a_backup_without_memory_is_none_for_an_epoch)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, 10);
    tell(pair, pair->backup, 2, false, false);
    sl_shard_destroy(&pair->backup->shard);
    pair->backup->replica->backup.is_broken = true;
    tell(pair, pair->stepped.server, 2, true, true);
    stepped_pass(&pair->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 1);
    tell(pair, pair->backup, 3, false, false);
    tell(pair, pair->stepped.server, 3, true, true);
    stepped_pass(&pair->stepped, STEPPED_LEASE);
    assert_int_equal(pair->in_sync_count, 2);
    assert_int_equal(pair->err, 0);
}

/* Requests that write, as many as are logged, and one more: it waits, with a time to live. Returns
 * its id. */
static uint64_t fill_log(struct pair *pair, uint32_t budget_us)
{
    struct shard_request *request = &pair->stepped.request;
    const struct sl_replication *replica = pair->stepped.server->replica;
    uint64_t id = 10;
    while (pair->stepped.server->role.log_room == SL_SERVER_LOG_HAS_ROOM) {
        assert_true(replica->catch_up.block_count > 0);
        for (uint32_t i = 0; i < 16; i++) { /* together they take little time */
            stepped_push(&pair->peer, id++, ASP, 1);
        }
        turns(pair, 5);
    }
    turns(pair, 50);
    shard_request_begin(request, 0);
    shard_request_push(request, SL_REQUEST_PUSH, ASP, pair->stepped.keys, 1,
                       pair->stepped.gradients, STEPPED_DIM);
    stepped_send(&pair->peer, id, budget_us);
    return id;
}

/* A snapshot that takes longer than pushes can wait is given up: the pushes go on, and the snapshot
 * is tried again later. */
PAIR_CASE(replica__a_snapshot_that_takes_too_long_is_given_up)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    begin_later(pair);
    while (pair->stepped.server->replica->catch_up.block_count < 2) {
        turns(pair, 1);
    }
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER; /* as if it had long to do */
    const uint64_t id = fill_log(pair, 4U * 1000 * 1000);
    const uint32_t reply_count = pair->peer.reply_count;
    stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->peer.reply_count, reply_count);
    stepped_pass(&pair->stepped, 2 * SL_CLOCK_NS_PER_S);
    assert_int_equal(stepped_reply(&pair->peer, id)->status, 0);
    pair->backup->role.switchover = SL_SERVER_NO_SWITCHOVER;
    assert_int_equal(pair->in_sync_count, 1);
    assert_int_equal(pair->failed_count, 0);
    /* What it was sent it has by now: it begins anew in another epoch. */
    stepped_pass(&pair->stepped, 10 * SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 1);
    tell(pair, pair->backup, 3, false, false);
    tell(pair, pair->stepped.server, 3, true, true);
    stepped_pass(&pair->stepped, 10 * SL_CLOCK_NS_PER_S);
    turns(pair, 2000);
    assert_int_equal(pair->in_sync_count, 2);
}

/* The backup is in sync and does not keep up: a request that missed its deadline is answered with
 * the reason. */
PAIR_CASE(replica__who_waits_for_a_backup_that_is_behind_is_told_so)
{
    struct shard_request *request = &pair->stepped.request;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    pair->stepped.server->role.log_room = SL_SERVER_LOG_FULL; /* until the next entry is over */
    shard_request_begin(request, 0);
    shard_request_push(request, SL_REQUEST_PUSH, ASP, pair->stepped.keys, 1,
                       pair->stepped.gradients, STEPPED_DIM);
    stepped_send(&pair->peer, 5, 1000 * 1000);
    stepped_pass(&pair->stepped, 2 * SL_CLOCK_NS_PER_S);
    const struct stepped_reply *reply = stepped_reply(&pair->peer, 5);
    assert_int_equal(reply->status, SL_ERR_DEADLINE);
    assert_non_null(strstr(reply->text, "its backup does not keep up"));
}

/* An entry that takes several leases until the backup has all of it, on a slow link. */
PAIR_CASE(replica__a_backup_that_takes_an_entry_slowly_is_kept)
{
    struct sl_replication *primary = pair->stepped.server->replica;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    turns(pair, 50);
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER; /* as if it did not have it all */
    stepped_push(&pair->peer, 1, ASP, 10);
    for (uint32_t i = 0; i < 8; i++) {
        sl_session_conn(primary->sender.session)->taken_bytes += 100000;
        stepped_pass(&pair->stepped, STEPPED_LEASE / 2);
    }
    assert_int_equal(pair->failed_count, 0);
    assert_int_equal(pair->peer.reply_count, 0);
    stepped_pass(&pair->stepped, 2 * STEPPED_LEASE); /* nothing more is taken */
    assert_int_equal(pair->failed_count, 1);
    pair->backup->role.switchover = SL_SERVER_NO_SWITCHOVER;
}

/* Messages that the backup has to carry out too, and does not: their sender is closed, before they
 * take memory without limit. */
PAIR_CASE(replica__a_flood_of_messages_is_ended)
{
    const struct sl_replication *replica = pair->stepped.server->replica;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER; /* as if it had long to do */
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
    message.table_open.table_id = ASP;
    message.table_open.spec = pair->stepped.server->shard->tables[ASP]->spec;
    uint32_t count = 0;
    while (pair->peer.link != NULL && count++ < 20000) {
        message.id = count;
        stepped_tell(&pair->peer, &message);
        turns(pair, 1);
    }
    assert_null(pair->peer.link);
    assert_true(replica->log.entry_count > 4096);
    assert_true(replica->log.entry_count < 16384);
    pair->backup->role.switchover = SL_SERVER_NO_SWITCHOVER;
    turns(pair, 20000);
    assert_int_equal(replica->log.entry_count, 0);
    assert_int_equal(pair->failed_count, 0);
}

static uint64_t rows_of(const struct sl_server *server)
{
    uint64_t rows = 0;
    for (uint32_t id = 0; id < server->shard->table_count; id++) {
        const struct sl_shard_table *table = server->shard->tables[id];
        rows += table == NULL ? 0 : sl_sparse_table_row_count(table->sparse);
    }
    return rows;
}

/* Each row costs one key here. The blocks of the snapshot wait at the backup: a turn loads what its
 * budget pays for, and says how much that was, however many blocks these are. */
PAIR_CASE(replica__loading_keeps_to_the_budget_of_a_turn)
{
    begin(pair, UINT32_MAX);
    for (uint16_t id = 1; id <= TABLES; id++) {
        stepped_open_table(&pair->peer, id, SL_CONSISTENCY_ASP);
        stepped_push_done(&pair->peer, id, id, ROWS);
    }
    const uint64_t all = rows_of(pair->stepped.server);
    begin_later(pair);
    while (pair->stepped.server->replica->catch_up.block_count == 0) {
        turns(pair, 1);
    }
    pair->backup->role.switchover = SL_SERVER_SWITCHED_OVER; /* it executes what this test runs */
    turns(pair, 500);
    uint32_t calls = 0;
    for (uint64_t before = rows_of(pair->backup); before < all; calls++) {
        const uint32_t spent = sl_replication_receiver_run(pair->backup, BUDGET);
        const uint64_t loaded = rows_of(pair->backup) - before;
        assert_true(loaded <= BUDGET + SL_SHARD_BATCH_KEYS);
        assert_true(spent >= (loaded < BUDGET ? loaded : BUDGET));
        assert_true(spent > 0);
        assert_true(calls < 100);
        before += loaded;
        turns(pair, 50); /* the next blocks come */
    }
    pair->backup->role.switchover = SL_SERVER_NO_SWITCHOVER;
}

/* Fills the outbox with frames of `queue`, which wait until it is closed. */
static void fill_outbox(struct sl_outbox *outbox, struct sl_conn *conn,
                        struct sl_outbox_queue *queue)
{
    static const uint32_t sizes[] = {SL_OUTBOX_BLOCK_BYTES / 4, 0};
    queue->is_open = true;
    for (size_t i = 0; i < 2; i++) {
        const struct sl_frame frame = {.type = SL_FRAME_REPLY, .payload_bytes = sizes[i]};
        while (sl_outbox_reserve(outbox, sizes[i]) != NULL) {
            sl_outbox_commit(outbox, conn, queue, &frame, NULL, 0, NULL, NULL);
        }
    }
}

/* A backup whose outbox was full when it executed the last entry acknowledges it as soon as there
 * is room: no further entry needs to arrive. */
PAIR_CASE(replica__an_acknowledgement_without_room_is_sent_later)
{
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    const struct sl_replication_backup *backup = &pair->backup->replica->backup;
    const uint64_t acked = backup->acked;
    struct sl_outbox *outbox = backup->feed->outbox;
    struct sl_conn *conn = backup->feed->conn;
    struct sl_outbox_queue queue = {0};
    fill_outbox(outbox, conn, &queue);
    stepped_push(&pair->peer, 1, ASP, 10);
    turns(pair, 50);
    assert_int_equal(backup->position, acked + 1);
    assert_int_equal(backup->acked, acked);
    assert_int_equal(pair->peer.reply_count, 0);
    sl_outbox_closed(outbox, conn, &queue);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    assert_int_equal(backup->acked, acked + 1);
}
