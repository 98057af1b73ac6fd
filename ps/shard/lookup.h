/* Lookup of the records of keys that this shard owns. Owner reactor. Allocates when a table grows.
 */
#ifndef SL_PS_SHARD_LOOKUP_H
#define SL_PS_SHARD_LOOKUP_H

#include "ps/shard/section.h"

/* Checks that this shard owns the keys of a KV table. Errors: WRONG_SHARD. */
int sl_shard_check_kv_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                            struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count);

/* Checks that this shard owns the keys of a sparse table. Errors: WRONG_SHARD. */
int sl_shard_check_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                         struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count);

/* Returns true when this shard owns all keys. */
bool sl_shard_owns(const struct sl_shard *shard, const uint64_t *keys, uint32_t count);

/* Looks up the keys and creates missing rows, up to the shard's limit. initialize: with their first
 * values; else the caller writes all of them. records[count]: record indexes. created: as for
 * sl_sparse_table_find_or_create_noted. Errors: NO_MEMORY. */
int sl_shard_find(struct sl_shard *shard, struct sl_shard_table *table, const uint64_t *keys,
                  uint32_t count, bool initialize, uint32_t *records, uint32_t **created);

/* As above, for up to SL_SHARD_BATCH_KEYS keys of a push, which notes what it creates, and checks
 * that this shard owns them. Errors: WRONG_SHARD, NO_MEMORY. */
int sl_shard_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, struct sl_shard_slice *slice,
                    const uint64_t *keys, uint32_t count, uint32_t *records);

/* Returns NO_MEMORY; the reason names the memory in use and its limit. */
int sl_shard_fail_memory(const struct sl_shard *shard, const struct sl_shard_request *request,
                         struct sl_shard_slice *slice);

/* As sl_shard_lookup, without creation: SL_ROW_NONE for a missing key. *complete: no key is
 * missing. Errors: WRONG_SHARD. */
int sl_shard_lookup_existing(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_request *request, struct sl_shard_slice *slice,
                             const uint64_t *keys, uint32_t count, uint32_t *records,
                             bool *complete);

/* Replaces the records of rows erased since they were looked up: creates these rows again, with
 * their first values. The shard's limit does not apply, because the push was acknowledged. Errors:
 * NO_MEMORY (of the system). */
int sl_shard_find_again(struct sl_shard *shard, struct sl_shard_table *table, uint32_t *records,
                        uint32_t count);

/* Updates the shard's count of a sparse table's memory. */
void sl_shard_count_memory(struct sl_shard *shard, struct sl_shard_table *table);

/* Lets new rows use the records of erased rows, and returns the memory of many free records to the
 * system, in so far as requests, buffered pushes and snapshots hold no records. Handles at most
 * `most` records; returns the cost. erase: the erase in progress, NULL: none. */
uint32_t sl_shard_tidy(struct sl_shard *shard, struct sl_shard_table *table,
                       const struct sl_shard_request *erase, uint32_t most);

#endif
