/* Declarations shared by the files of ps/shard and private to them. Owner reactor. */
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

/* Keys looked up at once: their record indexes stay in the L1 cache. */
#define SL_SHARD_BATCH_KEYS   256

/* Largest push that runs in one slice, with its own scratch. */
#define SL_SHARD_SMALL_KEYS   1024
#define SL_SHARD_SMALL_FLOATS (64U << 10)

/* Phases of a section, in order. Each operation passes through some of them. */
enum sl_shard_phase {
    SL_SHARD_PHASE_NEW,     /* header read */
    SL_SHARD_PHASE_ADMIT,   /* waits until it may run */
    SL_SHARD_PHASE_COLLECT, /* push: look up keys, find repeats; BSP: copy the gradients */
    SL_SHARD_PHASE_APPLY,   /* push: update records or elements */
    SL_SHARD_PHASE_READ,    /* pull */
};

/* A worker's buffered pushes to a BSP table, in order of arrival and so of clock. */
struct sl_shard_push_buffer_queue {
    struct sl_shard_buffered_push *first, *last;
    /* Entries that left the queue before a snapshot has copied them: applied ones, from its front,
     * and dropped ones, from its end. */
    struct sl_shard_buffered_push *applied_first, *applied_last, *dropped;
};

struct sl_shard_table {
    struct sl_table_spec spec;
    struct sl_sparse_table *sparse; /* exactly one of these three */
    struct sl_dense_table *dense;
    struct sl_kv_table *kv;
    const struct sl_optimizer *optimizer;
    struct sl_optimizer_state state;
    uint64_t step;         /* push sections applied */
    uint32_t key_cost;     /* of one key, in units of the budget */
    uint32_t clock_group;  /* valid if worker_count > 0 */
    size_t counted_memory; /* memory of the table, as included in the shard's memory_bytes */
    size_t beside_memory;  /* other memory for the table, as included there */
    uint64_t pulled_rows, pushed_rows;
    /* BSP only: */
    struct sl_shard_push_buffer_queue *buffered; /* [queue_count], by worker */
    uint32_t queue_count; /* at least worker_count; more for joined workers with a higher index */
    uint32_t buffered_count;
};

/* The BSP iteration that is being applied. */
struct sl_shard_iteration_state {
    bool due;          /* buffered pushes are due */
    bool begun;        /* some of them are applied, at least partly */
    uint32_t table_id; /* current table */
    uint32_t clock;    /* current iteration of that table */
    uint32_t worker;   /* current queue */
    bool in_entry;     /* its first entry is partly applied */
    uint64_t done;     /* records or elements applied of that entry */
    uint64_t step;
    struct sl_optimizer_state state;
};

struct sl_shard_snapshots {
    uint64_t order_last;               /* of the last buffered push */
    uint32_t number_last;              /* of the last snapshot */
    uint32_t pushes_in_part;           /* partly applied */
    bool wanted;                       /* no push starts that would be partly applied */
    struct sl_shard_snapshot *current; /* running, done or failed; NULL: none */
    struct sl_snapshot_builder blocks; /* of the present and of earlier snapshots */
};

struct sl_shard {
    struct sl_shard_options options;
    struct sl_shard_table *tables[SL_LIMIT_TABLES];
    uint32_t table_count; /* above all table ids in use */
    struct sl_clocks clocks;
    struct sl_shard_scratch small, large;
    struct sl_shard_push_buffer push_buffer; /* mapped with the first BSP table */
    struct sl_shard_iteration_state iteration;
    size_t memory_bytes; /* counted for the limit */
    struct sl_shard_snapshots snapshots;
    /* Handler of KV tables: */
    uint64_t handled;    /* calls that did not return AGAIN */
    uint32_t asks_again; /* requests waiting for such a call */
    bool handler_moved;  /* such a call came and is not reported yet */
};

/* Budget and error text of one call of sl_shard_run. */
struct sl_shard_slice {
    uint32_t budget, spent;
    char *reason;
    size_t reason_bytes;
};

static inline uint32_t sl_shard_slice_left(const struct sl_shard_slice *slice)
{
    return slice->budget > slice->spent ? slice->budget - slice->spent : 0;
}

/* Returns how many of the keys left to visit in a batch, at most `paid`. */
static inline uint32_t sl_shard_batch(uint64_t left, uint64_t paid)
{
    const uint64_t most = paid < SL_SHARD_BATCH_KEYS ? paid : SL_SHARD_BATCH_KEYS;
    return (uint32_t)(left < most ? left : most);
}

/* Dense elements for one unit of budget. */
#define SL_SHARD_ELEMENTS_PER_KEY 64

/* Sets of operations, one bit each. Operations are validated and below 32. */
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

static inline uint32_t sl_shard_sections_done(const struct sl_shard_request *request)
{
    return request->prefix.section_count - request->sections_left;
}

/* Returns true when the current section executed its writes before. */
static inline bool sl_shard_section_skips_writes(const struct sl_shard_request *request)
{
    const uint32_t section = sl_shard_sections_done(request);
    return section < request->write_from || section >= request->write_to;
}

/* Returns true when the current section has to push: not if it is replayed. */
static inline bool sl_shard_pushes(const struct sl_shard_request *request, uint8_t op)
{
    return !sl_shard_section_skips_writes(request) && sl_shard_op_pushes(op);
}

/* Mark a push as partly applied at the end of a slice, and as done or abandoned. Both are
 * idempotent. */
static inline void sl_shard_part_begin(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (!request->in_part) {
        request->in_part = true;
        shard->snapshots.pushes_in_part++;
    }
}

static inline void sl_shard_part_end(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (request->in_part) {
        request->in_part = false;
        shard->snapshots.pushes_in_part--;
    }
}

/* Returns and clears the cost of the snapshot copies that this slice's pushes caused. */
static inline uint32_t sl_shard_snapshot_copy_debt(struct sl_shard *shard)
{
    if (shard->snapshots.current == NULL) {
        return 0;
    }
    const uint32_t owed = shard->snapshots.blocks.copy_debt;
    shard->snapshots.blocks.copy_debt = 0;
    return owed;
}

/* Frees an entry removed from the front of its queue, unless a snapshot has yet to copy it. */
void sl_shard_snapshot_iteration_applied(struct sl_shard *shard,
                                         struct sl_shard_push_buffer_queue *queue,
                                         struct sl_shard_buffered_push *entry);

/* Frees a list of entries removed from the end of the queue, except those that a snapshot has yet
 * to copy. */
void sl_shard_snapshot_dropped(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                               struct sl_shard_buffered_push *entries);

/* Aborts the snapshot to free the push buffer space that it holds. Returns false when it holds
 * none. */
bool sl_shard_snapshot_yield(struct sl_shard *shard);

/* Returns the clock of the sections after a tick of this clock. */
static inline uint32_t sl_shard_clock_after(uint32_t clock)
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

/* Returns the kind of table that the operation needs. */
static inline enum sl_table_kind sl_shard_op_kind(uint8_t op)
{
    return sl_shard_op_dense(op) ? SL_TABLE_DENSE
           : sl_shard_op_kv(op)  ? SL_TABLE_KV
                                 : SL_TABLE_SPARSE;
}

/* Turns the push_pull of an apply-only request into a push; both have the same body. */
static inline void sl_shard_drop_pull_part(struct sl_shard_request *request)
{
    uint8_t *op = &request->view.section.op;
    *op = *op == SL_REQUEST_PUSH_PULL         ? SL_REQUEST_PUSH
          : *op == SL_REQUEST_DENSE_PUSH_PULL ? SL_REQUEST_DENSE_PUSH
          : *op == SL_REQUEST_KV_PUSH_PULL    ? SL_REQUEST_KV_PUSH
                                              : *op;
}

/* Writes "shard 1, section 2 (table emb): " and the message to the slice's reason. Returns err. */
int sl_shard_fail(const struct sl_shard *shard, const struct sl_shard_request *request,
                  struct sl_shard_slice *slice, int err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Explains why the shard has no more memory: "the limit is N", or without a limit that the system
 * refused. Writes and returns text. */
const char *sl_shard_limit_text(const struct sl_shard *shard, char text[static 64]);

/* Returns true when pushes of this worker to the table are buffered. */
bool sl_shard_buffers_pushes(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_client *caller);

/* Returns true when a pull of this clock may be served now. */
bool sl_shard_admits(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_client *caller, uint32_t clock);

/* Returns true when this shard owns all keys. */
bool sl_shard_owns(const struct sl_shard *shard, const uint64_t *keys, uint32_t count);

/* Looks up the keys and creates missing rows, up to the shard's limit. initialize: with their first
 * values; else the caller writes all of them. records[count]: record indexes. Errors: NO_MEMORY. */
int sl_shard_find(struct sl_shard *shard, struct sl_shard_table *table, const uint64_t *keys,
                  uint32_t count, bool initialize, uint32_t *records);

/* As above, for up to SL_SHARD_BATCH_KEYS keys, and checks that this shard owns them. Errors:
 * WRONG_SHARD, NO_MEMORY. */
int sl_shard_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                    const struct sl_shard_request *request, struct sl_shard_slice *slice,
                    const uint64_t *keys, uint32_t count, uint32_t *records);

/* Returns true when a push of this section runs in one slice. */
static inline bool sl_shard_push_is_small(const struct sl_request_section *section, uint32_t dim)
{
    return section->key_count <= SL_SHARD_SMALL_KEYS &&
           (uint64_t)section->key_count * dim <= SL_SHARD_SMALL_FLOATS;
}

/* Returns true when a push of this section needs the large scratch. */
static inline bool sl_shard_push_is_large(const struct sl_request_section *section, uint32_t dim)
{
    return sl_shard_op_kv(section->op)
               ? section->key_count > SL_SHARD_BATCH_KEYS
               : !sl_shard_op_dense(section->op) && !sl_shard_push_is_small(section, dim);
}

/* Runs a section of a KV table, from ADMIT on. */
int sl_shard_kv_run(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice);

/* Returns the cost of a KV section, without finding repeated keys. */
uint64_t sl_shard_kv_cost(const struct sl_request_section *section, uint32_t dim);

/* Returns true when the request waits for its handler. */
bool sl_shard_kv_waits(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Returns true when the request pulls one existing array, or a chunk of it, with the right
 * length. */
bool sl_shard_kv_is_chunked(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Copies the next values of such a pull. */
void sl_shard_kv_next_chunk(const struct sl_shard *shard, const struct sl_shard_request *request,
                            uint64_t count, void *values);

/* Ends the section's reservation and its wait. */
void sl_shard_kv_drop(struct sl_shard *shard, struct sl_shard_request *request);

/* Starts the push of a section and takes its working memory. DONE: continue with COLLECT; AGAIN:
 * the scratch is in use. Errors: PROTOCOL, NO_MEMORY. */
int sl_shard_push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Continues the push from COLLECT on. DONE: applied or buffered. */
int sl_shard_push_run(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Releases the working memory of a push that will not complete. */
void sl_shard_push_drop(struct sl_shard *shard, struct sl_shard_request *request);

/* Appends a complete entry to its worker's queue. */
void sl_shard_iteration_add(struct sl_shard *shard, struct sl_shard_table *table, uint32_t worker,
                            struct sl_shard_buffered_push *entry);

/* Destroys the tables with this name prefix. No request is in progress. */
void sl_shard_tables_drop(struct sl_shard *shard, const char *prefix);

/* Makes room for queue_count queues. Errors: NO_MEMORY. */
int sl_shard_iteration_reserve(struct sl_shard_table *table, uint32_t queue_count);

/* Drops the worker's buffered pushes of iteration `clock` and later, in all tables. No min_clock of
 * its groups may have passed `clock`. */
void sl_shard_iteration_drop(struct sl_shard *shard, uint32_t worker, uint32_t clock);

/* Checks whether buffered pushes are due, after a min_clock may have changed. */
void sl_shard_iteration_update(struct sl_shard *shard);

/* Returns how many elements of a dense range, from `at` on, a budget of `left` pays for. At least
 * one block's part, and never a cut inside a block, because slots may belong to the whole block. */
uint64_t sl_shard_dense_step(uint64_t at, uint64_t end, uint32_t left);

#endif
