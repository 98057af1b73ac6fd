#include "programs/serve/worker/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "programs/serve/worker/opener.h"
#include "programs/serve/worker/pending.h"
#include "programs/serve/worker/runner.h"
#include "reactor/offload.h"

#define ARENA_BYTES SL_SERVE_BODY_BYTES_MAX
#define TICK_NS     (5 * SL_CLOCK_NS_PER_MS)  /* while requests wait, or models are open */
#define REPORT_NS   (50 * SL_CLOCK_NS_PER_MS) /* between LOADs */
#define LEAVE_NS    (2 * SL_CLOCK_NS_PER_S)   /* for the gateways' answers to LEAVE */
#define FREE_MS     2000
#define QUEUE_MAX   1e18 /* ns, as reported */
#define PATIENCE_NS (10 * SL_CLOCK_NS_PER_S)

enum { OPENS, COMPUTES, THREADS };

struct sl_serve_worker {
    struct sl_serve_worker_options options;
    struct sl_reactor *reactor;
    struct sl_transfer_async *async;
    struct sl_offload *offloads[THREADS]; /* NULL: options.post */
    struct sl_timer timer;                /* of the next step */
    bool is_woken;                        /* it is in the next turn */
    struct sl_serve_model_table models;
    struct sl_serve_pendings pendings;
    struct sl_list queue; /* pendings, by arrival */
    struct sl_serve_opener opener;
    struct sl_serve_runner runner;
    uint64_t reported_ns;
    bool has_news;       /* since then */
    uint64_t leaving_ns; /* 0: it is not draining */
    uint32_t peers_left; /* when it ends */
    bool has_left;       /* the peers were stopped */
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct sl_serve_message in, out;
    uint32_t peer_count;
    struct sl_serve_peer peers[SL_SERVE_PEERS_MAX];
};

/* Everything is decided in a step, in a turn of its own. */
static void worker_wake(void *ctx)
{
    struct sl_serve_worker *worker = ctx;
    worker->is_woken = worker->has_news = true;
    sl_reactor_arm(worker->reactor, &worker->timer, 0);
}

static uint64_t worker_now(const struct sl_serve_worker *worker)
{
    return sl_reactor_now_ns(worker->reactor);
}

static void worker_post(struct sl_serve_worker *worker, uint32_t thread, struct sl_offload_job *job)
{
    if (worker->options.post != NULL) {
        worker->options.post(worker->options.post_ctx, thread == COMPUTES, job);
    } else {
        sl_offload_post(worker->offloads[thread], job);
    }
}

static void post_opening(void *ctx, struct sl_offload_job *job)
{
    worker_post(ctx, OPENS, job);
}

static void post_computing(void *ctx, struct sl_offload_job *job)
{
    worker_post(ctx, COMPUTES, job);
}

static void worker_opened(void *ctx, struct sl_serve_model_entry *entry, int err)
{
    struct sl_serve_worker *worker = ctx;
    if (err != 0) {
        sl_serve_pendings_refuse_all(&worker->queue, entry, err, entry->reason.text);
    }
    worker_wake(worker);
}

/* ---- Notices --------------------------------------------------------------------------------- */

static void infer(struct sl_serve_worker *worker, struct sl_serve_peer *peer,
                  struct sl_transfer_asked *asked)
{
    const struct sl_serve_message *in = &worker->in;
    const uint64_t base = (uintptr_t)peer->arena;
    const bool is_inside = in->input_bytes == 0 ||
                           (in->input_address >= base && in->input_address + in->input_bytes <=
                                                             base + worker->options.arena_bytes);
    struct sl_serve_model_entry *entry =
        sl_serve_model_table_find(&worker->models, in->model, in->version);
    struct sl_serve_pending *pending = sl_serve_pendings_take(&worker->pendings);
    peer->last_request = in->request;
    if (pending == NULL) {
        sl_serve_pending_turn_away(asked, SL_ERR_AGAIN, "the worker has too many requests already");
        return;
    }
    pending->entry = entry;
    pending->peer = peer;
    pending->asked = asked;
    pending->number = in->request;
    pending->output_address = in->output_address;
    pending->output_room = in->output_room;
    pending->item = (struct sl_serve_item){
        .model = entry,
        .kind = (enum sl_serve_kind)in->request_kind,
        .arrived_ns = worker_now(worker),
        .deadline_ns = worker_now(worker) + in->deadline_us * SL_CLOCK_NS_PER_US,
        .input = (const uint8_t *)peer->arena +
                 (is_inside && in->input_bytes > 0 ? in->input_address - base : 0),
        .input_count = in->tensor_count};
    memcpy(pending->item.inputs, in->tensors, in->tensor_count * sizeof in->tensors[0]);
    if (in->tail != NULL) {
        memcpy(pending->text, in->tail, in->input_bytes);
        pending->item.input = pending->text;
    }
    if (entry == NULL) {
        sl_serve_pending_answer(pending, SL_ERR_AGAIN, 0, 0,
                                "the worker has requests for %u other models already",
                                worker->models.count);
        return;
    }
    if (!is_inside) {
        sl_serve_pending_answer(pending, SL_ERR_INVALID, 0, 0,
                                "the inputs are not in the worker's memory");
        return;
    }
    sl_serve_pending_enqueue(pending, &worker->queue);
    worker_wake(worker);
}

static void cancel(struct sl_serve_worker *worker, const struct sl_serve_peer *peer)
{
    SL_LIST_EACH (struct sl_serve_pending, pending, item.link, &worker->queue) {
        if (pending->peer == peer && pending->number == worker->in.request) {
            sl_serve_pending_refuse(pending, SL_ERR_CANCELLED, "cancelled");
            return;
        }
    }
}

static void worker_arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                           struct sl_transfer_asked *asked)
{
    struct sl_serve_worker *worker = ctx;
    struct sl_serve_peer *peer = NULL;
    struct sl_reason reason = {SL_SERVE_GATEWAY_GONE};
    int err = sl_serve_message_decode(noticed->text, noticed->bytes, &worker->in, &reason);
    if (err == 0 && (asked != NULL) != (worker->in.kind == SL_SERVE_MESSAGE_INFER)) {
        err = sl_reason_fail(&reason, SL_ERR_PROTOCOL, "INFER asks, and nothing else");
    }
    for (uint32_t i = 0; err == 0 && i < worker->peer_count; i++) {
        peer =
            sl_serve_peer_is(&worker->peers[i], worker->in.incarnation) ? &worker->peers[i] : peer;
    }
    if (peer == NULL) {
        sl_log_warn("serve: a notice of %s is dropped: %s", noticed->sender, reason.text);
        if (asked != NULL) {
            sl_serve_pending_turn_away(asked, err == 0 ? SL_ERR_CANCELLED : err, reason.text);
        }
        return;
    }
    switch (worker->in.kind) {
    case SL_SERVE_MESSAGE_INFER:
        infer(worker, peer, asked);
        break;
    case SL_SERVE_MESSAGE_CANCEL:
        cancel(worker, peer);
        break;
    case SL_SERVE_MESSAGE_LEAVE:
        peer->leave.is_confirmed = true;
        worker_wake(worker);
        break;
    default:
        break;
    }
}

/* The gateway gives up its requests. */
static void gone(struct sl_serve_peer *peer)
{
    struct sl_serve_worker *worker = peer->ctx;
    peer->seen = peer->last_request = 0;
    sl_serve_runner_forget(&worker->runner, peer);
    SL_LIST_EACH (struct sl_serve_pending, pending, item.link, &worker->queue) {
        if (pending->peer == peer) {
            sl_serve_pending_refuse(pending, SL_ERR_CANCELLED, SL_SERVE_GATEWAY_GONE);
        }
    }
}

/* Expected time until the queue is empty. */
static double queue_ns(const struct sl_serve_worker *worker)
{
    double sum = sl_serve_runner_left_ns(&worker->runner);
    SL_LIST_EACH (const struct sl_serve_pending, pending, item.link, &worker->queue) {
        const struct sl_serve_model_entry *entry = pending->entry;
        sum += sl_serve_model_entry_run_ns(entry, pending->item.rows > 0 ? pending->item.rows : 1);
        sum += entry->current == NULL ? sl_serve_model_entry_exposed_ns(entry) / entry->waiting : 0;
    }
    return sum < QUEUE_MAX ? sum : QUEUE_MAX;
}

static void report(struct sl_serve_worker *worker)
{
    const struct sl_serve_model_entry *running = worker->runner.entry;
    struct sl_serve_message *load = &worker->out;
    if (worker_now(worker) < worker->reported_ns + REPORT_NS) {
        return;
    }
    sl_serve_model_table_look(&worker->models);
    const bool has_news = worker->has_news;
    worker->has_news = false;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct sl_serve_peer *peer = &worker->peers[i];
        if (!sl_serve_peer_is_open(peer) ||
            (!has_news && peer->seen == worker->models.change_count)) {
            continue;
        }
        *load = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_LOAD,
                                          .request = peer->last_request,
                                          .queue_count = worker->pendings.count,
                                          .queue_ns = (uint64_t)queue_ns(worker)};
        (void)snprintf(load->current, sizeof load->current, "%s",
                       running != NULL ? running->name : "");
        const uint64_t seen = sl_serve_model_table_report(&worker->models, peer->seen, load);
        const bool is_told = sl_serve_peer_tell(peer);
        peer->seen = is_told ? seen : peer->seen;
        worker->has_news = worker->has_news || !is_told;
    }
    worker->reported_ns = worker_now(worker);
}

/* ---- End ------------------------------------------------------------------------------------- */

static void end_threads(struct sl_serve_worker *worker)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)sl_offload_destroy(&worker->offloads[i], SL_CLOCK_NS_PER_S);
    }
}

static void all_ended(void *ctx)
{
    struct sl_serve_worker *worker = ctx;
    sl_reactor_disarm(worker->reactor, &worker->timer);
    end_threads(worker); /* they have no job */
    worker->drained(worker->drained_ctx);
}

static void worker_idle(struct sl_serve_peer *peer)
{
    struct sl_serve_worker *worker = peer->ctx;
    if (--worker->peers_left == 0) {
        sl_transfer_async_destroy(&worker->async, all_ended, worker);
    }
}

/* Leaves the gateways, and ends when nothing is left to be answered. True: it does. */
static bool leave(struct sl_serve_worker *worker)
{
    bool may_get_more = worker_now(worker) < worker->leaving_ns + LEAVE_NS;
    uint32_t open = 0;
    if (worker->leaving_ns == 0) {
        return false;
    }
    if (worker->has_left) {
        return true;
    }
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct sl_serve_peer *peer = &worker->peers[i];
        worker->out = (struct sl_serve_message){
            .kind = SL_SERVE_MESSAGE_LEAVE,
            .incarnation = sl_transfer_async_own_incarnation(worker->options.transfer)};
        peer->leave.is_sent = peer->leave.is_sent || sl_serve_peer_tell(peer);
        open += sl_serve_peer_is_open(peer) && !peer->leave.is_confirmed;
    }
    may_get_more = may_get_more && open > 0;
    if (may_get_more || sl_serve_opener_is_busy(&worker->opener) ||
        sl_serve_runner_is_busy(&worker->runner) || worker->pendings.count > 0) {
        return false;
    }
    worker->has_left = true;
    worker->peers_left = worker->peer_count;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        sl_serve_peer_stop(&worker->peers[i]);
    }
    return true;
}

static void look_if_stuck(const struct sl_serve_worker *worker)
{
    const struct sl_serve_worker_options *options = &worker->options;
    const bool is_late = worker->leaving_ns != 0 && !worker->has_left &&
                         worker_now(worker) > worker->leaving_ns + options->patience_ns;
    if (options->stuck != NULL &&
        (is_late || sl_serve_runner_is_stuck(&worker->runner, options->patience_ns))) {
        const struct sl_serve_model_entry *entry = worker->runner.entry;
        options->stuck(options->stuck_ctx, entry != NULL ? entry->name : "");
    }
}

static void worker_step(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_worker *worker = SL_CONTAINER_OF(timer, struct sl_serve_worker, timer);
    worker->is_woken = false;
    look_if_stuck(worker);
    sl_serve_pendings_expire(&worker->queue, worker_now(worker));
    sl_serve_runner_next(&worker->runner);
    sl_serve_opener_next(&worker->opener);
    report(worker);
    if (!leave(worker) && !worker->is_woken) {
        const bool is_idle = sl_list_empty(&worker->queue) && sl_list_empty(&worker->models.opened);
        sl_reactor_arm(worker->reactor, timer, is_idle ? REPORT_NS : TICK_NS);
    }
}

void sl_serve_worker_drain(struct sl_serve_worker *worker, void (*drained)(void *ctx), void *ctx)
{
    sl_reactor_assert_owner(worker->reactor);
    worker->leaving_ns = worker_now(worker);
    worker->drained = drained;
    worker->drained_ctx = ctx;
    worker_wake(worker);
}

/* ---- Create ---------------------------------------------------------------------------------- */

static int create_memory(struct sl_serve_worker *worker, uint64_t bytes, unsigned access,
                         void **out, struct sl_reason *reason)
{
    const int err = sl_transfer_memory_create(worker->options.transfer, bytes, -1, access, out);
    return err == 0 ? 0
                    : sl_reason_fail(reason, err, "no memory for requests: %s",
                                     sl_transfer_last_error());
}

static int create(struct sl_serve_worker *worker, struct sl_reason *reason)
{
    const struct sl_serve_worker_options *options = &worker->options;
    void *output = NULL;
    int err = create_memory(worker, SL_SERVE_PENDING_BYTES, SL_TRANSFER_LOCAL, &output, reason);
    sl_serve_pendings_init(&worker->pendings, worker->reactor, output, worker_wake, worker);
    for (uint32_t i = 0; err == 0 && i < options->gateway_count; i++) {
        worker->peers[i] = (struct sl_serve_peer){.options = options,
                                                  .reactor = worker->reactor,
                                                  .address = options->gateways[i],
                                                  .message = &worker->out,
                                                  .gone = gone,
                                                  .idle = worker_idle,
                                                  .ctx = worker};
        worker->peer_count++;
        err = create_memory(worker, options->arena_bytes, SL_TRANSFER_PEERS_WRITE,
                            &worker->peers[i].arena, reason);
    }
    return err;
}

int sl_serve_worker_create(const struct sl_serve_worker_options *options,
                           struct sl_serve_worker **out, struct sl_reason *reason)
{
    sl_assert(options->gateway_count >= 1 && options->gateway_count <= SL_SERVE_PEERS_MAX);
    sl_assert(options->batch_max >= 1 && options->batch_max <= SL_SERVE_BATCH_ROWS_MAX);
    struct sl_serve_worker *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for a worker");
    }
    made->options = *options;
    made->reactor = sl_transfer_async_reactor(options->transfer);
    made->options.arena_bytes = options->arena_bytes != 0 ? options->arena_bytes : ARENA_BYTES;
    made->options.patience_ns = options->patience_ns != 0 ? options->patience_ns : PATIENCE_NS;
    made->timer.run = worker_step;
    sl_list_init(&made->queue);
    sl_serve_model_table_init(&made->models);
    made->opener = (struct sl_serve_opener){.options = &made->options,
                                            .reactor = made->reactor,
                                            .models = &made->models,
                                            .queue = &made->queue,
                                            .post = post_opening,
                                            .opened = worker_opened,
                                            .ctx = made};
    made->runner = (struct sl_serve_runner){.options = &made->options,
                                            .reactor = made->reactor,
                                            .models = &made->models,
                                            .queue = &made->queue,
                                            .post = post_computing,
                                            .ended = worker_wake,
                                            .ctx = made};
    sl_serve_runner_init(&made->runner);
    const int err = create(made, reason);
    if (err != 0) {
        sl_serve_worker_destroy(&made);
        return err;
    }
    *out = made;
    return 0;
}

int sl_serve_worker_start(struct sl_serve_worker *worker, struct sl_reason *reason)
{
    static const char *const names[] = {"serve-open", "serve-compute"};
    int err = 0;
    for (uint32_t i = 0; err == 0 && worker->options.post == NULL && i < THREADS; i++) {
        err = sl_offload_create(worker->reactor, names[i], &worker->offloads[i]);
        if (err == 0) {
            sl_offload_set_priority(worker->offloads[i], SL_OFFLOAD_PRIORITY_NORMAL);
        }
    }
    if (err != 0) {
        sl_reason_set(reason, "cannot start threads: %s", sl_err_name(err));
    } else {
        err = sl_transfer_async_create(worker->options.transfer, SL_SERVE_NOTICE, worker_arrived,
                                       worker, &worker->async);
        sl_reason_set(reason, "%s", sl_transfer_last_error());
    }
    if (err != 0) {
        end_threads(worker);
        return err;
    }
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        worker->peers[i].async = worker->async;
        sl_serve_peer_start(&worker->peers[i]);
    }
    worker_wake(worker);
    return 0;
}

static void free_memory(struct sl_serve_worker *worker, void *memory)
{
    if (memory != NULL &&
        sl_transfer_memory_free(worker->options.transfer, &memory, FREE_MS) != 0) {
        sl_log_warn("serve: memory stays registered: %s", sl_transfer_last_error());
    }
}

void sl_serve_worker_destroy(struct sl_serve_worker **worker)
{
    struct sl_serve_worker *ended = *worker;
    *worker = NULL;
    sl_serve_model_table_fini(&ended->models);
    for (uint32_t i = 0; i < ended->peer_count; i++) {
        free_memory(ended, ended->peers[i].arena);
    }
    free_memory(ended, ended->pendings.output);
    sl_serve_pendings_fini(&ended->pendings);
    sl_serve_runner_fini(&ended->runner);
    free(ended);
}
