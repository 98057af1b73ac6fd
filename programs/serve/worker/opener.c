#include "programs/serve/worker/opener.h"

#include <inttypes.h>

#include "core/log.h"
#include "programs/serve/worker/pending.h"

/* Of one attempt to open a model, until its layers are entry; not until their bytes have come. Then
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
    return sl_reactor_now_ns(opener->reactor);
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
static bool may_pass(const struct sl_serve_model_entry *entry, int err)
{
    return err == SL_ERR_NO_MEMORY || err == SL_ERR_DEADLINE || err == SL_ERR_CLOSED ||
           err == SL_ERR_AGAIN || (err == SL_ERR_CANCELLED && entry->wanted == 0);
}

/* Returns the error that answers the model's requests; 0: they wait, or an older version answers
 * them. */
static int fail(struct sl_serve_opener *opener, struct sl_serve_model_entry *entry, int err)
{
    entry->reason = opener->reason;
    entry->retry_ns = opener_now(opener) + RETRY_NS;
    opener->full_ns = err == SL_ERR_NO_MEMORY ? opener_now(opener) : opener->full_ns;
    if (may_pass(entry, err)) {
        return 0;
    }
    if (entry->current != NULL) {
        entry->bad = opener->newest;
        sl_log_warn("serve: %s: version %" PRIu64 " cannot be opened (%s); version %" PRIu64
                    " goes on answering",
                    entry->name, entry->bad, entry->reason.text, entry->current->number);
        return 0;
    }
    return err == SL_ERR_CANCELLED ? SL_ERR_NOT_FOUND /* the version was removed */
           : err == SL_ERR_INVALID ? SL_ERR_CORRUPT   /* the model, not the request */
                                   : err;
}

static void opener_done(struct sl_offload_job *job)
{
    struct sl_serve_opener *opener = SL_CONTAINER_OF(job, struct sl_serve_opener, job);
    struct sl_serve_model_entry *entry = opener->entry;
    int err = job->err != 0 ? job->err : opener->err; /* job->err: it has not run */
    opener->entry = NULL;
    entry->is_opening = false;
    opener->models->subscription_count += entry->subscription != opener->subscription;
    entry->subscription = opener->subscription;
    if (err != 0) {
        err = fail(opener, entry, err);
    } else if (opener->made != NULL) {
        sl_serve_model_table_opened(opener->models, entry, opener->made, opener_now(opener));
    }
    if (entry->current != NULL || !sl_list_empty(&entry->old)) {
        sl_list_append(&opener->models->opened, &entry->opened);
    } else {
        sl_list_remove(&entry->opened);
    }
    opener->opened(opener->ctx, entry, err);
}

/* Rows of the requests that wait for the model: 1 to batch_max. */
static uint32_t rows_of(const struct sl_serve_opener *opener,
                        const struct sl_serve_model_entry *entry)
{
    uint64_t rows = 0;
    SL_LIST_FOREACH (link, opener->queue) {
        const struct sl_serve_item *item = SL_CONTAINER_OF(link, struct sl_serve_item, link);
        if (item->model == entry && item->input_count > 0 && item->inputs[0].rank > 0) {
            rows += item->inputs[0].shape[0];
            rows = rows < opener->options->batch_max ? rows : opener->options->batch_max;
        }
    }
    return rows > 0 ? (uint32_t)rows : 1;
}

/* Begins the job: it closes the model's old versions, and, if `opens`, opens the wanted one. */
static void begin(struct sl_serve_opener *opener, struct sl_serve_model_entry *entry, bool opens)
{
    const struct sl_serve_worker_options *options = opener->options;
    const uint32_t rows = rows_of(opener, entry);
    entry->profile.run_us = sl_serve_model_entry_run_ns(entry, rows) / SL_CLOCK_NS_PER_US;
    opener->entry = entry;
    opener->job =
        (struct sl_offload_job){.work = opener_work, .done = opener_done, .allocates = true};
    opener->open = (struct sl_serve_open){.objects = options->objects,
                                          .name = opens ? entry->name : NULL,
                                          .number = entry->wanted,
                                          .engines = options->engines,
                                          .engine_count = options->engine_count,
                                          .rows_max = options->batch_max,
                                          .rule = options->rule,
                                          .rule_bytes = options->rule_bytes,
                                          .profile = &entry->profile,
                                          .flops_per_us = opener->models->flops_per_us,
                                          .rows = rows,
                                          .search = &opener->search,
                                          .timeout_ms = OPEN_MS};
    sl_list_init(&opener->old);
    sl_list_append_all(&opener->old, &entry->old);
    opener->subscription = entry->subscription;
    opener->spare = NULL;
    if (opens && entry->subscription == NULL) {
        opener->spare = sl_serve_model_table_spare(opener->models);
    }
    entry->is_opening = true;
    opener->post(opener->ctx, &opener->job);
}

/* ---- The choice ------------------------------------------------------------------------------ */

/* Whether a job may use the model's subscription: no other one does. A version that computes uses
 * it until all of its bytes have come. */
static bool may_begin(const struct sl_serve_model_entry *entry)
{
    return !entry->is_opening && (!entry->is_running || entry->runs_complete);
}

/* Models without requests have old versions only, after a while, or at once if the pool is full.
 * Returns the first model whose old versions can be closed. */
static struct sl_serve_model_entry *find_closing(const struct sl_serve_opener *opener)
{
    const bool is_full = opener->full_ns != 0 && opener_now(opener) < opener->full_ns + FULL_NS;
    SL_LIST_FOREACH (link, &opener->models->opened) {
        struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_model_entry, opened);
        const bool is_unused = entry->waiting == 0 && !entry->is_running &&
                               (is_full || opener_now(opener) >= entry->used_ns + IDLE_NS);
        while (is_unused && entry->current != NULL) {
            sl_serve_model_entry_drop(entry);
        }
        if (!sl_list_empty(&entry->old) && may_begin(entry)) {
            return entry;
        }
    }
    return NULL;
}

/* The model of the oldest request whose model is not open, and may be tried now; NULL also if
 * enough are open ahead. */
static struct sl_serve_model_entry *find_cold(const struct sl_serve_opener *opener)
{
    uint32_t ahead = 0;
    SL_LIST_FOREACH (link, &opener->models->opened) {
        const struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_model_entry, opened);
        ahead += entry->current != NULL && entry->waiting > 0 && !entry->is_running;
    }
    SL_LIST_FOREACH (link, opener->queue) {
        struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_pending, item.link)->entry;
        if (ahead < AHEAD_MAX && entry->current == NULL && may_begin(entry) &&
            entry->retry_ns <= opener_now(opener)) {
            return entry;
        }
    }
    return NULL;
}

/* An open model that has a newer version, or whose version was removed. */
static struct sl_serve_model_entry *find_outdated(struct sl_serve_opener *opener)
{
    SL_LIST_FOREACH (link, &opener->models->opened) {
        struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_model_entry, opened);
        if (entry->current != NULL && entry->newer == NULL && entry->wanted == 0 &&
            may_begin(entry) && entry->retry_ns <= opener_now(opener)) {
            opener->newest = sl_subscription_newest(entry->subscription);
            if (opener->newest == 0 && !entry->is_running) { /* all were removed */
                sl_serve_model_entry_drop(entry);
            } else if (opener->newest != 0 && opener->newest != entry->current->number &&
                       opener->newest != entry->bad) {
                return entry;
            }
        }
    }
    return NULL;
}

void sl_serve_opener_next(struct sl_serve_opener *opener)
{
    if (opener->entry != NULL) {
        return;
    }
    struct sl_serve_model_entry *entry = find_closing(opener);
    const bool opens = entry == NULL;
    entry = entry == NULL ? find_cold(opener) : entry;
    entry = entry == NULL ? find_outdated(opener) : entry;
    if (entry != NULL) {
        begin(opener, entry, opens);
    }
}
