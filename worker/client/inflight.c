#include "worker/client/inflight.h"

#include <assert.h>
#include <stddef.h>

#include "core/assert.h"

#define MASK (SL_INFLIGHT_SLOTS - 1)

static_assert((SL_INFLIGHT_SLOTS & MASK) == 0, "slots are found by masking the id");

struct sl_inflight_entry *sl_inflight_add(struct sl_inflight *inflight, uint64_t id,
                                          struct sl_request *request)
{
    sl_assert(id > 0);
    sl_assert(!sl_inflight_full(inflight));
    uint32_t slot = (uint32_t)id & MASK;
    while (inflight->slots[slot].id != 0) {
        sl_assert(inflight->slots[slot].id != id);
        slot = (slot + 1) & MASK;
    }
    inflight->slots[slot] = (struct sl_inflight_entry){.id = id, .request = request};
    inflight->displaced += slot != ((uint32_t)id & MASK);
    inflight->count++;
    return &inflight->slots[slot];
}

struct sl_inflight_entry *sl_inflight_find(struct sl_inflight *inflight, uint64_t id)
{
    if (id == 0) {
        return NULL;
    }
    uint32_t slot = (uint32_t)id & MASK;
    while (inflight->slots[slot].id != 0) {
        if (inflight->slots[slot].id == id) {
            return &inflight->slots[slot];
        }
        slot = (slot + 1) & MASK;
    }
    return NULL;
}

/* Backward-shift deletion: moves later entries of the run into the hole if their own slot allows
 * it, so that no search ends early. */
void sl_inflight_remove(struct sl_inflight *inflight, struct sl_inflight_entry *entry)
{
    sl_assert(entry->id != 0);
    uint32_t hole = (uint32_t)(entry - inflight->slots);
    inflight->displaced -= hole != ((uint32_t)entry->id & MASK);
    /* Without displaced entries no search passes the hole. */
    for (uint32_t slot = hole; inflight->displaced > 0;) {
        slot = (slot + 1) & MASK;
        uint64_t id = inflight->slots[slot].id;
        if (id == 0) {
            break;
        }
        uint32_t from_home = (slot - (uint32_t)id) & MASK;
        uint32_t from_hole = (slot - hole) & MASK;
        if (from_home >= from_hole) {
            inflight->displaced -= from_home == from_hole;
            inflight->slots[hole] = inflight->slots[slot];
            hole = slot;
        }
    }
    inflight->slots[hole] = (struct sl_inflight_entry){0};
    inflight->count--;
}

struct sl_inflight_entry *sl_inflight_any(struct sl_inflight *inflight)
{
    if (inflight->count == 0) {
        return NULL;
    }
    for (uint32_t slot = 0;; slot++) {
        if (inflight->slots[slot].id != 0) {
            return &inflight->slots[slot];
        }
    }
}
