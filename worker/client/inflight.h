/* The table of requests in flight on one connection: request id -> entry. Ids ascend by one, but
 * replies overtake: a parked pull stays while hundreds of later requests pass. So the number in
 * flight does not bound the span of ids. Hence open addressing from slot id modulo the size, in a
 * table of twice the maximum. No allocation. Owner reactor. */
#ifndef SL_WORKER_CLIENT_INFLIGHT_H
#define SL_WORKER_CLIENT_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

#define SL_INFLIGHT_SLOTS (2U * SL_LIMIT_CREDIT_REQUESTS)
#define SL_INFLIGHT_MAX   SL_LIMIT_CREDIT_REQUESTS

struct sl_request;

struct sl_inflight_entry {
    uint64_t id; /* 0: the slot is free */
    uint64_t sent_ns;
    struct sl_request *request; /* NULL: no substep waits for the reply */
    uint32_t clock_after;       /* if request is NULL: the worker's clock after it, or 0 */
    void *buffer;               /* receives a direct reply that is scattered later; or NULL */
};

/* Zeroed: empty. */
struct sl_inflight {
    struct sl_inflight_entry slots[SL_INFLIGHT_SLOTS];
    uint32_t count;
    uint32_t displaced; /* entries outside their id's own slot */
};

static inline bool sl_inflight_full(const struct sl_inflight *inflight)
{
    return inflight->count == SL_INFLIGHT_MAX;
}

/* Adds a request. The id is > 0 and not in flight; the table is not full. */
struct sl_inflight_entry *sl_inflight_add(struct sl_inflight *inflight, uint64_t id,
                                          struct sl_request *request);

/* NULL: no such id. An entry is valid until the next add or remove. */
struct sl_inflight_entry *sl_inflight_find(struct sl_inflight *inflight, uint64_t id);

void sl_inflight_remove(struct sl_inflight *inflight, struct sl_inflight_entry *entry);

/* Returns any entry, or NULL when empty: to remove all, one by one. */
struct sl_inflight_entry *sl_inflight_any(struct sl_inflight *inflight);

#endif
