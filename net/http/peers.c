#include "net/http/peers.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "core/clock.h"

#define PEER_NS      (10 * SL_CLOCK_NS_PER_S)
#define PEER_BYTE_NS 1000 /* 1 s for about 1 MiB */

void sl_peers_init(struct sl_peers *peers)
{
    peers->count = 0;
    sl_list_init(&peers->list);
}

struct sl_peer *sl_peers_add(struct sl_peers *peers, int fd, uint64_t now_ns)
{
    struct sl_peer *peer = calloc(1, sizeof *peer);
    if (peer != NULL) {
        peer->fd = fd;
        sl_peers_wait(peer, 0, now_ns);
        sl_list_append(&peers->list, &peer->link);
        peers->count++;
    }
    return peer;
}

void sl_peers_remove(struct sl_peers *peers, struct sl_peer **peer)
{
    if (*peer != NULL) {
        sl_list_remove(&(*peer)->link);
        peers->count--;
        free(*peer);
        *peer = NULL;
    }
}

void sl_peers_wait(struct sl_peer *peer, uint64_t bytes, uint64_t now_ns)
{
    peer->since_ns = now_ns;
    peer->bytes = bytes;
    peer->is_suspended = false;
}

void sl_peers_sweep(struct sl_peers *peers, uint64_t now_ns)
{
    SL_LIST_FOREACH (link, &peers->list) {
        const struct sl_peer *peer = SL_CONTAINER_OF(link, struct sl_peer, link);
        const uint64_t end_ns = peer->since_ns + PEER_NS + peer->bytes * PEER_BYTE_NS;
        if (!peer->is_suspended && now_ns > end_ns) {
            (void)shutdown(peer->fd, SHUT_RDWR);
        }
    }
}
