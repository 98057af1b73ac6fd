/* The interface between a server and its replication: the functions that the server calls, and the
 * facts that replication keeps current for the server. ps/server includes nothing of
 * ps/replication. A server without replicas has no hooks; it serves. Owner reactor. */
#ifndef SL_PS_SERVER_HOOKS_H
#define SL_PS_SERVER_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_message;
struct sl_shard_evicted;
struct sl_message_expired;
struct sl_server;
struct sl_server_channel;
struct sl_server_conn;
struct sl_server_request;
struct sl_server_session;
struct sl_transport_message;

/* A change of a client that the backup must know. */
enum sl_server_client_event {
    SL_SERVER_CLIENT_CONFIRMED, /* it has received the welcome of its session */
    SL_SERVER_CLIENT_LEFT,      /* its session has ended */
    SL_SERVER_CLIENT_EXPIRED,   /* likewise, because it expired */
    SL_SERVER_CLIENT_UNKNOWN,   /* a worker without a session expired */
};

/* All functions marked (logs) are called only while role.logs is set. */
struct sl_server_hooks {
    size_t request_bytes; /* memory behind each request, for the hooks */

    /* Errors: NO_MEMORY. */
    int (*create)(struct sl_server *server);

    /* The server is being destroyed. stop: before its transports close. destroy: after that. */
    void (*stop)(struct sl_server *server);
    void (*destroy)(struct sl_server *server);

    /* Admits or refuses a primary. */
    void (*admit)(struct sl_server_conn *conn);

    /* A primary sent a frame. The hook releases it. */
    void (*frame)(struct sl_server_conn *conn, const struct sl_transport_message *message);

    /* A channel leaves its session: drop answers that wait for it. */
    void (*leave)(struct sl_server_channel *channel);

    /* The connection of a primary has closed. */
    void (*closed)(struct sl_server_conn *conn);

    /* A worker expired while this server does not serve. */
    void (*expired)(struct sl_server *server, const struct sl_message_expired *expired);

    /* (logs) Sections of a request have written, and it is not complete. Later requests may run
     * before it continues. */
    void (*write_part)(struct sl_server_request *request);

    /* (logs) A request that writes, or has written before its connection broke, is complete. True:
     * the hook owns it, outside of any list, until the backup has it; then it is resumed and
     * answered. False: answer it now. */
    bool (*write_done)(struct sl_server_request *request);

    /* (logs) A request that writes is over, without a reply that waits: it failed and was answered,
     * or nobody expects a reply (err 0). It is in no list. Its sections before section_end took
     * effect. True: the hook owns it and frees it after the acknowledgement. */
    bool (*write_ended)(struct sl_server_request *request, uint32_t section_end, int err);

    /* (logs) The same for a request that was rejected before it was queued. */
    void (*write_refused)(const struct sl_server_session *session, uint64_t request_id, int err);

    /* (logs) Rows were evicted. */
    void (*evicted)(struct sl_server *server, const struct sl_shard_evicted *rows);

    /* (logs) A table was dropped. */
    void (*dropped)(struct sl_server *server, uint32_t table_id);

    /* (logs) */
    void (*client_event)(const struct sl_server_session *session,
                         enum sl_server_client_event event);

    /* (logs) A TableOpen or Join was executed: sends its answer, after the backup has executed the
     * message too if replies wait for it. */
    void (*answer_later)(struct sl_server_channel *channel, const struct sl_message *message,
                         const struct sl_message *answer);

    /* Returns true when a client waits for the backup. */
    bool (*is_awaited)(const struct sl_server *server);

    /* This turn's part of the work: executes received entries at a cost of about `keys`, or
     * continues the snapshot for the backup. Returns the cost. */
    uint32_t (*run)(struct sl_server *server, uint32_t keys);

    /* Returns true when `run` can do nothing until an event. */
    bool (*is_idle)(const struct sl_server *server);

    /* Returns true while the transport has frames of the hooks, after `stop` too. */
    bool (*has_unsent)(const struct sl_server *server);

    /* Like sl_outbox_give_back. */
    bool (*give_back)(struct sl_server *server);
};

/* Treatment of requests while the backup is slow. */
enum sl_server_log_room {
    SL_SERVER_LOG_HAS_ROOM,
    SL_SERVER_LOG_FULL,     /* requests that write wait */
    SL_SERVER_LOG_OVERFULL, /* messages that the backup must execute are refused too */
};

/* Whether the backup continues when this process ends. */
enum sl_server_switchover {
    SL_SERVER_NO_SWITCHOVER,
    SL_SERVER_WILL_SWITCH_OVER, /* clients retry unanswered requests at the backup */
    SL_SERVER_SWITCHED_OVER,    /* the backup has everything: nothing is executed here any more */
};

/* The server's role in its replica group. Replication writes it, the server reads it. */
struct sl_server_role {
    bool serves;      /* attaches clients and handles expirations; true without replicas */
    bool logs;        /* the hooks receive what has an effect beyond a reply */
    bool has_entries; /* of a primary, received and not executed: nothing else runs */
    enum sl_server_log_room log_room;
    enum sl_server_switchover switchover;
    uint64_t state; /* id of the shard's state; clients see it as incarnation */

    /* Of the backup. */
    struct {
        /* The shard may not be empty: a client was welcomed or has expired, or it was restored or
         * promoted. */
        bool needs_snapshot;
        bool is_needed;             /* a backup; without one in sync the shard is degraded */
        uint64_t degraded_since_ns; /* 0: in sync, or this is the backup */
        uint64_t degraded_writes;   /* acknowledged while none was in sync; counted by both */
    } backup;
};

#endif
