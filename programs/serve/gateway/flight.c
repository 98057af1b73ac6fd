#include "programs/serve/gateway/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"

void sl_serve_flights_fini(struct sl_serve_flights *flights)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&flights->free)) != NULL) {
        struct sl_serve_flight *flight = SL_CONTAINER_OF(link, struct sl_serve_flight, link);
        sl_transfer_batch_free(&flight->batch);
        free(flight);
    }
}

static struct sl_serve_flight *get(struct sl_serve_flights *flights)
{
    struct sl_list_link *link = sl_list_pop(&flights->free);
    if (link != NULL) {
        return SL_CONTAINER_OF(link, struct sl_serve_flight, link);
    }
    struct sl_serve_flight *made = calloc(1, sizeof *made);
    if (made != NULL && sl_transfer_batch_create(flights->transfer, 1, &made->batch) != 0) {
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
    flight->id = ++flights->next_id;
    request->flight = flight;
    return flight;
}

static void flight_sent(void *ctx, int err, const char *reason)
{
    struct sl_serve_flight *flight = ctx;
    struct sl_serve_remote *remote = flight->remote;
    flight->is_sending = false;
    flight->use.is_received = err == 0;
    flight->flights->sent(flight->flights->ctx, flight, err, reason);
    sl_serve_remote_sent(remote);
}

int sl_serve_flight_send(struct sl_serve_flight *flight, uint64_t now_ns, struct sl_reason *reason)
{
    const struct sl_serve_request *request = flight->request;
    const struct sl_serve_remote *remote = flight->remote;
    const uint64_t deadline_ns = request->deadline_ns;
    struct sl_serve_message infer = {
        .kind = SL_SERVE_MESSAGE_INFER,
        .incarnation = sl_transfer_async_own_incarnation(remote->events->transfer),
        .request = flight->id,
        .request_kind = request->kind,
        .version = request->version,
        .deadline_us = deadline_ns > now_ns ? (deadline_ns - now_ns) / SL_CLOCK_NS_PER_US : 0,
        .input_address = remote->join.arena_address + flight->input.offset,
        .input_bytes = request->input_bytes,
        .output_address = (uintptr_t)remote->output_base + flight->output.offset,
        .output_room = flight->output.bytes,
        .tensor_count = request->input_count,
    };
    (void)snprintf(infer.model, sizeof infer.model, "%s", request->model);
    memcpy(infer.tensors, request->inputs, request->input_count * sizeof infer.tensors[0]);
    const struct sl_transfer_request inputs = {.op = SL_TRANSFER_WRITE,
                                               .local = request->input,
                                               .segment = remote->segment,
                                               .remote = infer.input_address,
                                               .bytes = request->input_bytes};
    flight->sent_ns = now_ns;
    const int err = sl_serve_remote_send(flight->remote, &infer, flight->batch, &inputs,
                                         flight_sent, flight, reason);
    flight->is_sending = err == 0;
    return err;
}

bool sl_serve_flight_is_unsent(const struct sl_serve_flight *flight, int err)
{
    struct sl_transfer_status status = {.state = SL_TRANSFER_COMPLETED};
    if (flight->input.bytes > 0) {
        (void)sl_transfer_batch_status(flight->batch, 0, &status);
    }
    return err == SL_ERR_AGAIN || (err != 0 && status.state != SL_TRANSFER_COMPLETED);
}

void sl_serve_flight_leave(struct sl_serve_flight *flight)
{
    sl_serve_balance_end(&flight->use);
    sl_serve_range_put(&flight->remote->inputs, &flight->input);
    flight->remote->worker.is_full = false;
}

void sl_serve_flight_look(struct sl_serve_flight *flight)
{
    struct sl_serve_remote *remote = flight->remote;
    struct sl_reason reason;
    const struct sl_serve_message cancel = {
        .kind = SL_SERVE_MESSAGE_CANCEL,
        .incarnation = sl_transfer_async_own_incarnation(remote->events->transfer),
        .request = flight->id};
    if (flight->request != NULL || flight->is_sending) {
        return;
    }
    if (flight->left_memory != NULL) {
        flight->flights->free_memory(flight->flights->memory_ctx, flight->left_memory);
        flight->left_memory = NULL;
    }
    if (sl_list_linked(&flight->use.link)) {
        if (remote->is_joined) { /* else it is being lost */
            (void)sl_serve_remote_send(remote, &cancel, NULL, NULL, NULL, NULL, &reason);
        }
        return;
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
    if (flight->is_sending) {
        flight->left_memory = request->input;
        request->input = NULL;
    }
    sl_serve_flight_look(flight);
}

struct sl_serve_flight *sl_serve_flight_find(const struct sl_serve_remote *remote, uint64_t id)
{
    SL_LIST_FOREACH (link, &remote->worker.uses) {
        struct sl_serve_use *use = SL_CONTAINER_OF(link, struct sl_serve_use, link);
        struct sl_serve_flight *flight = SL_CONTAINER_OF(use, struct sl_serve_flight, use);
        if (flight->id == id) {
            return flight;
        }
    }
    return NULL;
}
