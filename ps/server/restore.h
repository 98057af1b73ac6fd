/* A server's shard begins from a checkpoint: files are read beside the reactor and loaded in
 * slices, before anybody is welcomed. Where the shard has the index and the count that it had when
 * the checkpoint was written, it goes on as the one that it was: clocks, what BSP keeps aside and
 * sessions too; the sessions' clients are away, and have a lease to come back. Else it takes what
 * it owns from the files of all shards. Owner reactor. */
#ifndef SL_PS_SERVER_RESTORE_H
#define SL_PS_SERVER_RESTORE_H

#include "core/limits.h"
#include "ps/optimizer/optimizer.h"
#include "ps/server/server.h"

struct sl_disk;
struct sl_server_restore;

#define SL_SERVER_RESTORE_REASON_BYTES 1024

struct sl_server_restore_options {
    const struct sl_disk *disk; /* outlives the server */
    const char *directory;      /* likewise */
    uint64_t number;
    /* It is loaded, or not: err and reason say it. Then comes sl_server_start_serving, or the
     * server's end. In a later turn. */
    void (*ended)(void *ctx, int err, const char *reason);
    void *ctx;
};

/* In place of sl_server_set_shard's welcomes: to be called right behind it, of a server whose
 * options say `restores`. Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_server_restore_begin(struct sl_server *server,
                            const struct sl_server_restore_options *options);

/* The tables that the checkpoint has, by id; `count` of them, since `ended`. The server's. */
struct sl_server_restore_table {
    uint32_t id;
    struct sl_table_spec spec;
};
const struct sl_server_restore_table *sl_server_restore_tables(const struct sl_server *server,
                                                               uint32_t *count);

/* Of a server whose options say `restores`: whoever waits is welcomed, and whoever comes from now
 * on. Once; after `ended`, or with nothing to restore. */
void sl_server_start_serving(struct sl_server *server);

#endif
