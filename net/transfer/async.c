#include "net/transfer/async.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/transfer/batch.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"
#include "net/transfer/inbox.h"
#include "net/transfer/notice.h"
#include "net/transfer/segment.h"

struct sl_transfer_async {
    struct sl_transfer *engine;
    struct sl_transfer_work work; /* arrived notices, and calls that begin or have ended */
    struct sl_list begun, over;   /* calls */
    uint32_t in_progress;         /* not over */
    struct sl_list openings;      /* segments */
    struct sl_transfer_inbox_reader reader;
    sl_transfer_arrived_fn *arrived;
    void *arrived_ctx;
    struct sl_transfer_noticed noticed;
    uint8_t *attached; /* to the next notice: memory; NULL: nothing */
    uint32_t attached_bytes;
    bool is_ending;
    bool ends_with_process; /* new segments do */
    void (*destroyed)(void *ctx);
    void *destroyed_ctx;
};

static void async_wake(struct sl_transfer_async *async)
{
    sl_transfer_io_wake(&async->engine->ios[0], &async->work);
}

/* Calls */

static void async_ended(struct sl_transfer_call *call)
{
    sl_list_append(&call->async->over, &call->link);
    async_wake(call->async);
}

/* finish runs before done, which may be NULL, or instead of it. */
static void async_start(struct sl_transfer_async *async, struct sl_transfer_call *call,
                        void (*finish)(struct sl_transfer_call *call), sl_transfer_done_fn *done,
                        void *ctx)
{
    call->async = async;
    call->ended = async_ended;
    call->finish = finish;
    call->done = done;
    call->ctx = ctx;
    async->in_progress++;
    sl_list_append(&async->begun, &call->link);
    async_wake(async);
}

/* At the end of a turn, so that no callback runs inside what it is about. */
static bool async_work(struct sl_transfer_work *work)
{
    struct sl_transfer_async *async = SL_CONTAINER_OF(work, struct sl_transfer_async, work);
    struct sl_transfer_asked *asked;
    struct sl_list_link *link;
    while (!async->is_ending && sl_transfer_inbox_next(&async->reader, &async->noticed, &asked)) {
        async->arrived(async->arrived_ctx, &async->noticed, asked);
    }
    while ((link = sl_list_pop(&async->begun)) != NULL) {
        sl_transfer_io_begin_here(SL_CONTAINER_OF(link, struct sl_transfer_call, link));
    }
    while ((link = sl_list_pop(&async->over)) != NULL) {
        struct sl_transfer_call *call = SL_CONTAINER_OF(link, struct sl_transfer_call, link);
        async->in_progress--;
        call->finish(call);
    }
    if (async->is_ending && async->in_progress == 0) {
        sl_list_remove(&work->link);
        async->destroyed(async->destroyed_ctx);
        free(async);
    }
    return false;
}

static void async_put(struct sl_transfer_inbox_reader *reader)
{
    async_wake(SL_CONTAINER_OF(reader, struct sl_transfer_async, reader));
}

/* Public */

const struct sl_metastore_address *sl_transfer_async_metadata(const struct sl_transfer *transfer)
{
    return &transfer->settings.metadata;
}

struct sl_reactor *sl_transfer_async_reactor(const struct sl_transfer *transfer)
{
    return transfer->reactors[0];
}

int sl_transfer_async_create(struct sl_transfer *transfer, const char *name,
                             sl_transfer_arrived_fn *arrived, void *ctx,
                             struct sl_transfer_async **out)
{
    sl_assert(name != NULL);
    sl_assert(arrived != NULL);
    struct sl_transfer_async *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    made->engine = transfer;
    made->arrived = arrived;
    made->arrived_ctx = ctx;
    made->work.run = async_work;
    sl_list_init(&made->begun);
    sl_list_init(&made->over);
    sl_list_init(&made->openings);
    made->reader = (struct sl_transfer_inbox_reader){.name = name, .put = async_put};
    if (sl_transfer_inbox_open(&transfer->ios[0].inbox, &made->reader) != 0) {
        free(made);
        return sl_transfer_fail(SL_ERR_EXISTS, "the engine is used for %s already", name);
    }
    *out = made;
    return sl_transfer_succeed();
}

void sl_transfer_async_destroy(struct sl_transfer_async **async, void (*destroyed)(void *ctx),
                               void *ctx)
{
    struct sl_transfer_async *gone = *async;
    *async = NULL;
    gone->is_ending = true;
    SL_LIST_FOREACH (link, &gone->openings) {
        struct sl_transfer_segment *segment =
            SL_CONTAINER_OF(link, struct sl_transfer_segment, opening.link);
        atomic_store_explicit(&segment->opening.is_abandoned, true, memory_order_relaxed);
    }
    gone->destroyed = destroyed;
    gone->destroyed_ctx = ctx;
    sl_transfer_inbox_close(&gone->reader);
    async_wake(gone);
}

/* Segments */

static void async_opened(struct sl_transfer_call *call)
{
    struct sl_transfer_segment *segment = SL_CONTAINER_OF(call, struct sl_transfer_segment, call);
    sl_list_remove(&segment->opening.link);
    const int err = call->err; /* `done` may close the segment, which uses the call again */
    if (err == 0) {
        *segment->opening.out = segment;
    }
    call->done(call->ctx, err, call->text);
    if (err != 0) {
        sl_transfer_segment_free(segment);
    }
}

int sl_transfer_async_open(struct sl_transfer_async *async, const char *name, uint32_t timeout_ms,
                           struct sl_transfer_segment **out, sl_transfer_done_fn *done, void *ctx)
{
    struct sl_transfer_segment *segment;
    const int err = sl_transfer_segment_create(async->engine, name, timeout_ms, &segment);
    if (err != 0) {
        return err;
    }
    segment->opening.out = out;
    segment->ends_with_process = async->ends_with_process;
    sl_list_append(&async->openings, &segment->opening.link);
    async_start(async, &segment->call, async_opened, done, ctx);
    return sl_transfer_succeed();
}

void sl_transfer_async_end_with_process(struct sl_transfer_async *async)
{
    async->ends_with_process = true;
}

uint64_t sl_transfer_async_own_incarnation(const struct sl_transfer *transfer)
{
    return transfer->incarnation;
}

uint64_t sl_transfer_async_incarnation(const struct sl_transfer_segment *segment)
{
    return segment->incarnation;
}

static void async_watched(struct sl_transfer_call *call)
{
    call->done(call->ctx, call->err, call->text);
}

void sl_transfer_async_watch(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                             bool ends_with_connection, sl_transfer_done_fn *done, void *ctx)
{
    segment->watch.ends_with_connection = ends_with_connection;
    segment->watch.call.run = sl_transfer_segment_watch;
    segment->watch.call.io = segment->home;
    async_start(async, &segment->watch.call, async_watched, done, ctx);
}

static void async_closed(struct sl_transfer_call *call)
{
    sl_transfer_done_fn *const done = call->done;
    void *const ctx = call->ctx;
    sl_transfer_segment_free(SL_CONTAINER_OF(call, struct sl_transfer_segment, call));
    if (done != NULL) {
        done(ctx, 0, "closed");
    }
}

void sl_transfer_async_close(struct sl_transfer_async *async, struct sl_transfer_segment **segment,
                             sl_transfer_done_fn *done, void *ctx)
{
    struct sl_transfer_segment *gone = *segment;
    *segment = NULL;
    sl_transfer_segment_prepare_close(gone);
    async_start(async, &gone->call, async_closed, done, ctx);
}

/* Notices */

const uint8_t *sl_transfer_async_attached(const struct sl_transfer_async *async, uint32_t *bytes)
{
    *bytes = async->reader.queue.attached_bytes;
    return async->reader.queue.attached;
}

uint8_t *sl_transfer_async_memory_get(struct sl_transfer_async *async)
{
    return sl_transfer_inbox_memory_get(&async->engine->ios[0].inbox, SL_MESSAGE_ATTACHED_BYTES);
}

void sl_transfer_async_memory_put(struct sl_transfer_async *async, uint8_t *memory)
{
    sl_transfer_inbox_memory_put(&async->engine->ios[0].inbox, memory);
}

void sl_transfer_async_attach(struct sl_transfer_async *async, uint8_t *bytes, uint32_t count)
{
    sl_assert(async->attached == NULL);
    sl_assert(count <= SL_MESSAGE_ATTACHED_BYTES);
    async->attached = bytes;
    async->attached_bytes = count;
}

static int async_prepare(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                         const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                         struct sl_transfer_sending **out)
{
    const int err = sl_transfer_notice_prepare(segment, notice, timeout_ms, out);
    if (err != 0) {
        sl_transfer_async_memory_put(async, async->attached);
    } else if (async->attached != NULL) {
        (*out)->message.notice.attached = (*out)->attached = async->attached;
        (*out)->message.notice.attached_bytes = async->attached_bytes;
    }
    async->attached = NULL;
    return err;
}

static void sending_free(struct sl_transfer_sending *sending)
{
    sl_transfer_async_memory_put(sending->call.async, sending->attached);
    free(sending);
}

static void async_sent(struct sl_transfer_call *call)
{
    call->done(call->ctx, call->err, call->text);
    sending_free(SL_CONTAINER_OF(call, struct sl_transfer_sending, call));
}

int sl_transfer_async_send(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                           const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                           sl_transfer_done_fn *done, void *ctx)
{
    struct sl_transfer_sending *sending;
    const int err = async_prepare(async, segment, notice, timeout_ms, &sending);
    if (err != 0) {
        return err;
    }
    async_start(async, &sending->call, async_sent, done, ctx);
    return sl_transfer_succeed();
}

void sl_transfer_async_answer(struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    asked->answer(asked, bytes, count);
}

/* Of the call itself, or of its cancellation. */
static void asking_ended(struct sl_transfer_sending *sending)
{
    struct sl_transfer_call *call = &sending->call;
    const struct sl_message_notice *answer = &sending->message.notice;
    if (--sending->calls_left > 0) {
        return;
    }
    if (call->err == 0 && answer->byte_count == 0) { /* an answer has some */
        call->err = SL_ERR_VERSION;
        (void)snprintf(call->text, sizeof call->text, "the peer is older, and does not answer");
    }
    sending->answered(call->ctx, call->err, call->text, answer->bytes, answer->byte_count);
    sending_free(sending);
}

static void async_answered(struct sl_transfer_call *call)
{
    asking_ended(SL_CONTAINER_OF(call, struct sl_transfer_sending, call));
}

static void async_forgotten(struct sl_transfer_call *call)
{
    asking_ended(SL_CONTAINER_OF(call, struct sl_transfer_sending, forgetting));
}

int sl_transfer_async_ask(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                          const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                          sl_transfer_answered_fn *answered, void *ctx,
                          struct sl_transfer_sending **out)
{
    const int err = async_prepare(async, segment, notice, timeout_ms, out);
    if (err != 0) {
        return err;
    }
    (*out)->message.notice.asks = true;
    (*out)->answered = answered;
    (*out)->calls_left = 1;
    async_start(async, &(*out)->call, async_answered, NULL, ctx);
    return sl_transfer_succeed();
}

static void forget_there(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_transfer_notice_cancel(SL_CONTAINER_OF(call, struct sl_transfer_sending, forgetting));
    sl_transfer_io_answer(call, 0, "forgotten");
}

void sl_transfer_async_forget(struct sl_transfer_async *async, struct sl_transfer_sending *asking)
{
    if (asking->calls_left == 1) { /* else it is being forgotten */
        asking->calls_left++;
        asking->forgetting = (struct sl_transfer_call){.run = forget_there, .io = asking->call.io};
        async_start(async, &asking->forgetting, async_forgotten, NULL, NULL);
    }
}

/* Batches */

/* Of the batch itself, or of its cancellation: the batch may be freed after the later one. */
static void batch_ended(struct sl_transfer_batch *batch)
{
    if (--batch->calls_left == 0) {
        const int err = sl_transfer_batch_wait(batch);
        batch->call.done(batch->call.ctx, err, sl_transfer_last_error());
    }
}

static void over(struct sl_transfer_call *call)
{
    batch_ended(SL_CONTAINER_OF(call, struct sl_transfer_batch, call));
}

static void cancelled(struct sl_transfer_call *call)
{
    batch_ended(SL_CONTAINER_OF(call, struct sl_transfer_batch, cancelling));
}

int sl_transfer_async_submit(struct sl_transfer_async *async, struct sl_transfer_batch *batch,
                             const struct sl_transfer_request *requests, uint32_t count,
                             uint32_t timeout_ms, const struct sl_transfer_notice *notice,
                             sl_transfer_done_fn *done, void *ctx)
{
    sl_assert(batch->calls_left == 0);
    const int err = sl_transfer_batch_prepare(batch, requests, count, timeout_ms, notice);
    if (err != 0) {
        return err;
    }
    batch->calls_left = 1;
    async_start(async, &batch->call, over, done, ctx);
    return sl_transfer_succeed();
}

void sl_transfer_async_cancel(struct sl_transfer_async *async, struct sl_transfer_batch *batch)
{
    if (batch->calls_left != 1) {
        return; /* it is over, or being cancelled */
    }
    batch->calls_left++;
    batch->cancelling.io = batch->call.io;
    async_start(async, &batch->cancelling, cancelled, NULL, NULL);
}
