/* What the files of the shard share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_SHARD_INTERNAL_H
#define SL_PS_SHARD_INTERNAL_H

#include "ps/shard/clocks.h"
#include "ps/shard/push_buffer.h"
#include "ps/shard/scratch.h"
#include "ps/shard/shard.h"
#include "ps/snapshot/builder.h"
#include "ps/table/dense_table.h"
#include "ps/table/kv_table.h"
#include "ps/table/sparse_table.h"

/* Keys looked up at once: their record numbers stay in the first-level cache. */
#define SL_SHARD_BATCH_KEYS   256

/* A push up to here is done in one go, with a scratch of its own. */
#define SL_SHARD_SMALL_KEYS   1024
#define SL_SHARD_SMALL_FLOATS (64U << 10)

/* A section's phases, in order; each operation passes through some of them. */
enum sl_shard_phase {
    SL_SHARD_PHASE_NEW,     /* it has been read */
    SL_SHARD_PHASE_ADMIT,   /* may it run now? */
    SL_SHARD_PHASE_COLLECT, /* push: look the keys up, find repeats; BSP: copy the gradients */
    SL_SHARD_PHASE_APPLY,   /* push: visit the records or elements */
    SL_SHARD_PHASE_READ,    /* pull */
};

/* A BSP table's pushes of one worker, in order of arrival and so of clock. */
struct sl_shard_push_buffer_queue {
    struct sl_shard_buffered_push *first, *last;
    /* Out of the queue, but a cut has yet to copy them: before what is in it, and behind. */
    struct sl_shard_buffered_push *committed_first, *committed_last, *dropped;
};

struct sl_shard_table {
    bool open;
    struct sl_table_spec spec;
    struct sl_sparse_table *sparse; /* one of three */
    struct sl_dense_table *dense;
    struct sl_kv_table *kv;
    const struct sl_optimizer *optimizer;
    struct sl_optimizer_state state;
    uint64_t step;         /* push sections applied */
    uint32_t key_cost;     /* of one key, in units of the budget */
    uint32_t clock_group;  /* where worker_count > 0 */
    size_t counted_memory; /* of the store, as counted in the shard's memory_bytes */
    size_t beside_memory;  /* of the table beside its store, as counted there */
    uint64_t pulled_rows, pushed_rows;
    /* BSP only: */
    struct sl_shard_push_buffer_queue *buffered; /* [queue_count] by worker */
    uint32_t queue_count; /* worker_count, or more when workers beyond it have joined */
    uint32_t buffered_count;
};

/* The BSP push that is being committed. */
struct sl_shard_iteration_state {
    bool due;          /* something is to be committed */
    bool begun;        /* and some of it has been */
    uint32_t table_id; /* of the table at work */
    uint32_t clock;    /* of its iteration at work */
    uint32_t worker;   /* whose entries come next */
    bool in_entry;     /* its first entry is partly applied */
    uint64_t done;     /* records or elements of it */
    uint64_t step;
    struct sl_optimizer_state state;
};

struct sl_shard {
    struct sl_shard_options options;
    struct sl_shard_table *tables[SL_LIMIT_TABLES];
    uint32_t table_count; /* ids in use are below this */
    struct sl_clocks clocks;
    struct sl_shard_scratch small, large;
    struct sl_shard_push_buffer push_buffer; /* mapped with the first BSP table */
    struct sl_shard_iteration_state commit;
    size_t memory_bytes; /* that counts for the limit */
    /* Cuts: */
    uint64_t buffered_last;                     /* order of the last push that was queued */
    uint32_t snapshot_last;                     /* number of the last cut */
    uint32_t in_part;                           /* pushes that have been applied in part */
    bool snapshot_wanted;                       /* no further one begins */
    struct sl_shard_snapshot *snapshot;         /* that runs, or has failed; NULL: none */
    struct sl_snapshot_builder snapshot_blocks; /* of cuts, also of those that are over */
    /* The handler of KV tables: */
    uint64_t handled;    /* calls that did not say AGAIN */
    uint32_t asks_again; /* requests that wait for another one of these */
    bool handler_moved;  /* one came, and nobody has been told */
};

/* One call of sl_shard_run. */
struct sl_shard_slice {
    uint32_t budget, spent;
    char *reason;
    size_t reason_bytes;
};

static inline uint32_t sl_shard_slice_left(const struct sl_shard_slice *slice)
{
    return slice->budget > slice->spent ? slice->budget - slice->spent : 0;
}

/* Dense elements that `budget` pays for, and back. */
#define SL_SHARD_ELEMENTS_PER_KEY 64

/* Operations as a set; they have been checked, and are all below 32. */
#define SL_SHARD_OPS_PUSH_ONLY                                                                     \
    (1U << SL_REQUEST_PUSH | 1U << SL_REQUEST_DENSE_PUSH | 1U << SL_REQUEST_KV_PUSH)
#define SL_SHARD_OPS_PUSH_PULL                                                                     \
    (1U << SL_REQUEST_PUSH_PULL | 1U << SL_REQUEST_DENSE_PUSH_PULL | 1U << SL_REQUEST_KV_PUSH_PULL)

static inline bool sl_shard_op_pulls(uint8_t op)
{
    return ((SL_SHARD_OPS_PUSH_ONLY | 1U << SL_REQUEST_TICK) >> op & 1) == 0;
}

static inline bool sl_shard_op_pushes(uint8_t op)
{
    return ((SL_SHARD_OPS_PUSH_ONLY | SL_SHARD_OPS_PUSH_PULL) >> op & 1) != 0;
}

static inline uint32_t sl_shard_sections_done(const struct sl_shard_exec *work)
{
    return work->prefix.section_count - work->sections_left;
}

/* True when the section at work has written before. */
static inline bool sl_shard_has_written(const struct sl_shard_exec *work)
{
    return work->replayed || sl_shard_sections_done(work) < work->written_before;
}

/* True when the section at work pushes: one that is replayed has done so. */
static inline bool sl_shard_pushes(const struct sl_shard_exec *work, uint8_t op)
{
    return !sl_shard_has_written(work) && sl_shard_op_pushes(op);
}

/* A slice ends with a push applied in part; and it is done, or given up. One too many does nothing.
 */
static inline void sl_shard_part_begin(struct sl_shard *shard, struct sl_shard_exec *work)
{
    if (!work->in_part) {
        work->in_part = true;
        shard->in_part++;
    }
}

static inline void sl_shard_part_end(struct sl_shard *shard, struct sl_shard_exec *work)
{
    if (work->in_part) {
        work->in_part = false;
        shard->in_part--;
    }
}

/* What a slice that has pushed has to pay for what a cut had to copy first. */
static inline uint32_t sl_shard_snapshot_copy_debt(struct sl_shard *shard)
{
    if (shard->snapshot == NULL) {
        return 0;
    }
    const uint32_t owed = shard->snapshot_blocks.copy_debt;
    shard->snapshot_blocks.copy_debt = 0;
    return owed;
}

/* An entry has left the front of its queue: frees it, unless a cut has yet to copy it. */
void sl_shard_snapshot_iteration_applied(struct sl_shard *shard,
                                         struct sl_shard_push_buffer_queue *queue,
                                         struct sl_shard_buffered_push *entry);

/* Likewise the last ones of its queue, one behind the other. */
void sl_shard_snapshot_dropped(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                               struct sl_shard_buffered_push *entries);

/* The room for pushes that are kept aside is used up: a cut that has some of it gives it back, and
 * has failed. False: none has. */
bool sl_shard_snapshot_yield(struct sl_shard *shard);

/* The clock of the sections behind a tick of this clock. */
static inline uint32_t sl_shard_clock_behind(uint32_t clock)
{
    return clock == SL_REQUEST_CLOCK_FINISHED ? clock : clock + 1;
}

static inline bool sl_shard_op_dense(uint8_t op)
{
    return op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_DENSE_PUSH ||
           op == SL_REQUEST_DENSE_PUSH_PULL;
}

static inline bool sl_shard_op_kv(uint8_t op)
{
    return op >= SL_REQUEST_KV_PUSH && op <= SL_REQUEST_KV_LENGTHS;
}

/* Of the table that the operation is for. */
static inline enum sl_table_kind sl_shard_op_kind(uint8_t op)
{
    return sl_shard_op_dense(op) ? SL_TABLE_DENSE
           : sl_shard_op_kv(op)  ? SL_TABLE_KV
                                 : SL_TABLE_SPARSE;
}

/* A section of a request that follows: what would push and pull, pushes. Both have one body. */
static inline void sl_shard_section_follow(struct sl_shard_exec *work)
{
    uint8_t *op = &work->view.section.op;
    *op = *op == SL_REQUEST_PUSH_PULL         ? SL_REQUEST_PUSH
          : *op == SL_REQUEST_DENSE_PUSH_PULL ? SL_REQUEST_DENSE_PUSH
          : *op == SL_REQUEST_KV_PUSH_PULL    ? SL_REQUEST_KV_PUSH
                                              : *op;
}

/* Writes "shard 1, section 2 (table emb): " and the message into the reason; returns err. */
int sl_shard_fail(const struct sl_shard *shard, const struct sl_shard_exec *work,
                  struct sl_shard_slice *slice, int err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Why the shard has no more memory: "the limit is N", or the system's refusal where there is no
 * limit. Writes and returns text. */
const char *sl_shard_limit_text(const struct sl_shard *shard, char text[static 64]);

/* True when the worker's pushes to the table are kept aside. */
bool sl_shard_buffers_pushes(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_client *caller);

/* True when a pull of this clock may be answered now. */
bool sl_shard_admits(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_client *caller, uint32_t clock);

/* True when all keys are this shard's. */
bool sl_shard_owns(const struct sl_shard *shard, const uint64_t *keys, uint32_t count);

/* The store of rows may grow as far as the shard's limit leaves room. True: the limit is reached.
 */
bool sl_shard_limit_store(const struct sl_shard *shard, struct sl_shard_table *table);

/* The records of the keys; creates missing rows. Errors: NO_MEMORY. */
int sl_shard_find(struct sl_shard *shard, struct sl_shard_table *table, const uint64_t *keys,
                  uint32_t count, uint32_t *records);

/* Looks up to SL_SHARD_BATCH_KEYS keys up, checks that they are this shard's, creates missing rows.
 * Errors: WRONG_SHARD, NO_MEMORY. */
int sl_shard_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                    const struct sl_shard_exec *work, struct sl_shard_slice *slice,
                    const uint64_t *keys, uint32_t count, uint32_t *records);

/* True when a push of this section is done in one go. */
static inline bool sl_shard_push_is_small(const struct sl_request_section *section, uint32_t dim)
{
    return section->key_count <= SL_SHARD_SMALL_KEYS &&
           (uint64_t)section->key_count * dim <= SL_SHARD_SMALL_FLOATS;
}

/* True when a push of this section needs the large scratch. */
static inline bool sl_shard_push_is_large(const struct sl_request_section *section, uint32_t dim)
{
    return sl_shard_op_kv(section->op)
               ? section->key_count > SL_SHARD_BATCH_KEYS
               : !sl_shard_op_dense(section->op) && !sl_shard_push_is_small(section, dim);
}

/* A section of a KV table, from ADMIT on. */
int sl_shard_kv_run(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_exec *work, uint8_t *reply, struct sl_shard_slice *slice);

/* What it costs, without looking for repeated keys. */
uint64_t sl_shard_kv_cost(const struct sl_request_section *section, uint32_t dim);

/* True when it waits for its handler. */
bool sl_shard_kv_waits(const struct sl_shard *shard, const struct sl_shard_exec *work);

/* True when the work is a pull of one array, or a piece of one, that is there as it is asked for.
 */
bool sl_shard_kv_is_chunked(const struct sl_shard *shard, const struct sl_shard_exec *work);

/* The next values of such a one. */
void sl_shard_kv_next_chunk(const struct sl_shard *shard, const struct sl_shard_exec *work,
                            uint64_t count, void *values);

/* Takes back what the section has claimed, or waits for. */
void sl_shard_kv_drop(struct sl_shard *shard, struct sl_shard_exec *work);

/* The push part of a section begins: takes the working memory that it needs. DONE: go on with
 * COLLECT; AGAIN: the scratch is in use. Errors: PROTOCOL, NO_MEMORY. */
int sl_shard_push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_exec *work, struct sl_shard_slice *slice);

/* The push part, from COLLECT on. DONE when it is applied or kept aside. */
int sl_shard_push_run(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_exec *work, struct sl_shard_slice *slice);

/* Gives back the working memory of a push that will not be completed. */
void sl_shard_push_drop(struct sl_shard *shard, struct sl_shard_exec *work);

/* Appends a complete entry to its worker's queue. */
void sl_shard_iteration_later(struct sl_shard *shard, struct sl_shard_table *table, uint32_t worker,
                              struct sl_shard_buffered_push *entry);

/* Forgets the tables whose names begin so. Nothing is in progress. */
void sl_shard_tables_drop(struct sl_shard *shard, const char *prefix);

/* Makes room for the queues of so many workers. Errors: NO_MEMORY. */
int sl_shard_iteration_reserve(struct sl_shard_table *table, uint32_t queue_count);

/* Drops what the worker has staged of iteration `clock` and later ones, which no floor of its
 * groups may have passed, in all tables. */
void sl_shard_iteration_drop(struct sl_shard *shard, uint32_t worker, uint32_t clock);

/* A floor may have moved: finds out whether staged pushes are due. */
void sl_shard_iteration_update(struct sl_shard *shard);

/* Elements of a dense range, from `at` on, that `left` of a budget pays for: at least one block's
 * part, and never cut inside a block, whose slots may belong to it as a whole. */
uint64_t sl_shard_push_dense_step(uint64_t at, uint64_t end, uint32_t left);

#endif
