/* All calls that are not over, the priority queue, waiters and recorded failures. */
#include <stdio.h>
#include <stdlib.h>

#include "core/array.h"
#include "core/assert.h"
#include "worker/kv/engine.h"
#include "worker/kv/place.h"

/* Calls */

struct sl_engine_call *sl_engine_take_call(struct sl_engine *engine)
{
    struct sl_engine_call *call = engine->free_calls;
    if (call == NULL) {
        return calloc(1, sizeof *call);
    }
    engine->free_calls = call->next;
    *call = (struct sl_engine_call){.copy = call->copy, .copy_bytes = call->copy_bytes};
    return call;
}

void sl_engine_give_call(struct sl_engine *engine, struct sl_engine_call *call)
{
    if (call->copy_bytes > SL_ENGINE_COPY_BYTES) {
        free(call->copy);
        call->copy = NULL;
        call->copy_bytes = 0;
    }
    if (call->send != NULL) {
        sl_relay_destroy(&call->send->relay);
        free(call->send);
        call->send = NULL;
    }
    sl_place_free(call);
    call->next = engine->free_calls;
    engine->free_calls = call;
}

static struct sl_engine_call **engine_queue_bucket_of(struct sl_engine *engine, uint64_t timestamp)
{
    return &engine->buckets[timestamp % SL_ENGINE_BUCKETS];
}

struct sl_engine_call *sl_engine_find(const struct sl_engine *engine, uint64_t timestamp)
{
    struct sl_engine_call *call = engine->buckets[timestamp % SL_ENGINE_BUCKETS];
    while (call != NULL && call->timestamp != timestamp) {
        call = call->next_of_bucket;
    }
    return call;
}

void sl_engine_forget(struct sl_engine *engine, struct sl_engine_call *call)
{
    struct sl_engine_call **at = engine_queue_bucket_of(engine, call->timestamp);
    while (*at != call) {
        at = &(*at)->next_of_bucket;
    }
    *at = call->next_of_bucket;
    sl_assert(engine->outstanding > 0 && call->kv->outstanding > 0);
    engine->outstanding--;
    call->kv->outstanding--;
}

/* The queue: a binary heap */

static bool goes_before(const struct sl_engine_call *a, const struct sl_engine_call *b)
{
    return a->request.priority != b->request.priority ? a->request.priority > b->request.priority
                                                      : a->timestamp < b->timestamp;
}

int sl_engine_enqueue(struct sl_engine *engine, struct sl_engine_call *call)
{
    if (!sl_array_make_room(&engine->heap, &engine->heap_capacity, engine->heap_count,
                            sizeof(struct sl_engine_call *))) {
        return SL_ERR_NO_MEMORY;
    }
    call->timestamp = ++engine->last_timestamp;
    struct sl_engine_call **bucket = engine_queue_bucket_of(engine, call->timestamp);
    call->next_of_bucket = *bucket;
    *bucket = call;
    engine->outstanding++;
    call->kv->outstanding++;
    struct sl_engine_call **heap = engine->heap;
    uint32_t at = engine->heap_count++;
    while (at > 0 && goes_before(call, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = call;
    return 0;
}

struct sl_engine_call *sl_engine_dequeue(struct sl_engine *engine)
{
    if (engine->heap_count == 0) {
        return NULL;
    }
    struct sl_engine_call **heap = engine->heap;
    struct sl_engine_call *first = heap[0];
    uint32_t count = --engine->heap_count;
    struct sl_engine_call *moved = heap[count];
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < count) {
        if (child + 1 < count && goes_before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!goes_before(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}

/* Waiters */

static void waiter_free(struct sl_engine_waiter *waiter)
{
    if (waiter->lane != NULL) {
        sl_mailbox_lane_close(&waiter->lane);
    }
    sl_mailbox_destroy(&waiter->mailbox);
    free(waiter);
}

struct sl_engine_waiter *sl_engine_take_waiter(struct sl_engine *engine)
{
    struct sl_engine_waiter *waiter = engine->free_waiters;
    if (waiter != NULL) {
        engine->free_waiters = waiter->next;
    } else if ((waiter = calloc(1, sizeof *waiter)) == NULL) {
        return NULL;
    } else if (sl_mailbox_create(&waiter->mailbox) != 0 ||
               sl_mailbox_lane_open(waiter->mailbox, &waiter->lane) != 0) {
        waiter_free(waiter);
        return NULL;
    }
    waiter->next = NULL;
    waiter->over = false;
    return waiter;
}

void sl_engine_give_waiter(struct sl_engine *engine, struct sl_engine_waiter *waiter)
{
    waiter->next = engine->free_waiters;
    engine->free_waiters = waiter;
}

/* Failures */

void sl_engine_note_failure(struct sl_engine *engine, uint64_t timestamp, int err, const char *text)
{
    struct sl_engine_failures *failures = &engine->failures;
    uint32_t at = failures->count++ % SL_KV_RESULTS;
    failures->timestamps[at] = timestamp;
    failures->errs[at] = err;
    snprintf(failures->texts[at], sizeof failures->texts[at], "%s", text);
}

static int find_failure(const struct sl_engine_failures *failures, uint64_t timestamp,
                        const char **text)
{
    uint32_t count = failures->count < SL_KV_RESULTS ? failures->count : SL_KV_RESULTS;
    for (uint32_t i = 0; i < count; i++) {
        if (failures->timestamps[i] == timestamp) {
            *text = failures->texts[i];
            return failures->errs[i];
        }
    }
    *text = "";
    return 0;
}

int sl_engine_result(struct sl_engine *engine, uint64_t timestamp, char *text, size_t text_bytes)
{
    const char *kept;
    sl_engine_lock(engine);
    int err = find_failure(&engine->failures, timestamp, &kept);
    if (text != NULL && text_bytes > 0) {
        snprintf(text, text_bytes, "%s", kept);
    }
    sl_engine_unlock(engine);
    return err;
}

void sl_engine_free_queue(struct sl_engine *engine)
{
    while (engine->free_calls != NULL) {
        struct sl_engine_call *call = engine->free_calls;
        engine->free_calls = call->next;
        free(call->copy);
        free(call);
    }
    while (engine->free_waiters != NULL) {
        struct sl_engine_waiter *waiter = engine->free_waiters;
        engine->free_waiters = waiter->next;
        waiter_free(waiter);
    }
    free(engine->heap);
}
