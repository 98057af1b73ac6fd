/* A server restores its shard from a checkpoint before it welcomes clients. An offload thread reads
 * the files; the reactor loads them in slices. If the shard's index and the shard count are those
 * of the checkpoint, clocks, buffered BSP pushes and sessions are restored too, and the sessions'
 * clients have one lease to reconnect. Otherwise the shard loads the rows that it owns from the
 * files of all shards. Owner reactor. */
#ifndef SL_PS_SERVER_RESTORE_H
#define SL_PS_SERVER_RESTORE_H

#include "core/limits.h"
#include "ps/optimizer/optimizer.h"
#include "ps/server/server.h"

struct sl_disk;
struct sl_server_restore;

struct sl_server_restore_options {
    const struct sl_disk *disk; /* outlives the server */
    const char *directory;      /* outlives the server */
    uint64_t number;
    /* Loading has ended; err and reason say whether it succeeded. Then call sl_server_start_serving
     * or destroy the server. In a later turn. */
    void (*ended)(void *ctx, int err, const char *reason);
    void *ctx;
};

/* Starts the restore. Call right after sl_server_set_shard, for a server with option `restores`.
 * Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_server_restore_begin(struct sl_server *server,
                            const struct sl_server_restore_options *options);

/* The tables of the checkpoint, `count` of them, available after `ended`. Owned by the server. */
struct sl_server_restore_table {
    uint32_t id;
    struct sl_table_spec spec;
};
const struct sl_server_restore_table *sl_server_restore_tables(const struct sl_server *server,
                                                               uint32_t *count);

/* Welcomes clients that wait and clients that connect later. For a server with option `restores`;
 * once, after `ended`, or when there is nothing to restore. */
void sl_server_start_serving(struct sl_server *server);

/* For the scheduler: loads a slice of what was read; returns the work done. is_idle: nothing can be
 * done until an event. */
uint32_t sl_server_restore_run(struct sl_server *server);
bool sl_server_restore_is_idle(const struct sl_server *server);

/* Aborts the restore; otherwise no effect. */
void sl_server_restore_fini(struct sl_server *server);

#endif
