/* The host has the transports, the memory and the connections that the servers of one reactor
 * share. The first server of a reactor creates its host, by its own options. A later server joins
 * the host of the server that its option `beside` names. Owner reactor. */
#ifndef SL_PS_SERVER_HOST_H
#define SL_PS_SERVER_HOST_H

#include "ps/server/admission.h"
#include "ps/server/control_out.h"
#include "ps/server/memory.h"
#include "ps/server/server.h"
#include "ps/server/transports.h"

struct sl_server_host {
    struct sl_server *servers; /* a list, linked through next_of_host */
    struct sl_server *home;    /* the first server; new connections are its until their hello */
    bool is_closed;            /* after sl_server_host_close */
    struct sl_server_options options; /* of the first server */
    struct sl_server_transports transports;
    struct sl_server_memory memory;
    struct sl_list conns;
    uint32_t conn_count;
    uint32_t place_count;                        /* numbers given to servers: struct sl_server */
    struct sl_server *by_shard[SL_LIMIT_SHARDS]; /* by the number in the cluster; NULL: not here */
    struct sl_server_pending pending;
    struct sl_server_admission admission;
    uint32_t budget_left; /* cost that the servers may still spend in this turn of the reactor */
    uint64_t freed_count; /* how often memory was freed that a request may wait for; never 0 */
};

/* Adds the server to the host of options.beside; if that is NULL, to a new host. Errors: NO_MEMORY;
 * those of sl_server_transports_open. */
int sl_server_host_join(struct sl_server *server);

/* Stops the replication of all servers of the host, then closes all transports and connections. A
 * repeated call has no effect. */
void sl_server_host_close(struct sl_server_host *host);

/* Of a server that ends before its host: stops its drain and its replication. It has no
 * connections. */
void sl_server_host_stop(struct sl_server *server);

/* Removes the server from its host, and frees the host with its last server. Call
 * sl_server_host_close first. */
void sl_server_host_leave(struct sl_server *server);

/* Answers the pulls that wait for their batch. */
void sl_server_host_answer_pulls(const struct sl_server_host *host);

/* Call when memory was freed: requests that wait for memory try again. */
static inline void sl_server_host_unblock(struct sl_server_host *host)
{
    host->freed_count++;
}

#endif
