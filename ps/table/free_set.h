/* A free set holds the numbers of a table's free records, a bit for each record, and finds the
 * lowest: rows gather in low records, and the memory of high ones can go. Owner reactor. */
#ifndef SL_PS_TABLE_FREE_SET_H
#define SL_PS_TABLE_FREE_SET_H

#include "ps/table/slab.h"

/* Zero-initialized: empty. */
struct sl_free_set {
    uint64_t *words;      /* [64 * 8 * group_count]: a bit for each number */
    uint64_t *any;        /* [group_count], behind them: a bit for 8 words that are not all 0 */
    uint32_t group_count; /* of 32768 numbers each */
    uint32_t count;       /* numbers in the set */
    uint32_t first;       /* the lowest; valid if count > 0 */
    size_t bytes_charged; /* to the budget */
};

/* Adds a number that is not in the set. Memory is charged to the budget if it has room: the set
 * grows at the limit too, or records would be lost. Returns false, without effect, if the system
 * has no memory. */
bool sl_free_set_add(struct sl_free_set *set, struct sl_table_budget *budget, uint32_t number);

/* Removes a number that is in the set. */
void sl_free_set_remove(struct sl_free_set *set, uint32_t number);

bool sl_free_set_has(const struct sl_free_set *set, uint32_t number);
void sl_free_set_fini(struct sl_free_set *set, struct sl_table_budget *budget);

#endif
