/* Admission of keys: which keys of a push get a row (struct sl_policy_spec), and the gradients that
 * are dropped. Owner reactor.
 *
 * Keys that wait are the rows of a hidden table, of dim 0: their counts, ages, snapshots and memory
 * are those of any table. A key is never in both tables, except while its push is in progress.
 * BLOOM has a filter in place of keys (ps/table/key_filter.h), which is a hidden dense table. It
 * counts the pushes that are not admitted; so a key whose row has gone is admitted at once, unless
 * the filter has been halved since.
 *
 * The counts of a push depend on the pushes before it. So such a table executes one push at a time:
 * a short one waits for a long one. A backup, which repeats them one after the other, then has the
 * same counts. A push that fails takes back what it counted. No snapshot starts between its slices.
 */
#ifndef SL_PS_SHARD_KEY_ADMISSION_H
#define SL_PS_SHARD_KEY_ADMISSION_H

#include "ps/shard/section.h"
#include "ps/table/key_filter.h"

/* Creates the table of waiting keys or the filter, if the policy needs one. bytes_max: of both
 * tables; 0: no limit. Errors: NO_MEMORY. */
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

/* As sl_shard_lookup, but creates rows only of admitted keys, and counts the others: SL_ROW_NONE.
 */
int sl_shard_key_admission_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                                  struct sl_shard_request *request, struct sl_shard_slice *slice,
                                  const uint64_t *keys, uint32_t count, uint32_t *records);

/* Takes back counts of a push that failed, as far as the budget allows. Returns true when all are.
 */
bool sl_shard_key_admission_undo(struct sl_shard_table *table, struct sl_shard_request *request,
                                 struct sl_shard_slice *slice);

/* Takes back the counts of keys whose rows a failed push has created. */
void sl_shard_key_admission_undo_created(struct sl_shard_table *table, const uint32_t *created,
                                         uint32_t count);

/* Notes the step of the push in the keys that it counted, as far as the budget allows. Returns true
 * when it has. */
bool sl_shard_key_admission_apply(struct sl_shard_table *table, struct sl_shard_request *request,
                                  struct sl_shard_slice *slice);

/* Rows are about to be pushed or assigned: forgets the waiting keys of new ones. */
void sl_shard_key_admission_pushed(struct sl_shard_table *table, const uint32_t *records,
                                   uint32_t count);

#endif
