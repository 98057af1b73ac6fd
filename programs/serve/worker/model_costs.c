#include "programs/serve/worker/model_costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOPS_PER_US 5000 /* before the first run */
#define LEARN        0.25 /* weight of the last run */
#define MIB          1048576.0

void sl_serve_model_costs_init(struct sl_serve_model_costs_models *models)
{
    *models = (struct sl_serve_model_costs_models){.flops_per_us = FLOPS_PER_US};
    sl_list_init(&models->all);
    sl_list_init(&models->opened);
    sl_list_init(&models->changed);
}

static void model_costs_forget(struct sl_serve_model_costs_models *models,
                               struct sl_serve_model_costs *known)
{
    SL_LIST_FOREACH (link, &known->old) {
        struct sl_serve_version *old = SL_CONTAINER_OF(link, struct sl_serve_version, link);
        sl_list_remove(link);
        sl_serve_version_close(&old);
    }
    sl_serve_version_close(&known->newer);
    sl_serve_version_close(&known->current);
    sl_subscription_close(&known->subscription);
    sl_list_remove(&known->link);
    sl_list_remove(&known->opened);
    sl_list_remove(&known->changed);
    free(known->profile.layers);
    free(known);
    models->count--;
}

void sl_serve_model_costs_fini(struct sl_serve_model_costs_models *models)
{
    SL_LIST_FOREACH (link, &models->all) {
        model_costs_forget(models, SL_CONTAINER_OF(link, struct sl_serve_model_costs, link));
    }
}

static bool is_unused(const struct sl_serve_model_costs *known)
{
    return known->waiting == 0 && !known->is_opening && !known->is_running &&
           known->current == NULL && known->newer == NULL && sl_list_empty(&known->old);
}

/* The longest unused entry, with or without a subscription. */
static struct sl_serve_model_costs *find_unused(struct sl_serve_model_costs_models *models,
                                                bool has_subscription)
{
    SL_LIST_FOREACH (link, &models->all) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, link);
        if (is_unused(known) && (known->subscription != NULL) == has_subscription) {
            return known;
        }
    }
    return NULL;
}

struct sl_serve_model_costs *sl_serve_model_costs_find(struct sl_serve_model_costs_models *models,
                                                       const char *name, uint64_t wanted)
{
    for (struct sl_list_link *link = models->all.head.prev; link != &models->all.head;
         link = link->prev) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, link);
        if (known->wanted == wanted && strcmp(known->name, name) == 0) {
            sl_list_append(&models->all, link);
            return known;
        }
    }
    if (models->count >= SL_SERVE_KNOWN_MAX) {
        struct sl_serve_model_costs *unused = find_unused(models, false);
        if (unused == NULL) {
            return NULL;
        }
        model_costs_forget(models, unused);
    }
    struct sl_serve_model_costs *made = calloc(1, sizeof *made);
    if (made != NULL) {
        (void)snprintf(made->name, sizeof made->name, "%s", name);
        made->wanted = wanted;
        sl_list_init(&made->old);
        sl_list_append(&models->all, &made->link);
        models->count++;
    }
    return made;
}

struct sl_subscription *sl_serve_model_costs_spare(struct sl_serve_model_costs_models *models)
{
    struct sl_serve_model_costs *unused = NULL;
    if (models->subscription_count >= SL_SERVE_SUBSCRIPTIONS_MAX) {
        unused = find_unused(models, true);
    }
    if (unused == NULL) {
        return NULL;
    }
    struct sl_subscription *spare = unused->subscription;
    unused->subscription = NULL;
    models->subscription_count--;
    return spare;
}

void sl_serve_model_costs_change(struct sl_serve_model_costs_models *models,
                                 struct sl_serve_model_costs *known)
{
    known->reported.change = ++models->change_count;
    sl_list_append(&models->changed, &known->changed);
}

void sl_serve_model_costs_opened(struct sl_serve_model_costs_models *models,
                                 struct sl_serve_model_costs *known,
                                 struct sl_serve_version *version, uint64_t now_ns)
{
    known->profile.head = version->head;
    known->reported.number = version->number;
    known->reported.bytes = version->bytes;
    known->reported.resident_bytes = 0; /* until the next look */
    known->used_ns = now_ns;
    if (known->current == NULL) {
        known->current = version;
        known->ready_ns = now_ns;
    } else {
        known->newer = version;
    }
    sl_serve_model_costs_change(models, known);
}

void sl_serve_model_costs_drop(struct sl_serve_model_costs *known)
{
    sl_list_append(&known->old, &known->current->link);
    known->current = known->newer;
    known->newer = NULL;
}

/* Costs */

void sl_serve_model_costs_learn(struct sl_serve_model_costs_models *models,
                                struct sl_serve_model_costs *known, uint32_t rows,
                                const struct sl_serve_times *times)
{
    const struct sl_engine_info *info = known->current->info;
    struct sl_serve_profile *profile = &known->profile;
    double sum_us = 1e-3, flops = 0;
    float weight = (float)LEARN;
    if (profile->layer_count != info->layer_count) {
        free(profile->layers);
        profile->layers = calloc(info->layer_count + 1, sizeof *profile->layers);
        profile->layer_count = profile->layers != NULL ? info->layer_count : 0;
        weight = 1;
    }
    for (uint32_t i = 0; i < info->layer_count; i++) {
        sum_us += times->layers[i];
        flops += info->layers[i].flops * rows;
    }
    for (uint32_t i = 0; i < profile->layer_count; i++) {
        const float share = (float)(times->layers[i] / sum_us);
        profile->layers[i].share += (share - profile->layers[i].share) * weight;
        profile->layers[i].image_end = info->layers[i].image_end;
    }
    sl_objects_cost_add(&known->runs, rows, times->run_ns);
    models->flops_per_us += LEARN * (flops / sum_us - models->flops_per_us);
    sl_serve_model_costs_change(models, known);
}

double sl_serve_model_costs_run_ns(const struct sl_serve_model_costs *known, uint32_t rows)
{
    double batch_ns, row_ns;
    sl_objects_cost_fit(&known->runs, &batch_ns, &row_ns);
    return batch_ns + row_ns * rows;
}

double sl_serve_model_costs_exposed_ns(const struct sl_serve_model_costs *known)
{
    const double missing = (double)(known->reported.bytes - known->reported.resident_bytes);
    const double load_us =
        missing > 0 ? known->reported.read_us + missing / MIB * known->reported.mib_us : 0;
    const double exposed_ns = load_us * SL_CLOCK_NS_PER_US - sl_serve_model_costs_run_ns(known, 1);
    return exposed_ns > 0 ? exposed_ns : 0;
}

/* Report */

void sl_serve_model_costs_look(struct sl_serve_model_costs_models *models)
{
    SL_LIST_FOREACH (link, &models->all) {
        struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, link);
        struct sl_residency now;
        if (known->subscription == NULL || known->is_opening || known->wanted != 0 ||
            known->reported.bytes == 0) {
            continue;
        }
        sl_subscription_residency(known->subscription, &now);
        now.bytes = now.bytes < known->reported.bytes ? now.bytes : known->reported.bytes;
        if (now.version != known->reported.number) {
            now.bytes = 0;
        }
        if (now.bytes != known->reported.resident_bytes) {
            known->reported.resident_bytes = now.bytes;
            known->reported.read_us = now.read_us;
            known->reported.mib_us = now.mib_us;
            sl_serve_model_costs_change(models, known);
        }
    }
}

uint64_t sl_serve_model_costs_report(const struct sl_serve_model_costs_models *models,
                                     uint64_t seen, struct sl_serve_message *load)
{
    const struct sl_list_link *end = &models->changed.head;
    const struct sl_list_link *link = end->prev;
    while (link != end &&
           SL_CONTAINER_OF(link, struct sl_serve_model_costs, changed)->reported.change > seen) {
        link = link->prev;
    }
    for (link = link->next; link != end && load->load_count < SL_SERVE_LOADS_MAX;
         link = link->next) {
        const struct sl_serve_model_costs *known =
            SL_CONTAINER_OF(link, struct sl_serve_model_costs, changed);
        double batch_ns, row_ns;
        seen = known->reported.change;
        if (known->reported.number == 0 || known->wanted != 0) {
            continue;
        }
        sl_objects_cost_fit(&known->runs, &batch_ns, &row_ns);
        struct sl_serve_load *to = &load->loads[load->load_count++];
        *to = (struct sl_serve_load){
            .version = known->reported.number,
            .bytes = known->reported.bytes,
            .resident_bytes = known->reported.resident_bytes,
            .alpha_ns = (uint64_t)(known->reported.read_us * SL_CLOCK_NS_PER_US),
            .beta_ps = (uint64_t)(known->reported.mib_us * SL_CLOCK_NS_PER_US * 1000 / MIB),
            .batch_ns = (uint64_t)batch_ns,
            .row_ns = (uint64_t)row_ns,
            .exposed_ns = (uint64_t)sl_serve_model_costs_exposed_ns(known)};
        (void)snprintf(to->model, sizeof to->model, "%s", known->name);
    }
    return seen;
}
