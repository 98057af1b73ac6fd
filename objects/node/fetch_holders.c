#include "objects/node/fetch_holders.h"

#include <stdio.h>

#include "core/clock.h"

#define FORGIVE_NS SL_CLOCK_NS_PER_S /* then a holder that failed is tried again */

struct sl_objects_holder *sl_objects_fetch_holders_find(struct sl_objects_fetch_holders *holders,
                                                        uint64_t node)
{
    for (uint32_t i = 0; i < holders->count; i++) {
        if (holders->items[i].node == node) {
            return &holders->items[i];
        }
    }
    return NULL;
}

static void add(struct sl_objects_fetch_holders *holders, uint64_t own,
                const struct sl_objects_peer *peer)
{
    struct sl_objects_holder *holder = sl_objects_fetch_holders_find(holders, peer->node);
    if (peer->node == 0 || peer->node == own) {
        return;
    }
    if (holder == NULL && holders->count < SL_OBJECTS_FETCH_HOLDERS_MAX) {
        holder = &holders->items[holders->count++];
        *holder = (struct sl_objects_holder){.node = peer->node};
    } else if (holder == NULL) { /* instead of the one that has failed last */
        holder = &holders->items[SL_OBJECTS_FETCH_HOLDERS_MAX - 1];
        for (uint32_t i = 0; i < SL_OBJECTS_FETCH_HOLDERS_MAX; i++) {
            holder = holders->items[i].failed_ns > holder->failed_ns ? &holders->items[i] : holder;
        }
        *holder = (struct sl_objects_holder){.node = peer->node};
    }
    (void)snprintf(holder->address, sizeof holder->address, "%s", peer->address);
}

void sl_objects_fetch_holders_add(struct sl_objects_fetch_holders *holders, uint64_t own,
                                  const struct sl_objects_message *news)
{
    for (uint32_t i = 0; i < news->news.parent_count; i++) {
        add(holders, own, &news->news.parents[i]);
    }
    for (uint32_t i = 0; i < news->news.other_count; i++) {
        add(holders, own, &news->news.others[i]);
    }
}

bool sl_objects_holder_is_usable(const struct sl_objects_holder *holder)
{
    return !holder->has_failed && holder->mismatches < SL_OBJECTS_HOLDER_MISMATCHES_MAX;
}

void sl_objects_fetch_holders_forgive(struct sl_objects_fetch_holders *holders, uint64_t now_ns)
{
    for (uint32_t i = 0; i < holders->count; i++) {
        struct sl_objects_holder *holder = &holders->items[i];
        if (holder->has_failed && now_ns - holder->failed_ns > FORGIVE_NS) {
            holder->has_failed = false;
        }
    }
}

const struct sl_objects_holder *
sl_objects_fetch_holders_other(const struct sl_objects_fetch_holders *holders, uint64_t node)
{
    const struct sl_objects_holder *best = NULL;
    for (uint32_t i = 0; i < holders->count; i++) {
        const struct sl_objects_holder *holder = &holders->items[i];
        if (sl_objects_holder_is_usable(holder) && holder->node != node &&
            (best == NULL || holder->failed_ns < best->failed_ns)) {
            best = holder;
        }
    }
    return best;
}
