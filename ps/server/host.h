/* What the servers of a reactor share: transports, memory, and connections. The first server on a
 * reactor creates the host; its options hold for the host, and its shard answers what names no
 * shard. Other servers join it (option `beside`). Owner reactor. */
#ifndef SL_PS_SERVER_HOST_H
#define SL_PS_SERVER_HOST_H

#include "ps/server/admission.h"
#include "ps/server/control_out.h"
#include "ps/server/memory.h"
#include "ps/server/server.h"
#include "ps/server/transports.h"

struct sl_server_host {
    struct sl_server *servers; /* by next_of_host */
    struct sl_server *home;    /* the first server: has connections until a hello names another */
    uint32_t server_count;
    bool is_closed; /* a server is being destroyed: no transport is open any more */
    struct sl_server_options options; /* of the first server */
    struct sl_server_transports transports;
    struct sl_server_memory memory;
    struct {
        struct sl_list list;
        uint32_t count;
    } conns;
    struct sl_server_pending pending;
    struct sl_server_admission admission;
    uint32_t budget_left; /* of the reactor's turn */
    uint64_t freed_count; /* from 1: how often memory was freed for which requests may wait */
};

/* Adds the server to the host of options.beside, or to a new one. Errors: NO_MEMORY; those of
 * opening a transport. */
int sl_server_host_join(struct sl_server *server);

/* Stops replication of all servers of the host, and closes the transports and with them all
 * connections. Once; further calls have no effect. */
void sl_server_host_close(struct sl_server_host *host);

/* The last server frees the host. After sl_server_host_close. */
void sl_server_host_leave(struct sl_server *server);

/* Memory was freed: requests that wait for it may try again. */
static inline void sl_server_host_unblock(struct sl_server_host *host)
{
    host->freed_count++;
}

#endif
