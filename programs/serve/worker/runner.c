#include "programs/serve/worker/runner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "programs/serve/worker/pending.h"
#include "reactor/topology.h"

#define STUCK   10.0                      /* times the expected time */
#define WAIT_NS (20 * SL_CLOCK_NS_PER_MS) /* for all bytes of a model, of LOAD */

static uint64_t runner_now(const struct sl_serve_runner *runner)
{
    return sl_reactor_now_ns(runner->reactor);
}

/* ---- Requests of open models ----------------------------------------------------------------- */

/* A newer version takes over when all of its bytes are there; or when a still newer one has come,
 * so that a model that is published often does not stay old. */
static void take_over(struct sl_serve_model_entry *entry)
{
    struct sl_residency here;
    if (entry->newer == NULL || entry->is_running || entry->is_opening) {
        return;
    }
    sl_subscription_residency(entry->subscription, &here);
    if (here.version != entry->newer->number || here.bytes >= entry->newer->bytes) {
        sl_serve_model_entry_drop(entry);
    }
}

/* The most rows of a batch: all outputs have room. */
static uint32_t rows_max(const struct sl_serve_runner *runner, const struct sl_engine_info *info)
{
    const uint64_t row_bytes = sl_serve_batch_output_bytes(info, 1);
    const uint64_t most = row_bytes > 0 ? SL_SERVE_PENDING_BYTES / row_bytes : UINT32_MAX;
    return most < runner->options->batch_max ? (uint32_t)most : runner->options->batch_max;
}

/* False: the request was answered. */
static bool check(struct sl_serve_runner *runner, struct sl_serve_pending *pending)
{
    const struct sl_serve_version *version = pending->entry->current;
    const struct sl_engine_info *info = version->info;
    struct sl_reason reason;
    if (pending->checked == version) {
        return true;
    }
    const int err = sl_serve_batch_check(info, rows_max(runner, info), &pending->item, &reason);
    const uint64_t bytes = sl_serve_batch_output_bytes(info, pending->item.rows);
    if (err != 0) {
        sl_serve_pending_refuse(pending, err, reason.text);
    } else if (bytes > pending->output_room || bytes > SL_SERVE_PENDING_BYTES) {
        sl_serve_pending_dequeue(pending);
        sl_serve_pending_answer(pending, SL_ERR_TOO_LARGE, 0, bytes,
                                "the outputs have %" PRIu64 " bytes, their room %" PRIu64, bytes,
                                pending->output_room);
    } else {
        pending->checked = version;
    }
    return pending->checked == version;
}

static void describe(struct sl_serve_runner *runner, struct sl_serve_pending *pending)
{
    const struct sl_serve_version *version = pending->entry->current;
    char text[SL_SERVE_DESCRIPTION_BYTES];
    const size_t bytes = sl_serve_batch_describe(version->info, rows_max(runner, version->info),
                                                 pending->entry->name, version->number,
                                                 version->engine->name, text, sizeof text);
    const bool fits = bytes < sizeof text && bytes <= pending->output_room;
    if (fits && !sl_serve_pending_place(pending, bytes)) {
        return; /* until there is room */
    }
    sl_serve_pending_dequeue(pending);
    if (fits) {
        memcpy(pending->item.output, text, bytes);
        pending->item.outputs[0] = (struct sl_serve_tensor){
            .name = "metadata", .type = SL_OBJECT_U8, .rank = 1, .shape = {bytes}, .bytes = bytes};
        pending->item.output_count = 1;
    }
    sl_serve_pending_answer(pending, fits ? 0 : SL_ERR_TOO_LARGE, version->number, bytes, "%s",
                            fits ? "" : "the metadata is too large");
}

/* Answers what needs no computation; returns the first request that can be computed, else the first
 * LOAD whose model has missing bytes. NULL: none. */
static struct sl_serve_pending *find_ready(struct sl_serve_runner *runner)
{
    struct sl_serve_pending *first = NULL;
    SL_LIST_EACH (struct sl_serve_pending, pending, item.link, runner->queue) {
        struct sl_serve_model_entry *entry = pending->entry;
        take_over(entry);
        if (entry->current == NULL ||
            (entry->is_opening && !sl_serve_version_is_complete(entry->current))) {
            continue; /* the opener uses the subscription */
        }
        switch (pending->item.kind) {
        case SL_SERVE_DESCRIBE:
            describe(runner, pending);
            break;
        case SL_SERVE_LOAD:
            if (!entry->is_running && sl_serve_version_is_complete(entry->current)) {
                entry->used_ns = 0; /* to be closed: its bytes stay in the pool */
                sl_serve_pending_dequeue(pending);
                sl_serve_pending_answer(pending, 0, entry->current->number, 0, "%s", "");
            } else {
                first = first == NULL ? pending : first;
            }
            break;
        case SL_SERVE_INFER:
            if (check(runner, pending) && (first == NULL || first->item.kind == SL_SERVE_LOAD ||
                                           first->entry == runner->stalled)) {
                first = pending;
            }
            break;
        }
    }
    return first;
}

/* ---- Compute --------------------------------------------------------------------------------- */

static void runner_compute(struct sl_offload_job *job)
{
    struct sl_serve_runner *runner = SL_CONTAINER_OF(job, struct sl_serve_runner, job);
    if (runner->options->core >= 0 && !runner->is_pinned) {
        runner->is_pinned = true;
        if (sl_topology_pin_thread(runner->options->core) != 0) {
            sl_log_warn("serve: the computing thread cannot be pinned to core %d",
                        runner->options->core);
        }
    }
    runner->err =
        sl_serve_version_run(runner->version, &runner->batch, runner->scratch, runner->deadline_ns,
                             sl_reactor_clock(runner->reactor), &runner->times, &runner->reason);
}

static bool grow_scratch(struct sl_serve_runner *runner, uint64_t bytes)
{
    if (bytes > runner->scratch_bytes) {
        free(runner->scratch);
        runner->scratch = aligned_alloc(64, (bytes + 63) & ~63ULL);
        runner->scratch_bytes = runner->scratch != NULL ? bytes : 0;
    }
    return bytes <= runner->scratch_bytes;
}

/* Puts the batch back, in front of all others. */
static void put_back(struct sl_serve_runner *runner)
{
    struct sl_serve_batch *batch = &runner->batch;
    for (uint32_t i = batch->item_count; i > 0; i--) {
        struct sl_serve_pending *pending = sl_serve_pending_of(batch->items[i - 1]);
        sl_serve_pending_unplace(pending);
        sl_list_prepend(runner->queue, &pending->item.link);
        pending->entry->waiting++;
    }
}

/* Takes the request and others of its model. False: there is no room for outputs at present. */
static bool take_batch(struct sl_serve_runner *runner, struct sl_serve_model_entry *entry)
{
    const struct sl_engine_info *info = entry->current->info;
    sl_serve_batch_take(runner->queue, entry, info, rows_max(runner, info), &runner->batch);
    entry->waiting -= runner->batch.item_count;
    for (uint32_t i = 0; i < runner->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(runner->batch.items[i]);
        const uint64_t arrived_ns = pending->item.arrived_ns;
        if (!sl_serve_pending_place(pending,
                                    sl_serve_batch_output_bytes(info, pending->item.rows))) {
            put_back(runner);
            return false;
        }
        pending->load_ns = entry->ready_ns > arrived_ns ? entry->ready_ns - arrived_ns : 0;
        if (i == 0 || pending->item.deadline_ns > runner->deadline_ns) {
            runner->deadline_ns = pending->item.deadline_ns;
        }
    }
    return true;
}

void sl_serve_runner_next(struct sl_serve_runner *runner)
{
    struct sl_serve_pending *first = find_ready(runner);
    if (first == NULL || runner->entry != NULL) {
        return;
    }
    struct sl_serve_model_entry *entry = first->entry;
    runner->batch.item_count = 0;
    runner->deadline_ns = runner_now(runner) + WAIT_NS;
    if (first->item.kind == SL_SERVE_INFER) {
        if (!grow_scratch(runner, entry->current->info->scratch_bytes)) {
            sl_serve_pending_refuse(first, SL_ERR_NO_MEMORY,
                                    "the worker has no memory for intermediate values");
            return;
        }
        if (!take_batch(runner, entry)) {
            return;
        }
    }
    runner->entry = entry;
    runner->version = entry->current;
    runner->begun_ns = runner_now(runner);
    entry->is_running = true;
    entry->runs_complete = sl_serve_version_is_complete(entry->current);
    runner->post(runner->ctx, &runner->job);
}

/* Requests are computed again if the version has ended, or if a value of one of them was bad: then
 * one by one. */
static void compute_failed(struct sl_serve_runner *runner, struct sl_serve_model_entry *entry,
                           int err)
{
    const struct sl_serve_batch *batch = &runner->batch;
    entry->reason = runner->reason;
    put_back(runner);
    if (err == SL_ERR_CLOSED || err == SL_ERR_CANCELLED) {
        sl_serve_model_entry_drop(entry);
    } else if (err == SL_ERR_INVALID && batch->item_count == 1) {
        sl_serve_pending_refuse(sl_serve_pending_of(batch->items[0]), err, entry->reason.text);
    } else if (err == SL_ERR_INVALID) {
        for (uint32_t i = 0; i < batch->item_count; i++) {
            batch->items[i]->is_alone = true;
        }
    } else if (err != SL_ERR_DEADLINE) {
        sl_serve_pendings_refuse_all(runner->queue, entry, err, entry->reason.text);
    }
}

static void computed(struct sl_offload_job *job)
{
    struct sl_serve_runner *runner = SL_CONTAINER_OF(job, struct sl_serve_runner, job);
    struct sl_serve_model_entry *entry = runner->entry;
    const int err = job->err != 0 ? job->err : runner->err;
    runner->entry = NULL;
    runner->stalled = err == SL_ERR_DEADLINE ? entry : NULL;
    entry->is_running = false;
    entry->used_ns = runner_now(runner);
    if (err != 0) {
        compute_failed(runner, entry, err);
    } else if (runner->batch.item_count > 0 && !entry->is_opening) { /* a job reads it */
        sl_serve_model_table_learn(runner->models, entry, runner->batch.rows, &runner->times);
        entry->reason.text[0] = '\0';
    }
    for (uint32_t i = 0; err == 0 && i < runner->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(runner->batch.items[i]);
        pending->load_ns += runner->times.wait_ns;
        pending->compute_ns = runner->times.run_ns;
        sl_serve_pending_answer(pending, 0, runner->version->number, pending->output_bytes, "%s",
                                "");
    }
    runner->ended(runner->ctx);
}

void sl_serve_runner_init(struct sl_serve_runner *runner)
{
    runner->job = (struct sl_offload_job){.work = runner_compute, .done = computed};
    runner->times.layers = runner->layers;
}

void sl_serve_runner_fini(struct sl_serve_runner *runner)
{
    free(runner->scratch);
}

void sl_serve_runner_forget(struct sl_serve_runner *runner, const struct sl_serve_peer *peer)
{
    for (uint32_t i = 0; runner->entry != NULL && i < runner->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(runner->batch.items[i]);
        pending->peer = pending->peer == peer ? NULL : pending->peer;
    }
}

bool sl_serve_runner_is_stuck(const struct sl_serve_runner *runner, uint64_t least_ns)
{
    if (runner->entry == NULL || runner_now(runner) <= runner->deadline_ns) {
        return false;
    }
    const double took_ns = (double)(runner_now(runner) - runner->begun_ns);
    return took_ns > (double)least_ns &&
           took_ns > STUCK * sl_serve_model_entry_run_ns(runner->entry, runner->batch.rows);
}

double sl_serve_runner_left_ns(const struct sl_serve_runner *runner)
{
    if (runner->entry == NULL) {
        return 0;
    }
    const double left = sl_serve_model_entry_run_ns(runner->entry, runner->batch.rows) -
                        (double)(runner_now(runner) - runner->begun_ns);
    return left > 0 ? left : 0;
}
