#include "serve/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "reactor/reactor.h"
#include "serve/gateway/admission.h"
#include "serve/gateway/flight.h"
#include "serve/gateway/listing.h"

#define MEMORY_BYTES    (256ULL << 20)
#define MEMORY_FREE_MS  2000
#define TRIES_MAX       3
#define OUTPUT_ROOM_MIN (64ULL << 10)
#define ROWS_MAX        (1U << 20)
#define RETRY_MS        1000 /* of refusals that no expectation explains */

struct sl_serve_gateway {
    struct sl_reactor *reactor;
    struct sl_transfer *transfer;
    struct sl_transfer_async *async;
    struct sl_offload *offloads[2]; /* for lists; for memory of workers. NULL: posted elsewhere */
    struct sl_serve_gateway_options options;
    struct sl_serve_balance balance;
    struct sl_serve_admission admission;
    struct sl_serve_listing listing;
    struct sl_serve_remote_events events;
    struct sl_list remotes;
    struct sl_list unlisted; /* accepted requests for models that the list lacks */
    struct sl_list refused;  /* requests to be answered in the next turn */
    struct sl_serve_flights flights;
    uint8_t *memory;
    struct sl_serve_ranges ranges; /* of it */
    struct sl_timer due, next_turn;
    bool is_draining, is_stopping;
    void (*drained)(void *ctx);
    void *drained_ctx;
    void (*ended)(void *ctx);
    void *ended_ctx;
    struct sl_serve_gateway_stats stats;
};

/* Memory for inputs: each range begins with its struct */

static void *memory_at(const struct sl_serve_gateway *gateway, uint64_t offset)
{
    return gateway->memory + offset;
}

uint8_t *sl_serve_gateway_memory(struct sl_serve_gateway *gateway, uint64_t bytes)
{
    struct sl_serve_range found;
    sl_assert(bytes <= SL_SERVE_BODY_BYTES_MAX);
    if (!sl_serve_range_take(&gateway->ranges, SL_SERVE_RANGE_ALIGN + bytes, &found)) {
        return NULL;
    }
    struct sl_serve_range *range = memory_at(gateway, found.offset);
    *range = (struct sl_serve_range){.offset = found.offset, .bytes = found.bytes};
    sl_list_insert(&found.link, &range->link);
    sl_list_remove(&found.link);
    return memory_at(gateway, found.offset + SL_SERVE_RANGE_ALIGN);
}

void sl_serve_gateway_memory_free(struct sl_serve_gateway *gateway, uint8_t *memory)
{
    if (memory != NULL) {
        void *range = memory - SL_SERVE_RANGE_ALIGN;
        sl_serve_range_put(&gateway->ranges, range);
    }
}

static void free_memory(void *ctx, uint8_t *memory)
{
    sl_serve_gateway_memory_free(ctx, memory);
}

/* Answers */

static void dispatch(struct sl_serve_gateway *gateway);
static void look_for_end(struct sl_serve_gateway *gateway);

static void arm_due(struct sl_serve_gateway *gateway)
{
    const uint64_t now_ns = sl_reactor_now_ns(gateway->reactor);
    const uint64_t next_ns = sl_serve_admission_next_ns(&gateway->admission);
    sl_reactor_arm(gateway->reactor, &gateway->due,
                   next_ns == SL_CLOCK_NEVER ? next_ns
                   : next_ns > now_ns        ? next_ns - now_ns
                                             : 0);
}

static void count(struct sl_serve_gateway *gateway, int err)
{
    struct sl_serve_gateway_stats *stats = &gateway->stats;
    uint64_t *counter = err == 0                 ? &stats->answered
                        : err == SL_ERR_AGAIN    ? &stats->refused
                        : err == SL_ERR_DEADLINE ? &stats->late
                                                 : &stats->failed;
    ++*counter;
}

/* Ends an accepted request. */
static void end(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    if (request->is_waiting) {
        request->state->waiting--;
    }
    sl_serve_admission_end(&gateway->admission, request);
    sl_list_remove(&request->link); /* of the unlisted ones */
    look_for_end(gateway);
}

static void answer(struct sl_serve_gateway *gateway, struct sl_serve_request *request, int err)
{
    end(gateway, request);
    request->err = err;
    count(gateway, err);
    request->done(request);
}

static void fail(struct sl_serve_gateway *gateway, struct sl_serve_request *request, int err,
                 const char *text)
{
    sl_serve_flight_detach(request);
    if (text != request->text) {
        (void)snprintf(request->text, sizeof request->text, "%s", text);
    }
    request->retry_ms = err == SL_ERR_AGAIN ? RETRY_MS : 0;
    answer(gateway, request, err);
}

/* The deadline of an accepted request has passed. */
static void fail_late(struct sl_serve_gateway *gateway, struct sl_serve_request *request,
                      uint64_t now_ns)
{
    const struct sl_serve_flight *flight = request->flight;
    const uint64_t sent_ns = flight != NULL ? flight->sent_ns : now_ns;
    int err = SL_ERR_AGAIN;
    char text[SL_SERVE_TEXT_BYTES];
    if (request->state == NULL) {
        (void)snprintf(text, sizeof text, "the catalogue does not answer: %.400s",
                       gateway->listing.reason);
    } else if (flight == NULL && gateway->stats.workers == 0) {
        (void)snprintf(text, sizeof text, "no worker has joined");
    } else {
        err = SL_ERR_DEADLINE;
        (void)snprintf(text, sizeof text,
                       "the deadline has passed: %llu ms in the gateway's queue, %llu ms at %s",
                       (sent_ns - request->arrived_ns) / SL_CLOCK_NS_PER_MS,
                       (now_ns - sent_ns) / SL_CLOCK_NS_PER_MS,
                       flight != NULL ? flight->remote->worker.name : "no worker");
    }
    fail(gateway, request, err, text);
}

static void look_at_due(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway *gateway = SL_CONTAINER_OF(timer, struct sl_serve_gateway, due);
    struct sl_serve_request *request;
    while ((request = sl_serve_admission_due(&gateway->admission, now_ns)) != NULL) {
        fail_late(gateway, request, now_ns);
    }
    arm_due(gateway);
}

/* Flights */

/* The request of a flight that has left its worker waits again, before others; not too often. */
static void repeat(struct sl_serve_gateway *gateway, struct sl_serve_flight *flight,
                   const char *reason)
{
    struct sl_serve_request *request = flight->request;
    flight->is_repeated = flight->is_sending;
    if (flight->is_sending) {
        return; /* `sent` continues */
    }
    if (request == NULL) {
        sl_serve_flight_look(flight);
    } else if (request->tries >= TRIES_MAX) {
        fail(gateway, request, SL_ERR_AGAIN, reason);
    } else {
        sl_serve_flight_detach(request);
        gateway->stats.repeated++;
        request->state->waiting++;
        sl_serve_admission_wait_again(&gateway->admission, request);
        arm_due(gateway);
    }
}

static void sent(void *ctx, struct sl_serve_flight *flight, int err, const char *reason)
{
    if (sl_list_linked(&flight->use.link) && sl_serve_flight_is_unsent(flight, err)) {
        sl_serve_flight_leave(flight);
        repeat(ctx, flight, reason);
    } else if (flight->is_repeated) {
        repeat(ctx, flight, "the worker has ended");
    } else {
        sl_serve_flight_look(flight);
    }
    dispatch(ctx);
}

/* The request is the first that waits; cost_ns is that of its use of the worker. */
static void begin(struct sl_serve_gateway *gateway, struct sl_serve_flight *flight,
                  uint64_t cost_ns, uint64_t now_ns)
{
    struct sl_serve_request *request = flight->request;
    request->state->waiting--;
    request->tries++;
    sl_serve_admission_run(&gateway->admission, request);
    flight->use = (struct sl_serve_use){
        .worker = &flight->remote->worker, .model = request->state, .cost_ns = cost_ns};
    sl_serve_balance_begin(&gateway->balance, &flight->use);
    if (sl_serve_flight_send(flight, now_ns) != 0) {
        sl_serve_flight_leave(flight);
        fail(gateway, request, SL_ERR_AGAIN, sl_transfer_last_error());
    }
}

static uint64_t output_room(const struct sl_serve_request *request)
{
    const uint64_t expected =
        request->kind == SL_SERVE_INFER ? request->rows * request->state->output_row_bytes : 0;
    const uint64_t room = request->output_room > expected ? request->output_room : expected;
    return room > OUTPUT_ROOM_MIN ? room : OUTPUT_ROOM_MIN;
}

/* Sends the first that waits. False: not now. */
static bool dispatch_first(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const uint64_t now_ns = sl_reactor_now_ns(gateway->reactor);
    const uint64_t room = output_room(request);
    uint64_t cost_ns;
    struct sl_serve_balance_worker *worker =
        sl_serve_balance_choose(&gateway->balance, request->state, request->rows, now_ns, &cost_ns);
    if (worker == NULL) {
        return false;
    }
    struct sl_serve_remote *remote = SL_CONTAINER_OF(worker, struct sl_serve_remote, worker);
    if (request->input_bytes > remote->inputs.bytes || room > remote->outputs.bytes) {
        fail(gateway, request, SL_ERR_TOO_LARGE,
             "inputs or outputs are larger than a worker's memory for them");
        return true;
    }
    struct sl_serve_flight *flight =
        sl_serve_flight_create(&gateway->flights, remote, request, room);
    if (flight != NULL) {
        begin(gateway, flight, cost_ns, now_ns);
    } else {
        worker->is_full = true; /* until a range is free again */
    }
    return true;
}

static void dispatch(struct sl_serve_gateway *gateway)
{
    struct sl_serve_request *request;
    do {
        request = sl_serve_admission_first(&gateway->admission);
    } while (request != NULL && dispatch_first(gateway, request));
    arm_due(gateway);
}

/* Notices */

static void answer_well(struct sl_serve_gateway *gateway, struct sl_serve_flight *flight,
                        const struct sl_serve_message *done)
{
    struct sl_serve_request *request = flight->request;
    flight->is_read = true;
    flight->remote->outputs_read++;
    request->answered_version = done->version;
    request->output_count = done->tensor_count;
    memcpy(request->outputs, done->tensors, done->tensor_count * sizeof done->tensors[0]);
    request->output = flight->remote->output_base + flight->output.offset;
    answer(gateway, request, 0);
}

/* The outputs need more room: the next one has it, as have later requests for the model. */
static void enlarge(struct sl_serve_request *request, uint64_t bytes)
{
    const uint64_t row_bytes = (bytes + request->rows - 1) / request->rows;
    request->output_room = bytes;
    if (request->kind == SL_SERVE_INFER && row_bytes > request->state->output_row_bytes) {
        request->state->output_row_bytes = row_bytes;
    }
}

/* An answer that nobody waits for, or that came before, changes nothing. */
static void take_done(struct sl_serve_gateway *gateway, struct sl_serve_remote *remote,
                      const struct sl_serve_message *done)
{
    struct sl_serve_flight *flight = sl_serve_flight_find(remote, done->request);
    if (flight == NULL) {
        return;
    }
    struct sl_serve_request *request = flight->request;
    sl_serve_flight_leave(flight);
    if (request == NULL) {
        sl_serve_flight_look(flight);
        return;
    }
    const uint64_t waited_us = (flight->sent_ns - request->arrived_ns) / SL_CLOCK_NS_PER_US;
    request->queue_us = done->queue_us + (uint32_t)waited_us;
    request->load_us = done->load_us;
    request->compute_us = done->compute_us;
    if (done->err == 0 && done->output_bytes <= flight->output.bytes) {
        answer_well(gateway, flight, done);
    } else if (done->err == SL_ERR_TOO_LARGE && done->output_bytes > flight->output.bytes &&
               request->output_room == 0) {
        enlarge(request, done->output_bytes);
        repeat(gateway, flight, done->text);
    } else if (done->err == SL_ERR_AGAIN || done->err == SL_ERR_CLOSED) {
        repeat(gateway, flight, done->text);
    } else {
        fail(gateway, request, done->err != 0 ? done->err : SL_ERR_CORRUPT, done->text);
    }
}

static struct sl_serve_remote *find_remote(const struct sl_serve_gateway *gateway, const char *name)
{
    SL_LIST_FOREACH (link, &gateway->remotes) {
        struct sl_serve_remote *remote = SL_CONTAINER_OF(link, struct sl_serve_remote, link);
        if (strcmp(remote->worker.name, name) == 0) {
            return remote;
        }
    }
    return NULL;
}

static void take_join(struct sl_serve_gateway *gateway, const char *name,
                      const struct sl_serve_message *message)
{
    struct sl_serve_remote *remote = find_remote(gateway, name);
    struct sl_serve_join join = {.arena_address = message->arena_address,
                                 .arena_bytes = message->arena_bytes,
                                 .batch_max = message->batch_max};
    (void)snprintf(join.host, sizeof join.host, "%s", message->host);
    if (remote != NULL) { /* whatever was sent to it before is lost */
        remote->next = join;
        sl_serve_remote_lose(remote, "it joins once more");
        return;
    }
    remote = gateway->is_stopping ? NULL : calloc(1, sizeof *remote);
    if (remote != NULL) { /* else it tries again */
        remote->events = &gateway->events;
        remote->join = join;
        (void)snprintf(remote->worker.name, sizeof remote->worker.name, "%s", name);
        sl_list_append(&gateway->remotes, &remote->link);
        sl_serve_remote_begin(remote);
    }
}

static void take(struct sl_serve_gateway *gateway, struct sl_serve_remote *remote,
                 const struct sl_serve_message *message)
{
    switch (message->kind) {
    case SL_SERVE_MESSAGE_LEAVE:
        remote->worker.is_leaving = true;
        sl_serve_remote_look(remote);
        break;
    case SL_SERVE_MESSAGE_LOAD:
        sl_serve_balance_report(&gateway->balance, &remote->worker, message,
                                sl_reactor_now_ns(gateway->reactor));
        break;
    case SL_SERVE_MESSAGE_DONE:
        take_done(gateway, remote, message);
        break;
    default:
        sl_log_warn("serve: worker %s has sent %s, which workers do not send; it is ignored",
                    remote->worker.name, sl_serve_message_name(message->kind));
        break;
    }
    dispatch(gateway);
}

static void arrived(void *ctx, const struct sl_transfer_noticed *noticed)
{
    struct sl_serve_gateway *gateway = ctx;
    struct sl_serve_message message;
    struct sl_reason reason;
    if (sl_serve_message_decode(noticed->text, noticed->bytes, &message, &reason) != 0) {
        sl_log_warn("serve: a notice of %s is ignored: %s", noticed->sender, reason.text);
        return;
    }
    struct sl_serve_remote *remote = find_remote(gateway, noticed->sender);
    if (message.kind == SL_SERVE_MESSAGE_JOIN) {
        take_join(gateway, noticed->sender, &message);
    } else if (remote != NULL && remote->is_joined) {
        take(gateway, remote, &message);
    }
}

/* Workers */

static void joined(void *ctx, struct sl_serve_remote *remote)
{
    struct sl_serve_gateway *gateway = ctx;
    if (sl_serve_balance_join(&gateway->balance, &remote->worker) != 0) {
        sl_log_warn("serve: worker %s cannot join: there are %d workers, or %d hosts",
                    remote->worker.name, SL_SERVE_WORKERS_MAX, SL_SERVE_HOSTS_MAX);
        sl_serve_remote_lose(remote, "too many workers");
        return;
    }
    gateway->stats.workers++;
    sl_log_info("serve: worker %s of host %s has joined", remote->worker.name, remote->worker.host);
    dispatch(gateway);
}

static void lost(void *ctx, struct sl_serve_remote *remote, const char *reason)
{
    struct sl_serve_gateway *gateway = ctx;
    struct sl_list_link *link;
    if (!sl_list_linked(&remote->worker.link)) {
        return;
    }
    gateway->stats.workers--;
    gateway->stats.lost_workers += remote->has_left ? 0 : 1;
    if (!gateway->is_stopping) {
        sl_log_info("serve: worker %s has %s: %s; %u requests go to others", remote->worker.name,
                    remote->has_left ? "left" : "ended", reason, remote->worker.use_count);
    }
    remote->worker.is_leaving = true;
    while ((link = sl_list_first(&remote->worker.uses)) != NULL) {
        struct sl_serve_use *use = SL_CONTAINER_OF(link, struct sl_serve_use, link);
        struct sl_serve_flight *flight = SL_CONTAINER_OF(use, struct sl_serve_flight, use);
        sl_serve_flight_leave(flight);
        if (flight->is_sending && flight->input.bytes > 0) {
            sl_transfer_async_cancel(gateway->async, flight->batch);
        }
        repeat(gateway, flight, "the worker has ended");
    }
    sl_serve_balance_leave(&gateway->balance, &remote->worker);
    dispatch(gateway);
}

static void look_for_stop(struct sl_serve_gateway *gateway);

static void remote_ended(void *ctx, struct sl_serve_remote *remote)
{
    struct sl_serve_gateway *gateway = ctx;
    if (remote->next.batch_max > 0 && !gateway->is_stopping) {
        remote->join = remote->next;
        remote->next.batch_max = 0;
        sl_serve_remote_begin(remote);
        return;
    }
    sl_list_remove(&remote->link);
    free(remote);
    look_for_stop(gateway);
}

/* Arrival of requests */

static bool is_listed(const struct sl_serve_gateway *gateway,
                      const struct sl_serve_request *request)
{
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_listing_find(&gateway->listing, request->model, &first);
    bool is_found = count > 0 && request->version == 0;
    for (uint64_t i = 0; i < count && !is_found; i++) {
        is_found = first[i].version == request->version;
    }
    return is_found;
}

/* The error that the list has no such version, with those that it has. */
static int not_found(const struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_listing_find(&gateway->listing, request->model, &first);
    char *text = request->text;
    size_t length = (size_t)snprintf(text, sizeof request->text,
                                     count > 0 ? "model %s has no version %llu; it has:"
                                               : "there is no model %s",
                                     request->model, (unsigned long long)request->version);
    for (uint64_t i = 0; i < count && length + 24 < sizeof request->text; i++) {
        length += (size_t)snprintf(text + length, sizeof request->text - length, " %llu",
                                   (unsigned long long)first[i].version);
    }
    return request->err = SL_ERR_NOT_FOUND;
}

/* Whether the list is newer than a moment before the request. */
static bool is_fresh(const struct sl_serve_listing *listing, const struct sl_serve_request *request)
{
    return listing->list != NULL &&
           listing->listed_ns + SL_SERVE_LISTING_FRESH_NS >= request->arrived_ns;
}

/* Errors: AGAIN, DEADLINE, NOT_FOUND, NO_MEMORY, with the text. */
static int admit(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const uint64_t now_ns = sl_reactor_now_ns(gateway->reactor);
    struct sl_serve_balance *balance = &gateway->balance;
    uint64_t expected_ns = 0;
    uint32_t workers = 0;
    if (gateway->is_draining) {
        (void)snprintf(request->text, sizeof request->text, "the gateway ends");
        request->retry_ms = RETRY_MS;
        return request->err = SL_ERR_AGAIN;
    }
    if (!is_listed(gateway, request)) {
        if (is_fresh(&gateway->listing, request)) {
            return not_found(gateway, request);
        }
        const int err = sl_serve_admission_offer(&gateway->admission, request, 0, 0, now_ns);
        if (err == 0) {
            sl_serve_admission_run(&gateway->admission, request);
            sl_list_append(&gateway->unlisted, &request->link);
            sl_serve_listing_refresh(&gateway->listing);
        }
        return err;
    }
    request->state = sl_serve_balance_model(balance, request->model);
    if (request->state == NULL) {
        (void)snprintf(request->text, sizeof request->text, "no memory for one more model");
        return request->err = SL_ERR_NO_MEMORY;
    }
    if (sl_serve_balance_expect(balance, request->state, request->rows, now_ns, &expected_ns,
                                &request->cost_ns)) {
        workers = balance->worker_count;
    }
    const int err =
        sl_serve_admission_offer(&gateway->admission, request, expected_ns, workers, now_ns);
    request->state->waiting += err == 0 ? 1 : 0;
    return err;
}

static void listed(void *ctx)
{
    struct sl_serve_gateway *gateway = ctx;
    struct sl_list again;
    struct sl_list_link *link;
    sl_list_init(&again);
    sl_list_append_all(&again, &gateway->unlisted);
    while ((link = sl_list_pop(&again)) != NULL) {
        struct sl_serve_request *request = SL_CONTAINER_OF(link, struct sl_serve_request, link);
        if (is_listed(gateway, request)) {
            request->state = sl_serve_balance_model(&gateway->balance, request->model);
        }
        if (request->state != NULL) {
            request->state->waiting++;
            sl_serve_admission_wait_again(&gateway->admission, request);
        } else if (is_fresh(&gateway->listing, request)) {
            fail(gateway, request, not_found(gateway, request), request->text);
        } else {
            sl_list_append(&gateway->unlisted, link);
            sl_serve_listing_refresh(&gateway->listing);
        }
    }
    dispatch(gateway);
    look_for_stop(gateway);
}

static void take_next_turn(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway *gateway = SL_CONTAINER_OF(timer, struct sl_serve_gateway, next_turn);
    struct sl_list_link *link;
    while ((link = sl_list_pop(&gateway->refused)) != NULL) {
        struct sl_serve_request *request = SL_CONTAINER_OF(link, struct sl_serve_request, link);
        request->done(request);
    }
    if (gateway->is_draining && gateway->drained != NULL &&
        sl_list_empty(&gateway->admission.due)) {
        void (*const drained)(void *ctx) = gateway->drained;
        gateway->drained = NULL;
        drained(gateway->drained_ctx);
    }
}

static void look_for_end(struct sl_serve_gateway *gateway)
{
    if (gateway->is_draining && sl_list_empty(&gateway->admission.due)) {
        sl_reactor_arm(gateway->reactor, &gateway->next_turn, 0);
    }
}

void sl_serve_gateway_submit(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const struct sl_serve_tensor *first = &request->inputs[0];
    const uint64_t rows = request->input_count > 0 && first->rank > 0 ? first->shape[0] : 1;
    request->rows = rows == 0 ? 1 : rows < ROWS_MAX ? rows : ROWS_MAX;
    if (admit(gateway, request) == 0) {
        gateway->stats.accepted++;
        dispatch(gateway);
    } else {
        count(gateway, request->err);
        sl_list_append(&gateway->refused, &request->link);
        sl_reactor_arm(gateway->reactor, &gateway->next_turn, 0);
    }
}

void sl_serve_gateway_release(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    sl_serve_flight_detach(request);
    sl_serve_gateway_memory_free(gateway, request->input);
    request->input = NULL;
    dispatch(gateway);
}

void sl_serve_gateway_cancel(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    if (sl_list_linked(&request->due_link)) {
        end(gateway, request);
    }
    sl_list_remove(&request->link); /* of the refused ones */
    gateway->stats.cancelled++;
    sl_serve_gateway_release(gateway, request);
}

/* The rest */

void sl_serve_gateway_drain(struct sl_serve_gateway *gateway, void (*drained)(void *ctx), void *ctx)
{
    gateway->is_draining = true;
    gateway->drained = drained;
    gateway->drained_ctx = ctx;
    look_for_end(gateway);
}

const struct sl_object_list *sl_serve_gateway_models(const struct sl_serve_gateway *gateway)
{
    return gateway->listing.list;
}

uint64_t sl_serve_gateway_versions(const struct sl_serve_gateway *gateway, const char *model,
                                   const struct sl_object_entry **first)
{
    return sl_serve_listing_find(&gateway->listing, model, first);
}

void sl_serve_gateway_stats(const struct sl_serve_gateway *gateway,
                            struct sl_serve_gateway_stats *out)
{
    *out = gateway->stats;
    out->waiting = gateway->admission.waiting_count;
    out->running = gateway->admission.running_count;
    out->memory_bytes = gateway->ranges.bytes;
    out->memory_in_use = gateway->ranges.used_bytes;
    out->is_draining = gateway->is_draining;
    out->has_models = gateway->listing.list != NULL;
}

void sl_serve_gateway_workers(const struct sl_serve_gateway *gateway,
                              void (*each)(void *ctx, const struct sl_serve_balance_worker *worker),
                              void *ctx)
{
    SL_LIST_FOREACH (link, &gateway->balance.workers) {
        each(ctx, SL_CONTAINER_OF(link, struct sl_serve_balance_worker, link));
    }
}

/* Start and end */

static void end_threads(struct sl_serve_gateway *gateway)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (gateway->offloads[i] != NULL) {
            (void)sl_offload_destroy(&gateway->offloads[i], SL_CLOCK_NS_PER_S);
        }
    }
}

static void async_ended(void *ctx)
{
    struct sl_serve_gateway *gateway = ctx;
    end_threads(gateway);
    gateway->ended(gateway->ended_ctx);
}

static void look_for_stop(struct sl_serve_gateway *gateway)
{
    if (gateway->is_stopping && gateway->async != NULL && sl_list_empty(&gateway->remotes) &&
        sl_serve_listing_stop(&gateway->listing)) {
        sl_reactor_disarm(gateway->reactor, &gateway->due);
        sl_reactor_disarm(gateway->reactor, &gateway->next_turn);
        sl_transfer_async_destroy(&gateway->async, async_ended, gateway);
    }
}

void sl_serve_gateway_stop(struct sl_serve_gateway *gateway, void (*ended)(void *ctx), void *ctx)
{
    sl_assert(sl_list_empty(&gateway->admission.due));
    gateway->is_stopping = true;
    gateway->ended = ended;
    gateway->ended_ctx = ctx;
    SL_LIST_FOREACH (link, &gateway->remotes) {
        sl_serve_remote_lose(SL_CONTAINER_OF(link, struct sl_serve_remote, link),
                             "the gateway ends");
    }
    look_for_stop(gateway);
}

static void post_list(void *ctx, struct sl_offload_job *job)
{
    struct sl_serve_gateway *gateway = ctx;
    sl_offload_post(gateway->offloads[0], job);
}

static void post_memory(void *ctx, struct sl_offload_job *job)
{
    struct sl_serve_gateway *gateway = ctx;
    sl_offload_post(gateway->offloads[1], job);
}

void sl_serve_gateway_destroy(struct sl_serve_gateway **gateway)
{
    struct sl_serve_gateway *gone = *gateway;
    *gateway = NULL;
    sl_serve_flights_fini(&gone->flights);
    end_threads(gone);
    if (gone->memory != NULL) {
        (void)sl_transfer_memory_free(gone->transfer, (void **)&gone->memory, MEMORY_FREE_MS);
    }
    sl_object_list_free(&gone->listing.list);
    sl_serve_balance_fini(&gone->balance);
    free(gone);
}

static void init(struct sl_serve_gateway *gateway, const struct sl_serve_gateway_options *options)
{
    gateway->reactor = options->reactor;
    gateway->transfer = options->transfer;
    sl_serve_balance_init(&gateway->balance, options->strategy);
    sl_serve_admission_init(&gateway->admission);
    sl_list_init(&gateway->remotes);
    sl_list_init(&gateway->unlisted);
    sl_list_init(&gateway->refused);
    gateway->flights = (struct sl_serve_flights){
        .transfer = gateway->transfer, .free_memory = free_memory, .sent = sent, .ctx = gateway};
    sl_list_init(&gateway->flights.free);
    gateway->due.run = look_at_due;
    gateway->next_turn.run = take_next_turn;
}

int sl_serve_gateway_create(const struct sl_serve_gateway_options *options,
                            struct sl_serve_gateway **out, struct sl_reason *reason)
{
    const uint64_t memory_bytes = options->memory_bytes != 0 ? options->memory_bytes : MEMORY_BYTES;
    struct sl_serve_gateway *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for a gateway");
    }
    init(made, options);
    int err = options->post == NULL
                  ? sl_offload_create(made->reactor, "serve-list", &made->offloads[0])
                  : 0;
    err = err == 0 && options->post == NULL
              ? sl_offload_create(made->reactor, "serve-memory", &made->offloads[1])
              : err;
    if (err != 0) {
        sl_reason_set(reason, "cannot start threads: %s", sl_err_name(err));
    }
    if (err == 0) {
        err = sl_transfer_memory_create(made->transfer, memory_bytes, -1, SL_TRANSFER_LOCAL,
                                        (void **)&made->memory);
        err = err != 0 ? err
                       : sl_transfer_async_create(made->transfer, made->reactor, SL_SERVE_NOTICE,
                                                  arrived, made, &made->async);
        sl_reason_set(reason, "%s", sl_transfer_last_error());
    }
    if (err != 0) {
        sl_serve_gateway_destroy(&made);
        return err;
    }
    sl_serve_ranges_init(&made->ranges, memory_bytes);
    made->events = (struct sl_serve_remote_events){
        .transfer = made->transfer,
        .async = made->async,
        .post = options->post != NULL ? options->post : post_memory,
        .post_ctx = options->post != NULL ? options->post_ctx : made,
        .joined = joined,
        .lost = lost,
        .ended = remote_ended,
        .ctx = made};
    made->listing =
        (struct sl_serve_listing){.objects = options->objects,
                                  .reactor = made->reactor,
                                  .post = options->post != NULL ? options->post : post_list,
                                  .post_ctx = options->post != NULL ? options->post_ctx : made,
                                  .listed = listed,
                                  .ctx = made};
    sl_serve_listing_start(&made->listing);
    *out = made;
    return 0;
}
