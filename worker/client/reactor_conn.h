/* A reactor connection is the client's connection to one reactor of a server, on a reactor of the
 * client. It carries the requests for the shards there that the client has attached (shard_conn.h),
 * which share its credit. It is opened with its first shard and closed with its last. When it
 * breaks, the session reconnects, and the shards attach again. Owner reactor. */
#ifndef SL_WORKER_CLIENT_REACTOR_CONN_H
#define SL_WORKER_CLIENT_REACTOR_CONN_H

#include "core/endpoint.h"
#include "core/list.h"
#include "net/credit.h"
#include "net/session/session.h"

struct sl_client_io;
struct sl_request;
struct sl_shard_conn;

#define SL_REACTOR_CONN_NAME_BYTES   (SL_LIMIT_ENDPOINT_BYTES + 48)
#define SL_REACTOR_CONN_REASON_BYTES SL_MESSAGE_TEXT_BYTES

/* The address of a reactor of a server. */
struct sl_reactor_address {
    uint32_t server_task;
    uint32_t reactor; /* of the server */
    struct sl_endpoint endpoint;
    /* Besides a TCP endpoint: shared memory if the server is on this host, else RDMA or DPDK if the
     * server offers it. */
    struct sl_endpoint preferred;
    bool has_preferred;
};

struct sl_reactor_conn {
    struct sl_reactor_conn *next; /* of the client_io's */
    struct sl_client_io *io;
    struct sl_reactor_address address;
    char name[SL_REACTOR_CONN_NAME_BYTES]; /* "ps/1 reactor 0 (tcp://127.0.0.1:5555)": with the
                                            * endpoint in use */
    struct sl_session *session;
    struct sl_list shards; /* shard connections that use it */
    /* Those with requests that wait for credit or room, in the order in which they began to. */
    struct sl_list waiting;

    /* Of the current connection. */
    struct {
        struct sl_outbox *outbox;
        enum sl_endpoint_scheme scheme;
        bool direct_replies; /* the server can write replies into buffers of the client */
        /* RDMA: the server can write replies into receive buffers of the client_io, and a long tail
         * must be in registered memory. */
        bool needs_registered;
    } path;

    struct sl_credit granted;          /* by the last welcome */
    struct sl_credit credit;           /* left */
    struct sl_request *direct_request; /* its reply is being received into the caller's memory */
    void *buffer;                      /* receive buffer of the client_io in use for a long reply */
};

/* Adds the shard to the connection to its address, which is opened if there is none, and removes it
 * from the one that it used before, if any; control requests for the shard go along. The shard is
 * attached when the connection is welcomed. start_timeout_ns: for a new connection. The shard has
 * no request in flight. Errors: NO_MEMORY; those of opening a transport. */
int sl_reactor_conn_join(struct sl_shard_conn *shard, uint64_t start_timeout_ns);

/* Removes the shard from its connection, and fails control requests for it. Closes the connection,
 * with a goodbye if it is open, if no other shard uses it. */
void sl_reactor_conn_leave(struct sl_shard_conn *shard);

/* Sets the endpoints for the next attempts to connect. */
void sl_reactor_conn_set_address(struct sl_reactor_conn *conn,
                                 const struct sl_reactor_address *address);

/* Breaks the connection for this reason; the client reconnects. No effect unless it is up. */
void sl_reactor_conn_break(struct sl_reactor_conn *conn, const char *reason);

/* Sends requests that wait, as far as credit and the outbox allow. */
void sl_reactor_conn_pump(struct sl_reactor_conn *conn);

/* Returns whether the connection is welcomed and not breaking. */
bool sl_reactor_conn_is_up(const struct sl_reactor_conn *conn);

/* The transport no longer uses the memory that `sink` returned. */
void sl_reactor_conn_end_direct_reply(struct sl_reactor_conn *conn);

#endif
