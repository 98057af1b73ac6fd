/* The driving thread: turns calls into steps and completes them. */
#include "worker/kv/engine.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/clock.h"
#include "worker/client/step_internal.h"

static void kv_engine_append(struct sl_engine_list *list, struct sl_engine_call *call)
{
    call->next = NULL;
    if (list->last == NULL) {
        list->first = call;
    } else {
        list->last->next = call;
    }
    list->last = call;
}

/* From the queue into the client */

/* May run in the middle of a reactor turn, when no step can be begun: only lists the call. */
static void step_is_done(void *ctx)
{
    struct sl_engine_call *call = ctx;
    kv_engine_append(&call->kv->engine->driver.ended, call);
}

static int add_operation(const struct sl_engine_call *call)
{
    const struct sl_kv_batch *batch = &call->request.batch;
    struct sl_table *table = call->kv->table;
    int err = sl_step_set_priority(call->step, call->request.priority);
    if (err != 0) {
        return err;
    }
    return call->lengths == NULL ? sl_step_kv_add(call->step, table, batch)
                                 : sl_step_kv_lengths(call->step, table, batch->keys,
                                                      batch->key_count, call->lengths);
}

static uint32_t time_left_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns < now_ns + SL_CLOCK_NS_PER_MS
               ? 1
               : (uint32_t)((deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS);
}

static void start(struct sl_engine *engine, struct sl_engine_call *call, uint64_t now_ns)
{
    const bool is_whole = sl_client_values_lost(engine->client) < 0;
    int err = is_whole ? sl_step_begin(engine->client, 0, &call->step) : SL_ERR_CORRUPT;
    if (err == 0) {
        call->step->on_done.call = step_is_done;
        call->step->on_done.ctx = call;
        err = add_operation(call);
    }
    err = err != 0 ? err
                   : sl_step_submit_at(call->step, time_left_ms(call->deadline_ns, now_ns), now_ns);
    if (err != 0) {
        if (call->step != NULL) {
            char *text = call->step->substeps[0].error;
            (void)snprintf(text, SL_SUBSTEP_ERROR_BYTES, "%s", sl_last_error());
            call->step->error = text;
        }
        call->err = err;
        kv_engine_append(&engine->driver.ended, call);
    }
}

/* Starts all admitted calls before the next turn, so that their messages are sent together. */
static void admit(struct sl_engine *engine)
{
    uint32_t room = SL_THREAD_CTX_STEPS_MAX - sl_thread_ctx_of(engine->driver.port)->steps_out;
    struct sl_engine_list taken = {0};
    sl_engine_lock(engine);
    engine->wake_pending = false;
    engine->driver.woken = false;
    struct sl_engine_call *call = NULL;
    for (; room > 0 && (call = sl_engine_dequeue(engine)) != NULL; room--) {
        kv_engine_append(&taken, call);
    }
    engine->driver.backlog = engine->heap_count > 0;
    while (engine->new_jobs != NULL) {
        struct sl_engine_job *job = engine->new_jobs;
        engine->new_jobs = job->next;
        job->next = engine->driver.jobs;
        engine->driver.jobs = job;
    }
    sl_engine_unlock(engine);
    const uint64_t now_ns = taken.first == NULL ? 0 : sl_clock_now_ns(sl_clock_system());
    while ((call = taken.first) != NULL) {
        taken.first = call->next;
        start(engine, call, now_ns);
    }
}

/* Completion */

static void waiter_is_over(void *ctx, uint64_t err, uint64_t unused)
{
    struct sl_engine_waiter *waiter = ctx;
    waiter->err = (int)(int64_t)err;
    waiter->over = true;
}

static void kv_engine_wake(struct sl_engine_waiter *waiter, int err)
{
    int posted = sl_mailbox_post(
        waiter->lane,
        (struct sl_mail){.run = waiter_is_over, .ctx = waiter, .a = (uint64_t)(int64_t)err});
    sl_assert(posted == 0); /* at most one mail per wait */
}

/* Runs the callback before the waiters are woken: a wait includes the callback. */
static void run_callback(struct sl_engine_call *call)
{
    if (call->step != NULL && call->err == 0) {
        call->err = sl_step_wait(call->step);
    }
    if (call->request.done != NULL) {
        call->request.done(call->request.ctx, call->timestamp, call->err);
    }
}

static void note_failure(struct sl_engine *engine, const struct sl_engine_call *call)
{
    char text[SL_ENGINE_TEXT_BYTES] = "";
    if (call->step != NULL) {
        (void)snprintf(text, sizeof text, "%s", sl_step_error(call->step));
    } else if (call->err == SL_ERR_CORRUPT) {
        (void)snprintf(text, sizeof text,
                       "ps/%d was restarted without the values that it had: start the job again, "
                       "or from a checkpoint",
                       sl_client_values_lost(engine->client));
    }
    sl_engine_note_failure(engine, call->timestamp, call->err,
                           text[0] == '\0' ? sl_err_name(call->err) : text);
}

/* Under the lock. */
static void close_call(struct sl_engine *engine, struct sl_engine_call *call)
{
    struct sl_kv *kv = call->kv;
    sl_engine_forget(engine, call);
    if (call->err != 0) {
        note_failure(engine, call);
    }
    if (call->step != NULL) {
        sl_step_destroy(&call->step);
    }
    while (call->waiters != NULL) {
        struct sl_engine_waiter *waiter = call->waiters;
        call->waiters = waiter->next;
        kv_engine_wake(waiter, call->err);
    }
    if (kv->outstanding == 0 && kv->drained != NULL) {
        kv_engine_wake(kv->drained, 0);
        kv->drained = NULL;
    }
    sl_engine_give_call(engine, call);
}

static void finish(struct sl_engine *engine)
{
    struct sl_engine_list over = engine->driver.ended;
    engine->driver.ended = (struct sl_engine_list){0};
    for (struct sl_engine_call *call = over.first; call != NULL; call = call->next) {
        run_callback(call);
    }
    sl_engine_lock(engine);
    struct sl_engine_call *next;
    for (struct sl_engine_call *call = over.first; call != NULL; call = next) {
        next = call->next;
        close_call(engine, call);
    }
    sl_engine_unlock(engine);
}

static void poll_jobs(struct sl_engine *engine)
{
    struct sl_engine_job **at = &engine->driver.jobs;
    while (*at != NULL) {
        struct sl_engine_job *job = *at;
        int err = job->poll(engine, job);
        if (err == SL_ERR_AGAIN) {
            at = &job->next;
        } else {
            *at = job->next;
            job->reason = *sl_reason_last();
            kv_engine_wake(job->waiter, err); /* the job may be freed now */
        }
    }
}

void sl_engine_progress(struct sl_engine *engine)
{
    sl_assert(!engine->driver.is_running);
    engine->driver.is_running = true;
    admit(engine);
    while (engine->driver.ended.first != NULL) {
        finish(engine);
        admit(engine);
    }
    poll_jobs(engine);
    engine->driver.is_running = false;
}

static bool kv_engine_has_work(void *ctx)
{
    const struct sl_engine *engine = ctx;
    return engine->driver.woken || engine->driver.ended.first != NULL ||
           (engine->driver.backlog &&
            sl_thread_ctx_of(engine->driver.port)->steps_out < SL_THREAD_CTX_STEPS_MAX);
}

void sl_engine_rest(struct sl_engine *engine)
{
    if (engine->driver.jobs != NULL) {
        sl_port_wait(engine->driver.port); /* any mail may complete a job */
    } else {
        (void)sl_port_wait_until(engine->driver.port, SL_CLOCK_NEVER, kv_engine_has_work, engine);
    }
}
