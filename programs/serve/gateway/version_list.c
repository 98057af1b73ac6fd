#include "programs/serve/gateway/version_list.h"

#include <stdio.h>
#include <string.h>

#define EVERY_NS (2 * SL_CLOCK_NS_PER_S)
#define LIST_MS  2000

static struct sl_serve_version_list *listing_of(struct sl_offload_job *job)
{
    return SL_CONTAINER_OF(job, struct sl_serve_version_list, job);
}

static void version_list(struct sl_offload_job *job)
{
    struct sl_serve_version_list *listing = listing_of(job);
    const int err = sl_object_list(listing->objects, NULL, LIST_MS, &listing->next);
    (void)snprintf(listing->next_reason, sizeof listing->next_reason, "%s",
                   err == 0 ? "" : sl_objects_last_error());
}

static void version_list_listed(struct sl_offload_job *job)
{
    struct sl_serve_version_list *listing = listing_of(job);
    listing->is_asking = false;
    memcpy(listing->reason, listing->next_reason, sizeof listing->reason);
    const bool has_come = listing->next != NULL;
    if (has_come) {
        sl_object_list_free(&listing->list);
        listing->list = listing->next;
        listing->next = NULL;
        listing->listed_ns = listing->asked_ns;
    }
    if (!listing->is_stopped) {
        sl_reactor_arm(listing->reactor, &listing->timer,
                       has_come ? EVERY_NS : SL_SERVE_LISTING_FRESH_NS);
    }
    listing->listed(listing->ctx);
}

static void version_list_ask(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_version_list *listing =
        SL_CONTAINER_OF(timer, struct sl_serve_version_list, timer);
    listing->is_asking = true;
    listing->asked_ns = now_ns;
    listing->job = (struct sl_offload_job){
        .work = version_list, .done = version_list_listed, .allocates = true};
    listing->post(listing->post_ctx, &listing->job);
}

void sl_serve_version_list_start(struct sl_serve_version_list *listing)
{
    listing->timer.run = version_list_ask;
    sl_reactor_arm(listing->reactor, &listing->timer, 0);
}

void sl_serve_version_list_refresh(struct sl_serve_version_list *listing)
{
    const uint64_t since_ns = sl_reactor_now_ns(listing->reactor) - listing->asked_ns;
    if (!listing->is_asking && !listing->is_stopped) {
        sl_reactor_arm(listing->reactor, &listing->timer,
                       since_ns < SL_SERVE_LISTING_FRESH_NS ? SL_SERVE_LISTING_FRESH_NS - since_ns
                                                            : 0);
    }
}

uint64_t sl_serve_version_list_find(const struct sl_serve_version_list *listing, const char *name,
                                    const struct sl_object_entry **first)
{
    const struct sl_object_list *all = listing->list;
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

bool sl_serve_version_list_stop(struct sl_serve_version_list *listing)
{
    listing->is_stopped = true;
    sl_reactor_disarm(listing->reactor, &listing->timer);
    return !listing->is_asking;
}
