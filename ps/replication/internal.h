/* Primary and backup of a shard. In each epoch the coordinator makes one of two servers the
 * primary, which logs everything that has an effect beyond a reply, in the order of completion:
 * writes, tables, and clients that join, leave or expire. It sends the log to the backup over a
 * connection of its own. The reply to a logged request waits until the backup has executed the
 * entry. The backup applies only writes and never waits for clocks.
 *
 * Before the backup is in sync, and after the coordinator has declared it out of sync, replies do
 * not wait. The primary first lets replies wait, then reports "in sync" through
 * replica_state_changed. From then on replies wait until the coordinator starts another epoch,
 * whatever happens.
 *
 * Files: replication.c: roles. Primary: log.c, sender.c, catch_up.c. Backup: receiver.c. Owner
 * reactor. Allocates per entry that is not a request. */
#ifndef SL_PS_REPLICATION_INTERNAL_H
#define SL_PS_REPLICATION_INTERNAL_H

#include "net/control/session.h"
#include "ps/replication/entry.h"
#include "ps/replication/replication.h"
#include "ps/server/handshake.h"
#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"
#include "ps/shard/load.h"
#include "ps/snapshot/block.h"

enum sl_replication_link {
    SL_REPLICATION_NONE,   /* no backup, or no connection: nothing is logged */
    SL_REPLICATION_WANTED, /* the snapshot should start: nothing is logged */
    /* Being made and sent: everything is logged behind it, replies do not wait. */
    SL_REPLICATION_SNAPSHOT,
    SL_REPLICATION_FOLLOWS, /* sent completely: likewise */
    SL_REPLICATION_IN_SYNC, /* the backup has it: everything is logged, replies wait */
};

/* The server's part in its replica group. */
enum sl_replication_stage {
    SL_REPLICATION_BACKUP,    /* or it has no part yet */
    SL_REPLICATION_PROMOTING, /* becomes the primary when its entries are executed */
    /* Primary in the first epoch that this server learns of: clients are welcomed only when a
     * backup is in sync, or when there is none. */
    SL_REPLICATION_WAITS_FOR_BACKUP,
    SL_REPLICATION_SERVES, /* primary */
};

/* An expiration that a primary was notified of before it served. */
struct sl_server_expiry {
    struct sl_server_expiry *next;
    struct sl_message_expired expired;
};

struct sl_replication {
    struct sl_server *server;
    struct sl_replica_config config; /* the last one received; epoch 0: none */
    enum sl_replication_stage stage;
    struct sl_server_expiry *expirations; /* in order, applied when the server serves */

    /* Primary: */
    enum sl_replication_link link;
    bool is_in_sync;      /* reported: the backup has all acknowledged writes */
    bool has_given_up;    /* reported: no backup will be in sync in this epoch */
    bool may_switch_over; /* when this ps ends, the backups of all its shards will be promoted */
    struct sl_session *session;
    struct sl_outbox outbox;
    struct sl_credit credit;
    struct sl_replication_entry *first, *last;
    struct sl_replication_entry *unsent;
    /* Entries after the snapshot, until it is complete. */
    struct sl_replication_entry *behind_first, *behind_last;
    struct sl_replication_entry *over; /* acknowledged, but still read by the transport */
    uint64_t number;                   /* of the entry sent last */
    uint64_t appended, ended;          /* entries without blocks, since the log began */
    uint64_t answered;                 /* value of `appended` when replies began to wait */
    uint32_t entry_count;
    size_t entry_bytes;
    uint32_t block_count; /* of the snapshot, in flight */
    uint32_t in_transport_count;
    bool snapshot_asked, snapshot_waits; /* asked: for a pending snapshot; waits: until the timer */
    uint32_t catch_up_failures;          /* aborted snapshots since the backup was last in sync */
    struct sl_timer snapshot_timer;
    /* Armed while the backup is unreachable or acknowledgements are missing. */
    struct sl_timer silence;
    uint64_t last_seen_ns; /* last acknowledgement, or begin of the wait for one */
    uint64_t taken_bytes;  /* by the backup's connection, at the last check */

    /* Backup: */
    struct sl_server_conn *feed; /* NULL: the primary is not connected */
    struct sl_list entries;      /* requests: received and not executed */
    bool has_begun;              /* the first entry has started */
    bool runs;                   /* and its request is running */
    uint64_t received;           /* number of the last entry received */
    uint64_t position;           /* number of the last entry executed */
    uint64_t acked;              /* number acknowledged to the primary */
    uint64_t credit_bytes;       /* to return with the next acknowledgement */
    uint32_t credit_requests;
    bool is_loading; /* the snapshot is incomplete */
    struct sl_shard_load load;
    struct sl_snapshot_block block; /* being loaded */
    struct sl_server_session_load session_load;
    bool is_broken; /* diverged from the primary: no longer a backup */
};

/* replication.c */

/* Change the link or the stage, and what the server knows of them. */
void sl_replication_set_link(struct sl_replication *replica, enum sl_replication_link link);
void sl_replication_set_stage(struct sl_replication *replica, enum sl_replication_stage stage);

/* Welcomes waiting clients. */
void sl_replication_open(struct sl_server *server);

/* Resets a backup to an empty shard. */
void sl_replication_forget(struct sl_server *server);

/* Another server is the primary: stops executing and answering; the process ends. */
void sl_replication_fenced(struct sl_server *server);

/* The backup has executed all entries before its promotion: it serves, or if it is not in sync its
 * process ends. */
void sl_replication_promoted(struct sl_server *server);

/* Reports that the backup is in sync, or will not be in this epoch. */
void sl_replication_report(struct sl_server *server, bool in_sync);

/* sender.c: the primary's connection */

/* Connects to the backup of the replica group. */
void sl_replication_sender_open(struct sl_server *server);

/* No backup is in sync any more: releases waiting replies and stops the log. */
void sl_replication_sender_close(struct sl_server *server);

/* An entry was appended: the backup must acknowledge within one lease. */
void sl_replication_sender_listen(struct sl_server *server);

/* Reports once that no backup will be in sync in this epoch. Replies continue to wait. */
void sl_replication_sender_give_up(struct sl_server *server, const char *why);

/* log.c: the primary's log */

/* Both shards are empty: from now on everything is logged and replies wait. */
void sl_replication_log_begin(struct sl_server *server);

/* The backup has all entries up to this one. */
void sl_replication_log_acknowledged(struct sl_server *server, uint64_t number);

/* Sends unsent entries as far as credit and room allow. */
void sl_replication_log_pump(struct sl_replication *replica);

/* Hooks of the log (ps/server/hooks.h). */
bool sl_replication_log_done(struct sl_server_request *request);
bool sl_replication_log_failed(struct sl_server_request *request, uint32_t section_end, int err);
void sl_replication_log_refused(const struct sl_server_session *session, uint64_t request_id,
                                int err);
void sl_replication_log_client(const struct sl_server_session *session,
                               enum sl_server_client_event event);
void sl_replication_log_answer(struct sl_server_conn *conn, const struct sl_message *message,
                               const struct sl_message *answer);
bool sl_replication_log_is_awaited(const struct sl_server *server);

/* The connection leaves its session: its answers are dropped. */
void sl_replication_log_forget(struct sl_server_conn *conn);

/* Logs a block of the snapshot, which the log then owns; false: no memory. */
bool sl_replication_log_block(struct sl_server *server, struct sl_snapshot_block *block,
                              bool is_snapshot);

/* The last block was logged: entries logged meanwhile follow it. */
void sl_replication_log_follow_snapshot(struct sl_server *server);

/* Aborts the log and the snapshot. */
void sl_replication_log_abort(struct sl_server *server);

/* catch_up.c: the snapshot for a backup that starts empty */

/* The backup is empty and the shard is not: requests a snapshot. */
void sl_replication_catch_up_want(struct sl_server *server);

/* Ends a requested or running snapshot. */
void sl_replication_catch_up_end(struct sl_server *server);

/* Starts or continues; returns the cost. */
uint32_t sl_replication_catch_up_run(struct sl_server *server);

/* Returns true when it can continue now. */
bool sl_replication_catch_up_is_busy(const struct sl_server *server);

/* receiver.c: the backup */

/* The primary was authenticated: admits it, or refuses it. */
bool sl_replication_receiver_admit(struct sl_server_conn *conn);

/* Handles a frame with an entry. */
void sl_replication_receiver_arrive(struct sl_server_conn *conn,
                                    const struct sl_transport_message *message);

/* The primary's connection has closed. */
void sl_replication_receiver_closed(struct sl_server *server);

/* Executes received entries; returns the cost. */
uint32_t sl_replication_receiver_run(struct sl_server *server, uint32_t keys);

/* Returns true when entries wait. */
static inline bool sl_replication_receiver_waits(const struct sl_server *server)
{
    return !sl_list_empty(&server->replica->entries);
}

/* Discards received entries. */
void sl_replication_receiver_drop(struct sl_server *server);

#endif
