/* A connection of the server: its peer, and what it has yet to receive and send. events.c handles
 * the events of the transports. Owner reactor. */
#ifndef SL_PS_SERVER_CONN_H
#define SL_PS_SERVER_CONN_H

#include "core/list.h"
#include "net/credit.h"
#include "net/outbox.h"
#include "net/session/greeting.h"
#include "ps/server/server.h"

enum sl_server_conn_kind {
    SL_SERVER_CONN_NEW,        /* no hello yet */
    SL_SERVER_CONN_CHALLENGED, /* hello received, must prove the secret */
    SL_SERVER_CONN_REFUSED,    /* refused or dismissed, being closed */
    /* Welcomed: */
    SL_SERVER_CONN_CONTROL, /* member of the coordinator */
    SL_SERVER_CONN_DATA,    /* client of the host's shards */
    SL_SERVER_CONN_PRIMARY, /* primary of the backup here */
};

/* The deadline of the handshake: armed and run by events.c, until handshake.c accepts the client.
 */
struct sl_server_handshake {
    struct sl_timer timer;
    uint64_t until_ns;
};

/* For control_out.c: control messages that wait for room in the outbox. */
struct sl_server_conn_pending {
    struct sl_list messages;
    uint32_t count;
    struct sl_list_link link; /* of connections of the same outbox with messages */
};

/* For admission.c: progress of the output. */
struct sl_server_conn_output {
    bool progressed;       /* a frame was sent since the last check */
    uint64_t taken_bytes;  /* of the transport's connection, at the last check */
    uint8_t unsent_checks; /* in a row: unsent output, no byte taken */
    uint16_t frame_checks; /* in a row: unsent output, no frame sent */
};

/* For admission.c: memory for a long payload that is being received. */
struct sl_server_conn_sink {
    uint8_t *buffer;          /* NULL: none */
    uint16_t checks;          /* since it was allocated */
    uint32_t long_requests;   /* in memory, whose payload came in a sink */
    struct sl_list_link link; /* of connections that wait for a sink */
};

/* The part of a client's connection that concerns one shard. It begins with an Attach message. */
struct sl_server_channel {
    struct sl_server_conn *conn;
    struct sl_server *server;
    struct sl_list_link link;          /* of the server's channels, while it has a session */
    struct sl_server_session *session; /* NULL: not attached, or replaced */
    bool resumed;
    bool has_pulls; /* in the server's batch */
    uint64_t request_id_last;
    struct sl_list queue;           /* of requests; only the first may have started */
    struct sl_list_link ready_link; /* of channels whose first request may run */
};

struct sl_server_conn {
    struct sl_list_link link;    /* of all of the host */
    struct sl_server_host *host; /* NULL while migrating */
    struct sl_server *server;    /* of the host; kind PRIMARY: of the backup */
    struct sl_conn *conn;
    struct sl_outbox *outbox; /* the server's, for replies or for control messages */
    struct sl_outbox_queue out;
    bool uses_shm; /* connected over shared memory */
    bool said_goodbye;
    enum sl_server_conn_kind kind;
    struct sl_greeting greeting;
    char name[SL_MESSAGE_NAME_BYTES]; /* for logs and errors: "worker/3", "client" */
    struct sl_server_handshake handshake;
    struct sl_server_conn_pending pending;
    struct sl_server_conn_output output;
    struct sl_server_conn_sink sink;

    struct sl_credit credit; /* left to the peer */
    /* [channel_count], by the server's place in the host; NULL: never attached. Kind DATA. */
    struct sl_server_channel **channels;
    uint32_t channel_count;
};

extern const struct sl_transport_events sl_server_conn_events;

/* Returns true when no request of the channel is queued. */
static inline bool sl_server_channel_is_free(const struct sl_server_channel *channel)
{
    return sl_list_empty(&channel->queue);
}

static inline struct sl_server_channel *sl_server_channel_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_server_channel, link);
}

static inline bool sl_server_conn_is_welcomed(const struct sl_server_conn *conn)
{
    return conn->kind >= SL_SERVER_CONN_CONTROL;
}

static inline struct sl_server_conn *sl_server_conn_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_server_conn, link);
}

/* Returns the attached channel to the shard; NULL: none. */
struct sl_server_channel *sl_server_conn_channel(const struct sl_server_conn *conn, uint32_t shard);

/* Returns the channel to the server's shard, attached or not; NULL: no memory. */
struct sl_server_channel *sl_server_conn_add_channel(struct sl_server_conn *conn,
                                                     struct sl_server *server);

/* Frees a closed connection. */
void sl_server_conn_free(struct sl_server_conn *conn);

/* Logs the reason, then closes the connection. Call sl_server_host_answer_pulls before it within an
 * upcall about the connection: its earlier pulls may wait for their batch. */
void sl_server_conn_drop(struct sl_server_conn *conn, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Releases a frame's memory in the transport and the sink, unless a request has taken the sink. */
void sl_server_conn_release(struct sl_server_conn *conn,
                            const struct sl_transport_message *message);

#endif
