/* Places of shards: for a tool that moves shards between the servers of a running job. */
#ifndef STARLING_PLACEMENT_H
#define STARLING_PLACEMENT_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_placement_change {
    SL_PLACEMENT_MOVE,    /* shard `shard` to server `task` */
    SL_PLACEMENT_DRAIN,   /* all shards away from server `task`, which then ends */
    SL_PLACEMENT_BALANCE, /* until all servers have as many, but for one */
};

/* Begins the change, or queues it behind other moves, and returns; dry_run: changes nothing. Calls
 * `each` for each move that it consists of, in their order, on this thread, with ctx. Errors:
 * NOT_FOUND, EXISTS or REFUSED (it cannot be done: sl_last_error says why), AGAIN (the job has not
 * begun), VERSION, DEADLINE, CLOSED. Any thread; blocks. */
typedef void sl_shard_move_fn(void *ctx, uint32_t shard, uint32_t from_task, uint32_t to_task);
SL_API int sl_client_change_placement(struct sl_client *client, enum sl_placement_change change,
                                      uint32_t shard, uint32_t task, bool dry_run,
                                      uint32_t timeout_ms, sl_shard_move_fn *each, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
