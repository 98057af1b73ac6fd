#include "net/store/remote_metastore.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/list.h"
#include "net/store/etcd.h"
#include "net/store/http_metadata.h"
#include "reactor/offload.h"

#define QUEUES 2 /* [0] renews leases, [1] does the rest */

/* A thread with a client, and the requests that wait for it. The thread has one at a time, so that
 * those that wait can end at their deadline. */
struct queue {
    struct sl_reactor *reactor;
    struct sl_offload *offload;
    struct sl_etcd *etcd; /* one of the two; the other is NULL */
    struct sl_http_metadata *http;
    struct sl_list waiting;
    bool is_busy;
};

struct job {
    struct sl_offload_job base;
    struct sl_list_link link; /* while it waits */
    struct queue *queue;
    struct sl_metastore_request *ask;
    uint64_t timeout_ns; /* of the request, which gets less when it has waited */
    struct sl_timer late;
};

struct sl_remote_metastore {
    struct sl_metastore base;
    struct queue queues[QUEUES];
};

static void remote_metastore_work(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    if (job->queue->etcd != NULL) {
        sl_etcd_perform(job->queue->etcd, job->ask);
    } else {
        sl_http_metadata_perform(job->queue->http, job->ask);
    }
}

/* Frees the job. reason: if err is not 0. */
static void remote_metastore_answer(struct job *job, int err, const char *reason)
{
    struct sl_metastore_request *ask = job->ask;
    sl_reactor_disarm(job->queue->reactor, &job->late);
    sl_list_remove(&job->link);
    ask->timeout_ns = job->timeout_ns;
    free(job);
    if (err != 0) {
        sl_metastore_answer_fini(&ask->answer);
        sl_metastore_answer_fail(&ask->answer, err, "%s", reason);
    }
    ask->done(ask->ctx, ask);
}

static void start_next(struct queue *queue);

static void remote_metastore_done(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    struct queue *queue = job->queue;
    queue->is_busy = false;
    remote_metastore_answer(job, base->err,
                            base->err == SL_ERR_CANCELLED ? "closed" : "no thread to ask it");
    start_next(queue);
}

static void start_next(struct queue *queue)
{
    struct job *job = queue->is_busy || queue->offload == NULL
                          ? NULL
                          : SL_LIST_POP(struct job, link, &queue->waiting);
    if (job == NULL) {
        return;
    }
    const uint64_t now_ns = sl_reactor_now_ns(queue->reactor), due_ns = job->late.due_ns;
    job->ask->timeout_ns = due_ns > now_ns ? due_ns - now_ns : 1;
    sl_reactor_disarm(queue->reactor, &job->late); /* the client keeps the deadline */
    queue->is_busy = true;
    sl_offload_post(queue->offload, &job->base);
}

static void on_late(struct sl_timer *timer, uint64_t now_ns)
{
    remote_metastore_answer(SL_CONTAINER_OF(timer, struct job, late), SL_ERR_DEADLINE,
                            "no answer in time");
}

/* Asserts on a failed allocation: without a job no answer is possible. */
static void ask(struct sl_metastore *base, struct sl_metastore_request *ask)
{
    struct sl_remote_metastore *metastore = SL_CONTAINER_OF(base, struct sl_remote_metastore, base);
    struct queue *queue = &metastore->queues[ask->kind == SL_METASTORE_LEASE_RENEW ? 0 : 1];
    struct job *job = calloc(1, sizeof *job);
    sl_assert(job != NULL);
    *job = (struct job){.base = {.work = remote_metastore_work, .done = remote_metastore_done},
                        .queue = queue,
                        .ask = ask,
                        .timeout_ns = ask->timeout_ns,
                        .late.run = on_late};
    sl_list_append(&queue->waiting, &job->link);
    sl_reactor_arm(queue->reactor, &job->late, ask->timeout_ns);
    start_next(queue);
}

static const struct sl_metastore_ops OPS = {.ask = ask};

int sl_remote_metastore_create(struct sl_reactor *reactor,
                               const struct sl_metastore_address *address,
                               struct sl_remote_metastore **out)
{
    static const char *const NAMES[QUEUES] = {"store-lease", "store"};
    sl_assert(address->kind != SL_METASTORE_ADDRESS_NONE);
    struct sl_remote_metastore *metastore = calloc(1, sizeof *metastore);
    if (metastore == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    metastore->base.ops = &OPS;
    int err = 0;
    for (uint32_t i = 0; i < QUEUES; i++) {
        struct queue *queue = &metastore->queues[i];
        queue->reactor = reactor;
        sl_list_init(&queue->waiting);
        err = err != 0 ? err
              : address->kind == SL_METASTORE_ADDRESS_ETCD
                  ? sl_etcd_create(address, &queue->etcd)
                  : sl_http_metadata_create(address, &queue->http);
        err = err != 0 ? err : sl_offload_create(reactor, NAMES[i], &queue->offload);
    }
    if (err != 0) {
        (void)sl_remote_metastore_destroy(&metastore, 0);
        return err;
    }
    *out = metastore;
    return 0;
}

struct sl_metastore *sl_remote_metastore_base(struct sl_remote_metastore *metastore)
{
    return &metastore->base;
}

/* False: its thread hangs. */
static bool end(struct queue *queue, uint64_t timeout_ns)
{
    struct sl_list_link *link;
    const bool has_ended = sl_offload_destroy(&queue->offload, timeout_ns);
    while ((link = sl_list_first(&queue->waiting)) != NULL) {
        remote_metastore_answer(SL_CONTAINER_OF(link, struct job, link), SL_ERR_CANCELLED,
                                "closed");
    }
    if (has_ended && queue->etcd != NULL) {
        sl_etcd_destroy(&queue->etcd);
    }
    if (has_ended && queue->http != NULL) {
        sl_http_metadata_destroy(&queue->http);
    }
    return has_ended;
}

bool sl_remote_metastore_destroy(struct sl_remote_metastore **metastore, uint64_t timeout_ns)
{
    struct sl_remote_metastore *gone = *metastore;
    *metastore = NULL;
    bool has_ended = true;
    for (uint32_t i = 0; i < QUEUES; i++) {
        has_ended = end(&gone->queues[i], timeout_ns) && has_ended;
    }
    if (has_ended) {
        free(gone);
    }
    return has_ended;
}
