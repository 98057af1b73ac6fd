#include "metastore/remote_metastore.h"

#include <stdlib.h>

#include "core/assert.h"
#include "reactor/offload.h"

#define OFFLOADS 2 /* [0] renews leases, [1] does the rest */

/* One of the two; the other is NULL. */
struct client {
    struct sl_etcd *etcd;
    struct sl_http_metadata *http;
};

struct sl_remote_metastore;

struct job {
    struct sl_offload_job base;
    struct sl_remote_metastore *metastore;
    struct job *next; /* unanswered jobs, unordered */
    struct client *client;
    struct sl_metastore_request *ask;
};

struct sl_remote_metastore {
    struct sl_metastore base;
    struct job *jobs;
    struct sl_offload *offloads[OFFLOADS];
    struct client clients[OFFLOADS]; /* [i] belongs to the thread of offloads[i] */
};

static void work(struct sl_offload_job *base)
{
    struct job *job = (struct job *)base;
    if (job->client->etcd != NULL) {
        sl_etcd_perform(job->client->etcd, job->ask);
    } else {
        sl_http_metadata_perform(job->client->http, job->ask);
    }
}

static void answer(struct job *job, int err)
{
    struct job **at = &job->metastore->jobs;
    while (*at != job) {
        at = &(*at)->next;
    }
    *at = job->next;
    struct sl_metastore_request *ask = job->ask;
    free(job);
    if (err != 0) {
        sl_metastore_answer_fini(&ask->answer);
        sl_metastore_answer_fail(&ask->answer, err, "%s",
                                 err == SL_ERR_CANCELLED ? "closed" : "no thread to ask it");
    }
    ask->done(ask->ctx, ask);
}

static void done(struct sl_offload_job *base)
{
    answer((struct job *)base, base->err);
}

/* Asserts on a failed allocation: without a job no answer is possible. */
static void ask(struct sl_metastore *base, struct sl_metastore_request *ask)
{
    struct sl_remote_metastore *metastore = (struct sl_remote_metastore *)base;
    struct job *job = calloc(1, sizeof *job);
    sl_assert(job != NULL);
    const uint32_t index = ask->kind == SL_METASTORE_LEASE_RENEW ? 0 : 1;
    job->base.work = work;
    job->base.done = done;
    job->client = &metastore->clients[index];
    job->ask = ask;
    job->metastore = metastore;
    job->next = metastore->jobs;
    metastore->jobs = job;
    sl_offload_post(metastore->offloads[index], &job->base);
}

static const struct sl_metastore_ops OPS = {.ask = ask};

int sl_remote_metastore_create(struct sl_reactor *reactor,
                               const struct sl_remote_metastore_options *options,
                               struct sl_remote_metastore **out)
{
    sl_assert((options->etcd == NULL) != (options->http == NULL));
    static const char *const NAMES[OFFLOADS] = {"store-lease", "store"};
    struct sl_remote_metastore *metastore = calloc(1, sizeof *metastore);
    if (metastore == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    metastore->base.ops = &OPS;
    int err = 0;
    for (uint32_t i = 0; i < OFFLOADS && err == 0; i++) {
        struct client *client = &metastore->clients[i];
        err = options->etcd != NULL ? sl_etcd_create(options->etcd, &client->etcd)
                                    : sl_http_metadata_create(options->http, &client->http);
        if (err == 0) {
            err = sl_offload_create(reactor, NAMES[i], &metastore->offloads[i]);
        }
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

bool sl_remote_metastore_destroy(struct sl_remote_metastore **metastore, uint64_t timeout_ns)
{
    struct sl_remote_metastore *gone = *metastore;
    *metastore = NULL;
    bool ended = true;
    for (uint32_t i = 0; i < OFFLOADS; i++) {
        bool this_ended =
            gone->offloads[i] == NULL || sl_offload_destroy(&gone->offloads[i], timeout_ns);
        if (this_ended && gone->clients[i].etcd != NULL) {
            sl_etcd_destroy(&gone->clients[i].etcd);
        } else if (this_ended && gone->clients[i].http != NULL) {
            sl_http_metadata_destroy(&gone->clients[i].http);
        }
        ended = ended && this_ended;
    }
    while (ended && gone->jobs != NULL) {
        answer(gone->jobs, SL_ERR_CANCELLED); /* in flight when the thread ended */
    }
    if (ended) {
        free(gone);
    }
    return ended;
}
