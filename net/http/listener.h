/* Listener accepts the connections of an HTTP server, up to its limit. A connection beyond that
 * gets status 503: the reply is sent at once, and the connection stays open until its peer has
 * ended it, for at most 2 s: to close it with unread bytes would reset it before the peer has read
 * the reply. If the process has no descriptor left, the listener pauses until the next sweep.
 *
 * Owner: the server's thread. Limits: 1,024 refused connections; further ones are closed. */
#ifndef SL_NET_HTTP_LISTENER_H
#define SL_NET_HTTP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/endpoint.h"
#include "core/list.h"
#include "core/reason.h"

struct sl_http_listener {
    struct sl_endpoint bound;
    int epoll;  /* becomes readable when there is work for sl_http_listener_run */
    int socket; /* -1: closed */
    bool is_paused;
    bool is_tls; /* then a refused peer does not expect plain text */
    struct sl_list refused;
    uint32_t refused_count;
};

/* Gives away a connection, unless there are too many: false. */
typedef bool sl_http_listener_take_fn(void *ctx, int fd, const struct sockaddr_storage *address,
                                      socklen_t address_bytes);

/* Listens. source: begins the reason. Errors: NOT_FOUND (the address), IN_USE, IO. Blocks on DNS
 * for names. Before start. */
int sl_http_listener_open(struct sl_http_listener *listener, const struct sl_endpoint *endpoint,
                          const char *source, struct sl_reason *reason);

/* Closes the listening socket, if it is open. */
void sl_http_listener_quiesce(struct sl_http_listener *listener);

/* Closes all. */
void sl_http_listener_close(struct sl_http_listener *listener);

/* Accepts connections, and discards what refused peers send. */
void sl_http_listener_run(struct sl_http_listener *listener, sl_http_listener_take_fn *take,
                          void *ctx, uint64_t now_ns);

/* Once a second. */
void sl_http_listener_sweep(struct sl_http_listener *listener, uint64_t now_ns);

#endif
