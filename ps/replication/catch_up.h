/* Catch-up: sends a snapshot to a backup when the shard is not empty. The shard takes it while
 * serving; its blocks are the first entries of the log. Later entries follow them, and their
 * replies do not wait. When the backup has the last block, replies start to wait. When it has
 * everything answered before, it is in sync. */
#ifndef SL_PS_REPLICATION_CATCH_UP_H
#define SL_PS_REPLICATION_CATCH_UP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backoff.h"
#include "reactor/timer.h"

struct sl_server;

/* How far the request for a snapshot is, while the backup needs one. */
enum sl_replication_request {
    SL_REPLICATION_REQUEST_READY,
    SL_REPLICATION_REQUEST_PENDING, /* a push is partly applied */
    SL_REPLICATION_REQUEST_PAUSED,  /* until the timer: another snapshot is in progress */
};

struct sl_replication_catch_up {
    uint32_t block_count;                /* of the snapshot, in flight */
    enum sl_replication_request request; /* state of the wish for a snapshot */
    struct sl_backoff late; /* after aborted snapshots, since the backup was last in sync */
    struct sl_timer timer;
};

/* The backup is empty and the shard is not: requests a snapshot. */
void sl_replication_catch_up_want(struct sl_server *server);

/* Aborts the log, and a requested or running snapshot. */
void sl_replication_catch_up_abort(struct sl_server *server);

/* Starts or continues; returns the cost. */
uint32_t sl_replication_catch_up_run(struct sl_server *server);

/* Returns true when it can continue now. */
bool sl_replication_catch_up_is_busy(const struct sl_server *server);

#endif
