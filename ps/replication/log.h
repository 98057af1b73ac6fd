/* The primary's log holds entries, and the replies to them, until the backup acknowledges them.
 * Allocates per entry that is not a request. */
#ifndef SL_PS_REPLICATION_LOG_H
#define SL_PS_REPLICATION_LOG_H

#include "ps/replication/entry.h"
#include "ps/server/hooks.h"

struct sl_replication_log {
    struct sl_list sent, unsent; /* entries, in order */
    struct sl_list behind;       /* after the snapshot, until it is complete */
    struct sl_list over;         /* acknowledged, but still read by the transport */
    uint64_t number;             /* of the entry sent last */
    uint64_t appended, ended;    /* entries without blocks, since the log began */
    uint64_t answered;           /* value of `appended` when replies began to wait */
    uint32_t entry_count;
    size_t bytes; /* of memory that the entries hold */
};

void sl_replication_log_init(struct sl_replication_log *log);

/* Both shards are empty: from now on everything is logged and replies wait. */
void sl_replication_log_begin(struct sl_server *server);

/* The backup has all entries up to this one. */
void sl_replication_log_acknowledged(struct sl_server *server, uint64_t number);

/* Sends unsent entries as far as credit and room allow. resend: those without acknowledgement
 * too. */
void sl_replication_log_pump(struct sl_server *server);
void sl_replication_log_resend(struct sl_server *server);

/* Returns true when the backup has acknowledged all entries. */
bool sl_replication_log_is_empty(const struct sl_replication_log *log);

/* Hooks of the log (ps/server/hooks.h). */
void sl_replication_log_part(struct sl_server_request *request);
bool sl_replication_log_done(struct sl_server_request *request);
bool sl_replication_log_ended(struct sl_server_request *request, uint32_t section_end, int err);
void sl_replication_log_refused(const struct sl_server_session *session, uint64_t request_id,
                                int err);
void sl_replication_log_evicted(struct sl_server *server, const struct sl_shard_evicted *rows);
void sl_replication_log_dropped(struct sl_server *server, uint32_t table_id);
void sl_replication_log_client(const struct sl_server_session *session,
                               enum sl_server_client_event event);
void sl_replication_log_answer(struct sl_server_channel *channel, const struct sl_message *message,
                               const struct sl_message *answer);
bool sl_replication_log_is_awaited(const struct sl_server *server);

/* The connection leaves its session: its answers are dropped. */
void sl_replication_log_forget(struct sl_server_channel *channel);

/* Logs a block of the snapshot, which the log then owns; false: no memory. */
bool sl_replication_log_block(struct sl_server *server, struct sl_snapshot_block *block);

/* The last block was logged: entries logged meanwhile follow it. */
void sl_replication_log_follow_snapshot(struct sl_server *server);

/* Aborts the log, after the snapshot (sl_replication_catch_up_abort). */
void sl_replication_log_abort(struct sl_server *server);

#endif
