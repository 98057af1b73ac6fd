/* Requests of one connection that wait for their reply: request id -> entry. Ids ascend by one, but
 * a reply may overtake (a parked pull stays while hundreds of later requests pass), so that the
 * span of ids is not bounded by the number in flight: open addressing, from the id's own slot on,
 * in a table of twice the greatest number. No allocation. Owner reactor. */
#ifndef SL_WORKER_INFLIGHT_H
#define SL_WORKER_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

#define SL_INFLIGHT_SLOTS (2U * SL_LIMIT_CREDIT_REQUESTS)
#define SL_INFLIGHT_MAX   SL_LIMIT_CREDIT_REQUESTS

struct sl_request;

struct sl_inflight_entry {
    uint64_t id;                /* 0: the slot is free */
    struct sl_request *request; /* NULL: nobody waits for it any more */
    uint32_t clock_after;       /* then: the worker's clock once it was carried out, or 0 */
    void *stage;                /* where the reply lands, before it is scattered; or NULL */
};

/* Zeroed: empty. */
struct sl_inflight {
    struct sl_inflight_entry slots[SL_INFLIGHT_SLOTS];
    uint32_t count;
    uint32_t displaced; /* entries that are not in their id's own slot */
};

static inline bool sl_inflight_full(const struct sl_inflight *inflight)
{
    return inflight->count == SL_INFLIGHT_MAX;
}

/* The id is > 0 and not in flight; not full. */
struct sl_inflight_entry *sl_inflight_add(struct sl_inflight *inflight, uint64_t id,
                                          struct sl_request *request);

/* NULL when there is no such id. An entry is valid until the next add or remove. */
struct sl_inflight_entry *sl_inflight_find(struct sl_inflight *inflight, uint64_t id);

void sl_inflight_remove(struct sl_inflight *inflight, struct sl_inflight_entry *entry);

/* Any entry, or NULL when empty: to take them all out one by one. */
struct sl_inflight_entry *sl_inflight_any(struct sl_inflight *inflight);

#endif
