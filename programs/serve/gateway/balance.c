#include "programs/serve/gateway/balance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/hash.h"

#define BASIC_SLOTS 4 /* of PipePS */
#define BASIC_FEW   2
#define SLOTS_MAX   128
#define UNKNOWN_NS  10000000 /* cost of a request for a model that no worker knows */
#define COST_NS_MAX (3600 * SL_CLOCK_NS_PER_S)
#define SILENT_NS   (200 * SL_CLOCK_NS_PER_MS)
#define OVERDUE_NS  SL_CLOCK_NS_PER_S
#define LAST_RANK   (1ULL << 60)

void sl_serve_balance_init(struct sl_serve_balance *balance, enum sl_serve_strategy strategy)
{
    memset(balance, 0, sizeof *balance);
    balance->strategy = strategy;
    sl_list_init(&balance->workers);
}

static void model_free(struct sl_serve_model *model)
{
    for (uint32_t i = 0; i < SL_SERVE_HOSTS_MAX; i++) {
        free(model->loads[i]);
    }
    free(model);
}

void sl_serve_balance_fini(struct sl_serve_balance *balance)
{
    sl_assert(sl_list_empty(&balance->workers));
    for (uint32_t i = 0; i < SL_SERVE_BALANCE_BUCKETS; i++) {
        struct sl_serve_model *next;
        for (struct sl_serve_model *model = balance->buckets[i]; model != NULL; model = next) {
            next = model->next;
            model_free(model);
        }
        balance->buckets[i] = NULL;
    }
}

struct sl_serve_model *sl_serve_balance_model(struct sl_serve_balance *balance, const char *name)
{
    struct sl_serve_model **bucket =
        &balance->buckets[sl_hash_bytes(name, strlen(name), 0) % SL_SERVE_BALANCE_BUCKETS];
    for (struct sl_serve_model *model = *bucket; model != NULL; model = model->next) {
        if (strcmp(model->name, name) == 0) {
            return model;
        }
    }
    struct sl_serve_model *made = calloc(1, sizeof *made);
    if (made != NULL) {
        (void)snprintf(made->name, sizeof made->name, "%s", name);
        made->next = *bucket;
        *bucket = made;
    }
    return made;
}

/* Workers */

/* The index of the label, or a free one; SL_SERVE_HOSTS_MAX: there is none. */
static uint32_t find_host(const struct sl_serve_balance *balance, const char *label)
{
    SL_LIST_EACH (const struct sl_serve_balance_worker, worker, link, &balance->workers) {
        if (strcmp(worker->host, label) == 0) {
            return worker->host_index;
        }
    }
    uint32_t host = 0;
    while (host < SL_SERVE_HOSTS_MAX && balance->host_uses[host] > 0) {
        host++;
    }
    return host;
}

int sl_serve_balance_join(struct sl_serve_balance *balance, struct sl_serve_balance_worker *worker)
{
    const uint32_t host = find_host(balance, worker->host);
    if (host == SL_SERVE_HOSTS_MAX || balance->worker_count == SL_SERVE_WORKERS_MAX) {
        return SL_ERR_TOO_LARGE;
    }
    /* One batch computes while the next one gathers. */
    const uint64_t slots =
        balance->strategy == SL_SERVE_BASIC ? BASIC_SLOTS : 2 * (uint64_t)worker->batch_max;
    worker->slots = slots < SLOTS_MAX ? (uint32_t)slots : SLOTS_MAX;
    worker->host_index = host;
    sl_list_init(&worker->uses);
    balance->host_uses[host]++;
    balance->worker_count++;
    sl_list_append(&balance->workers, &worker->link);
    return 0;
}

static void forget_host(struct sl_serve_balance *balance, uint32_t host)
{
    for (uint32_t i = 0; i < SL_SERVE_BALANCE_BUCKETS; i++) {
        for (struct sl_serve_model *model = balance->buckets[i]; model != NULL;
             model = model->next) {
            free(model->loads[host]);
            model->loads[host] = NULL;
        }
    }
}

void sl_serve_balance_leave(struct sl_serve_balance *balance,
                            struct sl_serve_balance_worker *worker)
{
    sl_assert(worker->use_count == 0);
    sl_list_remove(&worker->link);
    balance->worker_count--;
    if (--balance->host_uses[worker->host_index] == 0) {
        forget_host(balance, worker->host_index);
    }
}

void sl_serve_balance_report(struct sl_serve_balance *balance,
                             struct sl_serve_balance_worker *worker,
                             const struct sl_serve_message *load, uint64_t now_ns)
{
    uint64_t had_ns = 0;
    uint32_t had_count = 0;
    SL_LIST_EACH (const struct sl_serve_use, use, link, &worker->uses) {
        had_ns += use->is_received ? use->cost_ns : 0;
        had_count += use->is_received ? 1 : 0;
    }
    const uint64_t queue_ns = load->queue_ns < COST_NS_MAX ? load->queue_ns : COST_NS_MAX;
    worker->correction_ns = (int64_t)queue_ns - (int64_t)had_ns;
    worker->other_count = load->queue_count > had_count ? load->queue_count - had_count : 0;
    worker->reported_ns = now_ns;
    for (uint32_t i = 0; i < load->load_count; i++) {
        const struct sl_serve_load *from = &load->loads[i];
        struct sl_serve_model *model = sl_serve_balance_model(balance, from->model);
        struct sl_serve_load **to = model != NULL ? &model->loads[worker->host_index] : NULL;
        if (to != NULL && *to == NULL) {
            *to = calloc(1, sizeof **to);
        }
        if (to != NULL && *to != NULL && from->version >= (*to)->version) {
            **to = *from;
            model->host = worker->host_index;
        }
    }
}

/* Costs */

uint64_t sl_serve_balance_queue_ns(const struct sl_serve_balance_worker *worker, uint64_t now_ns)
{
    const int64_t elapsed_ns = (int64_t)(now_ns - worker->reported_ns);
    int64_t correction_ns = worker->correction_ns;
    if (correction_ns > 0) { /* work of others, which proceeds */
        correction_ns = correction_ns > elapsed_ns ? correction_ns - elapsed_ns : 0;
    }
    const int64_t queue_ns = (int64_t)worker->uses_ns + correction_ns;
    return queue_ns > 0 ? (uint64_t)queue_ns : 0;
}

static bool is_at(const struct sl_serve_balance_worker *worker, const struct sl_serve_model *model)
{
    SL_LIST_EACH (struct sl_serve_use, use, link, &worker->uses) {
        if (use->model == model) {
            return true;
        }
    }
    return false;
}

/* Rows that join others of their model share the batch, and the load, with them. */
static uint64_t cost_ns(const struct sl_serve_balance_worker *worker,
                        const struct sl_serve_model *model, uint64_t rows, bool joins)
{
    const struct sl_serve_load *here = model->loads[worker->host_index];
    const struct sl_serve_load *load = here != NULL ? here : model->loads[model->host];
    if (load == NULL) {
        return UNKNOWN_NS;
    }
    double batches = (double)rows / worker->batch_max;
    batches = joins || batches > 1 ? batches : 1;
    const double compute = (double)load->batch_ns * batches + (double)load->row_ns * (double)rows;
    const double transfer =
        (double)load->alpha_ns + (double)load->bytes * (double)load->beta_ps / 1000;
    double cost = compute;
    if (!joins && here != NULL) {
        cost += (double)here->exposed_ns;
    } else if (!joins && transfer > compute) {
        cost = transfer;
    }
    return cost < COST_NS_MAX ? (uint64_t)cost : COST_NS_MAX;
}

static bool holds(const struct sl_serve_balance_worker *worker, const struct sl_serve_model *model)
{
    const struct sl_serve_load *load = model->loads[worker->host_index];
    return (load != NULL && load->bytes > 0 && load->resident_bytes >= load->bytes / 2) ||
           is_at(worker, model);
}

/* By the rule of PipePS: the class first, then the number of requests. */
static uint64_t basic_rank(const struct sl_serve_balance_worker *worker,
                           const struct sl_serve_model *model)
{
    const uint64_t count = (uint64_t)worker->use_count + worker->other_count;
    const bool is_holder = holds(worker, model);
    const uint64_t class = count == 0                       ? (is_holder ? 0 : 1)
                           : is_holder && count < BASIC_FEW ? 2
                                                            : 3;
    return count < BASIC_SLOTS ? class << 32 | count : UINT64_MAX;
}

static bool is_silent(const struct sl_serve_balance_worker *worker, uint64_t now_ns)
{
    SL_LIST_EACH (const struct sl_serve_use, use, link, &worker->uses) {
        if (use->is_received ? now_ns > use->due_ns + OVERDUE_NS
                             : now_ns - use->begun_ns > SILENT_NS) {
            return true;
        }
    }
    return false;
}

uint32_t sl_serve_balance_able(const struct sl_serve_balance *balance, uint64_t now_ns)
{
    uint32_t count = 0;
    SL_LIST_EACH (const struct sl_serve_balance_worker, worker, link, &balance->workers) {
        count += !worker->is_leaving && !is_silent(worker, now_ns);
    }
    return count;
}

struct sl_serve_balance_worker *sl_serve_balance_choose(const struct sl_serve_balance *balance,
                                                        const struct sl_serve_model *model,
                                                        uint64_t rows, uint64_t now_ns,
                                                        uint64_t *out_cost_ns)
{
    struct sl_serve_balance_worker *best = NULL;
    uint64_t least = UINT64_MAX;
    SL_LIST_EACH (struct sl_serve_balance_worker, worker, link, &balance->workers) {
        if (worker->is_leaving || worker->is_full || worker->use_count >= worker->slots) {
            continue;
        }
        const uint64_t cost = cost_ns(worker, model, rows, is_at(worker, model));
        uint64_t rank = balance->strategy == SL_SERVE_BASIC
                            ? basic_rank(worker, model)
                            : sl_serve_balance_queue_ns(worker, now_ns) + cost;
        rank += rank < LAST_RANK && is_silent(worker, now_ns) ? LAST_RANK : 0;
        if (rank < least) {
            least = rank;
            best = worker;
            *out_cost_ns = cost;
        }
    }
    return best;
}

static bool is_tried(const struct sl_serve_balance *balance, const struct sl_serve_model *model)
{
    bool is = model->waiting > 0;
    SL_LIST_EACH (struct sl_serve_balance_worker, worker, link, &balance->workers) {
        is = is || is_at(worker, model);
    }
    return is;
}

bool sl_serve_balance_expect(const struct sl_serve_balance *balance,
                             const struct sl_serve_model *model, uint64_t rows, uint64_t now_ns,
                             uint64_t *finish_ns, uint64_t *out_cost_ns)
{
    const bool counts_cost = is_tried(balance, model);
    uint64_t least = UINT64_MAX;
    SL_LIST_EACH (const struct sl_serve_balance_worker, worker, link, &balance->workers) {
        if (worker->is_leaving) {
            continue;
        }
        const bool joins = is_at(worker, model) || model->waiting > 0;
        const uint64_t cost = cost_ns(worker, model, rows, joins);
        const uint64_t finish =
            sl_serve_balance_queue_ns(worker, now_ns) + (counts_cost ? cost : 0);
        if (finish < least) {
            least = finish;
            *finish_ns = finish;
            *out_cost_ns = cost;
        }
    }
    return least != UINT64_MAX;
}

/* Uses */

void sl_serve_balance_begin(struct sl_serve_balance *balance, struct sl_serve_use *use)
{
    struct sl_serve_balance_worker *worker = use->worker;
    sl_assert(worker->use_count < worker->slots);
    worker->use_count++;
    worker->uses_ns += use->cost_ns;
    sl_list_append(&worker->uses, &use->link);
    sl_list_append(&balance->workers, &worker->link); /* among equals the one that waited longest */
}

void sl_serve_balance_end(struct sl_serve_use *use)
{
    struct sl_serve_balance_worker *worker = use->worker;
    sl_list_remove(&use->link);
    worker->use_count--;
    worker->uses_ns -= use->cost_ns;
    if (use->is_received && worker->correction_ns < 0) { /* the part of it that was done then */
        worker->correction_ns += (int64_t)use->cost_ns;
        worker->correction_ns = worker->correction_ns < 0 ? worker->correction_ns : 0;
    }
}
