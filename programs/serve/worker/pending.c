#include "programs/serve/worker/pending.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"
#include "core/log.h"
#include "reactor/reactor.h"

void sl_serve_pendings_init(struct sl_serve_pendings *pendings, struct sl_reactor *reactor,
                            uint8_t *output, void (*ended)(void *ctx), void *ctx)
{
    *pendings = (struct sl_serve_pendings){
        .reactor = reactor, .output = output, .ended = ended, .ctx = ctx};
    sl_serve_ranges_init(&pendings->ranges, SL_SERVE_PENDING_BYTES);
    sl_list_init(&pendings->unused);
}

void sl_serve_pendings_fini(struct sl_serve_pendings *pendings)
{
    SL_LIST_TAKE (struct sl_serve_pending, pending, item.link, &pendings->unused) {
        sl_transfer_batch_free(&pending->write.batch);
        free(pending);
    }
}

struct sl_serve_pending *sl_serve_pendings_take(struct sl_serve_pendings *pendings)
{
    struct sl_serve_pending *pending =
        SL_LIST_POP(struct sl_serve_pending, item.link, &pendings->unused);
    if (pending != NULL) {
        struct sl_transfer_batch *batch = pending->write.batch;
        memset(pending, 0, offsetof(struct sl_serve_pending, text));
        pending->write.batch = batch;
    } else if (pendings->made < SL_SERVE_PENDINGS_MAX) {
        pending = calloc(1, sizeof *pending);
        pendings->made += pending != NULL ? 1 : 0;
    }
    if (pending != NULL) {
        pending->pendings = pendings;
        pendings->count++;
    }
    return pending;
}

bool sl_serve_pending_place(struct sl_serve_pending *pending, uint64_t bytes)
{
    struct sl_serve_pendings *pendings = pending->pendings;
    const bool fits = sl_serve_range_take(&pendings->ranges, bytes, &pending->range);
    pending->item.output = pendings->output + pending->range.offset;
    pending->output_bytes = bytes;
    return fits;
}

void sl_serve_pending_unplace(struct sl_serve_pending *pending)
{
    struct sl_serve_pendings *pendings = pending->pendings;
    sl_serve_range_put(&pendings->ranges, &pending->range);
}

static uint32_t microseconds(uint64_t ns)
{
    return ns < SL_CLOCK_NS_PER_US * UINT32_MAX ? (uint32_t)(ns / SL_CLOCK_NS_PER_US) : UINT32_MAX;
}

/* A DONE that the gateway would refuse becomes an error, so that its request is answered.
 * TOO_LARGE: the outputs do not fit into it, and have to be WRITTEN before. */
static int pending_encode(struct sl_serve_message *done, void *to)
{
    struct sl_reason reason;
    int length = sl_serve_message_encode(done, to, &reason);
    if (length == SL_ERR_INVALID) {
        sl_log_error("serve: an answer is not sent: %s", reason.text);
        *done = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_DONE, .err = SL_ERR_UNSUPPORTED};
        (void)snprintf(done->text, sizeof done->text, "the worker's answer: %.400s", reason.text);
        length = sl_serve_message_encode(done, to, &reason);
    }
    return length;
}

void sl_serve_pending_turn_away(struct sl_transfer_asked *asked, int err, const char *text)
{
    struct sl_serve_message done = {.kind = SL_SERVE_MESSAGE_DONE, .err = err};
    uint8_t bytes[SL_SERVE_MESSAGE_BYTES];
    (void)snprintf(done.text, sizeof done.text, "%s", text);
    const int length = pending_encode(&done, bytes);
    sl_transfer_async_answer(asked, bytes, (uint32_t)length);
}

static void pending_end(struct sl_serve_pending *pending)
{
    struct sl_serve_pendings *pendings = pending->pendings;
    sl_serve_pending_unplace(pending);
    sl_list_append(&pendings->unused, &pending->item.link);
    pendings->count--;
    pendings->ended(pendings->ctx);
}

static void pending_written(struct sl_serve_write *write, int err)
{
    struct sl_serve_pending *pending = SL_CONTAINER_OF(write, struct sl_serve_pending, write);
    sl_transfer_async_answer(pending->asked, err == 0 ? pending->text : NULL, pending->text_bytes);
    pending_end(pending);
}

void sl_serve_pending_answer(struct sl_serve_pending *pending, int err, uint64_t version,
                             uint64_t bytes, const char *format, ...)
{
    const struct sl_serve_item *item = &pending->item;
    const uint64_t busy_ns = pending->load_ns + pending->compute_ns;
    const uint64_t all_ns = sl_reactor_now_ns(pending->pendings->reactor) - item->arrived_ns;
    struct sl_serve_message done = {.kind = SL_SERVE_MESSAGE_DONE,
                                    .err = err,
                                    .version = version,
                                    .output_bytes = bytes,
                                    .queue_us =
                                        microseconds(all_ns > busy_ns ? all_ns - busy_ns : 0),
                                    .load_us = microseconds(pending->load_ns),
                                    .compute_us = microseconds(pending->compute_ns),
                                    .tensor_count = err == 0 ? item->output_count : 0,
                                    .tail = item->output};
    memcpy(done.tensors, item->outputs, done.tensor_count * sizeof done.tensors[0]);
    SL_FORMAT(done.text, format);
    int length = pending_encode(&done, pending->text);
    const bool is_written = length == SL_ERR_TOO_LARGE;
    if (is_written) {
        done.tail = NULL;
        length = pending_encode(&done, pending->text);
    }
    pending->text_bytes = (uint32_t)length;
    if (!is_written) {
        sl_transfer_async_answer(pending->asked, pending->text, pending->text_bytes);
        pending_end(pending);
    } else if (pending->peer == NULL || !sl_serve_peer_is_open(pending->peer)) {
        sl_serve_pending_turn_away(pending->asked, SL_ERR_CANCELLED, SL_SERVE_GATEWAY_GONE);
        pending_end(pending);
    } else {
        pending->write.done = pending_written;
        sl_serve_peer_write(pending->peer, &pending->write, item->output, pending->output_address,
                            bytes);
    }
}

/* ---- Queue ----------------------------------------------------------------------------------- */

void sl_serve_pending_enqueue(struct sl_serve_pending *pending, struct sl_list *queue)
{
    pending->entry->waiting++;
    sl_list_append(queue, &pending->item.link);
}

void sl_serve_pending_dequeue(struct sl_serve_pending *pending)
{
    pending->entry->waiting--;
    sl_list_remove(&pending->item.link);
}

void sl_serve_pending_refuse(struct sl_serve_pending *pending, int err, const char *text)
{
    sl_serve_pending_dequeue(pending);
    sl_serve_pending_answer(pending, err, 0, 0, "%s", text);
}

void sl_serve_pendings_refuse_all(struct sl_list *queue, const struct sl_serve_model_entry *entry,
                                  int err, const char *text)
{
    SL_LIST_EACH (struct sl_serve_pending, pending, item.link, queue) {
        if (pending->entry == entry) {
            sl_serve_pending_refuse(pending, err, text);
        }
    }
}

void sl_serve_pendings_expire(struct sl_list *queue, uint64_t now_ns)
{
    SL_LIST_EACH (struct sl_serve_pending, pending, item.link, queue) {
        const struct sl_serve_model_entry *entry = pending->entry;
        const uint64_t waited_ns = now_ns - pending->item.arrived_ns;
        if (pending->item.deadline_ns > now_ns) {
            continue;
        }
        pending->load_ns = entry->current == NULL ? waited_ns : pending->load_ns;
        sl_serve_pending_dequeue(pending);
        sl_serve_pending_answer(
            pending, SL_ERR_DEADLINE, 0, 0,
            "the deadline passed: %.3f ms in the worker's queue, %.3f ms for the load%s%s",
            (double)(waited_ns - pending->load_ns) / SL_CLOCK_NS_PER_MS,
            (double)pending->load_ns / SL_CLOCK_NS_PER_MS,
            entry->reason.text[0] != '\0' ? ": " : "", entry->reason.text);
    }
}
