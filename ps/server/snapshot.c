#include "ps/server/snapshot.h"

#include "ps/server/session_snapshot.h"
#include "ps/server/state.h"

int sl_server_snapshot_begin(struct sl_server *server,
                             const struct sl_shard_snapshot_options *options, bool for_backup)
{
    int err = sl_shard_snapshot_begin(server->shard, options);
    if (err == 0) {
        sl_server_session_snapshot_begin(server, for_backup);
    }
    return err;
}

uint32_t sl_server_snapshot_run(struct sl_server *server, uint32_t key_budget)
{
    return sl_server_session_snapshot_is_over(server)
               ? sl_shard_snapshot_run(server->shard, key_budget)
               : sl_server_session_snapshot_run(server, key_budget);
}

const char *sl_server_snapshot_failure(const struct sl_server *server)
{
    if (sl_server_session_snapshot_has_failed(server)) {
        return "no memory for what the shard knows of its clients";
    }
    return sl_shard_snapshot_state(server->shard) == SL_SHARD_SNAPSHOT_FAILED
               ? sl_shard_snapshot_why(server->shard)
               : NULL;
}

struct sl_snapshot_block *sl_server_snapshot_take(struct sl_server *server)
{
    return sl_server_session_snapshot_is_over(server) ? sl_shard_snapshot_take(server->shard)
                                                      : sl_server_session_snapshot_take(server);
}

void sl_server_snapshot_put(struct sl_server *server, struct sl_snapshot_block *block)
{
    if (block->kind == SL_SNAPSHOT_SESSIONS || server->shard == NULL) {
        sl_snapshot_block_destroy(&block);
    } else {
        sl_shard_snapshot_put(server->shard, block);
    }
}

void sl_server_snapshot_end(struct sl_server *server, struct sl_shard_snapshot_base **base)
{
    sl_server_session_snapshot_end(server);
    sl_shard_snapshot_end(server->shard, base);
}

bool sl_server_snapshot_has_spare(const struct sl_server *server)
{
    return sl_server_session_snapshot_has_spare(server) ||
           sl_shard_snapshot_has_spare(server->shard);
}

void sl_server_snapshot_clean(struct sl_server *server)
{
    if (sl_server_session_snapshot_has_spare(server)) {
        sl_server_session_snapshot_clean(server);
    } else {
        sl_shard_snapshot_clean(server->shard);
    }
}
