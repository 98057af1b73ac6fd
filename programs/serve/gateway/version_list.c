#include "programs/serve/gateway/version_list.h"

#include <stdio.h>
#include <string.h>

#include "core/array.h"

#define EVERY_NS (2 * SL_CLOCK_NS_PER_S)
#define LIST_MS  2000

static struct sl_serve_version_list *listing_of(struct sl_offload_job *job)
{
    return SL_CONTAINER_OF(job, struct sl_serve_version_list, job);
}

static void version_list(struct sl_offload_job *job)
{
    struct sl_serve_version_list *versions = listing_of(job);
    const int err = sl_object_list(versions->objects, NULL, LIST_MS, &versions->next);
    (void)snprintf(versions->next_reason, sizeof versions->next_reason, "%s",
                   err == 0 ? "" : sl_objects_last_error());
}

static void version_list_listed(struct sl_offload_job *job)
{
    struct sl_serve_version_list *versions = listing_of(job);
    versions->is_asking = false;
    memcpy(versions->reason, versions->next_reason, sizeof versions->reason);
    const bool has_come = versions->next != NULL;
    if (has_come) {
        sl_object_list_free(&versions->list);
        versions->list = versions->next;
        versions->next = NULL;
        versions->listed_ns = versions->asked_ns;
    }
    if (!versions->is_stopped) {
        sl_reactor_arm(versions->reactor, &versions->timer,
                       has_come ? EVERY_NS : SL_SERVE_VERSION_LIST_FRESH_NS);
    }
    versions->listed(versions->ctx);
}

static void version_list_ask(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_version_list *versions =
        SL_CONTAINER_OF(timer, struct sl_serve_version_list, timer);
    versions->is_asking = true;
    versions->asked_ns = now_ns;
    versions->job = (struct sl_offload_job){
        .work = version_list, .done = version_list_listed, .allocates = true};
    versions->post(versions->post_ctx, &versions->job);
}

void sl_serve_version_list_start(struct sl_serve_version_list *versions)
{
    versions->timer.run = version_list_ask;
    sl_reactor_arm(versions->reactor, &versions->timer, 0);
}

void sl_serve_version_list_refresh(struct sl_serve_version_list *versions)
{
    const uint64_t since_ns = sl_reactor_now_ns(versions->reactor) - versions->asked_ns;
    if (!versions->is_asking && !versions->is_stopped) {
        sl_reactor_arm(versions->reactor, &versions->timer,
                       since_ns < SL_SERVE_VERSION_LIST_FRESH_NS
                           ? SL_SERVE_VERSION_LIST_FRESH_NS - since_ns
                           : 0);
    }
}

uint64_t sl_serve_version_list_find(const struct sl_serve_version_list *versions, const char *name,
                                    const struct sl_object_entry **first)
{
    const struct sl_object_list *all = versions->list;
    const uint64_t all_count = all != NULL ? all->count : 0;
    uint64_t at = 0, count = 0;
    SL_ARRAY_BISECT(at, all_count, i, strcmp(all->entries[i].name, name) < 0);
    while (at + count < all_count && strcmp(all->entries[at + count].name, name) == 0) {
        count++;
    }
    if (count > 0) {
        *first = &all->entries[at];
    }
    return count;
}

bool sl_serve_version_list_stop(struct sl_serve_version_list *versions)
{
    versions->is_stopped = true;
    sl_reactor_disarm(versions->reactor, &versions->timer);
    return !versions->is_asking;
}
