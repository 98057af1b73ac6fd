/* A step. It belongs to the thread context that created it, and is reused once all substeps have
 * returned. */
#ifndef SL_WORKER_CLIENT_STEP_INTERNAL_H
#define SL_WORKER_CLIENT_STEP_INTERNAL_H

#include <starling.h>

#include "worker/client/operation.h"
#include "worker/client/scratch.h"
#include "worker/client/substep.h"
#include "worker/client/thread_ctx.h"

#define SL_STEP_TIMEOUT_MS_MAX 4294967U /* fits a request's budget in microseconds */

enum sl_step_state {
    SL_STEP_FREE, /* free, or destroyed with substeps_out > 0 */
    SL_STEP_BUILDING,
    SL_STEP_SUBMITTED,
    SL_STEP_COMPLETE
};

struct sl_step {
    struct sl_step *next_of_thread_ctx; /* all steps of the thread context */
    struct sl_step *next_free;
    struct sl_client *client;
    struct sl_thread_ctx *thread_ctx;
    enum sl_step_state state;
    bool bad;          /* an operation was refused */
    bool wants_finite; /* an operation sends INT8, or to a table with reject_nonfinite */
    enum sl_tick_kind tick;
    int32_t priority;
    uint32_t clock;
    uint32_t tick_at; /* operations before the tick */

    struct {
        uint32_t rate_bits; /* of pushes: sl_rate_to_bits */
        bool has_encoding;  /* in place of those of the tables */
        struct sl_encoding encoding;
    } next; /* of the operations added next */
    struct {
        struct sl_operation *items; /* reused */
        uint32_t count, capacity;
    } operations;
    struct sl_scratch wire, notes;

    uint64_t submitted_ns;
    uint64_t ended_ns;      /* when the last of its substeps was complete */
    bool is_awaited;        /* the thread is in a wait for this step */
    uint32_t substeps_left; /* not complete */
    uint32_t substeps_out;  /* not returned */
    int err;
    const char *error; /* of the first substep that failed */
    uint32_t staleness;
    /* Called on the step's thread when the step completes, before any wait returns; perhaps inside
     * a reactor's turn. NULL: none. Set after begin, which clears it. */
    struct {
        void (*call)(void *ctx);
        void *ctx;
    } on_done;
    struct sl_substep substeps[]; /* one per client_io */
};

/* Frees the steps of a port, all of them destroyed; the port is in a struct sl_thread_ctx. */
void sl_step_free_all(struct sl_port *port);

/* sl_step_submit_deferred at now_ns, by a recent reading of the client's clock. */
int sl_step_submit_at(struct sl_step *step, uint32_t timeout_ms, uint64_t now_ns);

/* sl_step_wait that `interrupted` does not end, for callers that may not leave a step behind. */
int sl_step_wait_through(struct sl_step *step);

/* For operations */

/* Returns whether an operation on the table may be added; reports why not. */
bool sl_step_takes(const struct sl_step *step, const struct sl_table *table,
                   enum sl_table_kind kind);

/* Errors: INVALID, VERSION, NO_MEMORY; the step is bad then. */
int sl_step_add(struct sl_step *step, const struct sl_operation *operation);

/* A pull, push, push_pull or assign of rows. gradients (of an assign: its rows), rows: NULL where
 * the operation has none. Errors: INVALID, NO_MEMORY; the step is bad then. */
int sl_step_add_rows(struct sl_step *step, enum sl_request_op op, const struct sl_table *table,
                     const uint64_t *keys, uint32_t key_count, const float *gradients, float *rows);

/* Marks the step as bad; returns INVALID. The caller has reported the reason. */
int sl_step_refuse(struct sl_step *step);

/* The checks of sl_step_kv, which report what is wrong, for callers that check a batch earlier,
 * perhaps on another thread, and add it unchecked later. Any thread. */
bool sl_step_kv_is_valid(const struct sl_kv_batch *batch);
bool sl_step_kv_ascend(const uint64_t *keys, uint32_t key_count);
/* zeros: pulls of keys without an array give 0. */
int sl_step_kv_add(struct sl_step *step, struct sl_table *table, const struct sl_kv_batch *batch,
                   bool zeros);

/* Pulls up to value_count / key_count values of each key, where the array is not longer, and its
 * length; unchecked. Errors: those of a step. */
int sl_step_kv_measure(struct sl_step *step, struct sl_table *table,
                       const struct sl_kv_batch *batch, uint32_t *lengths);

#endif
