/* Peers are the connections of an HTTP server. Each waits for its peer: for a head, for a body, or
 * until the peer takes the reply. A peer has 10 s for it, and 1 s more for each MiB; then its
 * connection is shut down. Owner: the server's thread. Allocates for each connection. */
#ifndef SL_NET_HTTP_PEERS_H
#define SL_NET_HTTP_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"

struct sl_peer {
    struct sl_list_link link;
    int fd;
    uint64_t since_ns, bytes; /* of this head, body or reply */
    bool is_suspended;        /* does not wait for the peer */
};

struct sl_peers {
    struct sl_list list;
    uint32_t count;
};

void sl_peers_init(struct sl_peers *peers);

/* Adds a connection that waits for a head. NULL: no memory. */
struct sl_peer *sl_peers_add(struct sl_peers *peers, int fd, uint64_t now_ns);

/* Nulls *peer, which may be NULL. */
void sl_peers_remove(struct sl_peers *peers, struct sl_peer **peer);

/* The peer's time starts again, for so many bytes. */
void sl_peers_wait(struct sl_peer *peer, uint64_t bytes, uint64_t now_ns);

/* Shuts down the sockets of peers that have taken too long; the server then sees their end. */
void sl_peers_sweep(struct sl_peers *peers, uint64_t now_ns);

#endif
