/* Orderly shutdown: answers what was received, then says goodbye (sl_server_drain). */
#ifndef SL_PS_SERVER_DRAIN_H
#define SL_PS_SERVER_DRAIN_H

#include "reactor/timer.h"

struct sl_server;
struct sl_server_conn;
struct sl_server_request;

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

/* Call when a request or connection has ended: continues or completes the drain. */
void sl_server_drain_update(struct sl_server *server);

/* After the goodbyes: closes the connection once all is sent. */
void sl_server_drain_conn(struct sl_server_conn *conn);

/* Refuses a write that arrived too late: CANCELLED, or no answer if the backup will be promoted. */
void sl_server_drain_refuse(struct sl_server_request *request);

#endif
