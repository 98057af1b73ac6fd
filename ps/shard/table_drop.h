/* Dropped tables. Owner reactor, except where stated. */
#ifndef SL_PS_SHARD_TABLE_DROP_H
#define SL_PS_SHARD_TABLE_DROP_H

#include "ps/shard/shard.h"

/* Drops a table: from now on its requests fail with NOT_FOUND, and snapshots that begin do not have
 * it. Returns false, without effect, for an id without a table. */
bool sl_shard_table_drop(struct sl_shard *shard, uint32_t table_id);

/* Notes that the table of this id was dropped, at another copy of the shard: requests fail with
 * NOT_FOUND, which names it. No effect on an id with a table. Errors: NO_MEMORY. */
int sl_shard_table_note_dropped(struct sl_shard *shard, uint32_t table_id,
                                const struct sl_table_spec *spec);

/* The rows of a dropped table. */
struct sl_shard_storage {
    struct sl_sparse_table *sparse, *waiting; /* waiting: its keys that are not admitted yet */
    struct sl_dense_table *filter;            /* or the filter that counts them */
    struct sl_dense_table *dense;
    struct sl_kv_table *kv;
};

/* Takes the rows of a dropped table out of the shard, if there are any that no snapshot and no
 * iteration uses. The caller frees them; that takes long, and may happen on any thread. */
bool sl_shard_take_dropped(struct sl_shard *shard, struct sl_shard_storage *out);
bool sl_shard_has_dropped(const struct sl_shard *shard);
void sl_shard_storage_free(struct sl_shard_storage *storage);

#endif
