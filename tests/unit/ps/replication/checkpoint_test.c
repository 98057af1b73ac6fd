/* Checkpoints of a primary whose shard is also read for its backup's snapshot: one after the
 * other. */
#include <stdlib.h>

#include "pair.h"
#include "ps/server/checkpoint.h"
#include "ps/shard/snapshot.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"

struct saved {
    struct memory_disk disk;
    uint32_t count;
    struct sl_server_checkpoint_result last;
};

static void on_saved(void *ctx, const struct sl_server_checkpoint_result *result)
{
    struct saved *saved = ctx;
    saved->count++;
    saved->last = *result;
}

/* The primary has a disk. */
static struct saved *make_disk(struct pair *pair)
{
    struct saved *saved = calloc(1, sizeof *saved);
    assert_non_null(saved);
    const struct sl_server_checkpoint_options options = {.disk = &saved->disk.disk,
                                                         .directory = "/c",
                                                         .compression_level = 1,
                                                         .ended = on_saved,
                                                         .ctx = saved};
    memory_disk_init(&saved->disk);
    assert_int_equal(sl_server_checkpoint_open(pair->stepped.server, &options), 0);
    return saved;
}

/* The disk, and rows enough for a snapshot of some turns. */
static struct saved *begin_with_disk(struct pair *pair)
{
    struct saved *saved = make_disk(pair);
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push_done(&pair->peer, 1, ASP, STEPPED_KEYS);
    return saved;
}

static void both_end(struct pair *pair, struct saved *saved, uint32_t count)
{
    for (uint32_t i = 0; i < 1000 && (pair->in_sync_count < 2 || saved->count < count); i++) {
        turns(pair, 1);
        stepped_pass(&pair->stepped, SL_CLOCK_NS_PER_S / 100);
    }
    assert_int_equal(pair->in_sync_count, 2);
    assert_int_equal(saved->count, count);
    assert_int_equal(saved->last.err, 0);
    assert_true(saved->last.file.rows >= STEPPED_KEYS);
    assert_int_equal(pair->failed_count, 0);
}

/* A checkpoint that is aborted does not disturb the snapshot. */
PAIR_CASE(server_replica__a_checkpoint_waits_for_a_snapshot)
{
    struct saved *saved = begin_with_disk(pair);
    begin_later(pair);
    while (pair->stepped.server->replica->link != SL_REPLICATION_SNAPSHOT) {
        turns(pair, 1);
    }
    sl_server_checkpoint_begin(pair->stepped.server, 1, 0, 0);
    turns(pair, 1);
    sl_server_checkpoint_begin(pair->stepped.server, 2, 0, 0);
    assert_int_equal(saved->count, 1);
    assert_int_equal(saved->last.err, SL_ERR_CANCELLED);
    assert_int_equal(pair->stepped.server->replica->link, SL_REPLICATION_SNAPSHOT);
    assert_int_equal(sl_shard_snapshot_state(pair->stepped.server->shard),
                     SL_SHARD_SNAPSHOT_RUNNING);
    both_end(pair, saved, 2);
    memory_disk_fini(&saved->disk);
    free(saved);
}

PAIR_CASE(server_replica__a_snapshot_waits_for_a_checkpoint)
{
    struct saved *saved = begin_with_disk(pair);
    sl_server_checkpoint_begin(pair->stepped.server, 1, 0, 0);
    turns(pair, 1);
    assert_int_equal(sl_shard_snapshot_state(pair->stepped.server->shard),
                     SL_SHARD_SNAPSHOT_RUNNING);
    begin_later(pair);
    both_end(pair, saved, 1);
    memory_disk_fini(&saved->disk);
    free(saved);
}

/* worker/0 pushes, ticks, and waits for worker/1 with its pull. */
static void send_step(struct pair *pair)
{
    struct stepped *stepped = &pair->stepped;
    shard_request_begin(&stepped->request, 0);
    shard_request_push(&stepped->request, SL_REQUEST_PUSH, ASP, stepped->keys, 10,
                       stepped->gradients, STEPPED_DIM);
    shard_request_tick(&stepped->request);
    shard_request_pull(&stepped->request, 0, stepped->keys, 10);
    stepped_send(&pair->peer, 1, STEPPED_BUDGET);
}

/* A checkpoint has a part of a request, of which the backup has nothing: when the request ends
 * there, with its worker, the backup gets that part too. */
PAIR_CASE(server_replica__what_a_checkpoint_has_the_backup_need_not_have)
{
    struct saved *saved = make_disk(pair);
    begin(pair, 0);
    stepped_open_table(&pair->peer, 0, SL_CONSISTENCY_BSP);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    send_step(pair);
    turns(pair, 50);
    sl_server_checkpoint_begin(pair->stepped.server, 1, 0, 0);
    turns(pair, 500);
    assert_int_equal(saved->count, 1);
    assert_int_equal(saved->last.err, 0);
    assert_int_equal(pair->peer.reply_count, 0);
    stepped_break(&pair->peer);
    stepped_pass(&pair->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S); /* it is lost */
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    pair->other.hello = pair->peer.hello;
    pair->other.hello.client_id = 8;
    pair->other.hello.task_index = 1;
    pair->other.hello.shard = 1;
    pair->other.world = &pair->stepped;
    assert_int_equal(stepped_again(&pair->other)->kind, SL_MESSAGE_WELCOME);
    stepped_pull(&pair->other, 1, 0, ASP);
    assert_true(stepped_reply(&pair->other, 1)->value == 1.0F);
    memory_disk_fini(&saved->disk);
    free(saved);
}
