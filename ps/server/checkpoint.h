/* A server writes checkpoints of its shard while it serves: a snapshot of the shard
 * (ps/shard/snapshot.h) and of its sessions at the same moment. An offload thread compresses and
 * writes the blocks.
 *
 *   WANTED -> WALKING -> FINISHING -> NONE
 *
 * - WANTED: the snapshot starts between two requests, when no request is half done, except those
 *   that wait for clocks. Until then no long request starts.
 * - WALKING: part of each turn's budget goes into the walk, little while there are requests. The
 *   number of blocks in flight to the disk is limited; then the walk waits.
 *
 * A checkpoint is aborted, and serving continues, if the disk fails or makes no progress for
 * patience_ns, or if the snapshot runs out of memory. Owner reactor. */
#ifndef SL_PS_SERVER_CHECKPOINT_H
#define SL_PS_SERVER_CHECKPOINT_H

#include "ps/checkpoint/manifest.h"
#include "ps/server/server.h"

struct sl_disk;
struct sl_snapshot_block;

struct sl_server_checkpoint_result {
    uint64_t number;
    int err;
    struct sl_checkpoint_entry file; /* if err is 0: durable, survives a crash */
    bool goes_on;                    /* if err is 0: the job was not over at the snapshot */
    struct sl_reason reason;
};

/* Takes the blocks of a snapshot of the shard that is no checkpoint. Storage of the caller until
 * `ended`. */
struct sl_server_snapshot_sink {
    uint32_t iterations; /* BSP iterations that the snapshot has: sl_shard_snapshot_iterations */
    /* On the offload thread. The block is valid during the call. An error ends the snapshot. */
    int (*take)(struct sl_server_snapshot_sink *sink, const struct sl_snapshot_block *block,
                struct sl_reason *reason);
    /* Once, after the last `take`. Owner reactor. */
    void (*ended)(struct sl_server_snapshot_sink *sink, int err, const char *reason);
};

struct sl_server_checkpoint_options {
    const struct sl_disk *disk; /* outlives the server */
    const char *directory;      /* outlives the server; NULL: no checkpoints, snapshots only */
    uint32_t compression_level; /* of zstd; 0: not compressed */
    uint32_t snapshot_budget; /* turn cost of the walk; 0: depends on the other work of the turn */
    uint64_t patience_ns; /* without progress of the disk until the checkpoint aborts; 0: 120 s */
    /* Called once per checkpoint, in a later turn than sl_server_checkpoint_begin. */
    void (*ended)(void *ctx, const struct sl_server_checkpoint_result *result);
    void *ctx;
};

/* Enables checkpoints. Once, before sl_server_set_shard. Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_server_checkpoint_open(struct sl_server *server,
                              const struct sl_server_checkpoint_options *options);

/* Starts a checkpoint of the shard, which must exist. `ended` follows, unless the server is
 * destroyed first. Aborts a checkpoint in progress, whose `ended` is called at once. base: the
 * checkpoint that an incremental one is based on. If the shard does not know the changes since
 * then, the file is full instead: a restore begins with it. */
void sl_server_checkpoint_begin(struct sl_server *server, uint64_t number, uint64_t base,
                                int64_t time_s);

/* Starts a snapshot of the shard, which must exist, for the sink: after so many iterations. It ends
 * with AGAIN if the shard has applied more already, or does not get there within 2 s; with
 * CANCELLED if a checkpoint begins. Errors, without a call of `ended`: EXISTS (a checkpoint or
 * another such snapshot is in progress), NO_MEMORY. */
int sl_server_snapshot_read(struct sl_server *server, struct sl_server_snapshot_sink *sink);

/* All servers have published the checkpoint: later ones may be based on it. */
void sl_server_checkpoint_completed(struct sl_server *server, uint64_t number);

/* Returns true when nothing was written since the snapshot of the last complete checkpoint, or
 * without one since the server started. False: another checkpoint is needed. */
bool sl_server_checkpoint_holds_all(const struct sl_server *server);

/* From now on requests that write are answered CANCELLED, as after sl_server_drain, which must
 * follow. So a checkpoint that starts now is the last. */
void sl_server_fence_writes(struct sl_server *server);

/* For the scheduler: runs this turn's part of a checkpoint; `keys` are left of the turn. Returns
 * the cost. is_idle: nothing can be done until an event. */
uint32_t sl_server_checkpoint_run(struct sl_server *server, uint32_t keys);
bool sl_server_checkpoint_is_idle(const struct sl_server *server);

/* Before the shard is destroyed. */
void sl_server_checkpoint_fini(struct sl_server *server);

#endif
