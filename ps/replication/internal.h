/* A shard and its backup: what the server of each does beyond serving. Of the two servers that
 * have a shard of the same number, in two processes, the coordinator says which is the primary, in
 * epochs. The primary keeps a log of all that has an effect beyond a reply, in the order in which
 * it ended: requests that write, tables, who joins, leaves and is lost. It ships the log to the
 * backup over a connection of its own; the reply to what is in it waits until the backup has
 * carried it out too. The backup carries out only what writes, and waits for nobody's clock.
 *
 * Until the backup is in step, and when the coordinator has said that it is not, replies do not
 * wait. A server that is in step says so by `pair_moved`, after it has begun to let replies wait,
 * and goes on to do so until the coordinator has begun another epoch: whatever else happens.
 *
 * replication.c: which of the two it is. log.c, sender.c, catch_up.c: the
 * primary. receiver.c: the backup.
 * Owner reactor. Entries that are no requests are allocated as they come. */
#ifndef SL_PS_REPLICATION_INTERNAL_H
#define SL_PS_REPLICATION_INTERNAL_H

#include "net/control/session.h"
#include "ps/replication/replication.h"
#include "ps/server/internal.h"
#include "ps/shard/load.h"
#include "ps/snapshot/block.h"

enum sl_replication_link {
    SL_REPLICATION_NONE,     /* there is no backup, or no connection to it: nothing is logged */
    SL_REPLICATION_WANTED,   /* the image shall begin: likewise */
    SL_REPLICATION_SNAPSHOT, /* it is made and sent: all is logged behind it, and answered at once
                              */
    SL_REPLICATION_FOLLOWS,  /* it has been sent: likewise */
    SL_REPLICATION_IN_SYNC,  /* the backup has it: all is logged, and replies wait */
};

/* That a primary was told of before it served. */
struct sl_server_expiry {
    struct sl_server_expiry *next;
    struct sl_message_expired expired;
};

struct sl_replication {
    struct sl_server *server;
    struct sl_replica_config config; /* as the coordinator has said last; epoch 0: nothing yet */
    uint64_t state; /* which one this is: two shards with the same one are in step */
    struct sl_server_expiry *expirations; /* for when it serves, in their order */

    /* The primary: */
    bool waits_for_backup; /* nobody is welcomed before there is a backup, or word that there is
                            * none: in the first epoch that it hears of */
    bool is_touched;       /* a client was welcomed, or lost: a backup that begins now needs an
                            * image */
    enum sl_replication_link link;
    bool is_in_sync;            /* it has been told so: the backup has all that was answered */
    uint64_t degraded_since_ns; /* 0: it is in step, or this is a backup */
    uint64_t degraded_writes;   /* that were acknowledged without a backup in step */
    bool has_given_up;    /* the coordinator has been told that the epoch has no backup in step */
    bool may_switch_over; /* when this ps ends, the backups of all its shards go on */
    bool switching_over;  /* the backup goes on, and has all: nothing is done here any more */
    struct sl_session *session;
    struct sl_outbox outbox;
    struct sl_credit credit;
    struct sl_replication_entry *first, *last;
    struct sl_replication_entry *unsent;
    struct sl_replication_entry *behind_first, *behind_last; /* the image: until it is complete */
    struct sl_replication_entry *over; /* that the backup has, and the transport too, still */
    uint64_t number;                   /* of the entry sent last */
    uint64_t appended, ended;          /* entries, but for blocks, since there is a log */
    uint64_t answered;                 /* of those appended, when replies began to wait */
    uint32_t entry_count;
    size_t entry_bytes;
    uint32_t block_count; /* of the image, under way */
    bool is_full;         /* requests that write wait until the backup has caught up */
    uint32_t in_transport_count;
    bool snapshot_asked, snapshot_waits; /* for the cut; until the timer */
    uint32_t catch_up_failures;          /* that were given up, since one was in step */
    struct sl_timer snapshot_timer;
    struct sl_timer silence; /* armed while the backup has no connection, or owes answers */
    uint64_t last_seen_ns;   /* when it answered last, or began to owe */
    uint64_t taken_bytes;    /* by it, as its connection says, when that was looked at last */

    /* The backup: */
    struct sl_server_conn *feed;           /* NULL: the primary has no connection */
    struct sl_server_request_list entries; /* that have come, and are not carried out */
    bool has_begun;                        /* the first of them, */
    bool runs;                             /* whose work is under way */
    uint64_t received;                     /* the last entry that has come */
    uint64_t position;                     /* that was carried out */
    uint64_t acked;                        /* that the primary has been told */
    uint64_t credit_bytes;                 /* to be given back with the next answer */
    uint32_t credit_requests;
    bool is_loading; /* the image has begun, and not ended */
    struct sl_shard_load load;
    struct sl_snapshot_block block; /* at work */
    struct sl_server_session_load session_load;
    bool is_broken; /* something was done here otherwise than there: it is no backup any more */
    bool promoting; /* it is to be the primary, when the entries are carried out */
};

static inline bool sl_replication_logs(const struct sl_server *server)
{
    return server->replica != NULL && server->replica->link >= SL_REPLICATION_SNAPSHOT;
}

/* It serves clients: welcomes them, and hears of losses. */
static inline bool sl_replication_serves(const struct sl_server *server)
{
    return server->replica == NULL ||
           (server->replica->config.is_primary && !server->replica->waits_for_backup &&
            !server->replica->promoting);
}

/* The request waits for room in the log, among other things. */
static inline bool sl_replication_holds(const struct sl_server_request *request)
{
    const struct sl_replication *replica = request->server->replica;
    return replica != NULL && replica->is_full && !request->started &&
           sl_server_request_writes(&request->work);
}

/* What is to be said of a request that has waited for its turn. */
static inline const char *sl_replication_delay(const struct sl_server_request *request)
{
    return sl_replication_holds(request) ? ": its backup does not keep up" : "";
}

/* A write is about to be acknowledged: by this server alone, unless the reply waits. */
static inline void sl_replication_count(struct sl_server *server)
{
    if (server->replica != NULL && server->replica->link != SL_REPLICATION_IN_SYNC) {
        server->replica->degraded_writes++;
    }
}

/* When this ps ends its backup takes over: what is not answered is asked for there. Not for one
 * shard to say: the coordinator promotes the backups of all shards of the ps, or of none. */
static inline bool sl_replication_may_switch_over(const struct sl_server *server)
{
    const struct sl_replication *replica = server->replica;
    return replica != NULL &&
           (replica->switching_over ||
            (replica->may_switch_over && replica->link == SL_REPLICATION_IN_SYNC));
}

static inline bool sl_replication_switches_over(const struct sl_server *server)
{
    return server->replica != NULL && server->replica->switching_over;
}

/* ---- server_replica.c ---- */

/* What the counters of the shard say of its backup. */
void sl_replication_stats(const struct sl_server *server, struct sl_message_stats *stats);

/* As sl_outbox_give_back, of the log's outbox. */
bool sl_replication_give_back(struct sl_server *server);

/* Errors: NO_MEMORY. */
int sl_replication_create(struct sl_server *server);
void sl_replication_destroy(struct sl_server *server);

/* A hello of a client has come, or of a primary: false, and it is refused, when this server is not
 * the one to speak with now. */
bool sl_replication_admits(struct sl_server_conn *conn);

/* A worker is lost, and this server does not serve: what is to be the primary hears of it again
 * when it does; a backup, from its primary. */
void sl_replication_expired(struct sl_server *server, const struct sl_message_expired *expired);

/* Welcomes those who wait. */
void sl_replication_open(struct sl_server *server);

/* The backup begins as an empty one. */
void sl_replication_forget(struct sl_server *server);

/* Another is the primary: this one does and answers nothing more, and its process ends. */
void sl_replication_fenced(struct sl_server *server);

/* The backup has nothing more to carry out before it takes over: it serves, or, where it is out of
 * step, its process ends. */
void sl_replication_promoted(struct sl_server *server);

/* Tells the owner that the backup is in step, or will not be in this epoch. */
void sl_replication_report(struct sl_server *server, bool in_sync);

/* ---- server_ship.c: the primary's connection ---- */

/* Connects to the backup of the pair. */
void sl_replication_sender_open(struct sl_server *server);

/* There is no backup in step any more: what waits for it is answered, and nothing is logged. */
void sl_replication_sender_close(struct sl_server *server);

/* An entry has been appended: the backup owes an answer, within a lease. */
void sl_replication_sender_listen(struct sl_server *server);

/* Tells the coordinator that there will be no backup in step in this epoch, once. Replies go on
 * waiting. */
void sl_replication_sender_give_up(struct sl_server *server, const char *why);

/* ---- server_log.c: the primary's log ---- */

/* Both are empty: everything is logged from now on, and replies wait. */
void sl_replication_log_begin(struct sl_server *server);

/* The backup has all entries up to this one. */
void sl_replication_log_acknowledged(struct sl_server *server, uint64_t number);

/* Sends what has not been sent, as far as there is credit and room. */
void sl_replication_log_pump(struct sl_replication *replica);

/* A request that writes, or has written before its connection broke, is carried out. True: it is
 * taken over, out of its list, until the backup has it too; then it is resumed, to be answered.
 * False: it is to be answered now. */
bool sl_replication_log_done(struct sl_server_request *request);

/* A request that writes, in no list, has failed, and was answered; err 0: nobody waits for it any
 * more. Its sections before section_end have had their effect. True: it is taken over, and freed
 * when the backup knows. */
bool sl_replication_log_failed(struct sl_server_request *request, uint32_t section_end, int err);

/* Likewise, of one that is none of the queued ones. */
void sl_replication_log_refused(const struct sl_server_session *session, uint64_t request_id,
                                int err);

/* An entry without a body: LOST. */
void sl_replication_log_client(struct sl_server *server,
                               const struct sl_replication_entry_head *head);

/* Likewise, about a session: HEARD, END. */
void sl_replication_log_session(const struct sl_server_session *session,
                                enum sl_replication_entry_kind kind, bool is_expired);

/* Sends the answer to a TABLE or JOIN once the backup has done what the message asks for; at once
 * when nothing is logged. */
void sl_replication_log_answer(struct sl_server_conn *conn, enum sl_replication_entry_kind kind,
                               const struct sl_message *message, const struct sl_message *answer);

/* False: so many entries wait for the backup that a message which needs one more must not be
 * carried out. */
bool sl_replication_log_takes_messages(const struct sl_server *server);

/* Somebody waits for an answer. */
bool sl_replication_log_is_awaited(const struct sl_server *server);

/* The connection is a client's no more: nobody waits for its answers. */
void sl_replication_log_forget(struct sl_server_conn *conn);

/* A block of the image, which is the log's from now on; false: no memory. */
bool sl_replication_log_block(struct sl_server *server, struct sl_snapshot_block *block,
                              bool is_snapshot);

/* The last block was given: what was logged meanwhile follows it. */
void sl_replication_log_follow_snapshot(struct sl_server *server);

/* The image is given up, and the log. */
void sl_replication_log_abort(struct sl_server *server);

/* ---- server_image.c: the primary's image, for a backup that comes later ---- */

/* The backup is empty, and the shard is not. */
void sl_replication_catch_up_want(struct sl_server *server);

/* Ends what was wanted, or is under way. */
void sl_replication_catch_up_end(struct sl_server *server);

/* Begins, or goes on; returns the keys that it spent of the turn. */
uint32_t sl_replication_catch_up_run(struct sl_server *server);

/* Can go on now. */
bool sl_replication_catch_up_is_busy(const struct sl_server *server);

/* ---- receiver.c: the backup ---- */

/* The primary said hello, and proved who it is. */
void sl_replication_receiver_admit(struct sl_server_conn *conn);

/* An entry's frame has come. */
void sl_replication_receiver_arrive(struct sl_server_conn *conn,
                                    const struct sl_transport_message *message);

/* Its connection has closed. */
void sl_replication_receiver_closed(struct sl_server *server);

/* Carries out what has come; returns the keys that it spent. */
uint32_t sl_replication_receiver_run(struct sl_server *server, uint32_t keys);

/* Has something to carry out. */
static inline bool sl_replication_receiver_waits(const struct sl_server *server)
{
    return server->replica != NULL && server->replica->entries.first != NULL;
}

/* What had come is dropped. */
void sl_replication_receiver_drop(struct sl_server *server);

#endif
