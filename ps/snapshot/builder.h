/* The snapshot builder owns the blocks of a snapshot in progress: it allocates them, limits their
 * memory and queues complete blocks. An appender writes records of one kind and one table; it has
 * at most one open block. Owner reactor.
 *
 * The builder allocates blocks on demand and reuses returned ones, also for the next snapshot. The
 * caller frees spare blocks one by one: the kernel takes a while to free a large block, so freeing
 * all at once would stall the reactor. */
#ifndef SL_PS_SNAPSHOT_BUILDER_H
#define SL_PS_SNAPSHOT_BUILDER_H

#include "ps/snapshot/block.h"

struct sl_snapshot_line {
    struct sl_snapshot_block *first, *last;
};

struct sl_snapshot_builder {
    size_t bytes_max;     /* limit for all blocks */
    size_t bytes;         /* of all blocks: open, waiting, spare and taken */
    size_t spare_bytes;   /* of spare blocks */
    size_t open_bytes;    /* of open blocks */
    uint32_t block_bytes; /* usual capacity of a block */
    int err;              /* NO_MEMORY once a block was not available: the snapshot fails */
    uint32_t copy_debt;   /* cost of copies made before pushes, still to be charged to them */
    struct sl_snapshot_line
        heads; /* waiting blocks of tables and clocks, which precede all others */
    struct sl_snapshot_line full; /* the other waiting blocks */
    bool heads_done;              /* no more heads will come: other blocks may be taken */
    struct sl_snapshot_block *spare;
    struct sl_snapshot_end end; /* record counts of all closed blocks */
};

struct sl_snapshot_appender {
    struct sl_snapshot_builder *blocks;
    struct sl_snapshot_block *open; /* NULL: none */
    uint32_t least_bytes;           /* capacity needed by the longest record */
    uint32_t table_id;
    enum sl_snapshot_kind kind;
};

/* Starts a snapshot. Blocks of the previous one that are still taken continue to count in
 * `bytes`. */
void sl_snapshot_builder_begin(struct sl_snapshot_builder *blocks, size_t bytes_max,
                               uint32_t block_bytes);

/* Turns all waiting blocks into spare blocks. */
void sl_snapshot_builder_drop(struct sl_snapshot_builder *blocks);

/* Removes the first waiting block and gives it to the caller; NULL: none. */
struct sl_snapshot_block *sl_snapshot_builder_take(struct sl_snapshot_builder *blocks);

/* Returns a taken block, which becomes spare. */
void sl_snapshot_builder_put(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block);

/* Frees one spare block; there is at least one (asserted). */
void sl_snapshot_builder_clean(struct sl_snapshot_builder *blocks);

/* Returns true when the snapshot's walk may fill another block. The walk uses at most half of the
 * memory; copies before pushes may use the rest. Without errors, always true when no block is
 * waiting or taken. */
static inline bool sl_snapshot_builder_have_room(const struct sl_snapshot_builder *blocks)
{
    const size_t away = blocks->bytes - blocks->spare_bytes - blocks->open_bytes;
    return blocks->err == 0 && (away == 0 || away + blocks->block_bytes <= blocks->bytes_max / 2);
}

/* Returns an empty open block, which the caller closes. NULL: no memory; sets err. */
struct sl_snapshot_block *sl_snapshot_builder_open(struct sl_snapshot_builder *blocks,
                                                   uint32_t capacity);

/* Queues a complete open block. */
void sl_snapshot_builder_close(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block);

/* Appenders */

void sl_snapshot_appender_init(struct sl_snapshot_appender *stream,
                               struct sl_snapshot_builder *blocks, enum sl_snapshot_kind kind,
                               uint32_t table_id, uint32_t record_bytes_max);

/* Returns the open block, or a new one; NULL as above. */
struct sl_snapshot_block *sl_snapshot_appender_block(struct sl_snapshot_appender *stream);

/* Closes the open block, because it is full or no record follows. */
void sl_snapshot_appender_close(struct sl_snapshot_appender *stream);

/* Drops the open block with its records; it becomes spare. */
void sl_snapshot_appender_drop(struct sl_snapshot_appender *stream);

/* Puts a row or a dense block. Returns false when there is no memory. */
bool sl_snapshot_appender_put_record(struct sl_snapshot_appender *stream,
                                     const struct sl_snapshot_record *record, uint32_t float_count);

/* Incremental snapshots */

/* Selects the records of a snapshot: all, or those newer than its base. */
struct sl_snapshot_delta {
    bool all;
    uint32_t count; /* records at the time of the base */
    uint32_t step;  /* table step at the time of the base, modulo 2^32 */
    uint32_t span;  /* steps since then, below 2^32 */
};

/* State of one table at the time of the base snapshot. */
struct sl_snapshot_base {
    bool open;
    uint64_t step;   /* of the table; KV: its generation */
    uint32_t count;  /* records */
    uint64_t erased; /* sparse: keys erased until then */
};

/* Returns the selection for a base. It is `all` when base is NULL or the table was not open
 * then. */
struct sl_snapshot_delta sl_snapshot_delta_base(const struct sl_snapshot_base *base,
                                                uint64_t step_now);

/* Returns true when record `number`, last visited at last_step, is new or changed since the
 * base. */
static inline bool sl_snapshot_delta_holds(const struct sl_snapshot_delta *since, uint32_t number,
                                           uint32_t last_step)
{
    return since->all || number >= since->count || last_step - since->step - 1 < since->span;
}

/* Returns the cost of copying `bytes`, in units of the shard's budget. */
static inline uint32_t sl_snapshot_cost(size_t bytes)
{
    return (uint32_t)((bytes + 255) / 256);
}

#endif
