/* Declarations shared by the snapshot files of ps/shard and private to them. Owner reactor. */
#ifndef SL_PS_SHARD_SNAPSHOT_INTERNAL_H
#define SL_PS_SHARD_SNAPSHOT_INTERNAL_H

#include "ps/shard/snapshot.h"
#include "ps/shard/snapshot_hooks.h"
#include "ps/shard/state.h"
#include "ps/snapshot/copy_dense.h"
#include "ps/snapshot/copy_kv.h"
#include "ps/snapshot/copy_sparse.h"

/* One table of the snapshot. */
struct sl_shard_snapshot_part {
    struct sl_shard_table *table; /* or its waiting keys, which have no head */
    uint32_t table_id;
    uint32_t queue_count; /* queues that can hold pushes of the snapshot */
    /* Values at the start of the snapshot: */
    struct sl_optimizer_state state;
    uint64_t step, pulled_rows, pushed_rows;
    bool walks; /* the copy below is active */
    union {
        struct sl_copy_sparse sparse;
        struct sl_copy_dense dense;
        struct sl_copy_kv kv;
    };
};

/* Phases of the walk, in order. */
enum sl_shard_snapshot_phase {
    SL_SHARD_SNAPSHOT_PHASE_HEADS, /* specifications of the tables */
    SL_SHARD_SNAPSHOT_PHASE_MORE,  /* the caller's records */
    SL_SHARD_SNAPSHOT_PHASE_BUFFERED,
    SL_SHARD_SNAPSHOT_PHASE_TABLES,
    SL_SHARD_SNAPSHOT_PHASE_END,
    SL_SHARD_SNAPSHOT_PHASE_OVER,
};

struct sl_shard_snapshot {
    enum sl_shard_snapshot_phase phase;
    bool (*more)(void *ctx, uint32_t budget, uint32_t *spent); /* of the options */
    void *more_ctx;
    bool is_full; /* without a base */
    bool failed;  /* all memory has been released */
    const char *why;
    uint32_t part; /* current part of the phase */
    struct sl_shard_snapshot_base *base;
    /* Buffered pushes: */
    uint32_t number; /* of the snapshot */
    uint64_t order;  /* of the last push in the snapshot */
    uint32_t kept;   /* entries that left their queues uncopied */
    uint32_t worker; /* current queue */
    bool in_queue;
    struct sl_shard_buffered_push *cursor; /* next entry in the queue; NULL: none left */
    uint64_t done;                         /* of the current entry */
    struct sl_snapshot_appender buffered;
    uint32_t part_count;
    struct sl_shard_snapshot_part parts[];
};

struct sl_shard_snapshot_base {
    uint32_t table_count;
    struct {
        struct sl_snapshot_base rows, waiting;
        uint32_t policies;
    } tables[];
};

/* Continues copying buffered pushes and adds to *spent. Returns true when all are copied. */
bool sl_shard_snapshot_buffered_run(struct sl_shard *shard, uint32_t budget, uint32_t *spent);

/* Frees entries kept outside their queues. */
void sl_shard_snapshot_buffered_drop(struct sl_shard *shard);

/* Returns true when the tables know all keys that they erased since the base, and the list is
 * not longer than the rows and fits into the memory of blocks. */
bool sl_shard_snapshot_base_holds(const struct sl_shard *shard,
                                  const struct sl_shard_snapshot_base *base, size_t bytes_max);

/* Lists the keys that a sparse table erased since the base, at once: they precede all rows. */
void sl_shard_snapshot_put_erased(struct sl_shard *shard, const struct sl_shard_table *table,
                                  uint32_t table_id, const struct sl_snapshot_base *base);

/* Returns the base of a table, or of its waiting keys; NULL: none. */
static inline const struct sl_snapshot_base *
sl_shard_snapshot_base_of(const struct sl_shard_snapshot_base *base, uint32_t table_id,
                          bool is_waiting)
{
    return base == NULL || table_id >= base->table_count ? NULL
           : is_waiting                                  ? &base->tables[table_id].waiting
                                                         : &base->tables[table_id].rows;
}

#endif
