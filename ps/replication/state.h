/* Primary and backup of a shard. In each epoch the coordinator makes one of two servers the
 * primary, which logs everything that has an effect beyond a reply, in the order of completion:
 * writes, tables, and clients that join, leave or expire. It sends the log to the backup over a
 * connection of its own. The reply to a logged request waits until the backup has executed the
 * entry. The backup applies only writes and never waits for clocks.
 *
 * Before the backup is in sync, and after the coordinator has declared it out of sync, replies do
 * not wait. The primary first lets replies wait, then reports "in sync" through the option
 * state_changed. From then on replies wait until the coordinator starts another epoch,
 * whatever happens. Owner reactor. */
#ifndef SL_PS_REPLICATION_STATE_H
#define SL_PS_REPLICATION_STATE_H

#include "ps/replication/catch_up.h"
#include "ps/replication/log.h"
#include "ps/replication/metrics.h"
#include "ps/replication/receiver.h"
#include "ps/replication/replication.h"
#include "ps/replication/sender.h"
#include "ps/server/state.h"

/* The server's part in its replica group. */
enum sl_replication_stage {
    SL_REPLICATION_BACKUP,    /* or it has no part yet */
    SL_REPLICATION_PROMOTING, /* becomes the primary when its entries are executed */
    /* Primary in the first epoch that this server learns of: clients are welcomed only when a
     * backup is in sync, or when there is none. */
    SL_REPLICATION_WAITS_FOR_BACKUP,
    SL_REPLICATION_SERVES, /* primary */
};

/* How far a primary's backup is. */
enum sl_replication_link {
    SL_REPLICATION_NONE,   /* no backup, or no connection: nothing is logged */
    SL_REPLICATION_WANTED, /* the snapshot should start: nothing is logged */
    /* Being made and sent: everything is logged behind it, replies do not wait. */
    SL_REPLICATION_SNAPSHOT,
    SL_REPLICATION_FOLLOWS, /* sent completely: likewise */
    SL_REPLICATION_IN_SYNC, /* the backup has it: everything is logged, replies wait */
};

struct sl_replication {
    struct sl_server *server;
    struct sl_replication_options options;
    struct sl_replication_cells own_cells, *cells; /* those of the options, or its own */
    uint64_t degraded_ns; /* when the time without a backup in sync was counted last; 0: in sync */
    struct sl_replica_config config; /* the last one received; epoch 0: none */
    enum sl_replication_stage stage;
    struct sl_list expirations; /* of workers, in order: applied when the server serves */

    /* Primary: */
    enum sl_replication_link link;
    bool is_in_sync;      /* reported: the backup has all acknowledged writes */
    bool has_given_up;    /* reported: no backup will be in sync in this epoch */
    bool may_switch_over; /* when this ps ends, the backups of all its shards will be promoted */
    struct sl_replication_log log;
    struct sl_replication_sender sender;
    struct sl_replication_catch_up catch_up;

    struct sl_replication_backup backup;
};

/* Change the link, the stage or the switchover, and what the server knows of them. */
void sl_replication_set_link(struct sl_replication *replica, enum sl_replication_link link);
void sl_replication_set_stage(struct sl_replication *replica, enum sl_replication_stage stage);
void sl_replication_set_may_switch_over(struct sl_replication *replica, bool may_switch_over);

/* The primary serves from now on: applies deferred expirations, welcomes waiting clients. */
void sl_replication_start_serving(struct sl_server *server);

/* Another server is the primary: stops executing and answering; the process ends. */
void sl_replication_fenced(struct sl_server *server);

/* Reports that the backup is in sync, or will not be in this epoch. */
void sl_replication_report(struct sl_server *server, bool in_sync);

/* Reports once that no backup will be in sync in this epoch. Replies continue to wait. */
void sl_replication_give_up(struct sl_server *server, const char *why);

/* A worker has expired: a future primary applies it when it serves (apply); a backup learns it from
 * its primary. */
void sl_replication_expired(struct sl_server *server, const struct sl_message_expired *message);
void sl_replication_expirations_apply(struct sl_server *server);
void sl_replication_expirations_forget(struct sl_replication *replica);

/* Returns true when the backup is connected. */
static inline bool sl_replication_is_linked(const struct sl_server *server)
{
    struct sl_session *session = server->replica->sender.session;
    return session != NULL && sl_session_conn(session) != NULL;
}

/* The backup must connect or acknowledge within one lease after from_ns, at least least_ns. */
void sl_replication_await(struct sl_server *server, uint64_t from_ns, uint64_t least_ns);

/* An entry was appended: the backup must acknowledge within one lease. */
void sl_replication_expect_ack(struct sl_server *server);

#endif
