/* What the files of the shard's cut share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_SHARD_SNAPSHOT_INTERNAL_H
#define SL_PS_SHARD_SNAPSHOT_INTERNAL_H

#include "ps/shard/internal.h"
#include "ps/shard/snapshot.h"
#include "ps/snapshot/copy_dense.h"
#include "ps/snapshot/copy_kv.h"
#include "ps/snapshot/copy_sparse.h"

/* One table of the cut. */
struct sl_shard_snapshot_part {
    struct sl_shard_table *table;
    uint32_t table_id;
    uint32_t queue_count; /* of its queues, those that can hold something of the cut */
    /* As they were: */
    struct sl_optimizer_state state;
    uint64_t step, pulled_rows, pushed_rows;
    bool walks; /* one of these has not ended: */
    union {
        struct sl_copy_sparse sparse;
        struct sl_copy_dense dense;
        struct sl_copy_kv kv;
    };
};

/* What the walk does, in this order. */
enum sl_shard_snapshot_phase {
    SL_SHARD_SNAPSHOT_PHASE_HEADS, /* the tables' specifications */
    SL_SHARD_SNAPSHOT_PHASE_BUFFERED,
    SL_SHARD_SNAPSHOT_PHASE_TABLES,
    SL_SHARD_SNAPSHOT_PHASE_END,
    SL_SHARD_SNAPSHOT_PHASE_OVER,
};

struct sl_shard_snapshot {
    enum sl_shard_snapshot_phase phase;
    bool failed; /* and everything has been given back */
    const char *why;
    uint32_t part; /* where the phase is */
    struct sl_shard_snapshot_base *base;
    /* Of the pushes kept aside: */
    uint32_t number; /* of the cut */
    uint64_t order;  /* of the last that is in the cut */
    uint32_t kept;   /* that have left their queues, and have yet to be copied */
    uint32_t worker; /* whose queue comes next, or is at work: */
    bool in_queue;
    struct sl_shard_buffered_push *cursor; /* the next in it; NULL: there is none any more */
    uint64_t done;                         /* of the one at work */
    struct sl_snapshot_appender buffered;
    uint32_t part_count;
    struct sl_shard_snapshot_part parts[];
};

struct sl_shard_snapshot_base {
    uint32_t table_count;
    struct sl_snapshot_base tables[];
};

/* Goes on with the pushes kept aside; adds to *spent. True when they are done. */
bool sl_shard_snapshot_buffered_run(struct sl_shard *shard, uint32_t budget, uint32_t *spent);

/* Frees those that have left their queues. */
void sl_shard_snapshot_buffered_drop(struct sl_shard *shard);

/* What of the table is the base of a later image. */
static inline const struct sl_snapshot_base *
sl_shard_snapshot_base_of(const struct sl_shard_snapshot_base *base, uint32_t table_id)
{
    return base == NULL || table_id >= base->table_count ? NULL : &base->tables[table_id];
}

#endif
