#include "net/transfer/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/transfer/error.h"
#include "net/transfer/notice.h"
#include "net/transfer/rails.h"
#include "net/transfer/segment.h"

/* On the reactor */

static void transfer_batch_finish(struct sl_transfer_batch *batch)
{
    sl_reactor_disarm(batch->call.io->reactor, &batch->timer);
    sl_transfer_io_end(&batch->call); /* from here on it may be freed */
}

/* Marks what has no result yet: that of a deadline, or of a cancellation. */
static void transfer_batch_give_up(struct sl_transfer_batch *batch, struct sl_transfer_part *part)
{
    char text[SL_TRANSFER_REASON_BYTES];
    char rails[SL_TRANSFER_REASON_BYTES - 64];
    if (batch->is_cancelled) {
        sl_transfer_part_fail(part, SL_ERR_CANCELLED, SL_TRANSFER_CANCELLED,
                              sl_transfer_part_cause(part->causes, "cancelled"));
        return;
    }
    sl_transfer_rails_describe(part->route, rails, sizeof rails);
    (void)snprintf(text, sizeof text, "not done within %u ms: %s", batch->timeout_ms, rails);
    sl_transfer_part_fail(part, SL_ERR_DEADLINE, SL_TRANSFER_TIMEOUT,
                          sl_transfer_part_cause(part->causes, text));
}

static void notice_failed(struct sl_transfer_batch *batch, int err, const char *reason)
{
    batch->call.err = err;
    (void)snprintf(batch->call.text, sizeof batch->call.text, "notice: %.480s", reason);
}

static void notice_done(struct sl_transfer_sending *sending)
{
    struct sl_transfer_batch *batch = sending->ctx;
    if (batch != NULL) { /* else it has ended without the answer */
        batch->sending = NULL;
        if (sending->call.err != 0) {
            notice_failed(batch, sending->call.err, sending->call.text);
        }
        transfer_batch_finish(batch);
    }
    free(sending);
}

/* Ends the batch without the answer to its notice. */
static void abandon_notice(struct sl_transfer_batch *batch)
{
    batch->sending->ctx = NULL;
    batch->sending = NULL;
    if (batch->is_cancelled) {
        notice_failed(batch, SL_ERR_CANCELLED, "cancelled before the peer has confirmed it");
    } else {
        notice_failed(batch, SL_ERR_DEADLINE, "the peer has not confirmed it in time");
    }
    transfer_batch_finish(batch);
}

/* All requests have results: sends the notice, if they have completed, or finishes. */
static void transfer_batch_conclude(struct sl_transfer_batch *batch)
{
    bool completed = batch->sending != NULL && batch->stage != SL_TRANSFER_BATCH_ENDING;
    for (uint32_t i = 0; completed && i < batch->count; i++) {
        completed = batch->items[i].err == 0;
    }
    if (completed) {
        batch->stage = SL_TRANSFER_BATCH_NOTIFYING;
        batch->sending->call.io = batch->call.io;
        batch->sending->done = notice_done;
        batch->sending->ctx = batch;
        sl_transfer_notice_post(batch->sending);
        return;
    }
    if (batch->sending != NULL) {
        notice_failed(batch, SL_ERR_CANCELLED, "not sent, since a request has failed");
    }
    transfer_batch_finish(batch);
}

static void part_over(struct sl_transfer_part *part)
{
    struct sl_transfer_batch *batch = part->batch;
    sl_assert(batch->parts_left > 0);
    if (batch->stage == SL_TRANSFER_BATCH_ENDING) {
        transfer_batch_give_up(batch, part);
    }
    if (--batch->parts_left == 0) {
        transfer_batch_conclude(batch);
    }
}

/* Sends nothing more. Answers that are on their way still count. */
static void transfer_batch_end(struct sl_transfer_batch *batch)
{
    bool is_over = false;
    const bool is_notifying = batch->stage == SL_TRANSFER_BATCH_NOTIFYING;
    batch->stage = SL_TRANSFER_BATCH_ENDING;
    if (is_notifying) {
        abandon_notice(batch);
        return;
    }
    for (uint32_t i = 0; i < batch->part_count; i++) {
        struct sl_transfer_part *part = &batch->parts[i];
        if (!sl_list_linked(&part->link)) {
            continue;
        }
        if (sl_transfer_route_stop(part->route, part)) {
            transfer_batch_give_up(batch, part);
            is_over = --batch->parts_left == 0;
        }
    }
    if (is_over) {
        transfer_batch_conclude(batch);
    } else {
        sl_reactor_arm(batch->call.io->reactor, &batch->timer, SL_TRANSFER_BATCH_GRACE_NS);
    }
}

/* The grace is over: lanes that owe answers are closed, and report their slices. */
static void end_lanes(struct sl_transfer_batch *batch)
{
    for (uint32_t i = 0; i < batch->part_count; i++) {
        struct sl_transfer_part *part = &batch->parts[i];
        if (sl_list_linked(&part->link)) {
            transfer_batch_give_up(batch, part);
            sl_transfer_route_break(part->route, part, "its answers came too late");
        }
    }
}

static void transfer_batch_timer_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_batch *batch = SL_CONTAINER_OF(timer, struct sl_transfer_batch, timer);
    if (batch->stage == SL_TRANSFER_BATCH_ENDING) {
        end_lanes(batch);
    } else {
        transfer_batch_end(batch);
    }
}

/* Returns 0 if the item may be sent. */
static int check_item(const struct sl_transfer_batch *batch, struct sl_transfer_item *item,
                      const char **text)
{
    const struct sl_transfer_region *local =
        sl_transfer_table_at(batch->call.io->table, item->local, item->bytes);
    if (local == NULL) {
        *text = "the local memory is not registered";
        return SL_ERR_INVALID;
    }
    item->local_key = local->memory.key;
    return sl_transfer_route_resolve(item->route, local, item, text);
}

/* Adds the item to the part of its segment. */
static void assign(struct sl_transfer_batch *batch, uint32_t index)
{
    const struct sl_transfer_item *item = &batch->items[index];
    struct sl_transfer_part **building = &item->route->building;
    if (*building == NULL) {
        sl_assert(batch->part_count < batch->part_max);
        *building = &batch->parts[batch->part_count++];
        sl_transfer_part_init(*building, batch->items, &batch->causes);
        (*building)->over = part_over;
        (*building)->batch = batch;
        (*building)->route = item->route;
        (*building)->deadline_ns = batch->deadline_ns;
    }
    sl_transfer_part_add(*building, index);
}

static void check_all(struct sl_transfer_batch *batch)
{
    batch->part_count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sl_transfer_item *item = &batch->items[i];
        const char *text;
        item->err = check_item(batch, item, &text);
        if (item->err == 0) {
            assign(batch, i);
        } else {
            item->state = item->err == SL_ERR_INVALID ? SL_TRANSFER_INVALID : SL_TRANSFER_FAILED;
            item->cause = sl_transfer_part_cause(&batch->causes, text);
        }
    }
}

static void transfer_batch_start(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_batch *batch = SL_CONTAINER_OF(call, struct sl_transfer_batch, call);
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    check_all(batch);
    batch->parts_left = batch->part_count;
    batch->stage = SL_TRANSFER_BATCH_STARTED;
    for (uint32_t i = 0; i < batch->part_count; i++) {
        batch->parts[i].route->building = NULL;
        sl_transfer_route_add(batch->parts[i].route, &batch->parts[i]);
    }
    if (batch->part_count == 0) {
        transfer_batch_conclude(batch);
    } else if (batch->is_cancelled) {
        transfer_batch_end(batch);
    } else {
        sl_reactor_arm(io->reactor, &batch->timer,
                       batch->deadline_ns > now_ns ? batch->deadline_ns - now_ns : 0);
    }
}

static void transfer_batch_cancel_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_batch *batch = SL_CONTAINER_OF(call, struct sl_transfer_batch, cancelling);
    if (!sl_completion_ended(&batch->call.completion) && batch->stage != SL_TRANSFER_BATCH_ENDING) {
        batch->is_cancelled = true;
        if (batch->stage != SL_TRANSFER_BATCH_SUBMITTED) { /* else its start, on its way from
                                                              another thread, ends it */
            transfer_batch_end(batch);
        }
    }
    sl_transfer_io_answer(call, 0, "cancelled");
}

/* Application threads */

int sl_transfer_batch_create(struct sl_transfer *transfer, uint32_t request_max,
                             struct sl_transfer_batch **out)
{
    sl_assert(transfer != NULL);
    sl_assert(out != NULL);
    if (request_max == 0 || request_max > SL_LIMIT_TRANSFER_REQUESTS) {
        return sl_transfer_fail(request_max == 0 ? SL_ERR_INVALID : SL_ERR_TOO_LARGE,
                                "request_max %u is not in 1 to %d", request_max,
                                SL_LIMIT_TRANSFER_REQUESTS);
    }
    struct sl_transfer_batch *batch = calloc(1, sizeof *batch);
    const uint32_t part_max = /* one for each segment */
        request_max < SL_LIMIT_TRANSFER_SEGMENTS ? request_max : SL_LIMIT_TRANSFER_SEGMENTS;
    if (batch != NULL) {
        batch->items = calloc(request_max, sizeof *batch->items);
        batch->parts = calloc(part_max, sizeof *batch->parts);
    }
    bool has_room = batch != NULL && batch->items != NULL && batch->parts != NULL;
    int err = has_room ? 0 : SL_ERR_NO_MEMORY;
    sl_port_set_lock(transfer->ports);
    if (err == 0 && transfer->batch_count == SL_LIMIT_TRANSFER_BATCHES) {
        err = SL_ERR_TOO_LARGE;
    } else if (err == 0) {
        batch->call.io = &transfer->ios[transfer->batch_next++ % transfer->settings.reactors.count];
        transfer->batch_count++;
        sl_list_append(&transfer->batches, &batch->link);
    }
    sl_port_set_unlock(transfer->ports);
    if (err != 0) {
        if (batch != NULL) {
            free(batch->items);
            free(batch->parts);
        }
        free(batch);
        return sl_transfer_fail(err, "no memory for a batch, or %d exist",
                                SL_LIMIT_TRANSFER_BATCHES);
    }
    batch->engine = transfer;
    batch->cancelling.run = transfer_batch_cancel_here;
    batch->request_max = request_max;
    batch->part_max = part_max;
    batch->timer.run = transfer_batch_timer_passed;
    *out = batch;
    return sl_transfer_succeed();
}

static int check_request(const struct sl_transfer_batch *batch,
                         const struct sl_transfer_request *request, uint32_t index)
{
    if (request->segment == NULL || request->segment->engine != batch->engine) {
        return sl_transfer_fail(SL_ERR_INVALID, "request %u: no segment of this engine", index);
    }
    if (request->op != SL_TRANSFER_READ && request->op != SL_TRANSFER_WRITE) {
        return sl_transfer_fail(SL_ERR_INVALID, "request %u: op %d is neither READ nor WRITE",
                                index, (int)request->op);
    }
    if (request->bytes == 0 || request->bytes > UINT64_MAX - request->remote ||
        request->bytes > UINT64_MAX - (uintptr_t)request->local) {
        return sl_transfer_fail(SL_ERR_INVALID, "request %u: %" PRIu64 " bytes are no range", index,
                                request->bytes);
    }
    return 0;
}

static int fill_items(struct sl_transfer_batch *batch, const struct sl_transfer_request *requests,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_transfer_request *from = &requests[i];
        const int err = check_request(batch, from, i);
        if (err != 0) {
            return err;
        }
        batch->items[i] = (struct sl_transfer_item){
            .route = &from->segment->routes[batch->call.io->index],
            .local = from->local,
            .remote = from->remote,
            .bytes = from->bytes,
            .left = from->bytes,
            .op = (uint8_t)from->op,
            .state = SL_TRANSFER_PENDING,
        };
    }
    return 0;
}

/* All requests name the same segment. */
static int take_notice(struct sl_transfer_batch *batch, const struct sl_transfer_request *requests,
                       uint32_t count, const struct sl_transfer_notice *notice)
{
    for (uint32_t i = 1; i < count; i++) {
        if (requests[i].segment != requests[0].segment) {
            return sl_transfer_fail(SL_ERR_INVALID,
                                    "request %u: a batch with a notice has one segment", i);
        }
    }
    return sl_transfer_notice_create(requests[0].segment, notice, batch->deadline_ns,
                                     &batch->sending);
}

static int check_submit(const struct sl_transfer_batch *batch, uint32_t count, uint32_t timeout_ms)
{
    if (count == 0 || count > batch->request_max) {
        return sl_transfer_fail(count == 0 ? SL_ERR_INVALID : SL_ERR_TOO_LARGE,
                                "count %u is not in 1 to %u", count, batch->request_max);
    }
    return sl_transfer_settings_check_timeout(timeout_ms);
}

/* The batch is without requests, and its result is the error of the submission. */
static int transfer_batch_refuse(struct sl_transfer_batch *batch, int err)
{
    batch->count = 0;
    batch->call.err = err;
    (void)snprintf(batch->call.text, sizeof batch->call.text, "%s", sl_transfer_last_error());
    return err;
}

int sl_transfer_batch_prepare(struct sl_transfer_batch *batch,
                              const struct sl_transfer_request *requests, uint32_t count,
                              uint32_t timeout_ms, const struct sl_transfer_notice *notice)
{
    sl_assert(batch != NULL);
    sl_assert(requests != NULL || count == 0);
    if (!sl_completion_ended(&batch->call.completion)) {
        return sl_transfer_fail(SL_ERR_AGAIN, "the batch is not over yet");
    }
    int err = check_submit(batch, count, timeout_ms);
    err = err != 0 ? err : fill_items(batch, requests, count);
    batch->deadline_ns = sl_clock_now_ns(sl_reactor_clock(batch->call.io->reactor)) +
                         timeout_ms * SL_CLOCK_NS_PER_MS;
    free(batch->sending);
    batch->sending = NULL;
    err = err == 0 && notice != NULL ? take_notice(batch, requests, count, notice) : err;
    if (err != 0) {
        return transfer_batch_refuse(batch, err);
    }
    batch->count = count;
    batch->timeout_ms = timeout_ms;
    batch->causes.count = 0;
    batch->stage = SL_TRANSFER_BATCH_SUBMITTED;
    batch->is_cancelled = false;
    batch->call.run = transfer_batch_start;
    return 0;
}

int sl_transfer_batch_submit(struct sl_transfer_batch *batch,
                             const struct sl_transfer_request *requests, uint32_t count,
                             uint32_t timeout_ms, const struct sl_transfer_notice *notice)
{
    struct sl_port *port;
    int err = sl_transfer_batch_prepare(batch, requests, count, timeout_ms, notice);
    if (err != 0) {
        return err;
    }
    err = sl_transfer_io_port(batch->engine, &port);
    if (err == 0 && (err = sl_transfer_io_begin(port, &batch->call)) != 0) {
        (void)sl_transfer_fail(err, "%d batches of this thread wait to be started",
                               SL_LIMIT_LANE_MAILS);
    }
    return err != 0 ? transfer_batch_refuse(batch, err) : sl_transfer_succeed();
}

bool sl_transfer_batch_done(struct sl_transfer_batch *batch)
{
    sl_assert(batch != NULL);
    return sl_completion_ended(&batch->call.completion);
}

const char *sl_transfer_batch_error(struct sl_transfer_batch *batch, uint32_t request)
{
    sl_assert(batch != NULL);
    if (!sl_completion_ended(&batch->call.completion) || request >= batch->count ||
        batch->items[request].err == 0) {
        return "";
    }
    const struct sl_transfer_item *item = &batch->items[request];
    (void)snprintf(batch->text, sizeof batch->text,
                   "request %u (%s of %" PRIu64 " bytes at %#" PRIx64 " of %s): %s", request,
                   item->op == SL_TRANSFER_READ ? "READ" : "WRITE", item->bytes, item->remote,
                   item->route->name, batch->causes.texts[item->cause]);
    return batch->text;
}

int sl_transfer_batch_wait(struct sl_transfer_batch *batch)
{
    sl_assert(batch != NULL);
    sl_transfer_setup_wait(&batch->engine->setup, &batch->call.completion);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->items[i].err != 0) {
            return sl_transfer_fail(batch->items[i].err, "%s", sl_transfer_batch_error(batch, i));
        }
    }
    return batch->call.err != 0 ? sl_transfer_fail(batch->call.err, "%s", batch->call.text)
                                : sl_transfer_succeed();
}

int sl_transfer_batch_status(struct sl_transfer_batch *batch, uint32_t request,
                             struct sl_transfer_status *out)
{
    sl_assert(batch != NULL);
    sl_assert(out != NULL);
    const bool is_over = sl_completion_ended(&batch->call.completion);
    if (request >= (batch->count > 0 ? batch->count : batch->request_max)) {
        return sl_transfer_fail(SL_ERR_INVALID, "the batch has no request %u", request);
    }
    const struct sl_transfer_item *item = &batch->items[request];
    if (batch->count == 0) {
        *out = (struct sl_transfer_status){.state = SL_TRANSFER_WAITING};
    } else if (!is_over) {
        *out = (struct sl_transfer_status){.state = SL_TRANSFER_PENDING};
    } else {
        *out = (struct sl_transfer_status){.state = (enum sl_transfer_state)item->state,
                                           .err = item->err,
                                           .bytes = item->bytes - item->left};
    }
    return sl_transfer_succeed();
}

void sl_transfer_batch_cancel(struct sl_transfer_batch *batch)
{
    sl_assert(batch != NULL);
    if (!sl_completion_ended(&batch->call.completion)) {
        (void)sl_transfer_io_call(batch->call.io, &batch->cancelling);
    }
}

void sl_transfer_batch_free(struct sl_transfer_batch **batch)
{
    sl_assert(batch != NULL);
    struct sl_transfer_batch *gone = *batch;
    *batch = NULL;
    if (gone == NULL) {
        return;
    }
    sl_transfer_batch_cancel(gone);
    sl_transfer_setup_wait(&gone->engine->setup, &gone->call.completion);
    sl_port_set_lock(gone->engine->ports);
    sl_list_remove(&gone->link);
    gone->engine->batch_count--;
    sl_port_set_unlock(gone->engine->ports);
    free(gone->items);
    free(gone->parts);
    free(gone->sending);
    free(gone);
}

void sl_transfer_batch_free_all(struct sl_transfer *transfer)
{
    struct sl_list_link *link;
    /* All at first, so that they end at the same time. */
    SL_LIST_FOREACH (each, &transfer->batches) {
        sl_transfer_batch_cancel(SL_CONTAINER_OF(each, struct sl_transfer_batch, link));
    }
    while ((link = sl_list_first(&transfer->batches)) != NULL) {
        struct sl_transfer_batch *batch = SL_CONTAINER_OF(link, struct sl_transfer_batch, link);
        sl_transfer_batch_free(&batch);
    }
}
