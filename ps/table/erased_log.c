#include "ps/table/erased_log.h"

#include <stdlib.h>

#define CAPACITY_LEAST 1024

static bool is_full(const struct sl_erased_log *log)
{
    return log->end - log->first == log->capacity;
}

/* No effect at the limit, or without memory. */
static void grow(struct sl_erased_log *log, struct sl_table_budget *budget)
{
    const uint32_t capacity = log->capacity == 0 ? CAPACITY_LEAST : 2 * log->capacity;
    const size_t more = (capacity - log->capacity) * sizeof *log->keys;
    if (capacity > SL_ERASED_LOG_KEYS || !sl_table_budget_take(budget, more)) {
        return;
    }
    uint64_t *keys = malloc(capacity * sizeof *keys);
    if (keys == NULL) {
        sl_table_budget_give(budget, more);
        return;
    }
    for (uint64_t at = log->first; at < log->end; at++) {
        keys[at & (capacity - 1)] = sl_erased_log_key(log, at);
    }
    free(log->keys);
    log->keys = keys;
    log->capacity = capacity;
}

void sl_erased_log_add(struct sl_erased_log *log, struct sl_table_budget *budget, uint64_t key)
{
    if (log->keeps && is_full(log)) {
        grow(log, budget);
    }
    if (!log->keeps || log->capacity == 0) {
        log->first = ++log->end;
        return;
    }
    log->first += is_full(log);
    log->keys[log->end++ & (log->capacity - 1)] = key;
}

void sl_erased_log_fini(struct sl_erased_log *log, struct sl_table_budget *budget)
{
    sl_table_budget_give(budget, sl_erased_log_memory_bytes(log));
    free(log->keys);
    *log = (struct sl_erased_log){0};
}
