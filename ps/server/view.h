/* The view of a server, for a reader on another thread (reactor/view.h). */
#ifndef SL_PS_SERVER_VIEW_H
#define SL_PS_SERVER_VIEW_H

#include "ps/server/slow_requests.h"
#include "ps/shard/view.h"

struct sl_server;

struct sl_server_view {
    enum sl_server_view_stage {
        SL_SERVER_VIEW_NO_SHARD, /* the rest is empty */
        SL_SERVER_VIEW_RESTORING,
        SL_SERVER_VIEW_OPEN, /* clients are welcomed: no checkpoint is being restored */
    } stage;
    bool serves; /* the shard's primary; false: its backup */
    uint32_t shard_index;
    bool halves; /* the counts of hot keys, after they were copied */
    struct sl_shard_view shard;
    uint64_t slow_count; /* of slow requests, ever; the last ones are in `slow` */
    struct sl_server_slow_request slow[SL_SERVER_SLOW_REQUESTS]; /* n is at n % SLOW_REQUESTS */
};

/* A sl_view_fill_fn. ctx: struct sl_server **, NULL in it: no server. into: struct sl_server_view.
 * Owner reactor. */
bool sl_server_view_fill(void *ctx, void *into, uint32_t slice);

#endif
