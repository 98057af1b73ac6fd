#include "programs/serve/worker/pending.h"

#include <stdlib.h>
#include <string.h>

#include "core/format.h"

void sl_serve_pendings_init(struct sl_serve_pendings *pendings, uint8_t *output,
                            void (*ended)(void *ctx), void *ctx)
{
    *pendings = (struct sl_serve_pendings){.output = output, .ended = ended, .ctx = ctx};
    sl_serve_ranges_init(&pendings->ranges, SL_SERVE_PENDING_BYTES);
    sl_list_init(&pendings->unused);
}

void sl_serve_pendings_fini(struct sl_serve_pendings *pendings)
{
    for (struct sl_list_link *link; (link = sl_list_pop(&pendings->unused)) != NULL;) {
        struct sl_serve_pending *pending = sl_serve_pending_at(link);
        sl_transfer_batch_free(&pending->send.batch);
        free(pending);
    }
}

struct sl_serve_pending *sl_serve_pendings_take(struct sl_serve_pendings *pendings)
{
    struct sl_list_link *link = sl_list_pop(&pendings->unused);
    struct sl_serve_pending *pending = NULL;
    if (link != NULL) {
        pending = sl_serve_pending_at(link);
        struct sl_transfer_batch *batch = pending->send.batch;
        *pending = (struct sl_serve_pending){.send = {.batch = batch}};
    } else if (pendings->made < SL_SERVE_PENDINGS_MAX) {
        pending = calloc(1, sizeof *pending);
        pendings->made += pending != NULL ? 1 : 0;
    }
    if (pending != NULL) {
        pending->send.ctx = pendings;
        pendings->count++;
    }
    return pending;
}

bool sl_serve_pending_place(struct sl_serve_pending *pending, uint64_t bytes)
{
    struct sl_serve_pendings *pendings = pending->send.ctx;
    const bool fits = sl_serve_range_take(&pendings->ranges, bytes, &pending->range);
    pending->item.output = pendings->output + pending->range.offset;
    pending->output_bytes = bytes;
    return fits;
}

void sl_serve_pending_unplace(struct sl_serve_pending *pending)
{
    struct sl_serve_pendings *pendings = pending->send.ctx;
    sl_serve_range_put(&pendings->ranges, &pending->range);
}

/* DONE has been sent, or need not be. */
static void pending_end(struct sl_serve_send *send)
{
    struct sl_serve_pending *pending = SL_CONTAINER_OF(send, struct sl_serve_pending, send);
    struct sl_serve_pendings *pendings = send->ctx;
    sl_serve_pending_unplace(pending);
    sl_list_append(&pendings->unused, &pending->item.link);
    pendings->count--;
    pendings->ended(pendings->ctx);
}

static uint32_t microseconds(uint64_t ns)
{
    return ns < SL_CLOCK_NS_PER_US * UINT32_MAX ? (uint32_t)(ns / SL_CLOCK_NS_PER_US) : UINT32_MAX;
}

void sl_serve_pending_answer(struct sl_serve_pending *pending, int err, uint64_t version,
                             uint64_t bytes, const char *format, ...)
{
    const struct sl_serve_item *item = &pending->item;
    pending->send.done = pending_end;
    if (pending->peer == NULL || !sl_serve_peer_is_open(pending->peer)) {
        pending_end(&pending->send);
        return;
    }
    const uint64_t busy_ns = pending->load_ns + pending->compute_ns;
    const uint64_t all_ns = sl_reactor_now_ns(pending->peer->options->reactor) - item->arrived_ns;
    struct sl_serve_message *done = pending->peer->message;
    *done =
        (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_DONE,
                                  .request = pending->number,
                                  .err = err,
                                  .version = version,
                                  .output_bytes = bytes,
                                  .queue_us = microseconds(all_ns > busy_ns ? all_ns - busy_ns : 0),
                                  .load_us = microseconds(pending->load_ns),
                                  .compute_us = microseconds(pending->compute_ns),
                                  .tensor_count = err == 0 ? item->output_count : 0};
    memcpy(done->tensors, item->outputs, done->tensor_count * sizeof done->tensors[0]);
    SL_FORMAT(done->text, format);
    sl_serve_peer_send(pending->peer, &pending->send, item->output, pending->output_address,
                       err == 0 ? bytes : 0);
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
    SL_LIST_FOREACH (link, queue) {
        if (sl_serve_pending_at(link)->entry == entry) {
            sl_serve_pending_refuse(sl_serve_pending_at(link), err, text);
        }
    }
}

void sl_serve_pendings_expire(struct sl_list *queue, uint64_t now_ns)
{
    SL_LIST_FOREACH (link, queue) {
        struct sl_serve_pending *pending = sl_serve_pending_at(link);
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
