/* Admission of keys: which keys of a push get a row (struct sl_policy_spec), and the gradients that
 * are dropped. Owner reactor.
 *
 * Keys that wait are the rows of a hidden table, of dim 0: their counts, ages, snapshots and memory
 * are those of any table. Unless its push is in progress, a key is in at most one of both tables.
 * With SL_ADMISSION_BLOOM the hidden table is dense, and holds a filter (ps/table/key_filter.h)
 * instead of keys. The filter counts a key only until it is admitted, and keeps that count. So if
 * the key's row is evicted or erased later, its next push is admitted at once, unless the count has
 * been halved since.
 *
 * The counts of a push depend on the pushes before it. So a table with admission executes one push
 * at a time: while a push that is split into slices is in progress, others wait. A backup, which
 * executes them one after the other, then has the same counts. A push that fails undoes its counts.
 * No snapshot starts between the slices of a push. */
#ifndef SL_PS_SHARD_KEY_ADMISSION_H
#define SL_PS_SHARD_KEY_ADMISSION_H

#include "ps/shard/section.h"
#include "ps/table/key_filter.h"

/* Creates the table of waiting keys or the filter, if the policy needs one. bytes_max: of it; 0: no
 * limit. Errors: NO_MEMORY. */
int sl_shard_key_admission_create(const struct sl_shard *shard, struct sl_shard_table *table,
                                  size_t bytes_max);

/* Returns the filter of a table with BLOOM. */
static inline struct sl_key_filter sl_shard_key_filter(const struct sl_shard_table *table)
{
    return (struct sl_key_filter){
        .table = table->waiting->dense,
        .block_count = table->waiting->spec.length / SL_PARTITION_BLOCK_ELEMENTS,
        .hash_count = table->hash_count,
        .age_steps = table->spec.policy.admit_age_steps,
    };
}

/* Returns true when a push must wait for the one in progress. */
static inline bool sl_shard_key_admission_busy(const struct sl_shard *shard,
                                               const struct sl_shard_table *table)
{
    return table->admits && shard->large.owner != NULL;
}

/* As sl_shard_lookup, but creates rows only for admitted keys. Of another key it raises the count,
 * and its record is SL_ROW_NONE. */
int sl_shard_key_admission_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                                  struct sl_shard_request *request, struct sl_shard_slice *slice,
                                  const uint64_t *keys, uint32_t count, uint32_t *records);

/* Undoes counts of a push that failed, within the budget of the slice. Returns true when all are
 * undone. */
bool sl_shard_key_admission_undo(struct sl_shard_table *table, struct sl_shard_request *request,
                                 struct sl_shard_slice *slice);

/* Undoes the counts of keys that a failed push has admitted; the caller erases their rows. */
void sl_shard_key_admission_undo_created(struct sl_shard_table *table, const uint32_t *created,
                                         uint32_t count);

/* Notes the step of the push in the keys that it counted, within the budget of the slice. Returns
 * true when all are noted. */
bool sl_shard_key_admission_apply(struct sl_shard_table *table, struct sl_shard_request *request,
                                  struct sl_shard_slice *slice);

/* Call it before rows are pushed or assigned: removes the keys of those that were just created from
 * the table of waiting keys. */
void sl_shard_key_admission_pushed(struct sl_shard_table *table, const uint32_t *records,
                                   uint32_t count);

#endif
