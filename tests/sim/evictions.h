/* Tables with policies: watches each eviction of a job's shards, and keeps what such tables had at
 * the beginning of each snapshot. One thread. Allocates.
 *
 * The oracles: "evicted": a row goes only from the primary's table, with a reason, not while it is
 * protected, and only the rows that are named; a key that waits for admission only for its age.
 * "memory": tables stay below their limit. "one
 * moment": checkpoints and publications have the rows of some beginning, so no row comes back, and
 * checkpoints the keys that wait, or the filter that counts them. */
#ifndef SL_TESTS_SIM_EVICTIONS_H
#define SL_TESTS_SIM_EVICTIONS_H

#include "tests/sim/oracle.h"

struct sl_sim_cluster;
struct sl_shard_table;

/* The evictions of this job are watched. NULL: of none. */
void sl_sim_evictions_watch(struct sl_sim_cluster *job);

/* No row goes any more. */
void sl_sim_evictions_freeze(void);

/* Tables use more memory than they may. */
void sl_sim_evictions_check_memory(struct sl_sim_cluster *cluster);

/* Shards that were restored from the checkpoint have such tables as at the beginning of one of its
 * snapshots; but for rows that have gone since. NULL: the checkpoint is not known. */
void sl_sim_evictions_check(struct sl_sim_oracle *oracle, const char *who,
                            struct sl_shard *const *shards, uint32_t shard_count,
                            const struct sl_sim_checkpoint *checkpoint);

/* Rows that were published have the keys and values of such a beginning. */
bool sl_sim_evictions_are_rows(uint32_t shard, uint32_t table, const uint64_t *keys,
                               const float *values, uint64_t count, uint64_t dim, uint64_t begin_ns,
                               uint64_t end_ns);

#endif
