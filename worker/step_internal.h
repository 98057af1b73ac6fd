/* A step, as step.c and port.c see it. It belongs to the port, and so to the thread, that made it,
 * and is used again when it has come back from every reactor. */
#ifndef SL_WORKER_STEP_INTERNAL_H
#define SL_WORKER_STEP_INTERNAL_H

#include <starling.h>

#include "worker/operation.h"
#include "worker/scratch.h"
#include "worker/substep.h"
#include "worker/thread_ctx.h"

enum sl_step_state {
    SL_STEP_FREE, /* in its port's list, or on its way back there: ended, substeps_out > 0 */
    SL_STEP_BUILDING,
    SL_STEP_SUBMITTED,
    SL_STEP_COMPLETE
};

struct sl_step {
    struct sl_step *next_of_thread_ctx; /* all that the port ever made */
    struct sl_step *next_free;
    struct sl_client *client;
    struct sl_thread_ctx *thread_ctx;
    enum sl_step_state state;
    bool bad; /* an operation was refused */
    bool tick, finish;
    int32_t priority;
    uint32_t clock;
    uint32_t tick_at; /* operations before the tick */

    struct sl_operation *operations; /* grown, kept */
    uint32_t operation_count, operation_capacity;
    struct sl_scratch wire, notes;

    uint32_t substeps_left; /* not complete */
    uint32_t substeps_out;  /* not returned */
    int err;
    const char *error; /* of the part that failed first */
    uint32_t staleness;
    /* Called when the step is complete, before it is waited for, on its thread and perhaps in a
     * reactor's turn; NULL: not. Since the step was begun. */
    void (*on_done)(void *ctx);
    void *on_done_ctx;
    struct sl_substep substeps[]; /* one for each hub */
};

void sl_step_free(struct sl_step *step);

/* ---- For operations */

/* Whether an operation on the table may be added. */
bool sl_step_takes(const struct sl_step *step, const struct sl_table *table,
                   enum sl_table_kind kind);

/* Errors: NO_MEMORY; the step is bad then. */
int sl_step_add(struct sl_step *step, const struct sl_operation *operation);

/* Makes the step bad; returns INVALID. */
int sl_step_refuse(struct sl_step *step);

/* What sl_step_kv asks of a batch, for who checks it earlier, on another thread perhaps, and then
 * adds it without being asked again. Any thread. */
bool sl_step_kv_is_valid(const struct sl_kv_batch *batch);
bool sl_step_kv_ascend(const uint64_t *keys, uint32_t key_count);
int sl_step_kv_add(struct sl_step *step, struct sl_table *table, const struct sl_kv_batch *batch);

#endif
