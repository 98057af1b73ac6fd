/* The blocks of an image in the making: where they come from, how much memory they may take, and
 * which of them wait to be taken. Everything that puts records of one kind and one table into them
 * is a stream, which has at most one block open. Owner reactor. Allocates blocks as they are
 * needed; those that come back are used again, by the next image too, until they are cleaned away
 * one by one: to free a large one takes the kernel a while, and all of them together many turns. */
#ifndef SL_PS_SNAPSHOT_BUILDER_H
#define SL_PS_SNAPSHOT_BUILDER_H

#include "ps/snapshot/block.h"

struct sl_snapshot_line {
    struct sl_snapshot_block *first, *last;
};

struct sl_snapshot_builder {
    size_t bytes_max;     /* of all blocks together */
    size_t bytes;         /* of those that there are: open, waiting, spare, with their taker */
    size_t spare_bytes;   /* of the spare ones */
    size_t open_bytes;    /* of the open ones */
    uint32_t block_bytes; /* the capacity of most */
    int err;              /* NO_MEMORY, once one was missing: the image cannot be completed */
    uint32_t copy_debt;   /* spent by pushes for what had to be copied before it changed */
    struct sl_snapshot_line heads; /* wait: tables and clocks, which come before all others */
    struct sl_snapshot_line full;  /* wait: the others */
    bool heads_done;               /* no more of these will come: the others may go */
    struct sl_snapshot_block *spare;
    struct sl_snapshot_end end; /* counts what has come to the lines */
};

struct sl_snapshot_appender {
    struct sl_snapshot_builder *blocks;
    struct sl_snapshot_block *open; /* or NULL */
    uint32_t least_bytes;           /* capacity that its longest record needs */
    uint32_t table_id;
    enum sl_snapshot_kind kind;
};

/* Begins an image; blocks of the one before that somebody still has count on. */
void sl_snapshot_builder_begin(struct sl_snapshot_builder *blocks, size_t bytes_max,
                               uint32_t block_bytes);

/* No block waits any more: they are spare. */
void sl_snapshot_builder_drop(struct sl_snapshot_builder *blocks);

/* The first block that waits, which is the caller's then; NULL: none. */
struct sl_snapshot_block *sl_snapshot_builder_take(struct sl_snapshot_builder *blocks);

/* Takes a block back, which is spare then. */
void sl_snapshot_builder_put(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block);

/* Frees one of the spare blocks, which there are (asserted). */
void sl_snapshot_builder_clean(struct sl_snapshot_builder *blocks);

/* True when who is in no hurry may fill another block: half of the memory is for those who are.
 * Never false when no block is to be waited for. */
static inline bool sl_snapshot_builder_have_room(const struct sl_snapshot_builder *blocks)
{
    const size_t away = blocks->bytes - blocks->spare_bytes - blocks->open_bytes;
    return blocks->err == 0 && (away == 0 || away + blocks->block_bytes <= blocks->bytes_max / 2);
}

/* An empty block; it will be the caller's to close. NULL: no memory, and err says so. */
struct sl_snapshot_block *sl_snapshot_builder_open(struct sl_snapshot_builder *blocks,
                                                   uint32_t capacity);

/* The block, which was open, is complete: it waits from now on. */
void sl_snapshot_builder_close(struct sl_snapshot_builder *blocks, struct sl_snapshot_block *block);

/* ---- Streams --------------------------------------------------------------------------------- */

void sl_snapshot_appender_init(struct sl_snapshot_appender *stream,
                               struct sl_snapshot_builder *blocks, enum sl_snapshot_kind kind,
                               uint32_t table_id, uint32_t record_bytes_max);

/* The open block, or an empty one. NULL as above. */
struct sl_snapshot_block *sl_snapshot_appender_block(struct sl_snapshot_appender *stream);

/* The open block has no room for what comes next, or nothing more will come. */
void sl_snapshot_appender_close(struct sl_snapshot_appender *stream);

/* The open block is spare. */
void sl_snapshot_appender_drop(struct sl_snapshot_appender *stream);

/* Puts a row, or a dense block. False: no memory. */
bool sl_snapshot_appender_put_record(struct sl_snapshot_appender *stream,
                                     const struct sl_snapshot_record *record, uint32_t float_count);

/* ---- What an image adds to another ----------------------------------------------------------- */

/* The records that are in an image: all, or those that are newer than its base. */
struct sl_snapshot_delta {
    bool all;
    uint32_t count; /* records at the base */
    uint32_t step;  /* of the table at the base, modulo 2^32 */
    uint32_t span;  /* steps since then, less than 2^32 */
};

/* What a table has to be compared by with an earlier state of it. */
struct sl_snapshot_base {
    bool open;
    uint64_t step;  /* of the table; of KV: its store's epoch */
    uint32_t count; /* records */
};

/* base NULL, or of a table that was not open: everything. */
struct sl_snapshot_delta sl_snapshot_delta_base(const struct sl_snapshot_base *base,
                                                uint64_t step_now);

/* True when the record of this number, last visited by this step, has come or changed since. */
static inline bool sl_snapshot_delta_holds(const struct sl_snapshot_delta *since, uint32_t number,
                                           uint32_t last_step)
{
    return since->all || number >= since->count || last_step - since->step - 1 < since->span;
}

/* In units of the shard's budget: of so many bytes copied. */
static inline uint32_t sl_snapshot_cost(size_t bytes)
{
    return (uint32_t)((bytes + 255) / 256);
}

#endif
