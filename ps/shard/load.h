/* Feeds images (ps/snapshot/block.h) into a shard: opens their tables, and inserts or overwrites
 * what this shard owns of rows, dense blocks and KV arrays, whatever the number of shards was when
 * the image was made. What belongs to another shard is passed over.
 *
 * Where the image is of a shard of the same index and count, the shard becomes what that one was,
 * bit for bit: counters, every worker's clock, and what BSP keeps aside too. Then load the full
 * image, and then those that add to it, in order. Else clocks stay as they are, and what was kept
 * aside, and counters, are not taken over; load every image of which the shard may own something,
 * those of one shard in order. A table's step is then the greatest of those images, and its
 * optimizer's state is that of the image with this step (of the later one among equals).
 *
 * A shard serves nobody while it is loaded, and is not cut. After an error part of the image is in
 * it: destroy it. Work is sliced as in sl_shard_run. Owner reactor. Allocates what the tables need.
 */
#ifndef SL_PS_SHARD_LOAD_H
#define SL_PS_SHARD_LOAD_H

#include "ps/shard/shard.h"
#include "ps/snapshot/block.h"

/* One image that is being loaded; caller's storage, whose fields are the loader's. */
struct sl_shard_load {
    struct sl_shard *shard;
    uint32_t stream_shard, stream_shard_count;
    bool same;                          /* index and count are those of `shard` */
    bool ended;                         /* by its END */
    uint32_t spent;                     /* by the last slice, of its budget or above */
    uint8_t named[SL_LIMIT_TABLES / 8]; /* tables whose TABLE has come, as bits */
    struct sl_snapshot_end seen;
    /* The block at work: */
    const struct sl_snapshot_block *block; /* NULL: none */
    struct sl_bytes cursor;
    uint32_t left; /* records */
    /* A staged push at work, whose pieces so far are in: */
    struct sl_shard_buffered_push *buffered; /* NULL: none */
    uint32_t buffered_table, buffered_worker;
    uint64_t buffered_done; /* of its count */
    uint32_t piece_done;    /* of the piece at work */
};

/* The next image is of that shard among so many. Nothing else is done with the shard until
 * sl_shard_load_end, or its end. Errors: CORRUPT (there is no such shard). */
int sl_shard_load_begin(struct sl_shard_load *load, struct sl_shard *shard, uint32_t stream_shard,
                        uint32_t stream_shard_count, char *reason, size_t reason_bytes);

/* Takes the image's next block in, as far as `key_budget` goes; load->spent says how much it was.
 * Returns SL_SHARD_DONE, or
 * SL_SHARD_AGAIN: call again with the same block, unchanged. SESSIONS are passed over: they are the
 * server's. Errors: CORRUPT (whatever cannot be of such an image), NO_MEMORY (of the tables, or of
 * staging: the reason names the limit), UNSUPPORTED (arrays of a KV table, where the shard's belong
 * to a handler). */
int sl_shard_load_block(struct sl_shard_load *load, const struct sl_snapshot_block *block,
                        uint32_t key_budget, char *reason, size_t reason_bytes);

/* There are no more blocks. Errors: CORRUPT (END is missing; what BSP keeps aside does not go with
 * the clocks), NO_MEMORY. */
int sl_shard_load_end(struct sl_shard_load *load, char *reason, size_t reason_bytes);

/* Tables of starling-worker's own: they say how far a job is, and nothing of a model. */
#define SL_SHARD_LOAD_JOB_TABLES "starling-worker/"

/* The job of which the images are is over: nobody of it can come back. Another one begins with its
 * rows: workers begin with iteration 0, and the job's own tables are gone. What BSP kept aside, and
 * nobody has to be waited for any more, is applied before. */
void sl_shard_load_new_job(struct sl_shard *shard);

/* The shard is as it was at some time before, and workers may have gone on since: each may join
 * ahead of its clock, as one may that has not begun; and where all had left, they are expected
 * again (sl_clocks_expect_again). For a shard that is restored; one that takes over where another
 * has ended does not need it. */
void sl_shard_load_allow_ahead(struct sl_shard *shard);

#endif
