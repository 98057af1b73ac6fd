/* Daemon answers HTTP requests on the connections that it is given, by libmicrohttpd, which has no
 * thread of its own: its epoll descriptor is watched by the observer. Owner: the observer's
 * thread. */
#ifndef SL_NET_HTTP_DAEMON_H
#define SL_NET_HTTP_DAEMON_H

#include "net/http/observer.h"

struct sl_daemon;

/* Errors: INVALID (certificate or key), NO_MEMORY, IO. Before start. */
int sl_daemon_create(const struct sl_observer_options *options, struct sl_daemon **out,
                     struct sl_reason *reason);

/* Ends all connections. Nulls *daemon, which may be NULL. */
void sl_daemon_destroy(struct sl_daemon **daemon);

/* Becomes readable when there is work for sl_daemon_run. */
int sl_daemon_fd(const struct sl_daemon *daemon);

/* Takes an accepted connection. */
void sl_daemon_add(struct sl_daemon *daemon, int fd, const struct sockaddr_storage *address,
                   socklen_t address_bytes);

uint32_t sl_daemon_connection_count(const struct sl_daemon *daemon);

/* Works. Returns the milliseconds after which it must run again at the latest; -1: no limit. */
int sl_daemon_run(struct sl_daemon *daemon, uint64_t now_ns);

/* Ends connections whose peers have taken too long. Once a second. */
void sl_daemon_sweep(struct sl_daemon *daemon, uint64_t now_ns);

#endif
