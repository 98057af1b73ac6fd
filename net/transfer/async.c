#include "net/transfer/async.h"

#include <stdlib.h>

#include "core/assert.h"
#include "net/transfer/batch.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"
#include "net/transfer/inbox.h"
#include "net/transfer/notice.h"
#include "net/transfer/segment.h"

/* Arriving notices that are on their way to the reactor at one time. */
#define TAKES 16

struct take {
    struct sl_transfer_take take;
    struct sl_transfer_noticed noticed;
};

struct sl_transfer_async {
    struct sl_transfer *engine;
    struct sl_port *port;
    /* Lanes have room for the calls in progress, both ways. */
    uint32_t in_progress;
    struct sl_list waiting;  /* calls beyond that */
    struct sl_list openings; /* segments */
    sl_transfer_arrived_fn *arrived;
    void *arrived_ctx;
    struct take takes[TAKES];
    struct sl_transfer_call stopping;
    bool is_ending;
    bool ends_with_process; /* new segments do */
    void (*destroyed)(void *ctx);
    void *destroyed_ctx;
};

/* Calls */

static void ended(void *ctx, uint64_t a, uint64_t b);

static void async_begin(struct sl_transfer_async *async, struct sl_transfer_call *call)
{
    if (async->in_progress == SL_LIMIT_LANE_MAILS) {
        sl_list_append(&async->waiting, &call->link);
        return;
    }
    async->in_progress++;
    call->lane = async->port->lanes[call->io->index].from;
    call->ended = ended;
    const int err = sl_transfer_io_begin(async->port, call);
    sl_assert(err == 0);
}

/* finish, if not NULL, runs before done, which may be NULL, or instead of it. */
static void async_start(struct sl_transfer_async *async, struct sl_transfer_call *call,
                        void (*finish)(struct sl_transfer_call *call), sl_transfer_done_fn *done,
                        void *ctx)
{
    call->async = async;
    call->finish = finish;
    call->done = done;
    call->ctx = ctx;
    async_begin(async, call);
}

static void end_of_all(struct sl_transfer_async *async)
{
    void (*const destroyed)(void *ctx) = async->destroyed;
    void *const ctx = async->destroyed_ctx;
    sl_port_set_lock(async->engine->ports);
    async->engine->async = NULL;
    sl_port_set_unlock(async->engine->ports);
    sl_port_close(&async->port);
    free(async);
    destroyed(ctx);
}

/* On the reactor outside. */
static void ended(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_call *call = ctx;
    struct sl_transfer_async *async = call->async;
    call->lane = NULL; /* the next one to use it may be a thread that waits */
    async->in_progress--;
    struct sl_list_link *link = sl_list_pop(&async->waiting);
    if (link != NULL) {
        async_begin(async, SL_CONTAINER_OF(link, struct sl_transfer_call, link));
    }
    call->finish(call);
    if (async->is_ending && async->in_progress == 0) {
        end_of_all(async);
    }
}

/* Arriving notices */

static void async_arrive(struct sl_transfer_call *call)
{
    struct take *take = SL_CONTAINER_OF(call, struct take, take.call);
    struct sl_transfer_async *async = call->async;
    if (!async->is_ending && call->err == 0) {
        async->arrived(async->arrived_ctx, &take->noticed);
    }
    if (!async->is_ending) { /* it may be by now */
        async_begin(async, call);
    }
}

static void async_stopped(struct sl_transfer_call *call)
{
}

const struct sl_metastore_address *sl_transfer_async_metadata(const struct sl_transfer *transfer)
{
    return &transfer->settings.metadata;
}

int sl_transfer_async_create(struct sl_transfer *transfer, struct sl_reactor *reactor,
                             const char *prefix, sl_transfer_arrived_fn *arrived, void *ctx,
                             struct sl_transfer_async **out)
{
    sl_assert(prefix != NULL);
    sl_assert(arrived != NULL);
    struct sl_transfer_async *made = calloc(1, sizeof *made);
    int err = made != NULL ? sl_port_open(transfer->ports, reactor, &made->port) : SL_ERR_NO_MEMORY;
    if (err != 0) {
        free(made);
        return sl_transfer_fail(err, "no memory for one more reactor");
    }
    sl_port_set_lock(transfer->ports);
    err = transfer->async != NULL ? SL_ERR_EXISTS : 0;
    transfer->async = err == 0 ? made : transfer->async;
    sl_port_set_unlock(transfer->ports);
    if (err != 0) {
        sl_port_close(&made->port);
        free(made);
        return sl_transfer_fail(err, "another reactor outside uses the engine");
    }
    made->engine = transfer;
    made->arrived = arrived;
    made->arrived_ctx = ctx;
    sl_list_init(&made->waiting);
    sl_list_init(&made->openings);
    for (uint32_t i = 0; i < TAKES; i++) {
        struct take *take = &made->takes[i];
        take->take = (struct sl_transfer_take){
            .call = {.run = sl_transfer_inbox_take, .io = &transfer->ios[0]},
            .outside_prefix = prefix,
            .out = &take->noticed};
        async_start(made, &take->take.call, async_arrive, NULL, NULL);
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
    gone->stopping =
        (struct sl_transfer_call){.run = sl_transfer_inbox_stop, .io = &gone->engine->ios[0]};
    async_start(gone, &gone->stopping, async_stopped, NULL, NULL);
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
                             sl_transfer_done_fn *done, void *ctx)
{
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

static void async_sent(struct sl_transfer_call *call)
{
    call->done(call->ctx, call->err, call->text);
    free(SL_CONTAINER_OF(call, struct sl_transfer_sending, call));
}

int sl_transfer_async_send(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                           const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                           sl_transfer_done_fn *done, void *ctx)
{
    struct sl_transfer_sending *sending;
    const int err = sl_transfer_notice_prepare(segment, notice, timeout_ms, &sending);
    if (err != 0) {
        return err;
    }
    async_start(async, &sending->call, async_sent, done, ctx);
    return sl_transfer_succeed();
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
