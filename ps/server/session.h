/* What a server knows of a client beyond its connection, so that a request that comes again after
 * the connection broke is not carried out twice. A client's requests to a shard have ascending ids
 * over all its connections. Its writes are done in that order, one at a time; so it is enough to
 * remember the greatest id seen, the last write done, the write that is in progress (which goes on
 * without a connection, as the orphan) and, since there the order says nothing, which of its last
 * writes have failed.
 *
 * A session ends when its client says goodbye, is lost by the coordinator's word, or has been
 * without a connection for a lease. There are at most as many sessions away as a server has
 * connections: the one that has been so for longest ends first. Owner reactor. Allocates when a
 * client comes, and when the first write of it fails. */
#ifndef SL_PS_SERVER_SESSION_H
#define SL_PS_SERVER_SESSION_H

#include "core/limits.h"
#include "net/control/message.h"
#include "reactor/timer.h"

/* A client has no more requests than these without an answer, and the answers come in order. */
#define SL_SERVER_SESSION_FAILURES SL_LIMIT_CREDIT_REQUESTS

#define SL_SERVER_SESSION_BUCKETS  16384 /* a power of two */

struct sl_snapshot_block;
struct sl_server;
struct sl_server_conn;
struct sl_server_request;

struct sl_server_failure {
    uint64_t id;
    int err;
};

struct sl_server_session {
    struct sl_server_session *next; /* in its bucket */
    struct sl_server *server;
    uint64_t client_id;
    enum sl_message_role role;
    uint32_t task_index;
    char name[SL_MESSAGE_NAME_BYTES];
    struct sl_server_conn *conn; /* NULL: it is away */

    bool confirmed;           /* a control message has come since a welcome of this session */
    bool restored;            /* from a checkpoint */
    bool forgets;             /* there was no memory to remember a failure: it ends with its
                               * connection */
    uint32_t snapshot_number; /* of the last cut that it need not be put into any more */
    uint64_t id_max;          /* of its requests that have come */
    uint64_t last_write_id;   /* that was done; every earlier write was, or has failed */
    uint32_t
        overtaken_writes; /* its requests that write and were parked or orphaned: at most one */
    struct sl_server_request *orphan;   /* has begun to write, and has no connection */
    struct sl_server_failure *failures; /* [SL_SERVER_SESSION_FAILURES], or NULL: none yet; the
                                         * one told longest ago is the first */
    uint32_t failure_count;
    uint32_t begun_sections; /* of the write that has begun last, so many have written: here, or
                              * before the cut of what this was loaded from */
    uint64_t begun_id;       /* that write; 0: none */
    uint64_t sent_id;        /* likewise, as the backup knows from its image */
    uint32_t sent_sections;

    struct sl_timer lease;                           /* while it is away */
    struct sl_server_session *away_prev, *away_next; /* the longest away is the first */
};

/* server_session_cut.h */
struct sl_server_session_snapshot {
    uint32_t number; /* of the last one: who has another has not been put */
    bool walks;      /* there are some that have not been put */
    bool for_backup;
    bool has_failed;
    uint32_t bucket;                        /* that is walked next */
    struct sl_snapshot_block *open;         /* NULL: none */
    struct sl_snapshot_block *first, *last; /* that wait to be taken */
    uint32_t waiting_count;
    struct sl_snapshot_block *spare; /* that are to be freed */
};

struct sl_server_sessions {
    struct sl_server_session_snapshot snapshot;
    struct sl_server_session **buckets; /* by client_id */
    struct sl_server_session **workers; /* [SL_LIMIT_WORKERS], by task index */
    struct sl_server_session *away_first, *away_last;
    uint32_t away_count;
    uint8_t expired_early[SL_LIMIT_WORKERS / 8]; /* lost before the shard was open, as bits */
};

/* Errors: NO_MEMORY. */
int sl_server_sessions_init(struct sl_server_sessions *sessions);
void sl_server_sessions_fini(struct sl_server_sessions *sessions);

/* A session of an image: its client is away, and has so many leases from sl_server_sessions_await
 * on. Errors: CORRUPT (there is one of this client, or worker), NO_MEMORY. */
int sl_server_session_restore(struct sl_server *server, const struct sl_message_hello *hello,
                              struct sl_server_session **out);
void sl_server_sessions_await(struct sl_server *server, uint32_t lease_count);

/* A block of sessions that is being loaded; zeroed before its first slice. */
struct sl_server_session_load {
    bool is_exact;  /* they are not as old as a checkpoint, but as the primary has them */
    uint32_t done;  /* of the block's sessions */
    size_t bytes;   /* of it */
    uint32_t spent; /* by the last slice */
};

/* Revives sessions of a block, as many as about that budget allows; load->spent says how much it
 * was. SL_SHARD_DONE, SL_SHARD_AGAIN, or an error with a reason: CORRUPT, NO_MEMORY. */
int sl_server_session_load(struct sl_server *server, const struct sl_snapshot_block *block,
                           struct sl_server_session_load *load, uint32_t key_budget, char *reason,
                           size_t reason_bytes);

/* There is a shard now: it learns who was lost before. */
void sl_server_sessions_number(struct sl_server *server);

/* The connection has been admitted to the shard: it takes its place in the session of its
 * client_id, an old one if there is one, where it replaces the connection that that had. It resumes
 * the session only when something of it was heard (conn->resumed): else its welcome may have been
 * lost, and the client would take this session for the one that was forgotten before. A worker's
 * older session under another client_id ends if it is away. Errors: AGAIN (that one has a
 * connection), INVALID (the client was somebody else before), NO_MEMORY; reason says it. */
int sl_server_session_attach(struct sl_server_conn *conn, char *reason, size_t reason_bytes);

/* The connection has closed, or its client has said goodbye. Does nothing without a session. */
void sl_server_session_detach(struct sl_server_conn *conn);

/* The backup's: the session of a client, which the primary has; a new one, if there is none. NULL:
 * no memory, or it contradicts another; reason says it. */
struct sl_server_session *sl_server_session_follow(struct sl_server *server, uint64_t client_id,
                                                   enum sl_message_role role, uint32_t task_index,
                                                   char *reason, size_t reason_bytes);

/* The backup's: the primary has ended the session, which this side may not know of. */
void sl_server_session_unfollow(struct sl_server *server, uint64_t client_id,
                                enum sl_message_role role, uint32_t task_index, bool is_expired);

/* NULL: there is none. */
struct sl_server_session *sl_server_session_find(const struct sl_server *server,
                                                 uint64_t client_id);

/* The shard begins anew: there are none any more, and their connections are closed. */
void sl_server_sessions_forget(struct sl_server *server);

/* What became of a write that has an id of before. */
enum sl_server_write_outcome {
    SL_SERVER_WRITE_UNKNOWN, /* it never began */
    SL_SERVER_WRITE_DONE,
    SL_SERVER_WRITE_FAILED, /* with *err */
    SL_SERVER_WRITE_ORPHAN, /* it goes on */
};
enum sl_server_write_outcome
sl_server_session_write_outcome(const struct sl_server_session *session, uint64_t id, int *err);

/* A write was done. One that comes late, out of a client's order, takes nothing back. */
void sl_server_session_wrote(struct sl_server_session *session, uint64_t id);

/* A control message has come. */
void sl_server_session_confirm(struct sl_server_session *session);

/* A write has failed, or has been refused, or its client is told so again. The failure told longest
 * ago is forgotten for it: answers come in order, so that a client that has yet to hear of that one
 * has more than enough requests without an answer. */
void sl_server_session_failed(struct sl_server_session *session, uint64_t id, int err);

#endif
