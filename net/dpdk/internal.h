/* What the files of this folder share. Owner reactor throughout, but for stray.c's mail.
 *
 *   dpdk.c        the ops table, open and close, when there is nothing to do: arm
 *   turn.c        poll and flush, packets that arrive and leave
 *   port.h        what is below: module.c loads the plug-in, module/ is it
 *   wire.c        packets; neighbour.c whose Ethernet address is whose
 *   setup.c       connect, from OPEN to ACCEPT; listen.c the other side, cookies
 *   route.c       addresses, ports and queues that lead to a peer
 *   conn.c        a connection's life, from the first packet to `closed`
 *   send.c        frames to packets: what is new, what is lost, what is to be acknowledged
 *   queue.c       frames that were taken, until they are `sent`; train.c puts them into packets
 *   heard.c       what the peer says that it has
 *   receive.c     packets to frames: places, parked packets, `received`
 *   long.c        the message whose payload goes to where `sink` said
 *   store.c       the memory of what was received and not released; leave.c takes it along
 *   flight.c seen.c rate.c grant.c    the arithmetic of both, pure; ring.c what they keep it in
 *   move.c        hand-over; stray.c packets that came to the wrong reactor
 *   sweep.c       peers that say nothing, keep-alive
 *   past.c        ids that were ours; cookie.c what OPEN must know to be believed
 *
 * The life of a frame. send_burst puts it into the connection's queue. flush makes messages of what
 * is there: a TRAIN is one packet with as many whole frames as fit; a frame that fits none is a
 * message of its own, cut into DATA pieces of sl_dpdk_piece_bytes (the last is shorter). Each
 * packet leaves with a new number, and flights remember what it carried: a message is cut once, and
 * what is lost is sent again as it was cut. The receiver takes each number once (seen), puts a
 * piece where it belongs: into the memory that `sink` named for the message at the head, into a
 * block for a train or a message of up to SL_LIMIT_INLINE_PAYLOAD_BYTES, or it parks the packet
 * until its message is at the head. Frames are delivered in order. When the peer has acknowledged
 * all packets of a frame, it is `sent`. */
#ifndef SL_NET_DPDK_INTERNAL_H
#define SL_NET_DPDK_INTERNAL_H

#include "core/assert.h"
#include "core/limits.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/grant.h"
#include "net/dpdk/neighbour.h"
#include "net/dpdk/port.h"
#include "net/dpdk/rate.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/sent_packets.h"
#include "net/dpdk/wire.h"
#include "net/transport.h"
#include "reactor/timer.h"

#define SL_DPDK_PORTS             64U
#define SL_DPDK_UNNUMBERED        8U
#define SL_DPDK_QUEUE             512U /* frames of one connection taken and not reported; 2^n */
#define SL_DPDK_MESSAGES          512U /* ahead of the one at the head that a receiver takes; 2^n */
#define SL_DPDK_UNSCHEDULED_BYTES 65536U
#define SL_DPDK_BUDGET_BYTES      (4U << 20)
#define SL_DPDK_AHEAD_BYTES       (512U << 10) /* for what is queued and not known yet */
#define SL_DPDK_PEER_TIMEOUT_MS   10000U
#define SL_DPDK_IDLE_NS_MIN       (20 * SL_CLOCK_NS_PER_US)

struct sl_dpdk;
struct sl_dpdk_conn;
struct sl_dpdk_listener;

/* One of the ports, and who is beside it. */
struct sl_dpdk_netif {
    struct sl_dpdk_port *port;
    struct sl_dpdk_port_info info;
    struct sl_dpdk_neighbours *neighbours;
    struct sl_dpdk_packet spare[SL_DPDK_BURST]; /* reserved, to be given out by sl_dpdk_get */
    uint32_t spare_count;
    /* Written and not sent yet: sent by flush, and by sl_dpdk_put when full. The last places are
     * for what is said at once or never. */
    struct sl_dpdk_packet out[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t out_count;
    uint64_t refused_since_ns; /* the port takes nothing of these; 0: it does */
    bool is_stuck;             /* this queue of it has taken nothing for long */
    uint16_t stuck_queue;
    bool link_was_up; /* is_one_peers: when sweep.c looked last */
};

#define SL_DPDK_BUCKETS 4096U /* 2^n */
#define SL_DPDK_REGIONS 64U

/* Memory registered with the transport. */
struct sl_dpdk_region {
    uint8_t *base;
    size_t bytes;
};

struct sl_dpdk {
    struct sl_transport base;
    struct sl_dpdk_netif netifs[SL_DPDK_PORTS];
    uint32_t netif_count;
    struct sl_dpdk_conn *by_id[SL_DPDK_BUCKETS]; /* by our id */
    struct sl_dpdk_conn *conns;                  /* all, a list */
    struct sl_dpdk_conn *spare;                  /* a list by `next` */
    struct sl_dpdk_conn *dirty;                  /* to be looked at by the next flush */
    struct sl_dpdk_conn *ready; /* to be looked at by the next poll: delivery that waits, ends */
    struct sl_dpdk_move *lost;  /* handed over to here, where there was no memory for them */
    bool awake;                 /* the next poll can do something for one of these */
    struct sl_dpdk_listener *listeners;
    struct sl_dpdk_grants grants;
    struct sl_dpdk_pasts *pasts; /* ids of connections that ended, or went to other reactors */
    struct sl_dpdk_store *store; /* store.c */
    uint8_t secret[16];          /* of cookies, ids and first numbers */
    uint16_t boot_epoch;         /* in all ids: random, so that those of a former life are known */
    uint64_t random_count;
    uint32_t connections_max, peer_timeout_ms;
    uint16_t port_base, port;     /* ours: port_base and this reactor's place among the device's */
    struct sl_timer sweep, links; /* links: to look at those that are one peer's */
    struct sl_timer idle;         /* wakes a reactor whose ports cannot */
    uint64_t idle_ns;
    uint32_t untold_bytes; /* of packets that came since grants were dealt */
    uint32_t sweep_rounds;
    struct sl_dpdk *next_here; /* stray.c */
    struct sl_dpdk_misrouted *misrouted_free;
    uint32_t misrouted_out[SL_LIMIT_REACTORS]; /* posted to each, and not come back */
    uint64_t misrouted_owner;
    struct sl_dpdk_region regions[SL_DPDK_REGIONS];
    uint32_t region_count;
    uint64_t log_next_ns;
    uint32_t log_dropped;
    /* Packets: posted to another reactor, got from one; no sound ones; not for us; for a connection
     * of ours, but not of its peer's making. */
    uint64_t misrouted_sent, misrouted_taken, malformed, not_ours, spoofed;
    struct sl_transport_stats stats;
};

enum sl_dpdk_life {
    SL_DPDK_ASKING, /* connect: OPEN was sent, or waits for a neighbour's address */
    SL_DPDK_LIVE,
    SL_DPDK_DRAINING, /* disconnect: what is queued is sent, then BYE; what arrives is dropped */
    SL_DPDK_LEAVING,  /* handed over; goes as soon as the upcall that it was done in is over */
    SL_DPDK_ENDED     /* `closed` follows from poll */
};

/* sweep.c: what it saw of a connection, and since when. */
struct sl_dpdk_liveness {
    uint64_t last_seen_ns, since_ns; /* nothing was heard since */
    uint32_t arrived;                /* grant.arrived */
    uint64_t stuck_since_ns;         /* that has not moved since, and the peer owes */
    uint32_t progress;               /* of what we send */
    uint64_t narrow_since_ns;        /* that has not moved since, nor has a long packet come */
    uint32_t rounds, stuck_rounds, narrow_rounds;
};

struct sl_dpdk_move;
struct sl_dpdk_sending;   /* send.c */
struct sl_dpdk_receiving; /* receive.c */

struct sl_dpdk_conn {
    struct sl_conn base;
    struct sl_dpdk *dpdk;
    struct sl_dpdk_netif *netif;
    enum sl_dpdk_life phase;
    uint64_t id;       /* ours: the low 8 bits are the reactor's index, the rest is random */
    uint64_t id_peers; /* 0: not known yet */
    struct sl_dpdk_address here, there;
    struct sl_dpdk_route route;
    uint16_t queue; /* to leave by */
    struct sl_dpdk_queues queues_peers;
    bool routed;       /* route is filled */
    bool inbound;      /* from listen */
    uint16_t body_max; /* what both can take */
    int end_err;
    bool dirty, ready;
    bool accept_pending; /* `accepted` or `connected` has not been made yet: visit does it */
    bool fin_sent;       /* sl_dpdk_send_bye was called */
    bool fin_acked;      /* set by send.c, which marks the connection ready */
    bool reset_received;
    bool fin_received;       /* by conn.c; it ends when all before fin_message has been delivered */
    bool all_delivered;      /* until then */
    uint32_t fin_message;    /* the number of the message that will not follow */
    uint32_t first_sequence; /* of our direction: what ACCEPT says, however often */
    struct sl_dpdk_conn *id_next, *next, *previous, *dirty_next, *ready_next;
    struct sl_dpdk_sent_packets sent_packets;
    struct sl_dpdk_received_packets received;
    struct sl_dpdk_rate rate;
    struct sl_dpdk_grant grant;
    uint32_t granted_theirs; /* message bytes that we may send in all */
    uint32_t offered;        /* that we have, for the first time */
    bool ack_due, ack_now;
    bool full_size_acked;  /* a packet of full length has, since the sweep has looked */
    struct sl_timer timer; /* ASKING: patience and asking again. Else: flights', pacing, drain */
    uint64_t pace_ns;      /* as sl_dpdk_send_flush said last */
    uint64_t deadline_ns;  /* ASKING: of the connect. DRAINING: of the disconnect */
    uint64_t last_seen_ns; /* a sound packet of the peer's came */
    uint64_t confirm_ns;   /* when the neighbour is to be confirmed by the next */
    uint64_t asked_ns;     /* ASKING: when OPEN was sent last, and the pause until the next */
    uint64_t pause_ns;
    uint32_t asked_count; /* with this cookie */
    uint32_t late_count;  /* ASKING: times that the timer rang behind the deadline */
    uint64_t cookie;
    struct sl_dpdk_liveness liveness; /* sweep.c */
    struct sl_dpdk_move *move;        /* LEAVING: move.c */
    struct sl_dpdk_sending *send;
    struct sl_dpdk_receiving *receive;
};

/* ---- dpdk.c ---------------------------------------------------------------------------------- */

bool sl_dpdk_may_log(struct sl_dpdk *dpdk); /* one line in a second about peers' misdeeds */
static inline uint64_t sl_dpdk_now_ns(const struct sl_dpdk *dpdk)
{
    return sl_reactor_now_ns(dpdk->base.reactor);
}

static inline void sl_dpdk_mark_dirty(struct sl_dpdk_conn *conn)
{
    if (!conn->dirty) {
        conn->dirty = true;
        conn->dirty_next = conn->dpdk->dirty;
        conn->dpdk->dirty = conn;
    }
}

/* For what the next poll may ask again, without keeping the reactor awake: `sink` said NULL. */
static inline void sl_dpdk_mark_waiting(struct sl_dpdk_conn *conn)
{
    if (!conn->ready) {
        conn->ready = true;
        conn->ready_next = conn->dpdk->ready;
        conn->dpdk->ready = conn;
    }
}

static inline void sl_dpdk_mark_ready(struct sl_dpdk_conn *conn)
{
    sl_dpdk_mark_waiting(conn);
    conn->dpdk->awake = true;
}

struct sl_dpdk_netif *sl_dpdk_netif_of(struct sl_dpdk *dpdk,
                                       const struct in6_addr *ip); /* or NULL */
/* Of the same device as another reactor's, of which several may have the same address. */
struct sl_dpdk_netif *sl_dpdk_netif_like(struct sl_dpdk *dpdk, const char *device,
                                         const struct in6_addr *ip); /* or NULL */

/* Memory that was registered, from which a port of the connection's gathers. */
bool sl_dpdk_is_registered(const struct sl_dpdk_conn *conn, const void *at, size_t bytes);

/* ---- turn.c ---------------------------------------------------------------------------------- */

uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget);
void sl_dpdk_flush(struct sl_transport *transport);
void sl_dpdk_send_out(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif); /* what is in `out` */

/* A packet to be written, of the connection's side; false: none now, try again in a later turn.
 * Then filled (bytes, length, queue) it is passed to put, which sends it at the end of the turn at
 * the latest. */
bool sl_dpdk_get(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
/* The same for what is not written again: an answer to who connects, an end, a neighbour's address.
 * Where all that can be sent is waiting, others would have to be lucky to find a place. */
bool sl_dpdk_get_unnumbered(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
void sl_dpdk_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                 const struct sl_dpdk_packet *packet);

/* A packet of class OURS for one of our addresses, received or from stray.c: whom it is for.
 * Returns whether its memory was kept. */
bool sl_dpdk_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif, struct sl_dpdk_packet *packet,
                  const struct sl_dpdk_parsed *parsed, bool is_misrouted);

/* ---- route.c --------------------------------------------------------------------------------- */

bool sl_dpdk_route_is_v4(const struct in6_addr *ip);
bool sl_dpdk_route_is_any(const struct in6_addr *ip);
/* Not a group, all, or nobody: what is sent there would be no answer. */
bool sl_dpdk_route_is_answerable(const struct sl_dpdk_address *from);
/* Errors: NOT_FOUND, logged. */
int sl_dpdk_route_parse(const struct sl_endpoint *endpoint, bool passive, struct in6_addr *out);
void sl_dpdk_route_host(const struct in6_addr *ip, char host[SL_LIMIT_ENDPOINT_BYTES]);
void sl_dpdk_route_format(const struct sl_dpdk_address *address,
                          char text[SL_LIMIT_ENDPOINT_BYTES]);
/* By which this address is reached; NULL: none of its family. */
struct sl_dpdk_netif *sl_dpdk_route_side(struct sl_dpdk *dpdk, const struct in6_addr *ip);
struct sl_dpdk_queues sl_dpdk_route_queues(const struct sl_dpdk_hello *hello);
/* One of ours, by which a packet gets to the peer's reactor where there is such a queue. */
uint16_t sl_dpdk_route_queue(const struct sl_dpdk_queues *ours,
                             const struct sl_dpdk_queues *theirs);
/* conn->route and conn->queue, from here, there and queues_peers: to this Ethernet address; or to
 * the neighbours', and then false: it has been asked for. */
void sl_dpdk_route_set(struct sl_dpdk_conn *conn, const uint8_t mac[6]);
void sl_dpdk_route_learn(struct sl_dpdk_conn *conn, const uint8_t mac[6]); /* it may be another */
bool sl_dpdk_route_find(struct sl_dpdk_conn *conn);
/* It leads to our own device, whether or not that hears itself. */
bool sl_dpdk_route_is_own(const struct sl_dpdk_conn *conn);
/* What a neighbour says; came: the packet, NULL when another reactor had it. */
void sl_dpdk_route_neighbour(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                             const uint8_t *bytes, uint32_t length,
                             const struct sl_dpdk_packet *came);

/* ---- setup.c, listen.c ----------------------------------------------------------------------- */

int sl_dpdk_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    const struct sl_transport_events *events, void *ctx, struct sl_conn **out);

/* RETRY, ACCEPT, REFUSE. conn: of the header's id, or NULL. */
void sl_dpdk_setup_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                        struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *packet);
/* A packet of another version: whoever asks is told, and who is told so need not wait. False: it is
 * none of these. */
bool sl_dpdk_setup_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                         const struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed,
                         bool is_misrouted);
/* A PROBE of a connection that is not known: an answer when it was of a former life. */
void sl_dpdk_setup_stranger(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                            const struct sl_dpdk_parsed *packet);
void sl_dpdk_setup_timer(struct sl_dpdk_conn *conn);  /* ASKING */
void sl_dpdk_setup_routed(struct sl_dpdk_conn *conn); /* ASKING: its way has been found */
void sl_dpdk_setup_hello(const struct sl_dpdk_conn *conn, struct sl_dpdk_hello *hello);
void sl_dpdk_setup_say(struct sl_dpdk_conn *conn, enum sl_dpdk_kind kind); /* OPEN, ACCEPT */
/* Both sides know of each other what they need: LIVE. */
void sl_dpdk_setup_begin(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello,
                         const uint8_t mac[6]);

int sl_dpdk_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_dpdk_listen_close(struct sl_dpdk *dpdk);
void sl_dpdk_listen_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                         const struct sl_dpdk_parsed *packet); /* OPEN */
void sl_dpdk_listen_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                          const struct sl_dpdk_parsed *packet); /* OPEN of another version */

/* ---- conn.c, sweep.c ------------------------------------------------------------------------- */

struct sl_dpdk_conn *sl_dpdk_conn_new(struct sl_dpdk *dpdk,
                                      const struct sl_transport_events *events,
                                      void *ctx); /* with an id; NULL: no memory */
struct sl_dpdk_conn *sl_dpdk_conn_make(struct sl_dpdk *dpdk,
                                       const struct sl_transport_events *events, void *ctx,
                                       uint64_t id); /* with this one */
/* The same without flights, numbers and grant, which come from another reactor. */
struct sl_dpdk_conn *sl_dpdk_conn_make_bare(struct sl_dpdk *dpdk,
                                            const struct sl_transport_events *events, void *ctx,
                                            uint64_t id);
void sl_dpdk_conn_drop(struct sl_dpdk_conn *conn); /* nobody hears of it */
struct sl_dpdk_conn *sl_dpdk_conn_find(const struct sl_dpdk *dpdk, uint64_t id);
uint64_t sl_dpdk_conn_random(struct sl_dpdk *dpdk);
/* One of this reactor's: its index, its era, and 40 random bits. Any thread. */
#define SL_DPDK_ID_SHIFT 24
uint64_t sl_dpdk_conn_id(const struct sl_dpdk *dpdk, uint64_t random);

/* A sound packet of class OURS with a connection's id, from `side`: checks who sent it and its
 * number, then lets setup, send, receive, move do their part. Returns whether the packet's memory
 * was kept. */
bool sl_dpdk_conn_take(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                       struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed);

/* From the peer, as far as addresses tell. */
bool sl_dpdk_conn_is_from_peer(const struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_parsed *parsed);

/* Says `closed` with this error from the next poll. What has been received before CLOSED is
 * delivered first. Idempotent: the first error stays. tell: the peer is sent a RESET. */
void sl_dpdk_conn_end(struct sl_dpdk_conn *conn, int err, bool tell);
void sl_dpdk_conn_refuse(struct sl_dpdk_conn *conn,
                         const char *what); /* PROTOCOL, with a line of log */
void sl_dpdk_conn_lost(struct sl_dpdk_conn *conn, const char *what); /* DEADLINE, likewise */
bool sl_dpdk_conn_visit(
    struct sl_dpdk_conn *conn); /* of `ready`, from poll; whether work was done */
void sl_dpdk_conn_set_timer(
    struct sl_dpdk_conn *conn); /* to the earliest that send.c and flights want */
void sl_dpdk_conn_stop_timer(struct sl_dpdk_conn *conn);
void sl_dpdk_conn_disconnect(struct sl_conn *conn);
/* When the transport closes. All are ended, and hold nothing of the ports any more; then, once
 * these are closed, `closed`. */
void sl_dpdk_conn_end_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_cancel_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_free_all(struct sl_dpdk *dpdk); /* their memory */

/* RESET, with all that has come: so it is an acknowledgement too. err: OK when nothing is left that
 * either side waits for: the peer has acknowledged our BYE, or all before its BYE was delivered. */
struct sl_dpdk_last_words {
    struct sl_dpdk_header header;
    _Alignas(8) uint8_t body[SL_DPDK_SACK_WORDS * sizeof(uint64_t) + 1];
};
void sl_dpdk_conn_last_words(const struct sl_dpdk_conn *conn, int err,
                             struct sl_dpdk_last_words *out);

uint64_t sl_dpdk_patience_ns(const struct sl_dpdk *dpdk);
void sl_dpdk_liveness_add(struct sl_dpdk_conn *conn); /* it is LIVE */
void sl_dpdk_liveness_open(struct sl_dpdk *dpdk);
void sl_dpdk_liveness_close(struct sl_dpdk *dpdk);

/* Of each piece of a message but the last. The same on both sides. */
static inline uint32_t sl_dpdk_piece_bytes(const struct sl_dpdk_conn *conn)
{
    return conn->body_max & ~7U;
}

/* ---- send.c, queue.c, heard.c ---------------------------------------------------------------- */

int sl_dpdk_send_open(struct sl_dpdk_conn *conn);
void sl_dpdk_send_close(struct sl_dpdk_conn *conn); /* drops what is held; reports nothing */
/* Of an idle connection: gives back memory that was needed once. */
void sl_dpdk_send_shrink(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_shrink(struct sl_dpdk_conn *conn);
uint32_t sl_dpdk_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);
/* Packets of what is lost, then of what is new, as far as window, grant, rate and buffers go; or an
 * ACK alone when one is due. Returns when it wants to go on for the sake of pacing; SL_CLOCK_NEVER:
 * it does not. */
uint64_t sl_dpdk_send_flush(struct sl_dpdk_conn *conn);
/* More is queued than one packet takes, as far as the next frames tell of those behind. */
bool sl_dpdk_send_is_full(const struct sl_dpdk_conn *conn);
/* The peer's acknowledgement, grant. False: it is a lie. */
bool sl_dpdk_send_acknowledged(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed);
/* The peer has delivered all before our BYE: what it has not acknowledged by number came under
 * another. Of a connection that ends. */
void sl_dpdk_send_all_came(struct sl_dpdk_conn *conn);
void sl_dpdk_send_expired(struct sl_dpdk_conn *conn); /* the flights' timer */
void sl_dpdk_send_report(struct sl_dpdk_conn *conn);  /* `sent`, `writable`; from poll */
/* The device still reads what was sent from where it lies: `closed` waits for that. */
bool sl_dpdk_send_is_reading(const struct sl_dpdk_conn *conn);
bool sl_dpdk_send_is_done(
    const struct sl_dpdk_conn *conn);               /* nothing queued, nothing outstanding */
void sl_dpdk_send_probe(struct sl_dpdk_conn *conn); /* with the next flush */
/* The same, as long as a packet of content may be; conn->full_size_acked when it has come. */
void sl_dpdk_send_wide_probe(struct sl_dpdk_conn *conn);
/* Another number when something new was sent, or a message has come that was not the last. */
uint32_t sl_dpdk_send_progress(const struct sl_dpdk_conn *conn);
/* Behind the last frame; its `message` is the one that would be next. Sets fin_acked later. */
void sl_dpdk_send_bye(struct sl_dpdk_conn *conn);
void sl_dpdk_send_moved(struct sl_dpdk_conn *conn); /* before everything else */
/* Hand-over: conn->flights, granted_theirs and offered are copied by move.c. `leave` takes from a
 * connection that has no frames queued what else is to go along, NULL when there is no memory; the
 * connection is closed by send_close afterwards. `arrive` puts it into one that has been opened, on
 * the other reactor, and frees it; `drop` only frees it. */
struct sl_dpdk_sending *sl_dpdk_send_leave(struct sl_dpdk_conn *conn);
void sl_dpdk_send_arrive(struct sl_dpdk_conn *conn, struct sl_dpdk_sending *sending);
void sl_dpdk_send_drop(struct sl_dpdk_sending *sending);
/* Not numbered, at once: RESET, REFUSE, RETRY, ACCEPT, OPEN. */
void sl_dpdk_send_unnumbered(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                             const struct sl_dpdk_route *route, uint16_t queue,
                             const struct sl_dpdk_header *header, const void *body);

/* ---- store.c, receive.c, long.c, leave.c ----------------------------------------------------- */

int sl_dpdk_store_open(struct sl_dpdk *dpdk); /* by open, once the sides are known */
/* Frees the memory of messages that were not released; before the ports are closed. */
void sl_dpdk_store_close(struct sl_dpdk *dpdk);

int sl_dpdk_receive_open(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_close(struct sl_dpdk_conn *conn);

enum sl_dpdk_taken {
    SL_DPDK_TAKEN,         /* its content was copied */
    SL_DPDK_PARKED,        /* the packet's memory was kept */
    SL_DPDK_NO_ROOM,       /* as if it had been lost */
    SL_DPDK_PROTOCOL_ERROR /* the connection ends: PROTOCOL */
};
/* DATA, TRAIN that are NEW, of a connection that is LIVE; conn.c tells `seen` of what was taken or
 * parked, sets ack_due (ack_now: ANSWER, out of order, come again) and marks it dirty and ready.
 * Delivers nothing: sl_dpdk_receive_deliver does, from poll. */
enum sl_dpdk_taken sl_dpdk_receive_take(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                                        const struct sl_dpdk_parsed *parsed);
/* LIVE only. Asks `sink`, delivers what is whole at the head. Returns whether it did something;
 * marks the connection waiting where `sink` had nothing. An upcall may end the connection,
 * disconnect it or hand it over: it stops when conn->life is not LIVE any more. */
bool sl_dpdk_receive_deliver(struct sl_dpdk_conn *conn);
/* The number of the message at the head: all before have been delivered. */
uint32_t sl_dpdk_receive_next(const struct sl_dpdk_conn *conn);
/* The message at the head is one for which `sink` has had no memory yet. */
bool sl_dpdk_receive_waits_for_sink(const struct sl_dpdk_conn *conn);
/* The peer has begun a message, may send more of it, and has yet to: it is not we whom it waits
 * for. */
bool sl_dpdk_receive_is_owed(const struct sl_dpdk_conn *conn);
/* Hand-over, as send_leave: what has come and was not delivered goes along as copies, so that no
 * memory of the port, nor of this reactor's blocks, is in it. conn->seen and conn->grant's counts
 * are copied by move.c. arrive's error: NO_MEMORY (it has been freed all the same). */
struct sl_dpdk_receiving *sl_dpdk_receive_leave(struct sl_dpdk_conn *conn);
int sl_dpdk_receive_arrive(struct sl_dpdk_conn *conn, struct sl_dpdk_receiving *receiving);
void sl_dpdk_receive_drop(struct sl_dpdk_receiving *receiving);
void sl_dpdk_release(struct sl_conn *conn, const struct sl_transport_message *message);

/* ---- move.c ---------------------------------------------------------------------------------- */

int sl_dpdk_move_hand_over(struct sl_conn *conn, struct sl_transport *to,
                           const struct sl_transport_events *events, void *ctx, void *user);
void sl_dpdk_move_depart(struct sl_dpdk_conn *conn); /* LEAVING: it is gone afterwards */
/* Makes `closed` for connections that were handed over, and found no memory. Returns how many. */
uint32_t sl_dpdk_move_close_lost(struct sl_dpdk *dpdk, int err);
void sl_dpdk_move_take(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed); /* MOVED */

/* ---- past.c, stray.c ------------------------------------------------------------------------- */

int sl_dpdk_time_wait_open(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_close(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_ended(const struct sl_dpdk_conn *conn);
void sl_dpdk_time_wait_went(struct sl_dpdk *dpdk, uint64_t id, uint64_t id_there);
bool sl_dpdk_time_wait_has(struct sl_dpdk *dpdk, uint64_t id);
/* A packet whose id was ours: its sender is told again, or it is passed on. False: unknown. */
bool sl_dpdk_time_wait_take(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                            const struct sl_dpdk_packet *packet,
                            const struct sl_dpdk_parsed *parsed);

void sl_dpdk_misrouted_open(struct sl_dpdk *dpdk); /* once the sides are known */
void sl_dpdk_misrouted_close(struct sl_dpdk *dpdk);
/* To the reactor of this id, as a packet of that id; not to this reactor. */
void sl_dpdk_misrouted_send(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif, uint64_t id,
                            const struct sl_dpdk_packet *packet);
/* A packet that another reactor of this process should have: by the id, or for OPEN by the UDP
 * port. Copies it, and posts it. False: it is for us, or for nobody. */
bool sl_dpdk_misrouted_forward(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_packet *packet,
                               const struct sl_dpdk_parsed *parsed);
/* What a neighbour said, to all other reactors of the device. */
void sl_dpdk_misrouted_neighbour(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                 const struct sl_dpdk_packet *packet);

#endif
