/* Tables that were dropped: a server drops its part when it serves the shard, and frees the rows on
 * an offload thread, since that takes long. Owner reactor. */
#ifndef SL_PS_SERVER_TABLE_DROP_H
#define SL_PS_SERVER_TABLE_DROP_H

#include "net/session/message.h"
#include "ps/shard/table_drop.h"
#include "reactor/offload.h"

struct sl_server;

struct sl_server_table_drop {
    struct sl_message_dropped known; /* ids, from the coordinator */
    bool is_pending;                 /* they were not dropped yet while this server serves */
    bool frees;                      /* the job is under way */
    struct sl_offload *offload;      /* NULL: none yet */
    struct sl_offload_job job;
    struct sl_shard_storage storage; /* of the job */
};

/* Mail of reactor 0; ctx: the server. The table of this id was dropped. */
void sl_server_table_drop(void *ctx, uint64_t table_id, uint64_t b);

/* Refuses to open a table that was dropped, and notes its name for later requests. Errors:
 * NOT_FOUND. */
int sl_server_table_drop_check(struct sl_server *server, const struct sl_message_table_open *open,
                               struct sl_reason *reason);

/* This turn's part of the work. */
void sl_server_table_drop_run(struct sl_server *server);

/* Returns true when it can do nothing until an event. */
bool sl_server_table_drop_is_idle(const struct sl_server *server);

/* Before the shard ends. */
void sl_server_table_drop_fini(struct sl_server *server);

#endif
