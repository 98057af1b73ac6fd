/* The rows of a table that are being put together out of many records: key -> number, in the order
 * in which keys came first. Every u64 is a key. 16 bytes for each of its places, of which at most
 * three quarters are taken: 22 to 43 bytes a key, and half as much again while it grows. One
 * thread. */
#ifndef SL_TOOLS_CKPT_ROW_INDEX_H
#define SL_TOOLS_CKPT_ROW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct sl_row_index_place {
    uint64_t key;
    uint64_t number; /* and one: 0 is a free place */
};

/* All zeros: an empty one. */
struct sl_row_index {
    struct sl_row_index_place *places;
    uint64_t capacity; /* a power of two, or 0 */
    uint64_t count;
};

/* The key's number; *fresh: it is a new one. Errors: NO_MEMORY. */
int sl_row_index_add(struct sl_row_index *rows, uint64_t key, uint64_t *number, bool *fresh);

/* False: it is not there. */
bool sl_row_index_find(const struct sl_row_index *rows, uint64_t key, uint64_t *number);

void sl_row_index_fini(struct sl_row_index *rows);

#endif
