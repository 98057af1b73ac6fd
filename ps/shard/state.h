/* The state of a shard: its tables, clocks, buffered pushes and snapshots. Owner reactor. */
#ifndef SL_PS_SHARD_STATE_H
#define SL_PS_SHARD_STATE_H

#include "core/list.h"
#include "ps/shard/clocks.h"
#include "ps/shard/evict.h"
#include "ps/shard/hot_keys.h"
#include "ps/shard/push_buffer.h"
#include "ps/shard/scratch.h"
#include "ps/shard/shard.h"
#include "ps/shard/table_drop.h"
#include "ps/snapshot/builder.h"
#include "ps/table/dense_table.h"
#include "ps/table/kv_table.h"
#include "ps/table/sparse_table.h"

/* A worker's buffered pushes to a BSP table, in order of arrival and so of clock. */
struct sl_shard_push_buffer_queue {
    struct sl_shard_buffered_push *first, *last;
    /* Entries that left the queue before a snapshot has copied them: applied ones, from its front,
     * and dropped ones, from its end. */
    struct sl_shard_buffered_push *applied_first, *applied_last, *dropped;
};

struct sl_shard_table {
    struct sl_table_spec spec;      /* KV: dim is the bytes of a value */
    bool dropped;                   /* requests fail; none of these three once it is freed */
    struct sl_sparse_table *sparse; /* exactly one of these three */
    struct sl_dense_table *dense;
    struct sl_kv_table *kv;
    const struct sl_optimizer *optimizer;
    struct sl_optimizer_state state;
    uint64_t step;        /* push and assign sections applied */
    uint32_t key_cost;    /* of one key, in units of the budget */
    uint32_t clock_group; /* valid if worker_count > 0 */
    struct {              /* as included in numbers of the shard */
        size_t memory;    /* of the table: in memory_bytes */
        size_t beside;    /* of buffers of its pushes and the like: there too */
        uint64_t rows;    /* of a sparse table: in rows_created */
    } counted;
    uint64_t pulled_rows, pushed_rows;
    struct sl_hot_keys hot;
    struct sl_shard_eviction eviction;
    struct {
        uint64_t count; /* of rows to other records: a scan may have missed one */
        uint32_t rest;  /* no row moves before so many more calls of sl_shard_tidy */
    } moves;
    /* Admission of keys (key_admission.h): */
    bool admits; /* not every key of a push gets a row */
    /* A hidden table: keys that wait, or with BLOOM the filter, which is dense; NULL: none. */
    struct sl_shard_table *waiting;
    uint32_t hash_count; /* BLOOM: counters of a key */
    uint64_t admitted;   /* rows created in spite of it */
    uint64_t refused;    /* gradients dropped */
    /* BSP only: */
    struct sl_shard_push_buffer_queue *buffered; /* [queue_count], by worker */
    uint32_t queue_count; /* at least worker_count; more for joined workers with a higher index */
    uint32_t buffered_count;
    bool holds_erased; /* buffered pushes may hold records of rows that were erased */
};

/* The BSP iteration that is being applied. */
struct sl_shard_iteration_state {
    bool due;             /* buffered pushes are due */
    bool begun;           /* some of them are applied, at least partly */
    uint32_t table_id;    /* current table */
    uint32_t clock;       /* current iteration of that table */
    uint64_t step_before; /* of that table, before the iteration */
    uint32_t worker;      /* current queue */
    bool in_entry;        /* its first entry is partly applied */
    uint64_t done;        /* records or elements applied of that entry */
    struct sl_optimizer_push push;
};

struct sl_shard_snapshots {
    uint64_t order_last;     /* of the last buffered push */
    uint32_t number_last;    /* of the last snapshot */
    uint32_t pushes_in_part; /* pushes that a slice has left partly applied */
    bool wanted;             /* a snapshot waits: no push begins that needs several slices */
    bool holds;              /* a snapshot holds back the iterations from hold_clock on */
    uint32_t hold_clock;
    struct sl_shard_snapshot *current; /* running, done or failed; NULL: none */
    struct sl_snapshot_builder blocks; /* of the present and of earlier snapshots */
};

struct sl_shard {
    struct sl_shard_options options;
    struct sl_shard_table *tables[SL_LIMIT_TABLES];
    uint32_t table_count; /* above all table ids in use */
    uint32_t drop_count;  /* dropped tables whose memory is still there */
    struct sl_clocks clocks;
    struct sl_shard_scratch small, large;
    struct sl_shard_push_buffer push_buffer; /* mapped with the first BSP table */
    struct sl_shard_iteration_state iteration;
    size_t memory_bytes;                /* counted for the limit */
    uint64_t rows_created, rows_erased; /* of sparse tables */
    uint32_t evicting_count;            /* tables of which rows may go */
    uint32_t evict_next;                /* the one that is looked at first */
    struct {
        struct sl_shard_request *request; /* EVICT that is running; NULL: none */
        bool goes_first;                  /* before what policies ask for: every other time */
    } round;
    struct sl_hot_keys_sampler sampler;
    struct sl_shard_snapshots snapshots;
    /* Handler of KV tables: */
    uint64_t handled;          /* calls that did not return AGAIN */
    uint32_t asks_again;       /* requests waiting for such a call */
    bool handler_moved;        /* such a call came and is not reported yet */
    struct sl_list wholes;     /* arrays of whole.h, the newest first */
    struct sl_kv_token *token; /* for the next request that the handler keeps; NULL: it cannot */
};

/* Returns the keys that wait; NULL: none are kept. */
static inline struct sl_sparse_table *sl_shard_waiting_keys(const struct sl_shard_table *table)
{
    return table->waiting == NULL ? NULL : table->waiting->sparse;
}

/* Begins the next update of the table. */
static inline struct sl_optimizer_push sl_shard_next_push(struct sl_shard_table *table, float rate)
{
    return (struct sl_optimizer_push){.state = table->state, .step = ++table->step, .rate = rate};
}

/* Returns the memory that the limit leaves; SIZE_MAX without a limit. */
static inline size_t sl_shard_memory_left(const struct sl_shard *shard)
{
    const size_t bytes_max = shard->options.memory_bytes_max;
    if (bytes_max == 0) {
        return SIZE_MAX;
    }
    return bytes_max > shard->memory_bytes ? bytes_max - shard->memory_bytes : 0;
}

/* Samples keys of the table that were pulled or pushed, to find the hot ones. */
static inline void sl_shard_see_keys(struct sl_shard *shard, struct sl_shard_table *table,
                                     const uint64_t *keys, uint64_t count)
{
    sl_hot_keys_see(&shard->sampler, &table->hot, keys, count);
}

/* Returns the table; NULL: none, or it was dropped. */
static inline struct sl_shard_table *sl_shard_table_in_use(const struct sl_shard *shard,
                                                           uint32_t table_id)
{
    struct sl_shard_table *table = shard->tables[table_id];
    return table == NULL || table->dropped ? NULL : table;
}

/* Takes the rows out of the table. */
struct sl_shard_storage sl_shard_table_take_storage(struct sl_shard_table *table);

void sl_shard_table_stats(const struct sl_shard_table *table, struct sl_message_table_stats *out);

/* Destroys the tables with this name prefix. No request is in progress. */
void sl_shard_tables_drop(struct sl_shard *shard, const char *prefix);

#endif
