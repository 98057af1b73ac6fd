#include "ps/server/view.h"

#include <string.h>

#include "ps/server/state.h"

/* Returns true when it is time to halve the counts of hot keys. */
static bool is_half_life_over(struct sl_server *server)
{
    const uint64_t now_ns = sl_server_now_ns(server);
    const bool is_over = now_ns - server->cells.hot_halved_ns >= SL_HOT_KEYS_HALF_NS;
    server->cells.hot_halved_ns = is_over ? now_ns : server->cells.hot_halved_ns;
    return is_over;
}

bool sl_server_view_fill(void *ctx, void *into, uint32_t slice)
{
    struct sl_server *server = *(struct sl_server **)ctx;
    struct sl_server_view *view = into;
    if (server == NULL || server->shard == NULL) {
        view->stage = SL_SERVER_VIEW_NO_SHARD;
        return true;
    }
    if (slice == 0) {
        view->stage = server->is_open ? SL_SERVER_VIEW_OPEN : SL_SERVER_VIEW_RESTORING;
        view->serves = server->role.serves;
        view->shard_index = server->options.shard.index;
        view->halves = is_half_life_over(server);
        view->slow_count = server->slow.count;
        const uint64_t kept = server->slow.count < SL_SERVER_SLOW_REQUESTS
                                  ? server->slow.count
                                  : SL_SERVER_SLOW_REQUESTS;
        memcpy(view->slow, server->slow.requests, kept * sizeof view->slow[0]);
    }
    return sl_shard_view_fill(server->shard, &view->shard, slice == 0, view->halves);
}
