/* The cut of a shard: an image (ps/snapshot/block.h) of it as it was at one moment, made while it
 * serves. Row, slots, steps, clocks and the pushes that BSP keeps aside are all of that moment; who
 * has the server's sessions puts them as they are in the same turn, and what has been written of
 * each request that is in progress then (sl_shard_written): so nothing is lost and nothing done
 * twice when a shard that is made of the image goes on.
 *
 * A walk puts the tables' records into blocks, slice by slice; a push that is about to change a
 * record that the walk has yet to reach puts that first, as it is. So nothing is held twice but
 * blocks that wait to be taken. These are limited: where too many wait, the walk waits too, and
 * when pushes fill what is left, the cut fails; the shard is as it was, and goes on. Pulls pay
 * nothing; pushes a branch a batch while no cut runs. What is created after the cut is not in it.
 *
 * A cut begins only where no push is applied in part. Until then pushes that would take several
 * slices, and commits of BSP, do not begin. What has begun goes on, and never waits for anything,
 * so that this is over after a few turns.
 *
 * The state of a handler of KV tables is its own, and not in the image. Owner reactor. */
#ifndef SL_PS_SHARD_SNAPSHOT_H
#define SL_PS_SHARD_SNAPSHOT_H

#include "ps/shard/shard.h"
#include "ps/snapshot/block.h"

/* What an image adds to: where the tables stood at another cut of the same shard, in the same
 * process; or when it was loaded. */
struct sl_shard_snapshot_base;

/* Of the blocks, for each table, at least. */
#define SL_SHARD_SNAPSHOT_TABLE_BYTES ((size_t)256 << 10)

struct sl_shard_snapshot_options {
    size_t bytes_max; /* of the blocks; 0: as the shard's options have it. At least 512 KiB and
                       * SL_SHARD_SNAPSHOT_TABLE_BYTES for each table */
    const struct sl_shard_snapshot_base *base; /* NULL: everything; read here only */
};

enum sl_shard_snapshot_state {
    SL_SHARD_SNAPSHOT_NONE,
    SL_SHARD_SNAPSHOT_PENDING, /* has not begun: begin it again in the next turn */
    SL_SHARD_SNAPSHOT_RUNNING, /* run it on, and take its blocks */
    SL_SHARD_SNAPSHOT_DONE,    /* and all blocks have been taken */
    SL_SHARD_SNAPSHOT_FAILED,  /* sl_shard_snapshot_why */
};

/* Begins here and now: what is in the shard, is in the image. Errors: AGAIN (a push is applied in
 * part: no further one begins, so that this is to be called in each turn until it says otherwise,
 * or sl_shard_snapshot_end), EXISTS (there is one that has not been ended), NO_MEMORY. Requests
 * that got AGAIN meanwhile may go on when it has begun, or was ended. */
int sl_shard_snapshot_begin(struct sl_shard *shard,
                            const struct sl_shard_snapshot_options *options);

enum sl_shard_snapshot_state sl_shard_snapshot_state(const struct sl_shard *shard);

/* Walks on; returns what it spent, in units of a turn's key budget, about as much as it was given;
 * 0: it can do nothing now. Does nothing unless a cut is RUNNING. */
uint32_t sl_shard_snapshot_run(struct sl_shard *shard, uint32_t key_budget);

/* True when the walk waits for blocks that have been, or are to be, taken. */
bool sl_shard_snapshot_waits(const struct sl_shard *shard);

/* The next block, which is the caller's; NULL: none now. The last is an END. */
struct sl_snapshot_block *sl_shard_snapshot_take(struct sl_shard *shard);

/* Gives a block back: in any state, also when its cut has ended long since; but while the shard is
 * there: behind that sl_snapshot_block_destroy does. */
void sl_shard_snapshot_put(struct sl_shard *shard, struct sl_snapshot_block *block);

/* True when there are blocks that no cut needs. Then clean frees one of them, which takes a part of
 * a millisecond: once a turn, until there are none. */
bool sl_shard_snapshot_has_spare(const struct sl_shard *shard);
void sl_shard_snapshot_clean(struct sl_shard *shard);

/* Ends a cut in whatever state, or the wish for one; does nothing without. *base (or NULL): of the
 * cut, where that was DONE, else NULL: what the next can add to. */
void sl_shard_snapshot_end(struct sl_shard *shard, struct sl_shard_snapshot_base **base);

/* Why a cut has failed, as text of static storage. */
const char *sl_shard_snapshot_why(const struct sl_shard *shard);

/* What it holds: blocks, with those that have been taken, and what it knows of records. */
size_t sl_shard_snapshot_memory_bytes(const struct sl_shard *shard);

/* A base of what is in the shard now, when that is what an image holds: it has just been loaded. No
 * push is applied in part (asserted). Errors: NO_MEMORY. */
int sl_shard_snapshot_base_create(struct sl_shard *shard, struct sl_shard_snapshot_base **out);

/* Nulls *base. */
void sl_shard_snapshot_base_destroy(struct sl_shard_snapshot_base **base);

#endif
