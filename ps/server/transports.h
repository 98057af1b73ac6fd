/* The transports of a reactor. All reactors of a process use the same three ops tables, one per
 * kind. */
#ifndef SL_PS_SERVER_TRANSPORTS_H
#define SL_PS_SERVER_TRANSPORTS_H

#include <stdint.h>

struct sl_conn;
struct sl_server_host;
struct sl_transport;
struct sl_transport_cells;

struct sl_server_transports {
    struct sl_transport *first;
    struct sl_transport *shm, *bypass; /* NULL: none */
};

/* cells: [SL_SERVER_TRANSPORTS]. Errors: those of the first transport, and of the bypass transport
 * if it is required. */
int sl_server_transports_open(struct sl_server_host *host, struct sl_transport_cells *cells);
void sl_server_transports_close(struct sl_server_host *host);

/* Returns the host's transport of the connection's kind; NULL: none. Any reactor of the process. */
struct sl_transport *sl_server_transports_like(const struct sl_server_host *host,
                                               const struct sl_conn *conn);

/* Sums up the bytes that all transports have received and sent. */
void sl_server_transports_count(const struct sl_server_host *host, uint64_t *bytes_in,
                                uint64_t *bytes_out);

#endif
