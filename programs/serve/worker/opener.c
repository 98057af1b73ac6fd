#include "programs/serve/worker/opener.h"

#include <inttypes.h>

#include "core/log.h"
#include "programs/serve/worker/pending.h"

/* Of one attempt to open a model, until its layers are known; not until their bytes have come. Then
 * other models have their turn. */
#define OPEN_MS   200
/* At most so many models are open whose requests wait for the model that computes. */
#define AHEAD_MAX 2
/* Between two attempts to open a model. */
#define RETRY_NS  (10 * SL_CLOCK_NS_PER_MS)
/* A model without requests is closed after this time: others may need its memory, and to open it
 * again takes about 1 ms while its bytes are in the pool. */
#define IDLE_NS   (20 * SL_CLOCK_NS_PER_MS)
/* For so long after the pool had no room, models without requests are closed at once. */
#define FULL_NS   SL_CLOCK_NS_PER_S

static uint64_t opener_now(const struct sl_serve_opener *opener)
{
    return sl_reactor_now_ns(opener->options->reactor);
}

/* ---- The job --------------------------------------------------------------------------------- */

/* On the thread. */
static void opener_work(struct sl_offload_job *job)
{
    struct sl_serve_opener *opener = SL_CONTAINER_OF(job, struct sl_serve_opener, job);
    SL_LIST_FOREACH (link, &opener->old) {
        struct sl_serve_version *old = SL_CONTAINER_OF(link, struct sl_serve_version, link);
        sl_list_remove(link);
        sl_serve_version_close(&old);
    }
    sl_subscription_close(&opener->spare);
    opener->made = NULL;
    opener->err = opener->open.name != NULL
                      ? sl_serve_version_open(&opener->open, &opener->subscription, &opener->made,
                                              &opener->reason)
                      : 0;
}

/* Errors that may pass: the pool is full of models that are open (NO_MEMORY); the catalogue or the
 * agent does not answer (DEADLINE, CLOSED, AGAIN); the newest version was removed (CANCELLED). */
static bool may_pass(const struct sl_serve_model_costs *known, int err)
{
    return err == SL_ERR_NO_MEMORY || err == SL_ERR_DEADLINE || err == SL_ERR_CLOSED ||
           err == SL_ERR_AGAIN || (err == SL_ERR_CANCELLED && known->wanted == 0);
}

/* Returns the error that answers the model's requests; 0: they wait, or an older version answers
 * them. */
static int fail(struct sl_serve_opener *opener, struct sl_serve_model_costs *known, int err)
{
    known->reason = opener->reason;
    known->retry_ns = opener_now(opener) + RETRY_NS;
    opener->full_ns = err == SL_ERR_NO_MEMORY ? opener_now(opener) : opener->full_ns;
    if (may_pass(known, err)) {
        return 0;
    }
    if (known->current != NULL) {
        known->bad = opener->newest;
        sl_log_warn("serve: %s: version %" PRIu64 " cannot be opened (%s); version %" PRIu64
                    " goes on answering",
                    known->name, known->bad, known->reason.text, known->current->number);
        return 0;
    }
    return err == SL_ERR_CANCELLED ? SL_ERR_NOT_FOUND /* the version was removed */
           : err == SL_ERR_INVALID ? SL_ERR_CORRUPT   /* the model, not the request */
                                   : err;
}

static void opener_done(struct sl_offload_job *job)
{
    struct sl_serve_opener *opener = SL_CONTAINER_OF(job, struct sl_serve_opener, job);
    struct sl_serve_model_costs *known = opener->known;
    int err = job->err != 0 ? job->err : opener->err; /* job->err: it has not run */
    opener->known = NULL;
    known->is_opening = false;
    opener->models->subscription_count += known->subscription != opener->subscription;
    known->subscription = opener->subscription;
    if (err != 0) {
        err = fail(opener, known, err);
    } else if (opener->made != NULL) {
        sl_serve_model_costs_opened(opener->models, known, opener->made, opener_now(opener));
    }
    if (known->current != NULL || !sl_list_empty(&known->old)) {
        sl_list_append(&opener->models->opened, &known->opened);
    } else {
        sl_list_remove(&known->opened);
    }
    opener->opened(opener->ctx, known, err);
}

/* Rows of the requests that wait for the model: 1 to batch_max. */
static uint32_t rows_of(const struct sl_serve_opener *opener,
                        const struct sl_serve_model_costs *known)
{
    uint64_t rows = 0;
    SL_LIST_FOREACH (link, opener->queue) {
        const struct sl_serve_item *item = SL_CONTAINER_OF(link, struct sl_serve_item, link);
        if (item->model == known && item->input_count > 0 && item->inputs[0].rank > 0) {
            rows += item->inputs[0].shape[0];
            rows = rows < opener->options->batch_max ? rows : opener->options->batch_max;
        }
    }
    return rows > 0 ? (uint32_t)rows : 1;
}

/* Begins the job: it closes the model's old versions, and, if `opens`, opens the wanted one. */
static void begin(struct sl_serve_opener *opener, struct sl_serve_model_costs *known, bool opens)
{
    const struct sl_serve_worker_options *options = opener->options;
    const uint32_t rows = rows_of(opener, known);
    known->profile.run_us = sl_serve_model_costs_run_ns(known, rows) / SL_CLOCK_NS_PER_US;
    opener->known = known;
    opener->job =
        (struct sl_offload_job){.work = opener_work, .done = opener_done, .allocates = true};
    opener->open = (struct sl_serve_open){.objects = options->objects,
                                          .name = opens ? known->name : NULL,
                                          .number = known->wanted,
                                          .engines = options->engines,
                                          .engine_count = options->engine_count,
                                          .rows_max = options->batch_max,
                                          .rule = options->rule,
                                          .rule_bytes = options->rule_bytes,
                                          .profile = &known->profile,
                                          .flops_per_us = opener->models->flops_per_us,
                                          .rows = rows,
                                          .search = &opener->search,
                                          .timeout_ms = OPEN_MS};
    sl_list_init(&opener->old);
    sl_list_append_all(&opener->old, &known->old);
    opener->subscription = known->subscription;
    opener->spare = NULL;
    if (opens && known->subscription == NULL) {
        opener->spare = sl_serve_model_costs_spare(opener->models);
    }
    known->is_opening = true;
    opener->post(opener->ctx, &opener->job);
}

/* ---- The choice ------------------------------------------------------------------------------ */

/* Whether a job may use the model's subscription: no other one does. A version that computes uses
 * it until all of its bytes have come. */
static bool may_begin(const struct sl_serve_model_costs *known)
{
    return !known->is_opening && (!known->is_running || known->runs_complete);
}

/* Models without requests have old versions only, after a while, or at once if the pool is full.
 * Returns the first model whose old versions can be closed. */
static struct sl_serve_model_costs *find_closing(const struct sl_serve_opener *opener)
{
    const bool is_full = opener->full_ns != 0 && opener_now(opener) < opener->full_ns + FULL_NS;
    SL_LIST_FOREACH (link, &opener->models->opened) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, opened);
        const bool is_unused = known->waiting == 0 && !known->is_running &&
                               (is_full || opener_now(opener) >= known->used_ns + IDLE_NS);
        while (is_unused && known->current != NULL) {
            sl_serve_model_costs_drop(known);
        }
        if (!sl_list_empty(&known->old) && may_begin(known)) {
            return known;
        }
    }
    return NULL;
}

/* The model of the oldest request whose model is not open, and may be tried now; NULL also if
 * enough are open ahead. */
static struct sl_serve_model_costs *find_cold(const struct sl_serve_opener *opener)
{
    uint32_t ahead = 0;
    SL_LIST_FOREACH (link, &opener->models->opened) {
        const struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, opened);
        ahead += known->current != NULL && known->waiting > 0 && !known->is_running;
    }
    SL_LIST_FOREACH (link, opener->queue) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_pending, item.link)->known;
        if (ahead < AHEAD_MAX && known->current == NULL && may_begin(known) &&
            known->retry_ns <= opener_now(opener)) {
            return known;
        }
    }
    return NULL;
}

/* An open model that has a newer version, or whose version was removed. */
static struct sl_serve_model_costs *find_outdated(struct sl_serve_opener *opener)
{
    SL_LIST_FOREACH (link, &opener->models->opened) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, opened);
        if (known->current != NULL && known->newer == NULL && known->wanted == 0 &&
            may_begin(known) && known->retry_ns <= opener_now(opener)) {
            opener->newest = sl_subscription_newest(known->subscription);
            if (opener->newest == 0 && !known->is_running) { /* all were removed */
                sl_serve_model_costs_drop(known);
            } else if (opener->newest != 0 && opener->newest != known->current->number &&
                       opener->newest != known->bad) {
                return known;
            }
        }
    }
    return NULL;
}

void sl_serve_opener_next(struct sl_serve_opener *opener)
{
    if (opener->known != NULL) {
        return;
    }
    struct sl_serve_model_costs *known = find_closing(opener);
    const bool opens = known == NULL;
    known = known == NULL ? find_cold(opener) : known;
    known = known == NULL ? find_outdated(opener) : known;
    if (known != NULL) {
        begin(opener, known, opens);
    }
}
