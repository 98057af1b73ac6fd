/* What the files of the simulated network share; nobody else includes it. */
#ifndef SL_TESTS_SIM_NETWORK_INTERNAL_H
#define SL_TESTS_SIM_NETWORK_INTERNAL_H

#include "core/assert.h"
#include "core/clock.h"
#include "net/transport_rma.h"
#include "tests/sim/dpdk.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"

#define SL_SIM_QUEUE_FRAMES 32 /* taken and not reported sent, of one connection */

struct sl_sim_transport;
struct sl_sim_conn;

/* A frame on its way, whole. */
struct sl_sim_message {
    struct sl_sim_message *next;
    struct sl_sim_message *prev_held, *next_held; /* of those delivered and not released */
    struct sl_sim_conn *holder;                   /* NULL: on its way */
    uint64_t arrival_ns;                          /* SL_CLOCK_NEVER: the way is blocked */
    uint32_t bytes;
    _Alignas(16) uint8_t data[];
};

struct sl_sim_outgoing {
    struct sl_transport_frame frame;
    uint64_t hash;     /* of its memory when it was taken */
    uint64_t leave_ns; /* when the wire has carried it */
    uint64_t sent_ns;  /* when the sender is told */
};

struct sl_sim_conn {
    struct sl_conn base;
    struct sl_sim_conn *next;
    uint64_t due_ns;          /* with costs: when it has something to do next; 0: not known */
    struct sl_sim_conn *peer; /* NULL: none yet, or gone */
    uint64_t pair;
    bool connector;
    uint32_t remote; /* host */
    uint32_t rail;
    struct sl_endpoint target;
    uint64_t settle_ns, settle_until_ns; /* when it is known whether it is connected */
    bool arriving;                       /* `accepted` is due */
    bool moved;                          /* by a hand-over: somebody waits for `accepted` */

    struct sl_sim_outgoing queue[SL_SIM_QUEUE_FRAMES];
    uint32_t sent, carried, taken; /* counters, each <= the next <= sent + QUEUE_FRAMES */
    uint64_t wire_free_ns;
    bool short_taken;              /* `writable` is due */
    struct sl_sim_message *making; /* carried in part: the rest of the frame is yet to come */
    uint32_t made_bytes;           /* of it */

    struct sl_sim_message *inbox_first, *inbox_last, *held;
    uint32_t inbox_bytes;
    uint64_t last_arrival_ns; /* of what the peer sends: it stays in order */
    uint8_t *sink;            /* where the first of the inbox is written */
    uint64_t landed_ns;       /* when the rest of it has arrived; or when to ask for a sink again */
    /* Over the shared link: of its payload, what has landed, and what is on its way. */
    uint32_t landed_bytes, piece_bytes;
    uint64_t sent_turn, received_turn; /* with costs: the last in which it did */

    uint64_t end_ns; /* when the end is known here, after what arrived before */
    int end_err;
    bool reset;       /* the end overtakes what was not read */
    uint64_t doom_ns; /* when it ends for want of acknowledgements */
    uint64_t closing_until_ns;
    bool handed_over; /* lives on in another object */

    /* One-sided operations: network_rma.c. */
    bool is_admitted;
    uint32_t op_count;      /* posted here and not reported */
    uint64_t op_arrival_ns; /* of the last one posted here */
};

/* Memory that one-sided operations reach. */
struct sl_sim_rma_region {
    struct sl_sim_rma_region *next;
    uint64_t key;
    uint8_t *base;
    size_t bytes;
    unsigned access;
    uint32_t remote_key;
    uint64_t due_ns; /* of region_added, or region_removed; SL_CLOCK_NEVER: it is there */
    bool is_known;   /* region_added has come, also with an error */
    bool is_leaving;
};

struct sl_sim_listener {
    struct sl_sim_listener *next;
    struct sl_sim_transport *transport;
    const struct sl_transport_events *events;
    void *ctx;
    uint16_t port;
};

struct sl_sim_host {
    struct sl_sim_network *network;
    uint32_t index;
    bool dead, refuses;
    bool silent; /* the machine is gone too: nobody refuses */
    struct sl_sim_transport *transports;
    struct sl_sim_listener *listeners;
    uint16_t port_next;
    double out_free_ns, in_free_ns; /* with costs: when its link has carried all so far */
};

struct sl_sim_transport {
    struct sl_transport base;
    struct sl_sim_transport *next; /* of the host */
    struct sl_sim_host *host;
    struct sl_reactor *reactor;
    struct sl_sim_conn *conns, *buried; /* buried: closed, named by messages */
    struct sl_sim_rma_region *regions;
    uint64_t peer_timeout_ns;
};

struct sl_sim_network {
    struct sl_sim_network_options options;
    struct sl_sim_watch watch;
    struct sl_sim_meter meter;
    uint64_t random;
    uint64_t now_ns;
    uint64_t pair_count;
    uint64_t link_free_ns[2]; /* of the shared link: to those who listen, to those who connect */
    uint64_t message_count;
    struct sl_sim_op *ops; /* one-sided, in the order of posting */
    uint64_t op_due_ns;    /* when the next step of one is due */
    uint32_t region_count; /* so far: remote keys */
    struct sl_sim_host *hosts;
    uint8_t *blocked;           /* [rail][from][to], how often */
    struct sl_sim_ether *ether; /* and dpdk; NULL: without packets */
    struct sl_sim_dpdk *dpdk;
};

static inline struct sl_sim_transport *sl_sim_home(const struct sl_sim_conn *conn)
{
    return (struct sl_sim_transport *)conn->base.transport;
}

static inline struct sl_sim_network *sl_sim_network_of(const struct sl_sim_conn *conn)
{
    return sl_sim_home(conn)->host->network;
}

static inline uint8_t *sl_sim_way(const struct sl_sim_network *network, uint32_t rail,
                                  uint32_t from, uint32_t to)
{
    const size_t host_count = network->options.host_count;
    return &network->blocked[(rail * host_count + from) * host_count + to];
}

static inline bool sl_sim_is_blocked(const struct sl_sim_network *network, uint32_t rail,
                                     uint32_t from, uint32_t to)
{
    return *sl_sim_way(network, rail, from, to) != 0;
}

/* What this side of the connection sends does not arrive. */
static inline bool sl_sim_is_cut(const struct sl_sim_conn *conn)
{
    return sl_sim_is_blocked(sl_sim_network_of(conn), conn->rail, sl_sim_home(conn)->host->index,
                             conn->remote);
}

/* What its peer sends does not arrive. */
static inline bool sl_sim_is_deaf(const struct sl_sim_conn *conn)
{
    return sl_sim_is_blocked(sl_sim_network_of(conn), conn->rail, conn->remote,
                             sl_sim_home(conn)->host->index);
}

/* Long payloads share a link. */
static inline bool sl_sim_is_slow(const struct sl_sim_network *network)
{
    return network->options.link_bytes_per_ms != 0;
}

static inline bool sl_sim_is_gone(const struct sl_sim_conn *conn)
{
    return conn->base.state == SL_CONN_CLOSED || conn->handed_over;
}

/* One way's delay, as the seed has it. */
uint64_t sl_sim_delay_ns(struct sl_sim_network *network);

/* The conn's host has something to do then. */
void sl_sim_wake(struct sl_sim_conn *conn, uint64_t at_ns);

/* Ends the peer's side, if it has one: told after what is on its way, or later when it is not
 * reachable. */
void sl_sim_part(struct sl_sim_conn *conn);

/* Breaks a connection that has a peer: each side is told at a time of its own. */
void sl_sim_break_pair(struct sl_sim_conn *conn, uint32_t told_us_max);

void sl_sim_message_free(struct sl_sim_network *network, struct sl_sim_message *message);
void sl_sim_inbox_empty(struct sl_sim_conn *conn);

/* Frames of the inbox that would arrive after that time are lost. */
void sl_sim_inbox_cut(struct sl_sim_conn *conn, uint64_t last_ns);

struct sl_sim_conn *sl_sim_conn_create(struct sl_sim_transport *transport,
                                       const struct sl_transport_events *events, void *ctx);

/* Reports the end. */
void sl_sim_conn_fail(struct sl_sim_conn *conn, int err);

/* One connection's share of a poll; upcalls may close it or hand it over at any point. */
uint32_t sl_sim_conn_poll(struct sl_sim_conn *conn);

/* Copies the oldest of what was taken, a frame or a part of one, and not carried to the peer. */
void sl_sim_conn_carry(struct sl_sim_conn *conn);

/* As sl_transport_send_now. */
uint32_t sl_sim_conn_carry_now(struct sl_sim_conn *conn, const struct iovec *parts, uint32_t count);

/* When it has something to do next. */
uint64_t sl_sim_conn_next(const struct sl_sim_conn *conn);

/* A connection breaks with a frame or an operation, if chance has it so. */
void sl_sim_break_by_chance(struct sl_sim_conn *conn);

/* network_rma.c */

extern const struct sl_transport_rma_ops sl_sim_rma_ops;

/* Moves on what is due of all operations: the target's process takes no part, and may stand still.
 */
void sl_sim_rma_advance(struct sl_sim_network *network);

/* Reports operations of the connection that are over; upcalls may close it. Returns how many. */
uint32_t sl_sim_rma_report(struct sl_sim_conn *conn);

/* When the next step of a posted operation is due. */
uint64_t sl_sim_rma_next(const struct sl_sim_conn *conn);

/* The connection breaks: some of its operations are lost, others reach the target later, if its
 * side is not closed by then. */
void sl_sim_rma_break(struct sl_sim_conn *conn, uint32_t told_us_max);

/* The side is closed: nothing reaches memory through it any more. */
void sl_sim_rma_close(struct sl_sim_conn *conn);

/* Reports regions that were added or removed. Returns how many. */
uint32_t sl_sim_rma_report_regions(struct sl_sim_transport *transport);
uint64_t sl_sim_rma_regions_next(const struct sl_sim_transport *transport);
void sl_sim_rma_free_regions(struct sl_sim_transport *transport);

#endif
