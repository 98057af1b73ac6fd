/* The transports of a server. All servers of a process use the same three ops tables, one per
 * kind. */
#ifndef SL_PS_SERVER_TRANSPORTS_H
#define SL_PS_SERVER_TRANSPORTS_H

#include <stdint.h>

struct sl_conn;
struct sl_server;
struct sl_transport;

struct sl_server_transports {
    struct sl_transport *first;
    struct sl_transport *shm, *bypass; /* NULL: none */
};

/* Errors: those of the first transport, and of the bypass transport if it is required. */
int sl_server_transports_open(struct sl_server *server);
void sl_server_transports_close(struct sl_server *server);

/* Returns the server's transport of the connection's kind; NULL: none. Any reactor of the
 * process. */
struct sl_transport *sl_server_transports_like(const struct sl_server *server,
                                               const struct sl_conn *conn);

/* Sums up the bytes that all transports have received and sent. */
void sl_server_transports_count(const struct sl_server *server, uint64_t *bytes_in,
                                uint64_t *bytes_out);

#endif
