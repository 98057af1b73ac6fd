#include "pair.h"

static void on_moved(void *ctx, uint32_t local_index, uint64_t epoch, bool in_sync)
{
    struct pair *pair = ctx;
    const struct sl_server *server = pair->stepped.servers[local_index];
    const struct sl_replication *replica = server->replica;
    assert_true(!in_sync ||
                replica->log.ended >= replica->log.answered); /* the backup has all of that */
    pair->in_sync_count += in_sync;
    pair->failed_count += !in_sync;
    pair->epoch = epoch;
}

static void on_failed(void *ctx, int err)
{
    ((struct pair *)ctx)->err = err;
}

void turns(struct pair *pair, uint32_t count)
{
    stepped_turns(&pair->stepped, count);
}

void tell(struct pair *pair, struct sl_server *server, uint64_t epoch, bool is_primary,
          bool has_backup)
{
    const struct sl_replica_config told = {
        .epoch = epoch,
        .is_primary = is_primary,
        .has_backup = has_backup,
        .backup_task = 1,
        .backup = pair->stepped.behind,
        .needs_backup = true,
    };
    sl_replication_set_config(server, &told);
}

void pair_setup(struct pair *pair)
{
    struct stepped *world = &pair->stepped;
    world->options.hooks = &sl_replication_hooks;
    pair->replication = (struct sl_replication_options){
        .state_changed = on_moved, .failed = on_failed, .ctx = pair};
    world->options.replication = &pair->replication;
    stepped_start(world, 1);
    struct sl_server_options options = world->server->options;
    options.servers = &pair->backup;
    options.replication = &pair->replication;
    assert_int_equal(sl_server_create(&options, &pair->backup), 0);
    world->servers[1] = pair->backup;
    sl_server_set_lease(pair->backup, STEPPED_LEASE);
    assert_int_equal(sl_server_set_shard(pair->backup, 0, 1), 0);
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    assert_int_equal(sl_server_listen(pair->backup, &any, &pair->stepped.behind), 0);
}

void pair_teardown(struct pair *pair)
{
    sl_message_fini(&pair->peer.answer);
    sl_message_fini(&pair->other.answer);
    sl_server_destroy(&pair->backup);
    stepped_stop(&pair->stepped);
}

void begin(struct pair *pair, uint32_t worker)
{
    tell(pair, pair->backup, 1, false, false);
    tell(pair, pair->stepped.server, 1, true, true);
    turns(pair, 50);
    assert_int_equal(pair->in_sync_count, 1);
    stepped_join(&pair->peer, &pair->stepped, worker, 7);
}

void begin_later(struct pair *pair)
{
    tell(pair, pair->backup, 2, false, false);
    tell(pair, pair->stepped.server, 2, true, true);
}
