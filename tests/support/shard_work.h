/* A cluster of shards with tables of every kind and optimizer, and random work for it: pushes
 * without a clock, and pushes and ticks of three workers. For tests of snapshots. Asserts that
 * requests are served. */
#ifndef SL_TESTS_SUPPORT_SHARD_WORK_H
#define SL_TESTS_SUPPORT_SHARD_WORK_H

#include "ps/shard/shard.h"

#define SHARD_WORK_MAX     4 /* shards */
#define SHARD_WORK_WORKERS 3

struct shard_work {
    struct sl_shard *shards[SHARD_WORK_MAX];
    uint32_t count;
    uint32_t clocks[SHARD_WORK_WORKERS];
    uint64_t random;
};

/* One empty shard. */
struct sl_shard *shard_work_shard(uint32_t index, uint32_t count, size_t memory_bytes_max);

/* `count` empty shards; open: with the tables. */
void shard_work_init(struct shard_work *work, uint32_t count, bool open, uint64_t seed);
void shard_work_fini(struct shard_work *work);

/* So many requests. */
void shard_work_run(struct shard_work *work, uint32_t requests);

/* Erases from tables that do not wait for workers: so many requests. */
void shard_work_erase(struct shard_work *work, uint32_t requests);

/* Workers that join, leave, are lost and finish too. */
void shard_work_come_and_go(struct shard_work *work);

#endif
