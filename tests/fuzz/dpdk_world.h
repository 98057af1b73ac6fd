/* A process with two reactors on a packet device that is not there, whose peers the fuzz target
 * plays; and a friend: another process, of ours, whose connection is to go on whatever the others
 * send. All on one clock, which the target moves. */
#ifndef SL_TESTS_FUZZ_DPDK_WORLD_H
#define SL_TESTS_FUZZ_DPDK_WORLD_H

#include "core/assert.h"
#include "net/dpdk/state.h"
#include "tests/support/wire_port.h"

#define DPDK_WORLD_PEERS 4U
#define DPDK_WORLD_NODES 3U /* the victim's two, and the friend's */
#define DPDK_WORLD_LINKS 64U
#define DPDK_WORLD_PORT  4000U
#define DPDK_WORLD_BODY  1440U /* of a packet, at most, over IPv4; 1440 is a multiple of 8 */

/* A connection of the victim's or the friend's, as the layer above has it. */
struct dpdk_world_link {
    struct dpdk_world_node *node;
    struct sl_conn *conn; /* NULL once it is closed */
    uint32_t peer;        /* whose it is; DPDK_WORLD_PEERS: the friend's */
    uint32_t made, sent, received;
    uint8_t *sink;
    uint32_t sink_bytes;
    struct dpdk_world_frame *first, **end; /* made, and not `sent` */
};

struct dpdk_world_node {
    struct dpdk_world *world;
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_endpoint bound;
};

/* What the layer above of the victim does with connections of peers. */
struct dpdk_world_policy {
    bool refuses_sink, echoes, welcomes, disconnects;
};

/* One whom the target plays, with what it has heard of the victim. */
struct dpdk_world_peer {
    struct sl_dpdk_address at;
    uint8_t mac[6];
    uint64_t id, cookie;   /* its own, of the connection to be; as RETRY gave it */
    uint64_t id_there;     /* 0: there is no connection */
    uint64_t id_asking;    /* the victim's, which connects to it; 0: it does not */
    uint16_t port_there;   /* of the victim */
    uint32_t sequence;     /* of the next packet */
    uint32_t acknowledged; /* of the victim's packets */
    uint32_t message;      /* the next */
    bool is_wild;          /* it has sent what may be delivered with any content */
    bool is_proved;        /* it can be reached, or the victim has asked: answers may be longer */
    uint64_t said_bytes, heard_bytes;
};

struct dpdk_world {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_wire *wire;
    struct sl_wire_host *victim, *friend;
    struct sl_wire_device *device;
    struct dpdk_world_node nodes[DPDK_WORLD_NODES];
    struct dpdk_world_link links[DPDK_WORLD_LINKS];
    uint32_t link_count;
    struct dpdk_world_link *friends; /* the friend's own end */
    struct dpdk_world_policy policy;
    struct dpdk_world_peer peers[DPDK_WORLD_PEERS];
};

void dpdk_world_open(struct dpdk_world *world);
/* The friend's frames still go to and fro; then all is closed, and all packets must be back. */
void dpdk_world_close(struct dpdk_world *world);
void dpdk_world_turn(struct dpdk_world *world, uint64_t step_ns);

/* A packet of the peer's, as if it had left by that queue. */
void dpdk_world_inject(struct dpdk_world *world, struct dpdk_world_peer *peer, const uint8_t *bytes,
                       uint32_t length, uint16_t queue);

/* The victim connects to the peer, unless it has too many links. */
void dpdk_world_ask(struct dpdk_world *world, const struct dpdk_world_peer *peer);
/* The newest open link of the peer's, or NULL. */
struct dpdk_world_link *dpdk_world_link_of(struct dpdk_world *world,
                                           const struct dpdk_world_peer *peer);
/* A frame of so many bytes to the peer; one more is taken only while there is room. */
void dpdk_world_send(struct dpdk_world_link *link, uint32_t payload_bytes);

/* The byte at this place of any payload of a peer. */
static inline uint8_t dpdk_world_byte(uint32_t peer, uint32_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) + peer * 31);
}

#endif
