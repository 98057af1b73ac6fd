#include "programs/serve/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "programs/serve/gateway/dispatch.h"
#include "programs/serve/gateway/version_list.h"
#include "reactor/reactor.h"

#define MEMORY_BYTES   (256ULL << 20)
#define MEMORY_FREE_MS 2000
#define ROWS_MAX       (1U << 20)
#define RETRY_MS       1000                    /* of refusals that no expectation explains */
#define DRAIN_NS       (8 * SL_CLOCK_NS_PER_S) /* for answers to what was accepted */

struct sl_serve_gateway {
    struct sl_reactor *reactor;
    struct sl_transfer *transfer;
    struct sl_transfer_async *async;
    struct sl_offload *offloads[2]; /* for lists; for memory of workers. NULL: posted elsewhere */
    struct sl_serve_dispatch dispatch;
    struct sl_serve_version_list versions;
    struct sl_list unlisted; /* accepted requests for models that the list lacks */
    struct sl_list refused;  /* requests to be answered in the next turn */
    uint8_t *memory;
    struct sl_serve_ranges ranges; /* of it */
    struct sl_timer next_turn;
    struct sl_timer give_up; /* while it drains */
    bool is_draining, is_stopping;
    void (*drained)(void *ctx);
    void *drained_ctx;
    void (*ended)(void *ctx);
    void *ended_ctx;
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

static void gateway_free_memory(void *ctx, uint8_t *memory)
{
    sl_serve_gateway_memory_free(ctx, memory);
}

/* End */

static void end_threads(struct sl_serve_gateway *gateway)
{
    for (uint32_t i = 0; i < 2; i++) {
        (void)sl_offload_destroy(&gateway->offloads[i], SL_CLOCK_NS_PER_S);
    }
}

static void gateway_async_ended(void *ctx)
{
    struct sl_serve_gateway *gateway = ctx;
    sl_reactor_disarm(gateway->reactor, &gateway->next_turn);
    end_threads(gateway); /* they have no job */
    gateway->ended(gateway->ended_ctx);
}

/* Something has ended: that may have been the last that a drain, or a stop, waits for. */
static void gateway_look_for_end(void *ctx)
{
    struct sl_serve_gateway *gateway = ctx;
    struct sl_serve_dispatch *dispatch = &gateway->dispatch;
    if (gateway->is_draining && sl_list_empty(&dispatch->admission.due)) {
        sl_reactor_arm(gateway->reactor, &gateway->next_turn, 0);
    }
    if (gateway->is_stopping && gateway->async != NULL && sl_list_empty(&dispatch->remotes) &&
        sl_serve_version_list_stop(&gateway->versions)) {
        sl_transfer_async_destroy(&gateway->async, gateway_async_ended, gateway);
    }
}

/* Arrival of requests */

static bool is_listed(const struct sl_serve_gateway *gateway,
                      const struct sl_serve_request *request)
{
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_version_list_find(&gateway->versions, request->model, &first);
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
    const uint64_t count = sl_serve_version_list_find(&gateway->versions, request->model, &first);
    char *text = request->answer.text;
    const size_t bytes = sizeof request->answer.text;
    (void)snprintf(text, bytes,
                   count > 0 ? "model %s has no version %llu; it has:" : "there is no model %s",
                   request->model, (unsigned long long)request->version);
    for (uint64_t i = 0; i < count && strlen(text) + 24 < bytes; i++) {
        (void)sl_format_add(text, bytes, " ", "%llu", (unsigned long long)first[i].version);
    }
    return request->answer.err = SL_ERR_NOT_FOUND;
}

/* Whether the list is newer than a moment before the request. */
static bool is_fresh(const struct sl_serve_version_list *versions,
                     const struct sl_serve_request *request)
{
    return versions->list != NULL &&
           versions->listed_ns + SL_SERVE_VERSION_LIST_FRESH_NS >= request->arrived_ns;
}

/* Errors: AGAIN, DEADLINE, NOT_FOUND, NO_MEMORY, with the text. */
static int admit(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const uint64_t now_ns = sl_reactor_now_ns(gateway->reactor);
    struct sl_serve_balance *balance = &gateway->dispatch.balance;
    uint64_t expected_ns = 0;
    uint32_t workers = 0;
    if (gateway->is_draining) {
        (void)snprintf(request->answer.text, sizeof request->answer.text, "the gateway ends");
        request->answer.retry_ms = RETRY_MS;
        return request->answer.err = SL_ERR_AGAIN;
    }
    if (!is_listed(gateway, request)) {
        if (is_fresh(&gateway->versions, request)) {
            return not_found(gateway, request);
        }
        const int err =
            sl_serve_admission_offer(&gateway->dispatch.admission, request, 0, 0, now_ns);
        if (err == 0) {
            sl_serve_admission_run(&gateway->dispatch.admission, request);
            sl_list_append(&gateway->unlisted, &request->link);
            sl_serve_version_list_refresh(&gateway->versions);
        }
        return err;
    }
    request->state = sl_serve_balance_model(balance, request->model);
    if (request->state == NULL) {
        (void)snprintf(request->answer.text, sizeof request->answer.text,
                       "no memory for one more model");
        return request->answer.err = SL_ERR_NO_MEMORY;
    }
    if (sl_serve_balance_expect(balance, request->state, request->rows, now_ns, &expected_ns,
                                &request->cost_ns)) {
        workers = balance->worker_count;
    }
    const int err = sl_serve_admission_offer(&gateway->dispatch.admission, request, expected_ns,
                                             workers, now_ns);
    request->state->waiting += err == 0 ? 1 : 0;
    return err;
}

static void gateway_listed(void *ctx)
{
    struct sl_serve_gateway *gateway = ctx;
    struct sl_list again;
    sl_list_init(&again);
    sl_list_append_all(&again, &gateway->unlisted);
    SL_LIST_TAKE (struct sl_serve_request, request, link, &again) {
        if (is_listed(gateway, request)) {
            request->state = sl_serve_balance_model(&gateway->dispatch.balance, request->model);
        }
        if (request->state != NULL) {
            request->state->waiting++;
            sl_serve_admission_wait_again(&gateway->dispatch.admission, request);
        } else if (is_fresh(&gateway->versions, request)) {
            sl_serve_dispatch_fail(&gateway->dispatch, request, not_found(gateway, request),
                                   request->answer.text);
        } else {
            sl_list_append(&gateway->unlisted, &request->link);
            sl_serve_version_list_refresh(&gateway->versions);
        }
    }
    sl_serve_dispatch_run(&gateway->dispatch);
    gateway_look_for_end(gateway);
}

static void take_next_turn(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway *gateway = SL_CONTAINER_OF(timer, struct sl_serve_gateway, next_turn);
    SL_LIST_TAKE (struct sl_serve_request, request, link, &gateway->refused) {
        request->done(request);
    }
    if (gateway->is_draining && gateway->drained != NULL &&
        sl_list_empty(&gateway->dispatch.admission.due)) {
        void (*const drained)(void *ctx) = gateway->drained;
        gateway->drained = NULL;
        drained(gateway->drained_ctx);
    }
}

void sl_serve_gateway_submit(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    const struct sl_serve_tensor *first = &request->inputs[0];
    const uint64_t rows = request->input_count > 0 && first->rank > 0 ? first->shape[0] : 1;
    request->rows = rows == 0 ? 1 : rows < ROWS_MAX ? rows : ROWS_MAX;
    if (admit(gateway, request) == 0) {
        gateway->dispatch.stats.accepted++;
        sl_serve_dispatch_run(&gateway->dispatch);
    } else {
        gateway->dispatch.stats.results[sl_serve_request_result(request->answer.err)]++;
        sl_list_append(&gateway->refused, &request->link);
        sl_reactor_arm(gateway->reactor, &gateway->next_turn, 0);
    }
}

void sl_serve_gateway_release(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    sl_serve_flight_detach(request);
    sl_serve_gateway_memory_free(gateway, request->input);
    request->input = NULL;
    sl_serve_dispatch_run(&gateway->dispatch);
}

void sl_serve_gateway_cancel(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    if (sl_list_linked(&request->due_link)) {
        sl_serve_dispatch_end(&gateway->dispatch, request);
    }
    sl_list_remove(&request->link); /* of the refused ones */
    gateway->dispatch.stats.results[SL_SERVE_CANCELLED]++;
    sl_serve_gateway_release(gateway, request);
}

/* The rest */

static void give_up(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway *gateway = SL_CONTAINER_OF(timer, struct sl_serve_gateway, give_up);
    struct sl_serve_request *request;
    while ((request = sl_serve_admission_due(&gateway->dispatch.admission, UINT64_MAX)) != NULL) {
        sl_serve_dispatch_fail(&gateway->dispatch, request, SL_ERR_AGAIN, "the gateway ends");
    }
}

void sl_serve_gateway_drain(struct sl_serve_gateway *gateway, void (*drained)(void *ctx), void *ctx)
{
    gateway->is_draining = true;
    gateway->drained = drained;
    gateway->drained_ctx = ctx;
    sl_reactor_arm(gateway->reactor, &gateway->give_up, DRAIN_NS);
    gateway_look_for_end(gateway);
}

bool sl_serve_gateway_is_idle(const struct sl_serve_gateway *gateway)
{
    return sl_list_empty(&gateway->dispatch.admission.due) && sl_list_empty(&gateway->refused);
}

const struct sl_object_list *sl_serve_gateway_models(const struct sl_serve_gateway *gateway)
{
    return gateway->versions.list;
}

uint64_t sl_serve_gateway_versions(const struct sl_serve_gateway *gateway, const char *model,
                                   const struct sl_object_entry **first)
{
    return sl_serve_version_list_find(&gateway->versions, model, first);
}

void sl_serve_gateway_stats(const struct sl_serve_gateway *gateway,
                            struct sl_serve_gateway_stats *out)
{
    *out = gateway->dispatch.stats;
    out->waiting = gateway->dispatch.admission.waiting_count;
    out->running = gateway->dispatch.admission.running_count;
    out->able_workers =
        sl_serve_balance_able(&gateway->dispatch.balance, sl_reactor_now_ns(gateway->reactor));
    out->memory_bytes = gateway->ranges.bytes;
    out->memory_in_use = gateway->ranges.used_bytes;
    out->is_draining = gateway->is_draining;
    out->has_models = gateway->versions.list != NULL;
}

/* Start and end */

void sl_serve_gateway_stop(struct sl_serve_gateway *gateway, void (*ended)(void *ctx), void *ctx)
{
    sl_assert(sl_list_empty(&gateway->dispatch.admission.due));
    gateway->is_stopping = true;
    sl_reactor_disarm(gateway->reactor, &gateway->give_up);
    gateway->ended = ended;
    gateway->ended_ctx = ctx;
    sl_serve_dispatch_stop(&gateway->dispatch);
    gateway_look_for_end(gateway);
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
    if (gone->memory != NULL) {
        (void)sl_transfer_memory_free(gone->transfer, (void **)&gone->memory, MEMORY_FREE_MS);
    }
    sl_object_list_free(&gone->versions.list);
    sl_serve_dispatch_fini(&gone->dispatch);
    free(gone);
}

static void init(struct sl_serve_gateway *gateway, const struct sl_serve_gateway_options *options)
{
    struct sl_serve_dispatch *dispatch = &gateway->dispatch;
    const bool has_threads = options->post == NULL;
    gateway->transfer = options->transfer;
    gateway->reactor = sl_transfer_async_reactor(options->transfer);
    sl_serve_dispatch_init(dispatch, options->strategy, options->transfer);
    dispatch->reactor = gateway->reactor;
    dispatch->list_reason = gateway->versions.reason;
    dispatch->ended = gateway_look_for_end;
    dispatch->ctx = gateway;
    dispatch->flights.free_memory = gateway_free_memory;
    dispatch->flights.memory_ctx = gateway;
    dispatch->events.post = has_threads ? post_memory : options->post;
    dispatch->events.post_ctx = has_threads ? gateway : options->post_ctx;
    gateway->versions =
        (struct sl_serve_version_list){.objects = options->objects,
                                       .reactor = gateway->reactor,
                                       .post = has_threads ? post_list : options->post,
                                       .post_ctx = dispatch->events.post_ctx,
                                       .listed = gateway_listed,
                                       .ctx = gateway};
    sl_list_init(&gateway->unlisted);
    sl_list_init(&gateway->refused);
    gateway->next_turn.run = take_next_turn;
    gateway->give_up.run = give_up;
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
    sl_serve_ranges_init(&made->ranges, memory_bytes);
    const int err = sl_transfer_memory_create(made->transfer, memory_bytes, -1, SL_TRANSFER_LOCAL,
                                              (void **)&made->memory);
    if (err != 0) {
        sl_serve_gateway_destroy(&made);
        return sl_reason_fail(reason, err, "%s", sl_transfer_last_error());
    }
    *out = made;
    return 0;
}

int sl_serve_gateway_start(struct sl_serve_gateway *gateway, struct sl_reason *reason)
{
    static const char *const names[] = {"serve-list", "serve-memory"};
    int err = 0;
    for (uint32_t i = 0; err == 0 && gateway->dispatch.events.post == post_memory && i < 2; i++) {
        err = sl_offload_create(gateway->reactor, names[i], &gateway->offloads[i]);
    }
    if (err != 0) {
        sl_reason_set(reason, "cannot start threads: %s", sl_err_name(err));
    } else {
        err =
            sl_transfer_async_create(gateway->transfer, SL_SERVE_NOTICE, sl_serve_dispatch_arrived,
                                     &gateway->dispatch, &gateway->async);
        sl_reason_set(reason, "%s", sl_transfer_last_error());
    }
    if (err != 0) {
        end_threads(gateway);
        return err;
    }
    sl_transfer_async_end_with_process(gateway->async);
    gateway->dispatch.events.async = gateway->async;
    sl_serve_version_list_start(&gateway->versions);
    return 0;
}
