/* Orderly shutdown: answers what was received, then says goodbye (sl_server_drain). */
#ifndef SL_PS_SERVER_DRAIN_H
#define SL_PS_SERVER_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "reactor/timer.h"

struct sl_server;
struct sl_server_host;
struct sl_server_conn;

enum sl_server_drain_stage {
    SL_SERVER_RUNS,
    SL_SERVER_DRAINS,       /* answers what was received */
    SL_SERVER_SAID_GOODBYE, /* closes each connection once all is sent */
};

struct sl_server_drain {
    enum sl_server_drain_stage stage;
    struct sl_timer timer;
    void (*drained)(void *ctx); /* NULL: not draining, or called */
    void *ctx;
};

/* Of sl_server_drain: sets the stage and the timeout. */
void sl_server_drain_begin(struct sl_server *server, uint64_t timeout_ns,
                           void (*drained)(void *ctx), void *ctx);

/* Ends a drain without its callback, since the server is being destroyed. */
void sl_server_drain_stop(struct sl_server *server);

/* Call when a request or connection has ended: continues or completes the drain of the servers of
 * the host, which drain together. */
void sl_server_drain_update(struct sl_server_host *host);

/* After the goodbyes: closes the connection once all is sent. */
void sl_server_drain_conn(struct sl_server_conn *conn);

/* Says goodbye to the peer if it was welcomed. */
void sl_server_drain_say_goodbye(struct sl_server_conn *conn);

/* Returns true when no request waits or is in progress. */
bool sl_server_is_idle(const struct sl_server *server);

#endif
