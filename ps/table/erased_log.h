/* The erased log holds the last keys that a sparse table erased, for incremental snapshots. A
 * position counts all keys erased before; the log has those from `first` to `end`. It grows up to
 * SL_ERASED_LOG_KEYS keys. Then, or without memory for more, it forgets the oldest. Owner reactor.
 */
#ifndef SL_PS_TABLE_ERASED_LOG_H
#define SL_PS_TABLE_ERASED_LOG_H

#include "ps/table/slab.h"

#define SL_ERASED_LOG_KEYS (1U << 20)

/* Zero-initialized: empty, and keeps nothing. */
struct sl_erased_log {
    uint64_t *keys; /* ring: position p is at p % capacity */
    uint64_t first, end;
    uint32_t capacity; /* a power of two, or 0 */
    bool keeps;        /* false: a key is forgotten at once, because no snapshot needs it */
};

static inline uint64_t sl_erased_log_key(const struct sl_erased_log *log, uint64_t position)
{
    return log->keys[position & (log->capacity - 1)];
}

/* Adds a key. Memory is charged to the budget. */
void sl_erased_log_add(struct sl_erased_log *log, struct sl_table_budget *budget, uint64_t key);

/* Forgets the keys before a position. */
static inline void sl_erased_log_forget(struct sl_erased_log *log, uint64_t before)
{
    log->first = before > log->first ? before : log->first;
}

static inline size_t sl_erased_log_memory_bytes(const struct sl_erased_log *log)
{
    return log->capacity * sizeof *log->keys;
}

void sl_erased_log_fini(struct sl_erased_log *log, struct sl_table_budget *budget);

#endif
