/* The driving thread: turns calls into steps and completes them. */
#include "worker/kv/engine.h"
#include "worker/kv/place.h"

#include <stdio.h>
#include <stdlib.h>

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

static int add_operation(struct sl_engine_call *call)
{
    const struct sl_kv_batch *batch = &call->request.batch;
    struct sl_table *table = call->kv->table;
    int err = sl_step_set_priority(call->step, call->request.priority);
    if (err != 0) {
        return err;
    }
    if (call->request.place != NULL) {
        return sl_place_begin(call);
    }
    return call->lengths == NULL ? sl_step_kv_add(call->step, table, batch, call->kv->zeros)
                                 : sl_step_kv_lengths(call->step, table, batch->keys,
                                                      batch->key_count, call->lengths);
}

static uint32_t time_left_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns < now_ns + SL_CLOCK_NS_PER_MS
               ? 1
               : (uint32_t)((deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS);
}

int sl_engine_poll_send(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct sl_engine_send *send = (struct sl_engine_send *)(void *)job;
    struct sl_control_op *op = &send->relay->op;
    if (!send->posted && engine->driver.sends_out < SL_ENGINE_SENDS_MAX) {
        send->posted = true;
        engine->driver.sends_out++;
        op->io = &engine->client->ios[0];
        op->deadline_ns = send->call->deadline_ns;
        sl_control_op_post(op, engine->driver.port);
    }
    if (!op->done) {
        return SL_ERR_AGAIN;
    }
    engine->driver.sends_out--;
    send->call->err = op->err;
    kv_engine_append(&engine->driver.ended, send->call);
    return 0;
}

/* Messages are posted in their order. */
static void start_send(struct sl_engine *engine, struct sl_engine_send *send)
{
    struct sl_engine_job **at = &engine->driver.jobs;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = &send->job;
}

/* second: what a call with `place` pulls after its lengths are known, or NULL. */
static void start_step(struct sl_engine *engine, struct sl_engine_call *call,
                       const struct sl_kv_batch *second, uint64_t now_ns)
{
    const bool is_whole = sl_client_values_lost(engine->client) < 0;
    int err = is_whole ? sl_step_begin(engine->client, 0, &call->step) : SL_ERR_CORRUPT;
    if (err == 0) {
        call->step->on_done.call = step_is_done;
        call->step->on_done.ctx = call;
        err = second == NULL ? add_operation(call)
                             : sl_step_kv_add(call->step, call->kv->table, second, call->kv->zeros);
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

static void start(struct sl_engine *engine, struct sl_engine_call *call, uint64_t now_ns)
{
    if (call->send != NULL) {
        start_send(engine, call->send);
    } else {
        start_step(engine, call, NULL, now_ns);
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
    engine->driver.messages = engine->messages;
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

static void give_message(const struct sl_engine *engine, sl_kv_message_fn *fn,
                         const struct sl_message_relay *from, uint32_t group, uint32_t rank)
{
    const struct sl_kv_message message = {
        .role = group == SL_MESSAGE_GROUP_SCHEDULER ? SL_KV_SCHEDULER
                : group == SL_MESSAGE_GROUP_PS      ? SL_KV_SERVER
                                                    : SL_KV_WORKER,
        .rank = rank,
        .head = (int32_t)from->head,
        .bytes = from->body_bytes,
        .body = from->body,
        .id = from->token,
    };
    fn(engine->driver.messages.ctx, &message);
}

static void give_answers(const struct sl_engine *engine, const struct sl_relay *relay)
{
    for (uint32_t i = 0; engine->driver.messages.answer != NULL && i < relay->target_count; i++) {
        const struct sl_relay_target *target = &relay->targets[i];
        if (target->is_answered) {
            give_message(engine, engine->driver.messages.answer, &target->answer, target->group,
                         target->rank);
        }
    }
}

static void take_messages(struct sl_engine *engine)
{
    struct sl_relay_item *item =
        engine->driver.messages.request == NULL ? NULL : sl_relay_inbox_take(&engine->inbox);
    while (item != NULL) {
        struct sl_relay_item *taken = item;
        item = item->next;
        give_message(engine, engine->driver.messages.request, &taken->message, taken->message.group,
                     taken->message.rank);
        free(taken);
    }
}

/* Runs the callback before the waiters are woken: a wait includes the callback. */
static void run_callback(const struct sl_engine *engine, struct sl_engine_call *call)
{
    if (call->send != NULL) {
        give_answers(engine, call->send->relay);
    }
    if (call->request.done != NULL) {
        call->request.done(call->request.ctx, call->timestamp, call->err);
    }
}

static void note_failure(struct sl_engine *engine, const struct sl_engine_call *call)
{
    char text[SL_ENGINE_TEXT_BYTES] = "";
    if (call->send != NULL) {
        (void)snprintf(text, sizeof text, "%.255s", call->send->relay->op.text);
    } else if (call->step != NULL) {
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

/* Takes the result of the step. Returns true if another step of the call has begun. */
static bool continues(struct sl_engine *engine, struct sl_engine_call *call)
{
    struct sl_kv_batch second;
    if (call->step != NULL && call->err == 0) {
        call->err = sl_step_wait(call->step);
    }
    if (!sl_place_next(call, &second)) {
        return false;
    }
    sl_step_destroy(&call->step);
    start_step(engine, call, &second, sl_clock_now_ns(sl_clock_system()));
    return true;
}

static void finish(struct sl_engine *engine)
{
    struct sl_engine_list ended = engine->driver.ended, over = {0};
    engine->driver.ended = (struct sl_engine_list){0};
    struct sl_engine_call *next;
    for (struct sl_engine_call *call = ended.first; call != NULL; call = next) {
        next = call->next;
        if (!continues(engine, call)) {
            run_callback(engine, call);
            kv_engine_append(&over, call);
        }
    }
    sl_engine_lock(engine);
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
            if (job->waiter != NULL) {
                job->reason = *sl_reason_last();
                kv_engine_wake(job->waiter, err); /* the job may be freed now */
            }
        }
    }
}

void sl_engine_progress(struct sl_engine *engine)
{
    sl_assert(!engine->driver.is_running);
    engine->driver.is_running = true;
    admit(engine);
    take_messages(engine);
    poll_jobs(engine);
    while (engine->driver.ended.first != NULL) {
        finish(engine);
        admit(engine);
        poll_jobs(engine);
    }
    engine->driver.is_running = false;
}

static bool kv_engine_has_work(void *ctx)
{
    const struct sl_engine *engine = ctx;
    return engine->driver.woken || engine->driver.ended.first != NULL ||
           (engine->inbox.is_rung && engine->driver.messages.request != NULL) ||
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
