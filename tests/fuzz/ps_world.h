/* A ps process for fuzz targets: its reactors and servers and peers with connections to it, all of
 * one thread and on a clock that the target moves, over the transport from memory to memory. The
 * target creates the servers; whatever its peers send may make nothing crash or leak, and no reply
 * may be unasked for. */
#ifndef SL_TESTS_FUZZ_PS_WORLD_H
#define SL_TESTS_FUZZ_PS_WORLD_H

#include "core/bytes.h"
#include "core/clock.h"
#include "net/session/message.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "tests/support/loop_transport.h"

#define FUZZ_SERVERS       2
#define FUZZ_PEERS         4
#define FUZZ_PAYLOAD_BYTES (64U << 10) /* of one frame */
#define FUZZ_TURNS_MAX     20000       /* in which whatever is awaited comes */

struct fuzz_peer {
    struct sl_conn *conn; /* NULL: none */
    uint64_t next_id;     /* of a request, without the shard */
    uint32_t shard;       /* attached last */
    uint8_t head[SL_FRAME_HEADER_BYTES + FUZZ_PAYLOAD_BYTES];
    bool sending;    /* head is the transport's */
    bool raw;        /* it has sent a frame that is not of our making */
    bool is_primary; /* it feeds a backup, which answers several entries at once */
    bool is_backup;  /* it is fed */
};

struct fuzz_world {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_loop_network network;
    uint32_t reactor_count; /* of the process */
    struct sl_reactor *ps_reactors[FUZZ_SERVERS], *peer_reactor;
    struct sl_server *servers[FUZZ_SERVERS];
    struct sl_transport *transport; /* of the peers */
    struct sl_endpoint endpoint;    /* where the first server listens */
    uint32_t first_accepted;        /* of the peers that were connected to */
    struct fuzz_peer peers[FUZZ_PEERS];
    uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
};

/* The reactors of the process, each turned once, so that they are this thread's. */
void fuzz_world_begin(struct fuzz_world *world, uint32_t reactor_count);

/* What all servers have in common, for the one of this reactor. */
struct sl_server_options fuzz_world_options(struct fuzz_world *world, uint32_t reactor);

/* The servers are made: the first one listens, and the peers may connect. */
void fuzz_world_listen(struct fuzz_world *world);

/* The peers listen too: who connects is the peer of that index, or one behind it. */
struct sl_endpoint fuzz_world_accept(struct fuzz_world *world, uint32_t first);

/* Closes all connections, and destroys everything; asserts that nothing was kept. */
void fuzz_world_end(struct fuzz_world *world);

/* A millisecond. */
void fuzz_world_turn(struct fuzz_world *world);

/* So much time, and some turns, by the next byte. */
void fuzz_world_pass(struct fuzz_world *world, struct sl_bytes *input);

/* A new connection in the place of its old one; false: there is none. */
bool fuzz_peer_connect(struct fuzz_world *world, struct fuzz_peer *peer);

static inline bool fuzz_peer_may_send(const struct fuzz_peer *peer)
{
    return peer->conn != NULL && peer->conn->state == SL_CONN_OPEN && !peer->sending;
}

/* Sends what lies in peer->head, whose payload is so long, and waits until it is sent. It may send.
 */
void fuzz_peer_send_head(struct fuzz_world *world, struct fuzz_peer *peer, size_t payload_bytes);

/* Likewise, with that header before the payload that lies there. */
void fuzz_peer_send(struct fuzz_world *world, struct fuzz_peer *peer, const struct sl_frame *frame);
/* After a hello with purpose DATA: waits a little for the welcome, then attaches the shard. */
void fuzz_peer_attach(struct fuzz_world *world, struct fuzz_peer *peer, uint32_t shard);

void fuzz_peer_send_message(struct fuzz_world *world, struct fuzz_peer *peer,
                            const struct sl_message *message);

#endif
