/* Observer is a reactor beside main, which serves HTTP and runs a function once a second.
 *
 * Limits: SL_OBSERVER_CONNECTIONS_MAX connections; others as server.h says. GET and HEAD only. */
#ifndef SL_NET_HTTP_OBSERVER_H
#define SL_NET_HTTP_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/http/server.h"

#define SL_OBSERVER_CONNECTIONS_MAX 64
#define SL_OBSERVER_TICK_NS         1000000000ULL

struct sl_mailbox;
struct sl_observer;

struct sl_observer_route {
    const char *path;       /* "/metrics" */
    const char *parameters; /* accepted in the query, separated by "|"; NULL: none */
    const char *type;       /* Content-Type */
    sl_reply_read_fn *read;
    void *ctx;
    bool is_public; /* shows nothing of the job, such as the files of a page: needs no token */
};

/* All of it outlives the observer. */
struct sl_observer_options {
    const struct sl_http_listen *listen; /* NULL: the thread without HTTP */
    const struct sl_observer_route *routes;
    uint32_t route_count;
    /* Once a second; first when the thread starts. May be NULL. The observer's thread. */
    void (*tick)(void *ctx, uint64_t now_ns);
    void *ctx;
};

/* Listens; a default address that is not in use but cannot be had is logged, and HTTP is off then.
 * The reason names listen->source and the accepted values. Errors: IN_USE, NOT_FOUND, INVALID
 * (certificate or key), NO_MEMORY, IO. Before start. */
int sl_observer_create(const struct sl_observer_options *options, struct sl_observer **out,
                       struct sl_reason *reason);

/* Starts the thread. Errors, logged: those of sl_reactor_start. The creating thread, as the
 * functions below. */
int sl_observer_start(struct sl_observer *observer);

/* Ends the thread, if it was started, and all connections. Mail is not run any more. */
void sl_observer_stop(struct sl_observer *observer);

/* Stops and frees. Nulls *observer, which may be NULL. */
void sl_observer_destroy(struct sl_observer **observer);

/* Writes HOST:PORT with the bound port, or "off". any_host: stands for a wildcard address, so that
 * other machines find it; or NULL. Any thread. */
void sl_observer_address(const struct sl_observer *observer, const char *any_host, char *text,
                         size_t bytes);

/* The mailbox of the thread, for lanes from other threads. Any thread. */
struct sl_mailbox *sl_observer_mailbox(struct sl_observer *observer);

#endif
