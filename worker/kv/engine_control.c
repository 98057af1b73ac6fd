/* The functions that application threads call: begin and wait for calls, run jobs. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/reason.h"
#include "worker/kv/engine.h"

/* Without a thread: queued calls that are sent without a wait. Small, so that a server has work
 * while more calls are encoded. */
#define BURST_CALLS 8

/* Returns true on the driving thread inside a callback or a job's poll. */
static bool engine_control_is_inside(const struct sl_engine *engine)
{
    bool drives = !engine->has_thread || pthread_equal(pthread_self(), engine->thread) != 0;
    return drives && engine->driver.is_running;
}

/* Beginning */

/* Copies the caller's arrays into the call, which then refers to the copies. */
static int copy_arrays(struct sl_engine_call *call)
{
    struct sl_kv_batch *batch = &call->request.batch;
    size_t keys_bytes = batch->key_count * sizeof *batch->keys;
    size_t lens_bytes =
        batch->lens == NULL ? 0 : sl_bytes_pad8(batch->key_count * sizeof *batch->lens);
    size_t push_bytes =
        batch->push == NULL ? 0 : (size_t)batch->value_count * call->kv->table->spec.dim;
    size_t bytes = keys_bytes + lens_bytes + push_bytes;
    if (bytes > call->copy_bytes) {
        uint8_t *grown = realloc(call->copy, bytes);
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        call->copy = grown;
        call->copy_bytes = bytes;
    }
    if (bytes == 0) {
        return 0;
    }
    uint8_t *at = call->copy;
    batch->keys = memcpy(at, batch->keys, keys_bytes);
    if (batch->lens != NULL) {
        batch->lens = memcpy(at + keys_bytes, batch->lens, batch->key_count * sizeof *batch->lens);
    }
    if (batch->push != NULL) {
        batch->push = memcpy(at + keys_bytes + lens_bytes, batch->push, push_bytes);
    }
    return 0;
}

static void wake_up(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_engine *engine = ctx;
    engine->driver.woken = true;
}

/* A failed post is harmless: a full lane wakes the thread too. */
void sl_engine_wake(struct sl_engine *engine)
{
    if (engine->has_thread && !engine->wake_pending && !engine_control_is_inside(engine)) {
        engine->wake_pending = true;
        (void)sl_mailbox_post(engine->lane, (struct sl_mail){.run = wake_up, .ctx = engine});
    }
}

static int publish(struct sl_engine *engine, struct sl_engine_call *call, uint64_t *timestamp)
{
    sl_engine_lock(engine);
    int err = engine->stopping ? SL_ERR_CLOSED : sl_engine_enqueue(engine, call);
    if (err == 0) {
        *timestamp = call->timestamp;
        sl_engine_wake(engine);
    } else {
        sl_engine_give_call(engine, call);
    }
    bool burst = engine->heap_count >= BURST_CALLS;
    sl_engine_unlock(engine);
    if (err == 0 && burst && !engine->has_thread && !engine_control_is_inside(engine)) {
        sl_engine_progress(engine);
        sl_port_kick(engine->driver.port);
    }
    return err;
}

int sl_engine_begin(struct sl_kv *kv, const struct sl_kv_call *request, uint32_t *lengths,
                    uint64_t *timestamp)
{
    struct sl_engine *engine = kv->engine;
    sl_engine_lock(engine);
    struct sl_engine_call *call = sl_engine_take_call(engine);
    sl_engine_unlock(engine);
    if (call == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    call->kv = kv;
    call->request = *request;
    call->lengths = lengths;
    call->deadline_ns = sl_clock_now_ns(sl_clock_system()) + kv->timeout_ms * SL_CLOCK_NS_PER_MS;
    int err = request->copy_inputs ? copy_arrays(call) : 0;
    if (err != 0) {
        sl_engine_lock(engine);
        sl_engine_give_call(engine, call);
        sl_engine_unlock(engine);
        return err;
    }
    return publish(engine, call, timestamp);
}

int sl_engine_begin_send(struct sl_kv *kv, struct sl_relay *relay, uint64_t *timestamp)
{
    struct sl_engine *engine = kv->engine;
    struct sl_engine_send *send = calloc(1, sizeof *send);
    sl_engine_lock(engine);
    struct sl_engine_call *call = send == NULL ? NULL : sl_engine_take_call(engine);
    sl_engine_unlock(engine);
    if (call == NULL) {
        free(send);
        sl_relay_destroy(&relay);
        return SL_ERR_NO_MEMORY;
    }
    *send = (struct sl_engine_send){.job.poll = sl_engine_poll_send, .call = call, .relay = relay};
    call->kv = kv;
    call->send = send;
    call->deadline_ns = sl_clock_now_ns(sl_clock_system()) + kv->timeout_ms * SL_CLOCK_NS_PER_MS;
    return publish(engine, call, timestamp);
}

/* Waiting */

static int sleep_until_over(struct sl_engine *engine, struct sl_engine_waiter *waiter)
{
    while (!waiter->over) {
        sl_mailbox_wait(waiter->mailbox, SL_PORT_WAIT_NS);
        sl_mailbox_drain(waiter->mailbox, 1);
    }
    int err = waiter->err;
    sl_engine_lock(engine);
    sl_engine_give_waiter(engine, waiter);
    sl_engine_unlock(engine);
    return err;
}

static int wait_for_thread(struct sl_engine *engine, uint64_t timestamp)
{
    sl_engine_lock(engine);
    struct sl_engine_call *call = sl_engine_find(engine, timestamp);
    struct sl_engine_waiter *waiter = call == NULL ? NULL : sl_engine_take_waiter(engine);
    if (waiter != NULL) {
        waiter->next = call->waiters;
        call->waiters = waiter;
    }
    sl_engine_unlock(engine);
    if (call == NULL) {
        return sl_engine_result(engine, timestamp, NULL, 0);
    }
    return waiter == NULL ? SL_ERR_NO_MEMORY : sleep_until_over(engine, waiter);
}

/* Under the lock. */
static bool begun_under_lock(const struct sl_engine *engine, uint64_t timestamp)
{
    return timestamp > 0 && timestamp <= engine->last_timestamp;
}

static bool has_begun(struct sl_engine *engine, uint64_t timestamp)
{
    sl_engine_lock(engine);
    bool begun = begun_under_lock(engine, timestamp);
    sl_engine_unlock(engine);
    return begun;
}

int sl_engine_wait(struct sl_engine *engine, uint64_t timestamp)
{
    if (engine_control_is_inside(engine) || !has_begun(engine, timestamp)) {
        return SL_ERR_INVALID;
    }
    if (engine->has_thread) {
        return wait_for_thread(engine, timestamp);
    }
    sl_engine_progress(engine);
    while (sl_engine_find(engine, timestamp) != NULL) {
        sl_engine_rest(engine);
        sl_engine_progress(engine);
    }
    return sl_engine_result(engine, timestamp, NULL, 0);
}

bool sl_engine_done(struct sl_engine *engine, uint64_t timestamp)
{
    if (!engine->has_thread && !engine->driver.is_running) {
        sl_engine_progress(engine);
        sl_port_drain(engine->driver.port);
        sl_engine_progress(engine);
    }
    sl_engine_lock(engine);
    bool over = begun_under_lock(engine, timestamp) && sl_engine_find(engine, timestamp) == NULL;
    sl_engine_unlock(engine);
    return over;
}

void sl_engine_drain(struct sl_kv *kv)
{
    struct sl_engine *engine = kv->engine;
    sl_assert(!engine_control_is_inside(engine));
    if (!engine->has_thread) {
        sl_engine_progress(engine);
        while (kv->outstanding > 0) {
            sl_engine_rest(engine);
            sl_engine_progress(engine);
        }
        return;
    }
    sl_engine_lock(engine);
    struct sl_engine_waiter *waiter = kv->outstanding == 0 ? NULL : sl_engine_take_waiter(engine);
    sl_assert(waiter != NULL || kv->outstanding == 0); /* no memory for a waiter */
    kv->drained = waiter;
    sl_engine_unlock(engine);
    if (waiter != NULL) {
        (void)sleep_until_over(engine, waiter);
    }
}

/* Jobs */

static int run_here(struct sl_engine *engine, struct sl_engine_job *job)
{
    int err;
    while ((err = job->poll(engine, job)) == SL_ERR_AGAIN) {
        sl_port_wait(engine->driver.port);
        sl_engine_progress(engine);
    }
    return err;
}

int sl_engine_run_job(struct sl_engine *engine, struct sl_engine_job *job)
{
    if (engine_control_is_inside(engine)) {
        return sl_reason_report(SL_ERR_INVALID, "kv: a callback may not make this call");
    }
    if (!engine->has_thread) {
        sl_engine_progress(engine);
        return run_here(engine, job);
    }
    sl_engine_lock(engine);
    struct sl_engine_waiter *waiter = engine->stopping ? NULL : sl_engine_take_waiter(engine);
    if (waiter != NULL) {
        job->waiter = waiter;
        job->next = engine->new_jobs;
        engine->new_jobs = job;
        sl_engine_wake(engine);
    }
    int err = engine->stopping ? SL_ERR_CLOSED : SL_ERR_NO_MEMORY;
    sl_engine_unlock(engine);
    if (waiter == NULL) {
        return sl_reason_report(err, "kv: %s",
                                err == SL_ERR_CLOSED ? "it is being destroyed" : "no memory");
    }
    err = sleep_until_over(engine, waiter);
    if (err != 0) {
        *sl_reason_last() = job->reason;
    }
    return err;
}
