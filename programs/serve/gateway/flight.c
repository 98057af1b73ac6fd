#include "programs/serve/gateway/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "reactor/reactor.h"

#define ASK_MS SL_TRANSFER_TIMEOUT_MS_MAX /* the worker answers at the request's deadline */

void sl_serve_flights_fini(struct sl_serve_flights *flights)
{
    SL_LIST_TAKE (struct sl_serve_flight, flight, link, &flights->free) {
        sl_transfer_batch_free(&flight->batch);
        free(flight);
    }
}

static struct sl_serve_flight *get(struct sl_serve_flights *flights)
{
    struct sl_serve_flight *unused = SL_LIST_POP(struct sl_serve_flight, link, &flights->free);
    struct sl_serve_flight *made = unused != NULL ? unused : calloc(1, sizeof *made);
    if (unused == NULL && made != NULL &&
        sl_transfer_batch_create(flights->transfer, 1, &made->batch) != 0) {
        free(made);
        made = NULL;
    }
    return made;
}

struct sl_serve_flight *sl_serve_flight_create(struct sl_serve_flights *flights,
                                               struct sl_serve_remote *remote,
                                               struct sl_serve_request *request,
                                               uint64_t output_room)
{
    struct sl_serve_flight *flight = get(flights);
    if (flight == NULL) {
        return NULL;
    }
    flight->flights = flights;
    flight->remote = remote;
    if (!sl_serve_range_take(&remote->inputs, request->input_bytes, &flight->input) ||
        !sl_serve_range_take(&remote->outputs, output_room, &flight->output)) {
        sl_serve_range_put(&remote->inputs, &flight->input);
        sl_list_append(&flights->free, &flight->link);
        return NULL;
    }
    flight->request = request;
    flight->id = 0;
    request->flight = flight;
    return flight;
}

static void flight_answered(void *ctx, int err, const char *reason, const void *bytes,
                            uint32_t count)
{
    struct sl_serve_flight *flight = ctx;
    struct sl_serve_remote *remote = flight->remote;
    struct sl_serve_message done;
    struct sl_reason why = {"it is no answer"};
    flight->asking = NULL;
    if (err == 0) {
        err = sl_serve_message_decode(bytes, count, &done, &why);
        err = err == 0 && done.kind != SL_SERVE_MESSAGE_DONE ? SL_ERR_PROTOCOL : err;
        reason = why.text;
    }
    if (err == 0 && done.tail != NULL && done.output_bytes <= flight->output.bytes &&
        sl_list_linked(&flight->use.link)) { /* else the worker is lost */
        memcpy(remote->output_base + flight->output.offset, done.tail, done.output_bytes);
    }
    flight->flights->returned(flight->flights->ctx, flight, &done, err, reason);
    sl_serve_remote_sent(remote);
}

/* Sends INFER. Also TOO_LARGE: the inputs do not fit into it, and have not been written. */
static int flight_ask(struct sl_serve_flight *flight, uint64_t now_ns, bool is_written,
                      struct sl_reason *reason)
{
    const struct sl_serve_request *request = flight->request;
    struct sl_serve_remote *remote = flight->remote;
    const uint64_t deadline_ns = request->deadline_ns;
    struct sl_serve_message infer = {
        .kind = SL_SERVE_MESSAGE_INFER,
        .incarnation = sl_transfer_async_own_incarnation(remote->events->transfer),
        .request = flight->flights->last_id + 1,
        .request_kind = request->kind,
        .version = request->version,
        .deadline_us = deadline_ns > now_ns ? (deadline_ns - now_ns) / SL_CLOCK_NS_PER_US : 0,
        .input_address = remote->join.arena_address + flight->input.offset,
        .input_bytes = request->input_bytes,
        .output_address = (uintptr_t)remote->output_base + flight->output.offset,
        .output_room = flight->output.bytes,
        .tensor_count = request->input_count,
        .tail = is_written ? NULL : request->input,
    };
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    (void)snprintf(infer.model, sizeof infer.model, "%s", request->model);
    memcpy(infer.tensors, request->inputs, request->input_count * sizeof infer.tensors[0]);
    const int length = sl_serve_message_encode(&infer, text, reason);
    if (length < 0) {
        return length;
    }
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = text, .bytes = (uint32_t)length};
    flight->id = ++flight->flights->last_id;
    const int err = sl_transfer_async_ask(remote->events->async, remote->segment, &notice, ASK_MS,
                                          flight_answered, flight, &flight->asking);
    return sl_serve_remote_began(remote, err, reason);
}

static void flight_written(void *ctx, int err, const char *reason)
{
    struct sl_serve_flight *flight = ctx;
    struct sl_serve_remote *remote = flight->remote;
    struct sl_reactor *reactor = sl_transfer_async_reactor(flight->flights->transfer);
    struct sl_reason why;
    const bool is_wanted = flight->request != NULL && sl_list_linked(&flight->use.link);
    flight->is_writing = false;
    remote->writes--;
    if (err == 0 && is_wanted) {
        err = flight_ask(flight, sl_reactor_now_ns(reactor), true, &why);
        reason = why.text;
    }
    if (err != 0 || !is_wanted) {
        flight->flights->returned(flight->flights->ctx, flight, NULL, SL_ERR_CANCELLED, reason);
    }
    sl_serve_remote_sent(remote);
}

int sl_serve_flight_send(struct sl_serve_flight *flight, uint64_t now_ns, struct sl_reason *reason)
{
    struct sl_serve_remote *remote = flight->remote;
    flight->sent_ns = now_ns;
    int err = flight_ask(flight, now_ns, false, reason);
    if (err == SL_ERR_TOO_LARGE) {
        const struct sl_transfer_request inputs = {.op = SL_TRANSFER_WRITE,
                                                   .local = flight->request->input,
                                                   .segment = remote->segment,
                                                   .remote = remote->join.arena_address +
                                                             flight->input.offset,
                                                   .bytes = flight->request->input_bytes};
        err = sl_transfer_async_submit(remote->events->async, flight->batch, &inputs, 1,
                                       SL_SERVE_REMOTE_SEND_MS, NULL, flight_written, flight);
        flight->is_writing = err == 0;
        remote->writes += err == 0 ? 1 : 0;
        err = sl_serve_remote_began(remote, err, reason);
    }
    return err;
}

void sl_serve_flight_leave(struct sl_serve_flight *flight)
{
    struct sl_transfer_async *async = flight->remote->events->async;
    sl_serve_balance_end(&flight->use);
    sl_serve_range_put(&flight->remote->inputs, &flight->input);
    flight->remote->worker.is_full = false;
    if (flight->asking != NULL) {
        sl_transfer_async_forget(async, flight->asking);
    } else if (flight->is_writing) {
        sl_transfer_async_cancel(async, flight->batch);
    }
}

void sl_serve_flight_look(struct sl_serve_flight *flight)
{
    struct sl_serve_remote *remote = flight->remote;
    if (flight->request != NULL || flight->is_writing) {
        return;
    }
    if (flight->left_memory != NULL) {
        flight->flights->free_memory(flight->flights->memory_ctx, flight->left_memory);
        flight->left_memory = NULL;
    }
    if (sl_list_linked(&flight->use.link)) {
        if (remote->is_joined) { /* else it is being lost */
            (void)sl_serve_remote_tell(remote, SL_SERVE_MESSAGE_CANCEL, flight->id);
        }
        return;
    }
    if (flight->asking != NULL) {
        return; /* it is being forgotten */
    }
    sl_serve_range_put(&remote->outputs, &flight->output);
    remote->outputs_read -= flight->is_read ? 1 : 0;
    remote->worker.is_full = false;
    flight->is_read = flight->is_repeated = false;
    sl_list_append(&flight->flights->free, &flight->link);
    sl_serve_remote_look(remote);
}

void sl_serve_flight_detach(struct sl_serve_request *request)
{
    struct sl_serve_flight *flight = request->flight;
    if (flight == NULL) {
        return;
    }
    request->flight = NULL;
    flight->request = NULL;
    if (flight->is_writing) {
        flight->left_memory = request->input;
        request->input = NULL;
    }
    sl_serve_flight_look(flight);
}
