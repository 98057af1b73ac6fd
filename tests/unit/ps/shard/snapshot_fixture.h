/* What the tests of snapshots share, beside a shard with some tables. Assertions inside are
 * CMocka's. */
#ifndef SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_FIXTURE_H
#define SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_FIXTURE_H

#include "fixture.h"
#include "ps/shard/snapshot.h"
#include "tests/support/shard_stream.h"

#define LARGE         2000 /* keys of a push that takes several slices */
#define SNAPSHOT_KEYS 40000
#define WIDE          4 /* ids of tables that a test opens: */
#define BLOCK         5
#define KV            6

extern const struct sl_shard_snapshot_options snapshot_everything;

/* For requests. */
extern uint64_t snapshot_keys[SNAPSHOT_KEYS];
extern float snapshot_gradients[SNAPSHOT_KEYS * 8];

/* Keys from `first` on, and gradients that are all the same. */
void snapshot_fill(uint32_t count, uint64_t first, float value);

/* One slice of f->work; what it spent. */
uint32_t snapshot_slice(struct fixture *f, uint32_t budget, int wanted);
void snapshot_run_to_end(struct fixture *f);

/* dim: of a sparse table, bytes of a KV table's value; length: of a dense one. */
void snapshot_open_table(struct fixture *f, uint32_t id, enum sl_table_kind kind, uint32_t dim,
                         uint64_t length);

/* Pushes to WIDE; the request stays in f->request. */
void snapshot_push_wide(struct fixture *f, uint32_t count, uint64_t first, uint32_t dim);

/* Ends a snapshot, or the wish; nothing of it is left. */
void snapshot_end(struct fixture *f);

/* Frees what snapshots have left behind. */
void snapshot_clean(struct sl_shard *shard);

/* Runs the snapshot to its end. *base (or NULL): of it. */
struct shard_stream snapshot_finish(struct sl_shard *shard, struct sl_shard_snapshot_base **base);

/* All of it in one go: it must be able to begin. from: NULL, or its base. */
struct shard_stream snapshot_of(struct sl_shard *shard, const struct sl_shard_snapshot_base *from,
                                struct sl_shard_snapshot_base **base);

/* Records of tables, each kind's. */
uint64_t snapshot_records(const struct shard_stream *stream);

/* Loads the stream into *shard, or into a new one where that is NULL. */
void snapshot_load(const struct shard_stream *stream, struct sl_shard **shard);

/* A shard that is as this one is now, made plainly (tests/support/shard_stream.h). */
struct sl_shard *snapshot_copy(struct sl_shard *shard);

/* The stream makes a shard that is as `still`, bit for bit. Frees both. */
void snapshot_check(struct sl_shard *still, struct shard_stream *stream);
void snapshot_same(struct sl_shard *a, struct sl_shard *b);

#endif
