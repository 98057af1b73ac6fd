#include "programs/serve/worker/model_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOPS_PER_US 5000 /* before the first run */
#define LEARN        0.25 /* weight of the last run */
#define MIB          1048576.0

void sl_serve_model_table_init(struct sl_serve_model_table *models)
{
    *models = (struct sl_serve_model_table){.flops_per_us = FLOPS_PER_US};
    sl_list_init(&models->all);
    sl_list_init(&models->opened);
    sl_list_init(&models->changed);
}

static void model_table_forget(struct sl_serve_model_table *models,
                               struct sl_serve_model_entry *entry)
{
    SL_LIST_EACH (struct sl_serve_version, old, link, &entry->old) {
        sl_list_remove(&old->link);
        sl_serve_version_close(&old);
    }
    sl_serve_version_close(&entry->newer);
    sl_serve_version_close(&entry->current);
    sl_subscription_close(&entry->subscription);
    sl_list_remove(&entry->link);
    sl_list_remove(&entry->opened);
    sl_list_remove(&entry->changed);
    free(entry->profile.layers);
    free(entry);
    models->count--;
}

void sl_serve_model_table_fini(struct sl_serve_model_table *models)
{
    SL_LIST_EACH (struct sl_serve_model_entry, entry, link, &models->all) {
        model_table_forget(models, entry);
    }
}

static bool is_unused(const struct sl_serve_model_entry *entry)
{
    return entry->waiting == 0 && !entry->is_opening && !entry->is_running &&
           entry->current == NULL && entry->newer == NULL && sl_list_empty(&entry->old);
}

/* The longest unused entry, with or without a subscription. */
static struct sl_serve_model_entry *find_unused(struct sl_serve_model_table *models,
                                                bool has_subscription)
{
    SL_LIST_EACH (struct sl_serve_model_entry, entry, link, &models->all) {
        if (is_unused(entry) && (entry->subscription != NULL) == has_subscription) {
            return entry;
        }
    }
    return NULL;
}

struct sl_serve_model_entry *sl_serve_model_table_find(struct sl_serve_model_table *models,
                                                       const char *name, uint64_t wanted)
{
    for (struct sl_list_link *link = models->all.head.prev; link != &models->all.head;
         link = link->prev) {
        struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_model_entry, link);
        if (entry->wanted == wanted && strcmp(entry->name, name) == 0) {
            sl_list_append(&models->all, link);
            return entry;
        }
    }
    if (models->count >= SL_SERVE_MODELS_MAX) {
        struct sl_serve_model_entry *unused = find_unused(models, false);
        if (unused == NULL) {
            return NULL;
        }
        model_table_forget(models, unused);
    }
    struct sl_serve_model_entry *made = calloc(1, sizeof *made);
    if (made != NULL) {
        (void)snprintf(made->name, sizeof made->name, "%s", name);
        made->wanted = wanted;
        sl_list_init(&made->old);
        sl_list_append(&models->all, &made->link);
        models->count++;
    }
    return made;
}

struct sl_subscription *sl_serve_model_table_spare(struct sl_serve_model_table *models)
{
    struct sl_serve_model_entry *unused = NULL;
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

void sl_serve_model_table_change(struct sl_serve_model_table *models,
                                 struct sl_serve_model_entry *entry)
{
    entry->reported.change = ++models->change_count;
    sl_list_append(&models->changed, &entry->changed);
}

void sl_serve_model_table_opened(struct sl_serve_model_table *models,
                                 struct sl_serve_model_entry *entry,
                                 struct sl_serve_version *version, uint64_t now_ns)
{
    entry->profile.head = version->head;
    entry->reported.number = version->number;
    entry->reported.bytes = version->bytes;
    entry->reported.resident_bytes = 0; /* until the next look */
    entry->used_ns = now_ns;
    if (entry->current == NULL) {
        entry->current = version;
        entry->ready_ns = now_ns;
    } else {
        entry->newer = version;
    }
    sl_serve_model_table_change(models, entry);
}

void sl_serve_model_entry_drop(struct sl_serve_model_entry *entry)
{
    sl_list_append(&entry->old, &entry->current->link);
    entry->current = entry->newer;
    entry->newer = NULL;
}

/* Costs */

void sl_serve_model_table_learn(struct sl_serve_model_table *models,
                                struct sl_serve_model_entry *entry, uint32_t rows,
                                const struct sl_serve_times *times)
{
    const struct sl_engine_info *info = entry->current->info;
    struct sl_serve_profile *profile = &entry->profile;
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
    sl_objects_cost_add(&entry->runs, rows, times->run_ns);
    models->flops_per_us += LEARN * (flops / sum_us - models->flops_per_us);
    sl_serve_model_table_change(models, entry);
}

double sl_serve_model_entry_run_ns(const struct sl_serve_model_entry *entry, uint32_t rows)
{
    double batch_ns, row_ns;
    sl_objects_cost_fit(&entry->runs, &batch_ns, &row_ns);
    return batch_ns + row_ns * rows;
}

double sl_serve_model_entry_exposed_ns(const struct sl_serve_model_entry *entry)
{
    const double missing = (double)(entry->reported.bytes - entry->reported.resident_bytes);
    const double load_us =
        missing > 0 ? entry->reported.read_us + missing / MIB * entry->reported.mib_us : 0;
    const double exposed_ns = load_us * SL_CLOCK_NS_PER_US - sl_serve_model_entry_run_ns(entry, 1);
    return exposed_ns > 0 ? exposed_ns : 0;
}

/* Report */

void sl_serve_model_table_look(struct sl_serve_model_table *models)
{
    SL_LIST_EACH (struct sl_serve_model_entry, entry, link, &models->all) {
        struct sl_residency now;
        if (entry->subscription == NULL || entry->is_opening || entry->wanted != 0 ||
            entry->reported.bytes == 0) {
            continue;
        }
        sl_subscription_residency(entry->subscription, &now);
        now.bytes = now.bytes < entry->reported.bytes ? now.bytes : entry->reported.bytes;
        if (now.version != entry->reported.number) {
            now.bytes = 0;
        }
        if (now.bytes != entry->reported.resident_bytes) {
            entry->reported.resident_bytes = now.bytes;
            entry->reported.read_us = now.read_us;
            entry->reported.mib_us = now.mib_us;
            sl_serve_model_table_change(models, entry);
        }
    }
}

uint64_t sl_serve_model_table_report(const struct sl_serve_model_table *models, uint64_t seen,
                                     struct sl_serve_message *load)
{
    const struct sl_list_link *end = &models->changed.head;
    const struct sl_list_link *link = end->prev;
    while (link != end &&
           SL_CONTAINER_OF(link, struct sl_serve_model_entry, changed)->reported.change > seen) {
        link = link->prev;
    }
    for (link = link->next; link != end && load->load_count < SL_SERVE_LOADS_MAX;
         link = link->next) {
        const struct sl_serve_model_entry *entry =
            SL_CONTAINER_OF(link, struct sl_serve_model_entry, changed);
        double batch_ns, row_ns;
        seen = entry->reported.change;
        if (entry->reported.number == 0 || entry->wanted != 0) {
            continue;
        }
        sl_objects_cost_fit(&entry->runs, &batch_ns, &row_ns);
        struct sl_serve_load *to = &load->loads[load->load_count++];
        *to = (struct sl_serve_load){
            .version = entry->reported.number,
            .bytes = entry->reported.bytes,
            .resident_bytes = entry->reported.resident_bytes,
            .alpha_ns = (uint64_t)(entry->reported.read_us * SL_CLOCK_NS_PER_US),
            .beta_ps = (uint64_t)(entry->reported.mib_us * SL_CLOCK_NS_PER_US * 1000 / MIB),
            .batch_ns = (uint64_t)batch_ns,
            .row_ns = (uint64_t)row_ns,
            .exposed_ns = (uint64_t)sl_serve_model_entry_exposed_ns(entry)};
        (void)snprintf(to->model, sizeof to->model, "%s", entry->name);
    }
    return seen;
}
