/* A session is the record of a client that a shard keeps beyond the connection, so that a retried
 * write is not applied twice; a retried pull runs again. The ids of a client's requests to a shard
 * ascend across all its connections. Its writes execute in that order, one at a time. So the
 * session needs only:
 * - the greatest id received and the last completed write;
 * - the write in progress, which continues without a connection as the orphan;
 * - failed writes, because the order says nothing about them.
 *
 * A session ends when its client says goodbye, when the coordinator reports that the client
 * expired, or after one lease without a connection. The number of disconnected sessions is limited
 * by the number of connections: the one disconnected longest ends first. Owner reactor. Allocates
 * per client, and at a client's first failed write. */
#ifndef SL_PS_SERVER_SESSION_H
#define SL_PS_SERVER_SESSION_H

#include "core/limits.h"
#include "core/list.h"
#include "core/reason.h"
#include "net/session/message.h"
#include "ps/snapshot/builder.h"
#include "reactor/timer.h"

/* A client has at most this many unanswered requests, and replies arrive in order. */
#define SL_SERVER_SESSION_FAILURES SL_LIMIT_CREDIT_REQUESTS

#define SL_SERVER_SESSION_BUCKETS  16384 /* a power of two */

struct sl_server;
struct sl_server_channel;
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
    struct sl_server_channel *channel; /* NULL: disconnected */

    bool confirmed; /* a control message arrived after a welcome of this session */
    bool restored;  /* from a checkpoint */
    bool forgets;   /* no memory to record a failure: the session ends with its connection */
    uint32_t snapshot_number;  /* the last snapshot that does not need this session any more */
    uint64_t id_max;           /* of the requests received */
    uint64_t last_write_id;    /* all earlier writes are done or failed */
    uint32_t overtaken_writes; /* writes that were parked or orphaned: at most one */
    struct sl_server_request *orphan; /* write in progress without a connection */
    /* [SL_SERVER_SESSION_FAILURES], the one reported longest ago first; NULL: none yet */
    struct sl_server_failure *failures;
    uint32_t failure_count;
    /* Sections that the write begun last has applied, here or before the snapshot that this session
     * was loaded from. */
    uint32_t begun_sections;
    uint64_t begun_id; /* that write; 0: none */
    uint64_t sent_id;  /* begun_id as it was last sent to the backup */
    uint32_t sent_sections;

    struct sl_timer lease; /* armed while disconnected */
    struct sl_list_link away_link;
};

/* State of session_snapshot.h. */
struct sl_server_session_snapshot {
    /* Of the current or last snapshot; a session with another number was not copied. */
    uint32_t number;
    bool walks; /* some sessions were not copied */
    bool for_backup;
    uint32_t bucket; /* next of the walk */
    struct sl_snapshot_appender stream;
};

struct sl_server_sessions {
    struct sl_server_session_snapshot snapshot;
    struct sl_server_session **buckets; /* by client_id */
    struct sl_server_session **workers; /* [SL_LIMIT_WORKERS], by task index */
    struct sl_list away;                /* disconnected sessions, the longest disconnected first */
    uint32_t away_count;
    /* Bits: workers that expired before the shard was open. */
    uint8_t expired_early[SL_LIMIT_WORKERS / 8];
};

/* Errors: NO_MEMORY. */
int sl_server_sessions_init(struct sl_server_sessions *sessions);
void sl_server_sessions_fini(struct sl_server_sessions *sessions);

/* restore creates a session from a snapshot; its client is disconnected. await starts the leases of
 * all disconnected sessions: lease_count leases to reconnect. Errors: CORRUPT (the client or worker
 * has a session), NO_MEMORY. */
int sl_server_session_restore(struct sl_server *server, const struct sl_message_hello *hello,
                              struct sl_server_session **out);
void sl_server_sessions_await(struct sl_server *server, uint32_t lease_count);

/* The shard exists now: reports workers to it that expired before. */
void sl_server_sessions_number(struct sl_server *server);

/* Attaches a channel to the session of its client_id, or to a new session. Replaces the session's
 * previous channel, if any, and closes its connection. A worker's older session under another
 * client_id ends if it is disconnected. Sets channel->resumed only if the client has confirmed the
 * old session. Otherwise its first welcome may be lost, and the client would mistake this session
 * for its expired one. Errors: AGAIN (the worker's older session is connected), INVALID (the
 * client_id belongs to another client), NO_MEMORY; with a reason. */
int sl_server_session_attach(struct sl_server_channel *channel, struct sl_reason *reason);

/* The connection has closed, or its client said goodbye: separates its channels from their
 * sessions. */
void sl_server_session_detach(struct sl_server_conn *conn);

/* On a backup: returns the session that the primary has for a client, created if needed. NULL: no
 * memory, or conflict with another session; reason says which. */
struct sl_server_session *sl_server_session_follow(struct sl_server *server, uint64_t client_id,
                                                   enum sl_message_role role, uint32_t task_index,
                                                   struct sl_reason *reason);

/* On a backup: the primary has ended the session, which may be unknown here. */
void sl_server_session_unfollow(struct sl_server *server, uint64_t client_id,
                                enum sl_message_role role, uint32_t task_index, bool is_expired);

/* Returns the session of a client; NULL: none. */
struct sl_server_session *sl_server_session_find(const struct sl_server *server,
                                                 uint64_t client_id);

/* The shard starts empty: ends all sessions and closes their connections. */
void sl_server_sessions_forget(struct sl_server *server);

/* Result of an earlier write with the same id. */
enum sl_server_write_outcome {
    SL_SERVER_WRITE_UNKNOWN, /* never started */
    SL_SERVER_WRITE_DONE,
    SL_SERVER_WRITE_FAILED, /* with *err */
    SL_SERVER_WRITE_ORPHAN, /* in progress */
};
enum sl_server_write_outcome
sl_server_session_write_outcome(const struct sl_server_session *session, uint64_t id, int *err);

/* Records a completed write. A lower id than the last one has no effect. */
void sl_server_session_wrote(struct sl_server_session *session, uint64_t id);

/* Call before the session changes or ends: copies it into the snapshot in progress, if any. */
void sl_server_session_touch(struct sl_server_session *session);

/* A request with this id has arrived. */
void sl_server_session_arrived(struct sl_server_session *session, uint64_t id);

/* Records that a control message arrived. */
void sl_server_session_confirm(struct sl_server_session *session);

/* Records a failed or refused write, or one whose failure was reported again. Drops the failure
 * reported longest ago if the array is full. This is safe: replies arrive in order, so a client
 * that still waits for that failure would exceed its limit of unanswered requests. */
void sl_server_session_failed(struct sl_server_session *session, uint64_t id, int err);

#endif
