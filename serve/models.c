#include "serve/models.h"

#include <stdio.h>
#include <string.h>

#define EVERY_NS (2 * SL_CLOCK_NS_PER_S)
#define LIST_MS  2000

static struct sl_serve_models *models_of(struct sl_offload_job *job)
{
    return SL_CONTAINER_OF(job, struct sl_serve_models, job);
}

static void list(struct sl_offload_job *job)
{
    struct sl_serve_models *models = models_of(job);
    const int err = sl_object_list(models->objects, NULL, LIST_MS, &models->next);
    (void)snprintf(models->next_reason, sizeof models->next_reason, "%s",
                   err == 0 ? "" : sl_objects_last_error());
}

static void listed(struct sl_offload_job *job)
{
    struct sl_serve_models *models = models_of(job);
    models->is_asking = false;
    memcpy(models->reason, models->next_reason, sizeof models->reason);
    if (models->next != NULL) {
        sl_object_list_free(&models->list);
        models->list = models->next;
        models->next = NULL;
        models->listed_ns = models->asked_ns;
    }
    if (!models->is_stopped) {
        sl_reactor_arm(models->reactor, &models->timer, EVERY_NS);
    }
    models->listed(models->ctx);
}

static void ask(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_models *models = SL_CONTAINER_OF(timer, struct sl_serve_models, timer);
    models->is_asking = true;
    models->asked_ns = now_ns;
    models->job = (struct sl_offload_job){.work = list, .done = listed, .allocates = true};
    models->post(models->post_ctx, &models->job);
}

void sl_serve_models_start(struct sl_serve_models *models)
{
    models->timer.run = ask;
    sl_reactor_arm(models->reactor, &models->timer, 0);
}

void sl_serve_models_refresh(struct sl_serve_models *models)
{
    const uint64_t since_ns = sl_reactor_now_ns(models->reactor) - models->asked_ns;
    if (!models->is_asking && !models->is_stopped) {
        sl_reactor_arm(models->reactor, &models->timer,
                       since_ns < SL_SERVE_MODELS_FRESH_NS ? SL_SERVE_MODELS_FRESH_NS - since_ns
                                                           : 0);
    }
}

uint64_t sl_serve_models_find(const struct sl_serve_models *models, const char *name,
                              const struct sl_object_entry **first)
{
    const struct sl_object_list *all = models->list;
    uint64_t low = 0, high = all != NULL ? all->count : 0, count = 0;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (strcmp(all->entries[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (all != NULL && low + count < all->count &&
           strcmp(all->entries[low + count].name, name) == 0) {
        count++;
    }
    if (count > 0) {
        *first = &all->entries[low];
    }
    return count;
}

bool sl_serve_models_stop(struct sl_serve_models *models)
{
    models->is_stopped = true;
    sl_reactor_disarm(models->reactor, &models->timer);
    return !models->is_asking;
}
