/* The server of one ps reactor: wire -> shard -> wire. Accepts connections (on the reactor that
 * listens), reads the hello, hands the connection to the reactor that owns the shard it names, and
 * from then on serves its requests there: in order, except that a parked pull lets later requests
 * pass. Reactor 0 of ps task 0 also hosts the coordinator.
 *
 * Memory: replies come from the outbox, long requests from a pool of frame buffers, parked requests
 * are copied into one; all sized at create from options. When a pool is empty the connection is
 * read no further until there is room. Owner reactor, unless said otherwise. */
#ifndef SL_PS_SERVER_H
#define SL_PS_SERVER_H

#include "core/endpoint.h"
#include "net/transport.h"
#include "ps/shard.h"

struct sl_server;
struct sl_coordinator;

struct sl_server_options {
    struct sl_reactor *reactor;
    const struct sl_transport_ops *transport;
    struct sl_transport_options transport_options;
    struct sl_shard_options shard;
    uint32_t local_index;             /* of the shard within this process = of the reactor */
    struct sl_server *const *servers; /* all of the process, by local_index; filled before start */
    uint32_t server_count;
    struct sl_coordinator *coordinator; /* on the reactor that hosts it, else NULL */
    size_t buffer_bytes_max;            /* requests and replies in memory; 0: 256 MiB */
    bool checksum;                      /* checksum replies even when the client did not ask */
};

/* On the reactor's thread. Errors: NO_MEMORY, UNSUPPORTED. */
int sl_server_create(const struct sl_server_options *options, struct sl_server **out);

/* Listens; several endpoints are possible (control and data). *bound: the port chosen. */
int sl_server_listen(struct sl_server *server, const struct sl_endpoint *endpoint,
                     struct sl_endpoint *bound);

/* The cluster's numbering is known now: this shard is `index` of `count`. Until then data
 * connections wait for their welcome. */
void sl_server_set_shard(struct sl_server *server, uint32_t index, uint32_t count);

/* Stops accepting, answers what was received, says goodbye; `drained(ctx)` is called when the last
 * connection is closed or timeout_ns has passed. */
void sl_server_drain(struct sl_server *server, uint64_t timeout_ns, void (*drained)(void *ctx),
                     void *ctx);

/* Nulls *server. */
void sl_server_destroy(struct sl_server **server);

#endif
