/* A shard snapshot is a stream (ps/snapshot/block.h) of the shard at one moment, taken
 * copy-on-write while it serves. Values, slots, steps, clocks and buffered pushes are of the same
 * moment. The server adds its sessions of that moment (option `more`), with sl_shard_written of
 * each request in progress. So a restored shard loses no write and repeats none. Owner reactor.
 * Allocates.
 *
 * A walk copies records into blocks, in slices. A push first copies each record that it changes and
 * that the walk has not reached. Only waiting blocks take extra memory, and they are limited: if
 * too many wait, the walk waits; if copies of pushes fill the rest, the snapshot fails and the
 * shard continues. Pulls cost nothing extra; without a snapshot, a push costs one branch per batch.
 * Records created later are not included.
 *
 * A snapshot starts only while no push is partly applied. Until then no new push of several slices
 * and no BSP iteration starts. Those in progress never wait, so the delay is a few turns. The state
 * of a KV handler is not included. */
#ifndef SL_PS_SHARD_SNAPSHOT_H
#define SL_PS_SHARD_SNAPSHOT_H

#include "ps/shard/shard.h"
#include "ps/snapshot/block.h"

/* Base of an incremental snapshot: the state of the tables at an earlier snapshot of the same shard
 * in the same process, or after loading. */
struct sl_shard_snapshot_base;

/* Minimum block memory per table. */
#define SL_SHARD_SNAPSHOT_TABLE_BYTES ((size_t)256 << 10)

struct sl_shard_snapshot_options {
    size_t bytes_max; /* of the blocks; 0: snapshot_bytes_max of the shard. At least 512 KiB and
                         SL_SHARD_SNAPSHOT_TABLE_BYTES per table */
    const struct sl_shard_snapshot_base *base; /* NULL: full snapshot. Read only during the call. A
                                                  later snapshot has this base or a newer one */
    /* Adds the caller's records to the stream, at a cost of about `budget`, added to *spent.
     * Returns true when all are there. NULL: there are none. */
    bool (*more)(void *ctx, uint32_t budget, uint32_t *spent);
    void *more_ctx;
};

enum sl_shard_snapshot_state {
    SL_SHARD_SNAPSHOT_NONE,
    SL_SHARD_SNAPSHOT_PENDING, /* not started: call begin again in the next turn */
    SL_SHARD_SNAPSHOT_RUNNING, /* call run, and take blocks */
    SL_SHARD_SNAPSHOT_DONE,    /* all blocks are taken */
    SL_SHARD_SNAPSHOT_FAILED,  /* reason: sl_shard_snapshot_why */
};

/* Number of BSP iterations that all such tables have applied; 0: there is no such table;
 * SL_CLOCKS_FINISHED: its workers have finished. */
uint32_t sl_shard_snapshot_iterations(const struct sl_shard *shard);

/* After `iterations` iterations, no other one is applied until a snapshot begins or this is called
 * with SL_CLOCKS_FINISHED. So snapshots of several shards can be of the same iteration. */
void sl_shard_snapshot_hold(struct sl_shard *shard, uint32_t iterations);

/* Starts a snapshot of the present state. Errors: EXISTS (the last one has not ended), NO_MEMORY,
 * AGAIN (a push is partly applied, and no other one starts). After AGAIN, call this in each turn
 * until it returns something else, or call sl_shard_snapshot_end. Requests that got AGAIN meanwhile
 * may run afterwards. */
int sl_shard_snapshot_begin(struct sl_shard *shard,
                            const struct sl_shard_snapshot_options *options);

enum sl_shard_snapshot_state sl_shard_snapshot_state(const struct sl_shard *shard);

/* Returns true when the snapshot in progress has no base. It has none either when a table does not
 * know the keys erased since the base: it keeps the last SL_ERASED_LOG_KEYS. */
bool sl_shard_snapshot_is_full(const struct sl_shard *shard);

/* Returns the builder of the snapshot's blocks, for `more`. */
struct sl_snapshot_builder *sl_shard_snapshot_blocks(struct sl_shard *shard);

/* Continues the walk of a RUNNING snapshot. Returns the cost in units of the turn's budget, about
 * `budget`; 0: nothing to do now. */
uint32_t sl_shard_snapshot_run(struct sl_shard *shard, uint32_t budget);

/* Returns true when the walk waits until blocks are taken or returned. */
bool sl_shard_snapshot_waits(const struct sl_shard *shard);

/* Removes the next block and gives it to the caller; NULL: none now. The last one is an END. */
struct sl_snapshot_block *sl_shard_snapshot_take(struct sl_shard *shard);

/* Returns a block, in any state, also after its snapshot has ended. When the shard no longer
 * exists, use sl_snapshot_block_destroy instead. */
void sl_shard_snapshot_put(struct sl_shard *shard, struct sl_snapshot_block *block);

/* has_spare returns true when blocks are unused. clean frees one of them, which takes a fraction of
 * a millisecond: call it once a turn. */
bool sl_shard_snapshot_has_spare(const struct sl_shard *shard);
void sl_shard_snapshot_clean(struct sl_shard *shard);

/* Ends a snapshot in any state, or a pending one; otherwise no effect. base: NULL, or receives the
 * base for the next snapshot when this one was DONE, else NULL. */
void sl_shard_snapshot_end(struct sl_shard *shard, struct sl_shard_snapshot_base **base);

/* Returns the reason of a failure, a static string. */
const char *sl_shard_snapshot_why(const struct sl_shard *shard);

/* Returns the memory of blocks, including taken ones, and of copy marks. */
size_t sl_shard_snapshot_memory_bytes(const struct sl_shard *shard);

/* Creates a base of the present state, right after a snapshot was loaded. No push is partly applied
 * (asserted). Errors: NO_MEMORY. */
int sl_shard_snapshot_base_create(struct sl_shard *shard, struct sl_shard_snapshot_base **out);

/* Sets *base to NULL. */
void sl_shard_snapshot_base_destroy(struct sl_shard_snapshot_base **base);

#endif
