/* Checkpoints of a server's shard, written while it serves: a cut of the shard
 * (ps/shard/snapshot.h) and, of the same moment, its sessions; whose blocks are compressed and
 * written beside the reactor.
 *
 *     wanted -> cutting -> finishing -> none
 *
 * Wanted: the cut begins between two requests, when none is left by half but such as wait for
 * clocks; until then no long one begins. Cutting: a part of each turn's budget, little while there
 * are requests, goes into the walk; so many blocks may be on their way to the disk, then the walk
 * waits. A disk that fails, or has taken nothing for a while, and a cut that finds no memory, give
 * the checkpoint up: the serving goes on. Owner reactor. */
#ifndef SL_PS_SERVER_CHECKPOINT_H
#define SL_PS_SERVER_CHECKPOINT_H

#include "ps/checkpoint/manifest.h"
#include "ps/server/server.h"

struct sl_disk;

#define SL_SERVER_CHECKPOINT_REASON_BYTES 1024

/* What became of one. */
struct sl_server_checkpoint_result {
    uint64_t number;
    int err;
    struct sl_checkpoint_entry file; /* err 0: it would survive a crash */
    bool goes_on;                    /* likewise: the job was not over when it was cut */
    char reason[SL_SERVER_CHECKPOINT_REASON_BYTES];
};

struct sl_server_checkpoint_options {
    const struct sl_disk *disk; /* outlives the server */
    const char *directory;      /* likewise */
    uint32_t compression_level; /* of zstd; 0: not packed */
    uint32_t snapshot_budget;   /* that a turn spends on the walk; 0: by what else is to be done */
    uint64_t patience_ns;       /* for a disk that takes nothing; 0: 120 s */
    /* In a later turn than the one in which it was begun. */
    void (*ended)(void *ctx, const struct sl_server_checkpoint_result *result);
    void *ctx;
};

/* The server can make checkpoints from now on. Once, before sl_server_set_shard. Errors:
 * NO_MEMORY, IO, TOO_LARGE. */
int sl_server_checkpoint_open(struct sl_server *server,
                              const struct sl_server_checkpoint_options *options);

/* Begins the checkpoint of that number; `ended` follows, unless the server is destroyed before. One
 * that is in the making is given up, and ends first. base: that which it adds to; where the shard
 * does not know what has changed since that, its file holds everything, which is as good. There is
 * a shard. */
void sl_server_checkpoint_begin(struct sl_server *server, uint64_t number, uint64_t base,
                                int64_t time_s);

/* The checkpoint of that number is complete, in the whole cluster: others may add to it. */
void sl_server_checkpoint_completed(struct sl_server *server, uint64_t number);

/* Nothing was written since the cut of the last complete one; without one, since the server began.
 * False: it has to be made. */
bool sl_server_checkpoint_holds_all(const struct sl_server *server);

/* From now on no request writes: it is answered CANCELLED, as after sl_server_drain, which is to
 * follow; so that a checkpoint begun now is the last. */
void sl_server_fence_writes(struct sl_server *server);

#endif
