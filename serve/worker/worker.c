#include "serve/worker/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "reactor/offload.h"
#include "reactor/topology.h"
#include "serve/worker/opener.h"
#include "serve/worker/pending.h"

#define ARENA_BYTES SL_SERVE_BODY_BYTES_MAX
#define WAIT_NS     (20 * SL_CLOCK_NS_PER_MS) /* for all bytes of a model, of LOAD */
#define TICK_NS     (5 * SL_CLOCK_NS_PER_MS)  /* while requests wait, or models are open */
#define REPORT_NS   (50 * SL_CLOCK_NS_PER_MS) /* between LOADs */
#define LEAVE_NS    (2 * SL_CLOCK_NS_PER_S)   /* for the gateways' answers to LEAVE */
#define END_NS      (10 * SL_CLOCK_NS_PER_S)  /* for a job in progress */
#define FREE_MS     2000
#define QUEUE_MAX   1e18 /* ns, as reported */

enum { OPENS, COMPUTES, THREADS };

struct sl_serve_worker {
    struct sl_serve_worker_options options;
    struct sl_transfer_async *async;
    struct sl_offload *offloads[THREADS]; /* NULL: options.post */
    struct sl_timer timer;                /* of the next step */
    bool is_woken;                        /* it is in the next turn */
    struct sl_serve_known_models models;
    struct sl_serve_pendings pendings;
    struct sl_list queue; /* pendings, by arrival */
    uint8_t *scratch;     /* of the version that computes */
    uint64_t scratch_bytes;
    struct sl_serve_opener opener;
    struct computing {
        struct sl_offload_job job;
        struct sl_serve_known *known; /* NULL: there is no job */
        struct sl_serve_version *version;
        struct sl_serve_batch batch; /* empty: waits for all bytes */
        uint64_t begun_ns, deadline_ns;
        struct sl_serve_times times;
        float layers[SL_SERVE_LAYERS_MAX];
        int err;
        struct sl_reason reason;
        bool is_pinned;
    } computing;
    const struct sl_serve_known *stalled; /* its bytes did not come: others are computed first */
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
static void wake(void *ctx)
{
    struct sl_serve_worker *worker = ctx;
    worker->is_woken = worker->has_news = true;
    sl_reactor_arm(worker->options.reactor, &worker->timer, 0);
}

static uint64_t now(const struct sl_serve_worker *worker)
{
    return sl_reactor_now_ns(worker->options.reactor);
}

static void post(struct sl_serve_worker *worker, uint32_t thread, struct sl_offload_job *job)
{
    if (worker->options.post != NULL) {
        worker->options.post(worker->options.post_ctx, thread == COMPUTES, job);
    } else {
        sl_offload_post(worker->offloads[thread], job);
    }
}

static void post_opening(void *ctx, struct sl_offload_job *job)
{
    post(ctx, OPENS, job);
}

/* ---- Queue ----------------------------------------------------------------------------------- */

static struct sl_serve_pending *pending_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_serve_pending, item.link);
}

static void dequeue(struct sl_serve_pending *pending)
{
    pending->known->waiting--;
    sl_list_remove(&pending->item.link);
}

/* Answers a request of the queue with an error. */
static void refuse(struct sl_serve_pending *pending, int err, const char *text)
{
    dequeue(pending);
    sl_serve_pending_answer(pending, err, 0, 0, "%s", text);
}

static void refuse_all(struct sl_serve_worker *worker, const struct sl_serve_known *known, int err,
                       const char *text)
{
    SL_LIST_FOREACH (link, &worker->queue) {
        if (pending_of(link)->known == known) {
            refuse(pending_of(link), err, text);
        }
    }
}

/* Ends requests whose time is over. */
static void expire(struct sl_serve_worker *worker)
{
    SL_LIST_FOREACH (link, &worker->queue) {
        struct sl_serve_pending *pending = pending_of(link);
        const struct sl_serve_known *known = pending->known;
        const uint64_t waited_ns = now(worker) - pending->item.arrived_ns;
        if (pending->item.deadline_ns > now(worker)) {
            continue;
        }
        pending->load_ns = known->current == NULL ? waited_ns : pending->load_ns;
        dequeue(pending);
        sl_serve_pending_answer(
            pending, SL_ERR_DEADLINE, 0, 0,
            "the deadline passed: %.3f ms in the worker's queue, %.3f ms for the load%s%s",
            (double)(waited_ns - pending->load_ns) / SL_CLOCK_NS_PER_MS,
            (double)pending->load_ns / SL_CLOCK_NS_PER_MS,
            known->reason.text[0] != '\0' ? ": " : "", known->reason.text);
    }
}

/* ---- Requests of open models ----------------------------------------------------------------- */

/* A newer version takes over when all of its bytes are there; or when a still newer one has come,
 * so that a model that is published often does not stay old. */
static void take_over(struct sl_serve_known *known)
{
    struct sl_residency here;
    if (known->newer == NULL || known->is_running || known->is_opening) {
        return;
    }
    sl_subscription_residency(known->subscription, &here);
    if (here.version != known->newer->number || here.bytes >= known->newer->bytes) {
        sl_serve_known_drop(known);
    }
}

/* The most rows of a batch: all outputs have room. */
static uint32_t rows_max(const struct sl_serve_worker *worker, const struct sl_engine_info *info)
{
    const uint64_t row_bytes = sl_serve_batch_output_bytes(info, 1);
    const uint64_t most = row_bytes > 0 ? SL_SERVE_PENDING_BYTES / row_bytes : UINT32_MAX;
    return most < worker->options.batch_max ? (uint32_t)most : worker->options.batch_max;
}

/* False: the request was answered. */
static bool check(struct sl_serve_worker *worker, struct sl_serve_pending *pending)
{
    const struct sl_serve_version *version = pending->known->current;
    const struct sl_engine_info *info = version->info;
    struct sl_reason reason;
    if (pending->checked == version) {
        return true;
    }
    const int err = sl_serve_batch_check(info, rows_max(worker, info), &pending->item, &reason);
    const uint64_t bytes = sl_serve_batch_output_bytes(info, pending->item.rows);
    if (err != 0) {
        refuse(pending, err, reason.text);
    } else if (bytes > pending->output_room || bytes > SL_SERVE_PENDING_BYTES) {
        dequeue(pending);
        sl_serve_pending_answer(pending, SL_ERR_TOO_LARGE, 0, bytes,
                                "the outputs have %" PRIu64 " bytes, their room %" PRIu64, bytes,
                                pending->output_room);
    } else {
        pending->checked = version;
    }
    return pending->checked == version;
}

static void describe(struct sl_serve_worker *worker, struct sl_serve_pending *pending)
{
    const struct sl_serve_version *version = pending->known->current;
    char text[SL_SERVE_DESCRIPTION_BYTES];
    const size_t bytes =
        sl_serve_batch_describe(version->info, pending->known->name, version->number,
                                version->engine->name, text, sizeof text);
    const bool fits = bytes < sizeof text && bytes <= pending->output_room;
    if (fits && !sl_serve_pending_place(pending, bytes)) {
        return; /* until there is room */
    }
    dequeue(pending);
    if (fits) {
        memcpy(pending->item.output, text, bytes);
        pending->item.outputs[0] = (struct sl_serve_tensor){
            .name = "metadata", .type = SL_OBJECT_U8, .rank = 1, .shape = {bytes}, .bytes = bytes};
        pending->item.output_count = 1;
    }
    sl_serve_pending_answer(pending, fits ? 0 : SL_ERR_TOO_LARGE, version->number, bytes, "%s",
                            fits ? "" : "the metadata is too large");
}

/* Answers what needs no computation; returns the first request that can be computed, else the first
 * LOAD whose model has missing bytes. NULL: none. */
static struct sl_serve_pending *find_ready(struct sl_serve_worker *worker)
{
    struct sl_serve_pending *first = NULL;
    SL_LIST_FOREACH (link, &worker->queue) {
        struct sl_serve_pending *pending = pending_of(link);
        struct sl_serve_known *known = pending->known;
        take_over(known);
        if (known->current == NULL ||
            (known->is_opening && !sl_serve_version_is_complete(known->current))) {
            continue; /* the opener uses the subscription */
        }
        switch (pending->item.kind) {
        case SL_SERVE_DESCRIBE:
            describe(worker, pending);
            break;
        case SL_SERVE_LOAD:
            if (!known->is_running && sl_serve_version_is_complete(known->current)) {
                known->used_ns = 0; /* to be closed: its bytes stay in the pool */
                dequeue(pending);
                sl_serve_pending_answer(pending, 0, known->current->number, 0, "%s", "");
            } else {
                first = first == NULL ? pending : first;
            }
            break;
        case SL_SERVE_INFER:
            if (check(worker, pending) && (first == NULL || first->item.kind == SL_SERVE_LOAD ||
                                           first->known == worker->stalled)) {
                first = pending;
            }
            break;
        }
    }
    return first;
}

/* ---- Compute --------------------------------------------------------------------------------- */

static void compute(struct sl_offload_job *job)
{
    struct sl_serve_worker *worker = SL_CONTAINER_OF(job, struct sl_serve_worker, computing.job);
    struct computing *computing = &worker->computing;
    if (worker->options.core >= 0 && !computing->is_pinned) {
        computing->is_pinned = true;
        if (sl_topology_pin_thread(worker->options.core) != 0) {
            sl_log_warn("serve: the computing thread cannot be pinned to core %d",
                        worker->options.core);
        }
    }
    computing->err = sl_serve_version_run(
        computing->version, &computing->batch, worker->scratch, computing->deadline_ns,
        sl_reactor_clock(worker->options.reactor), &computing->times, &computing->reason);
}

static bool grow_scratch(struct sl_serve_worker *worker, uint64_t bytes)
{
    if (bytes > worker->scratch_bytes) {
        free(worker->scratch);
        worker->scratch = aligned_alloc(64, (bytes + 63) & ~63ULL);
        worker->scratch_bytes = worker->scratch != NULL ? bytes : 0;
    }
    return bytes <= worker->scratch_bytes;
}

/* Puts the batch back, in front of all others. */
static void put_back(struct sl_serve_worker *worker)
{
    struct sl_serve_batch *batch = &worker->computing.batch;
    for (uint32_t i = batch->item_count; i > 0; i--) {
        struct sl_serve_pending *pending = sl_serve_pending_of(batch->items[i - 1]);
        sl_serve_range_put(&worker->pendings.ranges, &pending->range);
        sl_list_prepend(&worker->queue, &pending->item.link);
        pending->known->waiting++;
    }
}

/* Takes the request and others of its model. False: there is no room for outputs at present. */
static bool take_batch(struct sl_serve_worker *worker, struct sl_serve_known *known)
{
    struct computing *computing = &worker->computing;
    const struct sl_engine_info *info = known->current->info;
    sl_serve_batch_take(&worker->queue, known, info, rows_max(worker, info), &computing->batch);
    known->waiting -= computing->batch.item_count;
    for (uint32_t i = 0; i < computing->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(computing->batch.items[i]);
        const uint64_t arrived_ns = pending->item.arrived_ns;
        if (!sl_serve_pending_place(pending,
                                    sl_serve_batch_output_bytes(info, pending->item.rows))) {
            put_back(worker);
            return false;
        }
        pending->load_ns = known->ready_ns > arrived_ns ? known->ready_ns - arrived_ns : 0;
        if (i == 0 || pending->item.deadline_ns > computing->deadline_ns) {
            computing->deadline_ns = pending->item.deadline_ns;
        }
    }
    return true;
}

static void compute_next(struct sl_serve_worker *worker)
{
    struct sl_serve_pending *first = find_ready(worker);
    struct computing *computing = &worker->computing;
    if (first == NULL || computing->known != NULL) {
        return;
    }
    struct sl_serve_known *known = first->known;
    computing->batch.item_count = 0;
    computing->deadline_ns = now(worker) + WAIT_NS;
    if (first->item.kind == SL_SERVE_INFER) {
        if (!grow_scratch(worker, known->current->info->scratch_bytes)) {
            refuse(first, SL_ERR_NO_MEMORY, "the worker has no memory for intermediate values");
            return;
        }
        if (!take_batch(worker, known)) {
            return;
        }
    }
    computing->known = known;
    computing->version = known->current;
    computing->begun_ns = now(worker);
    known->is_running = true;
    post(worker, COMPUTES, &computing->job);
}

/* Requests are computed again if the version has ended, or if a value of one of them was bad: then
 * one by one. */
static void compute_failed(struct sl_serve_worker *worker, struct sl_serve_known *known, int err)
{
    const struct sl_serve_batch *batch = &worker->computing.batch;
    known->reason = worker->computing.reason;
    put_back(worker);
    if (err == SL_ERR_CLOSED || err == SL_ERR_CANCELLED) {
        sl_serve_known_drop(known);
    } else if (err == SL_ERR_INVALID && batch->item_count == 1) {
        refuse(sl_serve_pending_of(batch->items[0]), err, known->reason.text);
    } else if (err == SL_ERR_INVALID) {
        for (uint32_t i = 0; i < batch->item_count; i++) {
            batch->items[i]->is_alone = true;
        }
    } else if (err != SL_ERR_DEADLINE) {
        refuse_all(worker, known, err, known->reason.text);
    }
}

static void computed(struct sl_offload_job *job)
{
    struct sl_serve_worker *worker = SL_CONTAINER_OF(job, struct sl_serve_worker, computing.job);
    struct computing *computing = &worker->computing;
    struct sl_serve_known *known = computing->known;
    const int err = job->err != 0 ? job->err : computing->err;
    computing->known = NULL;
    worker->stalled = err == SL_ERR_DEADLINE ? known : NULL;
    known->is_running = false;
    known->used_ns = now(worker);
    if (err != 0) {
        compute_failed(worker, known, err);
    } else if (computing->batch.item_count > 0 && !known->is_opening) { /* a job reads it */
        sl_serve_known_learn(&worker->models, known, computing->batch.rows, &computing->times);
        known->reason.text[0] = '\0';
    }
    for (uint32_t i = 0; err == 0 && i < computing->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(computing->batch.items[i]);
        pending->load_ns += computing->times.wait_ns;
        pending->compute_ns = computing->times.run_ns;
        sl_serve_pending_answer(pending, 0, computing->version->number, pending->output_bytes, "%s",
                                "");
    }
    wake(worker);
}

/* ---- Open ------------------------------------------------------------------------------------ */

static void opened(void *ctx, struct sl_serve_known *known, int err)
{
    if (err != 0) {
        refuse_all(ctx, known, err, known->reason.text);
    }
    wake(ctx);
}

/* ---- Notices --------------------------------------------------------------------------------- */

static void infer(struct sl_serve_worker *worker, struct sl_serve_peer *peer)
{
    const struct sl_serve_message *in = &worker->in;
    const uint64_t base = (uintptr_t)peer->arena;
    const bool is_inside = in->input_bytes == 0 ||
                           (in->input_address >= base && in->input_address + in->input_bytes <=
                                                             base + worker->options.arena_bytes);
    struct sl_serve_known *known = sl_serve_known_find(&worker->models, in->model, in->version);
    struct sl_serve_pending *pending =
        known != NULL ? sl_serve_pendings_take(&worker->pendings) : NULL;
    if (pending == NULL) {
        sl_log_warn("serve: a request of gateway %s is dropped: there are %u already, of %u models",
                    peer->address, worker->pendings.count, worker->models.count);
        return;
    }
    pending->known = known;
    pending->peer = peer;
    pending->number = in->request;
    pending->output_address = in->output_address;
    pending->output_room = in->output_room;
    pending->item =
        (struct sl_serve_item){.model = known,
                               .kind = (enum sl_serve_kind)in->request_kind,
                               .arrived_ns = now(worker),
                               .deadline_ns = now(worker) + in->deadline_us * SL_CLOCK_NS_PER_US,
                               .input = (const uint8_t *)peer->arena +
                                        (in->input_bytes > 0 ? in->input_address - base : 0),
                               .input_count = in->tensor_count};
    memcpy(pending->item.inputs, in->tensors, in->tensor_count * sizeof in->tensors[0]);
    if (!is_inside) {
        sl_serve_pending_answer(pending, SL_ERR_INVALID, 0, 0,
                                "the inputs are not in the worker's memory");
        return;
    }
    known->waiting++;
    sl_list_append(&worker->queue, &pending->item.link);
    wake(worker);
}

static void cancel(struct sl_serve_worker *worker, const struct sl_serve_peer *peer)
{
    SL_LIST_FOREACH (link, &worker->queue) {
        if (pending_of(link)->peer == peer && pending_of(link)->number == worker->in.request) {
            refuse(pending_of(link), SL_ERR_CANCELLED, "cancelled");
            return;
        }
    }
}

static void arrived(void *ctx, const struct sl_transfer_noticed *noticed)
{
    struct sl_serve_worker *worker = ctx;
    struct sl_serve_peer *peer = NULL;
    struct sl_reason reason;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        const bool is_sender = strcmp(worker->peers[i].address, noticed->sender) == 0;
        peer = is_sender && sl_serve_peer_is_open(&worker->peers[i]) ? &worker->peers[i] : peer;
    }
    if (peer == NULL ||
        sl_serve_message_decode(noticed->text, noticed->bytes, &worker->in, &reason) != 0) {
        sl_log_warn("serve: a notice of %s is dropped: %s", noticed->sender,
                    peer == NULL ? "the worker has not joined a gateway of this name"
                                 : reason.text);
        return;
    }
    switch (worker->in.kind) {
    case SL_SERVE_MESSAGE_INFER:
        infer(worker, peer);
        break;
    case SL_SERVE_MESSAGE_CANCEL:
        cancel(worker, peer);
        break;
    case SL_SERVE_MESSAGE_LEAVE:
        peer->has_left = true;
        wake(worker);
        break;
    default:
        break;
    }
}

/* The gateway's requests need no answers. */
static void gone(struct sl_serve_peer *peer)
{
    struct sl_serve_worker *worker = peer->ctx;
    const struct computing *computing = &worker->computing;
    peer->seen = 0;
    for (uint32_t i = 0; computing->known != NULL && i < computing->batch.item_count; i++) {
        struct sl_serve_pending *pending = sl_serve_pending_of(computing->batch.items[i]);
        pending->peer = pending->peer == peer ? NULL : pending->peer;
    }
    SL_LIST_FOREACH (link, &worker->queue) {
        if (pending_of(link)->peer == peer) {
            refuse(pending_of(link), SL_ERR_CLOSED, "");
        }
    }
}

/* Expected time until the queue is empty. */
static double queue_ns(const struct sl_serve_worker *worker)
{
    const struct computing *computing = &worker->computing;
    double sum = 0;
    SL_LIST_FOREACH (link, &worker->queue) {
        const struct sl_serve_pending *pending = pending_of(link);
        const struct sl_serve_known *known = pending->known;
        const uint32_t rows = pending->item.rows > 0 ? pending->item.rows : 1;
        sum += sl_serve_known_run_ns(known, rows);
        sum += known->current == NULL ? sl_serve_known_exposed_ns(known) / known->waiting : 0;
    }
    if (computing->known != NULL) {
        const double left = sl_serve_known_run_ns(computing->known, computing->batch.rows) -
                            (double)(now(worker) - computing->begun_ns);
        sum += left > 0 ? left : 0;
    }
    return sum < QUEUE_MAX ? sum : QUEUE_MAX;
}

static void report(struct sl_serve_worker *worker)
{
    const struct sl_serve_known *running = worker->computing.known;
    struct sl_serve_message *load = &worker->out;
    if (now(worker) < worker->reported_ns + REPORT_NS) {
        return;
    }
    sl_serve_known_look(&worker->models);
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct sl_serve_peer *peer = &worker->peers[i];
        if (!worker->has_news && peer->seen == worker->models.change_count) {
            continue;
        }
        *load = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_LOAD,
                                          .queue_count = worker->pendings.count,
                                          .queue_ns = (uint64_t)queue_ns(worker)};
        (void)snprintf(load->current, sizeof load->current, "%s",
                       running != NULL ? running->name : "");
        const uint64_t seen = sl_serve_known_report(&worker->models, peer->seen, load);
        peer->seen = sl_serve_peer_tell(peer) ? seen : peer->seen;
    }
    worker->has_news = false;
    worker->reported_ns = now(worker);
}

/* ---- End ------------------------------------------------------------------------------------- */

static void all_ended(void *ctx)
{
    struct sl_serve_worker *worker = ctx;
    worker->drained(worker->drained_ctx);
}

static void idle(struct sl_serve_peer *peer)
{
    struct sl_serve_worker *worker = peer->ctx;
    if (--worker->peers_left == 0) {
        sl_transfer_async_destroy(&worker->async, all_ended, worker);
    }
}

/* Leaves the gateways, and ends when nothing is left to be answered. True: it does. */
static bool leave(struct sl_serve_worker *worker)
{
    bool may_get_more = now(worker) < worker->leaving_ns + LEAVE_NS;
    uint32_t open = 0;
    if (worker->leaving_ns == 0) {
        return false;
    }
    if (worker->has_left) {
        return true;
    }
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct sl_serve_peer *peer = &worker->peers[i];
        worker->out = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_LEAVE};
        peer->has_sent_leave = peer->has_sent_leave || sl_serve_peer_tell(peer);
        open += sl_serve_peer_is_open(peer) && !peer->has_left;
    }
    may_get_more = may_get_more && open > 0;
    if (may_get_more || sl_serve_opener_is_busy(&worker->opener) ||
        worker->computing.known != NULL || worker->pendings.count > 0) {
        return false;
    }
    worker->has_left = true;
    worker->peers_left = worker->peer_count;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        sl_serve_peer_stop(&worker->peers[i]);
    }
    return true;
}

static void step(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_worker *worker = SL_CONTAINER_OF(timer, struct sl_serve_worker, timer);
    worker->is_woken = false;
    expire(worker);
    compute_next(worker);
    sl_serve_opener_next(&worker->opener);
    report(worker);
    if (!leave(worker) && !worker->is_woken) {
        const bool is_idle = sl_list_empty(&worker->queue) && sl_list_empty(&worker->models.opened);
        sl_reactor_arm(worker->options.reactor, timer, is_idle ? REPORT_NS : TICK_NS);
    }
}

void sl_serve_worker_drain(struct sl_serve_worker *worker, void (*drained)(void *ctx), void *ctx)
{
    sl_reactor_assert_owner(worker->options.reactor);
    worker->leaving_ns = now(worker);
    worker->drained = drained;
    worker->drained_ctx = ctx;
    wake(worker);
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

static int create_offloads(struct sl_serve_worker *worker, struct sl_reason *reason)
{
    static const char *const names[] = {"serve-open", "serve-compute"};
    for (uint32_t i = 0; worker->options.post == NULL && i < THREADS; i++) {
        if (sl_offload_create(worker->options.reactor, names[i], &worker->offloads[i]) != 0) {
            return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for a thread");
        }
        sl_offload_set_place(worker->offloads[i], SL_OFFLOAD_PRIORITY_NORMAL);
    }
    return 0;
}

/* The connection to the engine comes last: only the reactor can end it. */
static int create(struct sl_serve_worker *worker, struct sl_reason *reason)
{
    const struct sl_serve_worker_options *options = &worker->options;
    void *output = NULL;
    int err = create_memory(worker, SL_SERVE_PENDING_BYTES, SL_TRANSFER_LOCAL, &output, reason);
    sl_serve_pendings_init(&worker->pendings, output, wake, worker);
    for (uint32_t i = 0; err == 0 && i < options->gateway_count; i++) {
        worker->peers[i] = (struct sl_serve_peer){.options = options,
                                                  .address = options->gateways[i],
                                                  .message = &worker->out,
                                                  .gone = gone,
                                                  .idle = idle,
                                                  .ctx = worker};
        worker->peer_count++;
        err = create_memory(worker, options->arena_bytes, SL_TRANSFER_PEERS_WRITE,
                            &worker->peers[i].arena, reason);
    }
    err = err != 0 ? err : create_offloads(worker, reason);
    if (err == 0) {
        err = sl_transfer_async_create(options->transfer, options->reactor, SL_SERVE_NOTICE,
                                       arrived, worker, &worker->async);
        err = err != 0 ? sl_reason_fail(reason, err, "%s", sl_transfer_last_error()) : 0;
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
    made->options.arena_bytes = options->arena_bytes != 0 ? options->arena_bytes : ARENA_BYTES;
    made->timer.run = step;
    made->computing.job = (struct sl_offload_job){.work = compute, .done = computed};
    made->computing.times.layers = made->computing.layers;
    sl_list_init(&made->queue);
    sl_serve_known_init(&made->models);
    made->opener = (struct sl_serve_opener){.options = &made->options,
                                            .models = &made->models,
                                            .queue = &made->queue,
                                            .post = post_opening,
                                            .opened = opened,
                                            .ctx = made};
    const int err = create(made, reason);
    if (err != 0) {
        sl_serve_worker_destroy(&made);
        return err;
    }
    *out = made;
    return 0;
}

void sl_serve_worker_start(struct sl_serve_worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        worker->peers[i].async = worker->async;
        sl_serve_peer_start(&worker->peers[i]);
    }
    wake(worker);
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
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)sl_offload_destroy(&ended->offloads[i], END_NS);
    }
    sl_serve_known_fini(&ended->models);
    for (uint32_t i = 0; i < ended->peer_count; i++) {
        free_memory(ended, ended->peers[i].arena);
    }
    free_memory(ended, ended->pendings.output);
    sl_serve_pendings_fini(&ended->pendings);
    free(ended->scratch);
    free(ended);
}
