/* The current section of a request: its phase, its operation and its costs. Owner reactor. */
#ifndef SL_PS_SHARD_SECTION_H
#define SL_PS_SHARD_SECTION_H

#include "core/reason.h"
#include "ps/shard/state.h"

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
    SL_SHARD_PHASE_UNDO,    /* push that is refused: remove the rows that it has created */
    SL_SHARD_PHASE_APPLY,   /* push: update records or elements */
    SL_SHARD_PHASE_READ,    /* pull */
};

/* Budget and error text of one call of sl_shard_run. */
struct sl_shard_slice {
    uint32_t budget, spent;
    struct sl_reason *reason;
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

/* Returns the cost of dense elements. */
static inline uint64_t sl_shard_dense_cost(uint64_t count)
{
    return count / SL_SHARD_ELEMENTS_PER_KEY + 1;
}

/* Copied bytes of KV values for one unit of budget; each visit of an array costs one more. */
#define SL_SHARD_KV_BYTES_PER_COST 256

/* Returns the cost of a KV section, without finding repeated keys. */
static inline uint64_t sl_shard_kv_cost(const struct sl_request_section *section, uint32_t dim)
{
    return section->key_count + section->count * dim / SL_SHARD_KV_BYTES_PER_COST;
}

/* Returns how many elements of a dense range, from `at` on, the budget pays for. At least one
 * block's part; the range never ends inside a block, because slots may belong to the whole
 * block. */
uint64_t sl_shard_dense_step(uint64_t at, uint64_t end, uint32_t budget);

/* Sets of operations, one bit each. Operations are validated and below 32. An assign is a push
 * whose values replace those of the table. */
#define SL_SHARD_OPS_ASSIGN (1U << SL_REQUEST_ASSIGN | 1U << SL_REQUEST_DENSE_ASSIGN)
#define SL_SHARD_OPS_PUSH_ONLY                                                                     \
    (1U << SL_REQUEST_PUSH | 1U << SL_REQUEST_DENSE_PUSH | 1U << SL_REQUEST_KV_PUSH |              \
     1U << SL_REQUEST_ERASE | SL_SHARD_OPS_ASSIGN)
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

static inline bool sl_shard_op_assigns(uint8_t op)
{
    return (SL_SHARD_OPS_ASSIGN >> op & 1) != 0;
}

static inline bool sl_shard_op_dense(uint8_t op)
{
    return op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_DENSE_PUSH ||
           op == SL_REQUEST_DENSE_PUSH_PULL || op == SL_REQUEST_DENSE_ASSIGN;
}

/* Returns true for an operation on all rows of a sparse table, which visits records. */
static inline bool sl_shard_op_walks(uint8_t op)
{
    return op >= SL_REQUEST_SCAN;
}

static inline bool sl_shard_op_kv(uint8_t op)
{
    return op >= SL_REQUEST_KV_PUSH && op <= SL_REQUEST_KV_LENGTHS;
}

/* Whether a KV section asks for the lengths of the arrays that it pulls. */
static inline bool sl_shard_asks_lengths(const struct sl_request_section *section)
{
    return section->op == SL_REQUEST_KV_PULL && (section->flags & SL_REQUEST_FLAG_LENGTHS) != 0;
}

/* Returns the kind of table that the operation needs. */
static inline enum sl_table_kind sl_shard_op_kind(uint8_t op)
{
    return sl_shard_op_dense(op) ? SL_TABLE_DENSE
           : sl_shard_op_kv(op)  ? SL_TABLE_KV
                                 : SL_TABLE_SPARSE;
}

static inline uint32_t sl_shard_sections_done(const struct sl_shard_request *request)
{
    return request->prefix.section_count - request->sections_left;
}

/* The current section has done its writes. */
static inline void sl_shard_section_wrote(struct sl_shard_request *request)
{
    request->effect_end = sl_shard_sections_done(request) + 1;
    request->effect_left = (uint32_t)request->cursor.left;
}

/* Returns true when the current section has begun to run. */
static inline bool sl_shard_has_begun(const struct sl_shard_request *request)
{
    return sl_flags_has(request->flags, SL_SHARD_IN_SECTION) &&
           request->phase != SL_SHARD_PHASE_NEW;
}

/* Returns true when the current section does not write: it has before, or writes are stopped. */
static inline bool sl_shard_section_skips_writes(const struct sl_shard_request *request)
{
    const uint32_t section = sl_shard_sections_done(request);
    return section < request->write_from || section >= request->write_to;
}

static inline bool sl_shard_pushes(const struct sl_shard_request *request, uint8_t op)
{
    return !sl_shard_section_skips_writes(request) && sl_shard_op_pushes(op);
}

/* Returns the clock of the sections after a tick of this clock. */
static inline uint32_t sl_shard_clock_after(uint32_t clock)
{
    return clock == SL_REQUEST_CLOCK_FINISHED ? clock : clock + 1;
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

/* Returns true when a push of this section runs in one slice. */
static inline bool sl_shard_push_is_small(const struct sl_request_section *section, uint32_t dim)
{
    return section->key_count <= SL_SHARD_SMALL_KEYS &&
           (uint64_t)section->key_count * dim <= SL_SHARD_SMALL_FLOATS;
}

/* Returns true when a push of this section needs the large scratch. An erase owns it too, so that
 * no other request holds record indexes between its slices. */
static inline bool sl_shard_push_is_large(const struct sl_request_section *section, uint32_t dim)
{
    return sl_shard_op_kv(section->op)
               ? section->key_count > SL_SHARD_BATCH_KEYS
               : section->op == SL_REQUEST_ERASE ||
                     (!sl_shard_op_dense(section->op) && !sl_shard_push_is_small(section, dim));
}

#endif
