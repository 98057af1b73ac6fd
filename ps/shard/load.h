/* The loader restores snapshot streams (ps/snapshot/block.h) into a shard. It opens their tables
 * and inserts, overwrites or erases the rows, dense blocks and KV arrays that this shard owns. It
 * ignores data of other shards, so the number of shards may differ. The shard serves no requests
 * and takes no snapshot meanwhile. After an error the shard is partly loaded: destroy it. Work is
 * sliced as in sl_shard_run. Owner reactor. Allocates what the tables need.
 *
 * Same index and count: the shard becomes bit-identical to the one of the snapshot, including
 * counters, worker clocks and buffered pushes. Load the full snapshot and then its incrementals, in
 * order.
 *
 * Other index or count: clocks do not change; counters and buffered pushes are not restored. Load
 * every snapshot of which the shard may own a part, and those of one shard in order. A table's step
 * becomes the greatest of these snapshots. Its optimizer state is from that snapshot; among equals,
 * from the last. */
#ifndef SL_PS_SHARD_LOAD_H
#define SL_PS_SHARD_LOAD_H

#include "core/reason.h"
#include "ps/shard/shard.h"
#include "ps/snapshot/block.h"

/* A snapshot stream being loaded. The caller provides the memory; the fields are private. */
struct sl_shard_load {
    struct sl_shard *shard;
    uint32_t stream_shard, stream_shard_count;
    bool same;                          /* index and count equal those of `shard` */
    bool ended;                         /* END has been loaded */
    uint32_t spent;                     /* cost of the last slice; may exceed its budget */
    uint8_t named[SL_LIMIT_TABLES / 8]; /* bit set of tables whose TABLE has been loaded */
    struct sl_snapshot_end seen;
    /* Current block: */
    const struct sl_snapshot_block *block; /* NULL: none */
    struct sl_bytes cursor;
    uint32_t left; /* records */
    /* Current buffered push, whose pieces so far are loaded: */
    struct sl_shard_buffered_push *buffered; /* NULL: none */
    uint32_t buffered_table, buffered_worker;
    uint64_t buffered_done; /* of its count */
    uint32_t piece_done;    /* of the current piece */
};

/* Starts a snapshot stream of shard stream_shard of stream_shard_count. Until sl_shard_load_end, or
 * the destruction of the shard, nothing else may use the shard. Errors: CORRUPT (no such shard). */
int sl_shard_load_begin(struct sl_shard_load *load, struct sl_shard *shard, uint32_t stream_shard,
                        uint32_t stream_shard_count, struct sl_reason *reason);

/* Loads the next block, as far as `budget` allows; load->spent is the cost. Returns SL_SHARD_DONE
 * or SL_SHARD_AGAIN: call again with the same unchanged block. Ignores SESSIONS, which belong to
 * the server. Errors: CORRUPT (an invalid stream), NO_MEMORY (of the tables or the push buffer; the
 * reason names the limit), UNSUPPORTED (KV arrays, but the shard has a handler). */
int sl_shard_load_block(struct sl_shard_load *load, const struct sl_snapshot_block *block,
                        uint32_t budget, struct sl_reason *reason);

/* Ends the stream. Errors: CORRUPT (no END, or buffered pushes contradict the clocks),
 * NO_MEMORY. */
int sl_shard_load_end(struct sl_shard_load *load, struct sl_reason *reason);

/* Tables of starling-worker that hold the progress of a job, not parameters. */
#define SL_SHARD_LOAD_JOB_TABLES "starling-worker/"

/* Starts a new job with the restored rows, because the job of the snapshots has ended. First
 * applies the buffered pushes. Then resets all workers to iteration 0 and drops the job's progress
 * tables. */
void sl_shard_load_new_job(struct sl_shard *shard);

/* Lets workers join ahead of their clocks, because they may have progressed after the snapshot. If
 * all had left, they are expected again (sl_clocks_expect_again). For a restored shard; a promoted
 * backup does not need this. */
void sl_shard_load_allow_ahead(struct sl_shard *shard);

#endif
