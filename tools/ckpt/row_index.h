/* Numbers the keys of a table in order of first appearance. Any u64 is a key. A hash table with 16
 * bytes per slot, at most three quarters full: 22 to 43 bytes per key, 50 % more while growing. One
 * thread. */
#ifndef SL_TOOLS_CKPT_ROW_INDEX_H
#define SL_TOOLS_CKPT_ROW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct sl_row_index_place {
    uint64_t key;
    uint64_t number; /* + 1; 0: free */
};

/* Zero-initialized: empty. */
struct sl_row_index {
    struct sl_row_index_place *places;
    uint64_t capacity; /* a power of two, or 0 */
    uint64_t count;
};

/* Returns the key's number; *fresh: the key is new. Errors: NO_MEMORY. */
int sl_row_index_add(struct sl_row_index *rows, uint64_t key, uint64_t *number, bool *fresh);

/* False: unknown key. */
bool sl_row_index_find(const struct sl_row_index *rows, uint64_t key, uint64_t *number);

void sl_row_index_fini(struct sl_row_index *rows);

#endif
