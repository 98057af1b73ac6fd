#include "programs/serve/gateway/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "reactor/reactor.h"

#define AGAIN_MAX       60 /* attempts to reach a worker that was lost */
#define AGAIN_NS        SL_CLOCK_NS_PER_S
#define TRIES_MAX       3
#define OUTPUT_ROOM_MIN (64ULL << 10)
#define RETRY_MS        1000 /* of refusals that no expectation explains */

/* Answers */

static void arm_due(struct sl_serve_dispatch *dispatch)
{
    const uint64_t now_ns = sl_reactor_now_ns(dispatch->reactor);
    const uint64_t next_ns = sl_serve_admission_next_ns(&dispatch->admission);
    if (next_ns == SL_CLOCK_NEVER) {
        sl_reactor_disarm(dispatch->reactor, &dispatch->due);
    } else {
        sl_reactor_arm(dispatch->reactor, &dispatch->due, next_ns > now_ns ? next_ns - now_ns : 0);
    }
}

/* Ends an accepted request. */
void sl_serve_dispatch_end(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request)
{
    if (request->is_waiting) {
        request->state->waiting--;
    }
    sl_serve_admission_end(&dispatch->admission, request);
    sl_list_remove(&request->link); /* of the unlisted ones */
    dispatch->ended(dispatch->ctx);
}

static void dispatch_answer(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request,
                            int err)
{
    sl_serve_dispatch_end(dispatch, request);
    request->answer.err = err;
    dispatch->stats.results[sl_serve_request_result(err)]++;
    request->done(request);
}

void sl_serve_dispatch_fail(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request,
                            int err, const char *text)
{
    sl_serve_flight_detach(request);
    if (text != request->answer.text) {
        (void)snprintf(request->answer.text, sizeof request->answer.text, "%s", text);
    }
    request->answer.retry_ms = err == SL_ERR_AGAIN ? RETRY_MS : 0;
    dispatch_answer(dispatch, request, err);
}

/* The deadline of an accepted request has passed. */
static void fail_late(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request,
                      uint64_t now_ns)
{
    const struct sl_serve_flight *flight = request->flight;
    const uint64_t sent_ns = flight != NULL ? flight->sent_ns : now_ns;
    int err = SL_ERR_AGAIN;
    char text[SL_SERVE_TEXT_BYTES];
    if (request->state == NULL) {
        (void)snprintf(text, sizeof text, "the catalogue does not answer: %.400s",
                       dispatch->list_reason);
    } else if (flight == NULL && dispatch->stats.workers == 0) {
        (void)snprintf(text, sizeof text, "no worker has joined");
    } else {
        err = SL_ERR_DEADLINE;
        (void)snprintf(text, sizeof text,
                       "the deadline has passed: %llu ms in the gateway's queue, %llu ms at %s",
                       (sent_ns - request->arrived_ns) / SL_CLOCK_NS_PER_MS,
                       (now_ns - sent_ns) / SL_CLOCK_NS_PER_MS,
                       flight != NULL ? flight->remote->worker.name : "no worker");
    }
    sl_serve_dispatch_fail(dispatch, request, err, text);
}

static void look_at_due(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_dispatch *dispatch = SL_CONTAINER_OF(timer, struct sl_serve_dispatch, due);
    struct sl_serve_request *request;
    while ((request = sl_serve_admission_due(&dispatch->admission, now_ns)) != NULL) {
        fail_late(dispatch, request, now_ns);
    }
    arm_due(dispatch);
}

/* Flights */

/* The request of a flight that has left its worker waits again, before others; not too often. */
static void repeat(struct sl_serve_dispatch *dispatch, struct sl_serve_flight *flight,
                   const char *reason)
{
    struct sl_serve_request *request = flight->request;
    flight->is_repeated = flight->is_writing;
    if (flight->is_writing) {
        return; /* `returned` continues */
    }
    if (request == NULL) {
        sl_serve_flight_look(flight);
    } else if (request->tries >= TRIES_MAX) {
        sl_serve_dispatch_fail(dispatch, request, SL_ERR_AGAIN, reason);
    } else {
        sl_serve_flight_detach(request);
        dispatch->stats.repeated++;
        request->state->waiting++;
        sl_serve_admission_wait_again(&dispatch->admission, request);
        arm_due(dispatch);
    }
}

/* The request is the first that waits; cost_ns is that of its use of the worker. */
static void begin(struct sl_serve_dispatch *dispatch, struct sl_serve_flight *flight,
                  uint64_t cost_ns, uint64_t now_ns)
{
    struct sl_serve_request *request = flight->request;
    struct sl_reason reason;
    request->state->waiting--;
    request->tries++;
    sl_serve_admission_run(&dispatch->admission, request);
    flight->use = (struct sl_serve_use){.worker = &flight->remote->worker,
                                        .model = request->state,
                                        .cost_ns = cost_ns,
                                        .due_ns = request->deadline_ns,
                                        .begun_ns = now_ns};
    sl_serve_balance_begin(&dispatch->balance, &flight->use);
    const int err = sl_serve_flight_send(flight, now_ns, &reason);
    if (err != 0) {
        sl_serve_flight_leave(flight);
        sl_serve_dispatch_fail(dispatch, request, err, reason.text);
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
static bool run_first(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request)
{
    const uint64_t now_ns = sl_reactor_now_ns(dispatch->reactor);
    const uint64_t room = output_room(request);
    uint64_t cost_ns;
    struct sl_serve_balance_worker *worker = sl_serve_balance_choose(
        &dispatch->balance, request->state, request->rows, now_ns, &cost_ns);
    if (worker == NULL) {
        return false;
    }
    struct sl_serve_remote *remote = SL_CONTAINER_OF(worker, struct sl_serve_remote, worker);
    if (request->input_bytes > remote->inputs.bytes || room > remote->outputs.bytes) {
        sl_serve_dispatch_fail(dispatch, request, SL_ERR_TOO_LARGE,
                               "inputs or outputs are larger than a worker's memory for them");
        return true;
    }
    struct sl_serve_flight *flight =
        sl_serve_flight_create(&dispatch->flights, remote, request, room);
    if (flight != NULL) {
        begin(dispatch, flight, cost_ns, now_ns);
    } else {
        worker->is_full = true; /* until a range is free again */
    }
    return true;
}

void sl_serve_dispatch_run(struct sl_serve_dispatch *dispatch)
{
    struct sl_serve_request *request;
    do {
        request = sl_serve_admission_first(&dispatch->admission);
    } while (request != NULL && run_first(dispatch, request));
    arm_due(dispatch);
}

/* Notices */

static void answer_well(struct sl_serve_dispatch *dispatch, struct sl_serve_flight *flight,
                        const struct sl_serve_message *done)
{
    struct sl_serve_request *request = flight->request;
    flight->is_read = true;
    flight->remote->outputs_read++;
    request->answer.version = done->version;
    request->answer.output_count = done->tensor_count;
    memcpy(request->answer.outputs, done->tensors, done->tensor_count * sizeof done->tensors[0]);
    request->answer.output = flight->remote->output_base + flight->output.offset;
    dispatch_answer(dispatch, request, 0);
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

/* Of a flight that has left its worker. */
static void take_done(struct sl_serve_dispatch *dispatch, struct sl_serve_flight *flight,
                      const struct sl_serve_message *done)
{
    struct sl_serve_request *request = flight->request;
    const uint64_t waited_us = (flight->sent_ns - request->arrived_ns) / SL_CLOCK_NS_PER_US;
    request->answer.queue_us = done->queue_us + (uint32_t)waited_us;
    request->answer.load_us = done->load_us;
    request->answer.compute_us = done->compute_us;
    if (done->err == 0 && done->output_bytes <= flight->output.bytes) {
        answer_well(dispatch, flight, done);
    } else if (done->err == SL_ERR_TOO_LARGE && done->output_bytes > flight->output.bytes &&
               request->output_room == 0) {
        enlarge(request, done->output_bytes);
        repeat(dispatch, flight, done->text);
    } else if (done->err == SL_ERR_CANCELLED) { /* the worker does not know this gateway any more */
        sl_serve_remote_lose(flight->remote, done->text);
        repeat(dispatch, flight, done->text);
    } else if (done->err == SL_ERR_AGAIN || done->err == SL_ERR_CLOSED) {
        repeat(dispatch, flight, done->text);
    } else {
        const bool has_failed = done->err != 0;
        sl_serve_dispatch_fail(dispatch, request, has_failed ? done->err : SL_ERR_CORRUPT,
                               has_failed ? done->text : "outputs are larger than their room");
    }
}

static void dispatch_returned(void *ctx, struct sl_serve_flight *flight,
                              const struct sl_serve_message *done, int err, const char *reason)
{
    struct sl_serve_dispatch *dispatch = ctx;
    struct sl_serve_remote *remote = flight->remote;
    if (!sl_list_linked(&flight->use.link)) { /* the worker was lost meanwhile */
        if (flight->is_repeated) {
            repeat(dispatch, flight, "the worker has ended");
        } else {
            sl_serve_flight_look(flight);
        }
    } else if (err == SL_ERR_DEADLINE) {
        sl_serve_remote_lose(remote, "it does not answer");
    } else {
        sl_serve_flight_leave(flight);
        if (err != 0 || flight->request == NULL) {
            repeat(dispatch, flight, reason);
        } else {
            take_done(dispatch, flight, done);
        }
    }
    sl_serve_dispatch_run(dispatch);
}

static struct sl_serve_remote *find_remote(const struct sl_serve_dispatch *dispatch,
                                           const char *name)
{
    SL_LIST_EACH (struct sl_serve_remote, remote, link, &dispatch->remotes) {
        if (strcmp(remote->worker.name, name) == 0) {
            return remote;
        }
    }
    return NULL;
}

static void dispatch_forget(struct sl_serve_remote *remote)
{
    sl_list_remove(&remote->link);
    free(remote);
}

/* It has joined once more; or its process may be alive, although the connection was lost. */
static void begin_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_remote *remote = SL_CONTAINER_OF(timer, struct sl_serve_remote, again);
    if (remote->next.batch_max > 0) {
        remote->join = remote->next;
        remote->next.batch_max = 0;
        remote->tries = 0;
    }
    sl_serve_remote_begin(remote);
}

static void take_join(struct sl_serve_dispatch *dispatch, const char *name,
                      const struct sl_serve_message *message)
{
    struct sl_serve_remote *remote = find_remote(dispatch, name);
    struct sl_serve_join join = {.arena_address = message->join.arena_address,
                                 .arena_bytes = message->join.arena_bytes,
                                 .incarnation = message->incarnation,
                                 .batch_max = message->join.batch_max};
    (void)snprintf(join.host, sizeof join.host, "%s", message->join.host);
    if (dispatch->is_stopping) {
        return;
    }
    if (remote != NULL) { /* whatever was sent to it before is lost */
        remote->next = join;
        if (sl_timer_armed(&remote->again)) {
            sl_reactor_arm(dispatch->reactor, &remote->again, 0);
        } else {
            sl_serve_remote_lose(remote, "it joins once more");
        }
        return;
    }
    remote = calloc(1, sizeof *remote);
    if (remote != NULL) { /* else it tries again */
        remote->events = &dispatch->events;
        remote->join = join;
        remote->again.run = begin_again;
        (void)snprintf(remote->worker.name, sizeof remote->worker.name, "%s", name);
        sl_list_append(&dispatch->remotes, &remote->link);
        sl_serve_remote_begin(remote);
    }
}

/* The worker has the requests with numbers up to the last one. */
static void mark_received(struct sl_serve_remote *remote, uint64_t last)
{
    SL_LIST_EACH (struct sl_serve_flight, flight, use.link, &remote->worker.uses) {
        flight->use.is_received = flight->id != 0 && flight->id <= last;
    }
}

static void take(struct sl_serve_dispatch *dispatch, struct sl_serve_remote *remote,
                 const struct sl_serve_message *message)
{
    switch (message->kind) {
    case SL_SERVE_MESSAGE_LEAVE:
        remote->worker.is_leaving = true;
        sl_serve_remote_look(remote);
        break;
    case SL_SERVE_MESSAGE_LOAD:
        mark_received(remote, message->request);
        sl_serve_balance_report(&dispatch->balance, &remote->worker, message,
                                sl_reactor_now_ns(dispatch->reactor));
        break;
    default:
        sl_log_warn("serve: worker %s has sent %s, which workers do not send; it is ignored",
                    remote->worker.name, sl_serve_message_name(message->kind));
        break;
    }
    sl_serve_dispatch_run(dispatch);
}

void sl_serve_dispatch_arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                               struct sl_transfer_asked *asked)
{
    struct sl_serve_dispatch *dispatch = ctx;
    struct sl_serve_message message;
    struct sl_reason reason;
    if (asked != NULL) { /* no worker asks */
        sl_transfer_async_answer(asked, NULL, 0);
    }
    if (sl_serve_message_decode(noticed->text, noticed->bytes, &message, &reason) != 0) {
        sl_log_warn("serve: a notice of %s is ignored: %s", noticed->sender, reason.text);
        return;
    }
    struct sl_serve_remote *remote = find_remote(dispatch, noticed->sender);
    if (message.kind == SL_SERVE_MESSAGE_JOIN) {
        take_join(dispatch, noticed->sender, &message);
    } else if (remote != NULL && remote->is_joined) {
        take(dispatch, remote, &message);
    }
}

/* Workers */

static void dispatch_joined(void *ctx, struct sl_serve_remote *remote)
{
    struct sl_serve_dispatch *dispatch = ctx;
    if (sl_serve_balance_join(&dispatch->balance, &remote->worker) != 0) {
        sl_log_warn("serve: worker %s cannot join: there are %d workers, or %d hosts",
                    remote->worker.name, SL_SERVE_WORKERS_MAX, SL_SERVE_HOSTS_MAX);
        sl_serve_remote_lose(remote, "too many workers");
        return;
    }
    remote->tries = 0;
    dispatch->stats.workers++;
    sl_log_info("serve: worker %s of host %s has joined", remote->worker.name, remote->worker.host);
    sl_serve_dispatch_run(dispatch);
}

static void dispatch_lost(void *ctx, struct sl_serve_remote *remote, const char *reason)
{
    struct sl_serve_dispatch *dispatch = ctx;
    struct sl_serve_flight *flight;
    if (!sl_list_linked(&remote->worker.link)) {
        return;
    }
    dispatch->stats.workers--;
    dispatch->stats.lost_workers += remote->end == SL_SERVE_REMOTE_LEFT ? 0 : 1;
    if (!dispatch->is_stopping) {
        sl_log_info("serve: worker %s has %s: %s; %u requests go to others", remote->worker.name,
                    remote->end == SL_SERVE_REMOTE_LEFT ? "left" : "ended", reason,
                    remote->worker.use_count);
    }
    remote->worker.is_leaving = true;
    while ((flight = SL_LIST_FIRST(struct sl_serve_flight, use.link, &remote->worker.uses)) !=
           NULL) {
        sl_serve_flight_leave(flight);
        repeat(dispatch, flight, "the worker has ended");
    }
    sl_serve_balance_leave(&dispatch->balance, &remote->worker);
    sl_serve_dispatch_run(dispatch);
}

static void remote_ended(void *ctx, struct sl_serve_remote *remote)
{
    struct sl_serve_dispatch *dispatch = ctx;
    const bool has_ended =
        dispatch->is_stopping || remote->end != SL_SERVE_REMOTE_STAYS || remote->tries == AGAIN_MAX;
    if (remote->next.batch_max > 0 || !has_ended) { /* `next` is none if the gateway ends */
        remote->tries++;
        sl_reactor_arm(dispatch->reactor, &remote->again,
                       remote->next.batch_max > 0 ? 0 : AGAIN_NS);
    } else {
        dispatch_forget(remote);
        dispatch->ended(dispatch->ctx);
    }
}

/* Start and end */

void sl_serve_dispatch_stop(struct sl_serve_dispatch *dispatch)
{
    dispatch->is_stopping = true;
    sl_reactor_disarm(dispatch->reactor, &dispatch->due);
    SL_LIST_EACH (struct sl_serve_remote, remote, link, &dispatch->remotes) {
        if (sl_timer_armed(&remote->again)) {
            sl_reactor_disarm(dispatch->reactor, &remote->again);
            dispatch_forget(remote);
        } else {
            remote->next.batch_max = 0;
            sl_serve_remote_lose(remote, "the gateway ends");
        }
    }
}

void sl_serve_dispatch_init(struct sl_serve_dispatch *dispatch, enum sl_serve_strategy strategy,
                            struct sl_transfer *transfer)
{
    sl_serve_balance_init(&dispatch->balance, strategy);
    sl_serve_admission_init(&dispatch->admission);
    sl_list_init(&dispatch->remotes);
    dispatch->due.run = look_at_due;
    dispatch->flights.transfer = transfer;
    dispatch->flights.returned = dispatch_returned;
    dispatch->flights.ctx = dispatch;
    sl_list_init(&dispatch->flights.free);
    dispatch->events.transfer = transfer;
    dispatch->events.joined = dispatch_joined;
    dispatch->events.lost = dispatch_lost;
    dispatch->events.ended = remote_ended;
    dispatch->events.ctx = dispatch;
}

void sl_serve_dispatch_fini(struct sl_serve_dispatch *dispatch)
{
    sl_serve_flights_fini(&dispatch->flights);
    sl_serve_balance_fini(&dispatch->balance);
}
