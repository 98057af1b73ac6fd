/* The types and functions that the files of net/dpdk share. Owner reactor throughout, except the
 * mail handlers of misrouted.c. README.md lists the files.
 *
 * The path of a frame. send_burst appends the frame to the connection's queue. flush makes messages
 * of the queued frames:
 * - A BUNDLE is one packet with as many whole frames as fit.
 * - A frame that fits no bundle is a message of its own. It is cut into DATA pieces of
 *   sl_dpdk_piece_bytes (the last is shorter).
 * Each packet has a new number, and sent_packets records its content. A message is cut once: lost
 * content is retransmitted as it was cut. The receiver takes each number once (received_packets).
 * It copies a piece into one of these:
 * - the memory that `sink` returned for the message at the head;
 * - a block, for a bundle or a message of up to SL_LIMIT_INLINE_PAYLOAD_BYTES.
 * Otherwise it parks the packet until its message is at the head. Frames are delivered in order. A
 * frame is reported as `sent` when the peer has acknowledged all its packets. */
#ifndef SL_NET_DPDK_INTERNAL_H
#define SL_NET_DPDK_INTERNAL_H

#include "core/assert.h"
#include "core/limits.h"
#include "core/list.h"
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
#define SL_DPDK_QUEUE             512U /* queued frames of one connection; 2^n */
#define SL_DPDK_MESSAGES          512U /* messages ahead of the head that a receiver accepts; 2^n */
#define SL_DPDK_UNSCHEDULED_BYTES 65536U
#define SL_DPDK_BUDGET_BYTES      (4U << 20)
#define SL_DPDK_AHEAD_BYTES       (512U << 10) /* grant for queued data of unknown length */
#define SL_DPDK_PEER_TIMEOUT_MS   10000U
#define SL_DPDK_IDLE_NS_MIN       (20 * SL_CLOCK_NS_PER_US)

struct sl_dpdk;
struct sl_dpdk_conn;
struct sl_dpdk_listener;

/* A port and its neighbour table. */
struct sl_dpdk_netif {
    struct sl_dpdk_port *port;
    struct sl_dpdk_port_info info;
    struct sl_dpdk_neighbours *neighbours;
    struct sl_dpdk_packet spare[SL_DPDK_BURST]; /* reserved buffers for sl_dpdk_netif_get */
    uint32_t spare_count;
    /* Packets to send. flush sends them, and sl_dpdk_netif_put when SL_DPDK_BURST are queued. The
     * last places are reserved for unnumbered packets, which are not retransmitted. */
    struct sl_dpdk_packet out[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t out_count;
    uint64_t refused_since_ns; /* since when the port accepts none; 0: it does */
    bool is_stuck;             /* stuck_queue has accepted nothing for 100 ms */
    uint16_t stuck_queue;
    bool link_was_up; /* is_one_peers: link state at the last check of liveness.c */
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
    struct sl_dpdk_conn *by_id[SL_DPDK_BUCKETS]; /* by local id */
    struct sl_list conns;                        /* all */
    struct sl_dpdk_conn *spare;                  /* freed structs, linked by `spare_next` */
    struct sl_list dirty;                        /* for the next flush */
    struct sl_list ready;                        /* for the next poll: pending delivery, ends */
    bool awake;                                  /* the next poll has work for `ready` */
    struct sl_dpdk_listener *listeners;
    struct sl_dpdk_grants grants;
    struct sl_dpdk_pasts *pasts; /* ids of connections that ended */
    struct sl_dpdk_store *store; /* memory of received data; store.c */
    uint8_t secret[16];          /* key for cookies, ids and first sequence numbers */
    uint16_t
        boot_epoch; /* part of all ids: random, so that ids from before a restart are recognised */
    uint64_t random_count;
    uint32_t connections_max, peer_timeout_ms;
    uint16_t port_base,
        port; /* `port`: port_base plus this reactor's index among the device's reactors */
    struct sl_timer sweep, links; /* sweep: liveness check. links: check of one-peer links */
    struct sl_timer idle;         /* wakes a reactor whose ports have no interrupt */
    uint64_t idle_ns;
    uint32_t untold_bytes; /* packet bytes received since the last distribution of grants */
    uint32_t sweep_rounds;
    struct sl_dpdk *next_here; /* next transport of this thread; misrouted.c */
    struct sl_dpdk_misrouted *misrouted_free;
    uint32_t misrouted_out[SL_LIMIT_REACTORS]; /* packets posted to each reactor whose memory has
                                                  not returned */
    uint64_t misrouted_owner;
    struct sl_dpdk_region regions[SL_DPDK_REGIONS];
    uint32_t region_count;
    /* Packets: posted to another reactor; received from one; malformed; not for this process; for a
     * connection, but not from its peer. */
    uint64_t misrouted_sent, misrouted_taken, malformed, not_ours, spoofed;
    struct sl_transport_stats stats;
};

enum sl_dpdk_life {
    SL_DPDK_ASKING, /* connect: OPEN was sent, or waits for neighbour resolution */
    SL_DPDK_LIVE,
    SL_DPDK_DRAINING, /* disconnect: the queued frames are sent, then FIN; received data is dropped
                       */
    SL_DPDK_ENDED     /* poll reports `closed` */
};

/* The state of the liveness checks of a connection (liveness.c). */
struct sl_dpdk_liveness {
    uint64_t last_seen_ns, since_ns; /* since_ns: nothing received since */
    uint32_t arrived;                /* grant.arrived at the last check */
    uint64_t stuck_since_ns;  /* since when `arrived` is unchanged while the peer owes data */
    uint32_t progress;        /* sl_dpdk_send_progress at the last check */
    uint64_t narrow_since_ns; /* since when `progress` is unchanged and no full-size packet was
                                 acknowledged */
    uint32_t rounds, stuck_rounds, narrow_rounds;
};

struct sl_dpdk_sending;   /* send.h */
struct sl_dpdk_receiving; /* receive.h */

struct sl_dpdk_conn {
    struct sl_conn base;
    struct sl_dpdk *dpdk;
    struct sl_dpdk_netif *netif;
    enum sl_dpdk_life phase;
    uint64_t id; /* local id: reactor index (8 bits), boot epoch (16 bits), random (40 bits) */
    uint64_t id_peers; /* id of the peer; 0: not known yet */
    struct sl_dpdk_address here, there;
    struct sl_dpdk_route route;
    uint16_t queue; /* transmit queue */
    struct sl_dpdk_queues queues_peers;
    bool routed;       /* `route` is set */
    bool inbound;      /* accepted by listen */
    uint16_t body_max; /* longest body that both sides can receive */
    int end_err;
    bool accept_pending; /* visit has not yet reported `accepted` or `connected` */
    bool fin_sent;       /* sl_dpdk_send_bye was called */
    bool fin_acked;      /* set by ack.c, which marks the connection ready */
    bool reset_received;
    bool fin_received;       /* the peer's FIN arrived; the connection ends when all messages before
                                fin_message are delivered */
    bool all_delivered;      /* all messages before fin_message are delivered */
    uint32_t fin_message;    /* number of the first message that the peer will not send */
    uint32_t first_sequence; /* first number that this side sends; each ACCEPT repeats it */
    struct sl_dpdk_conn *id_next, *spare_next;
    struct sl_list_link alive, dirty, ready; /* alive: in `conns` */
    struct sl_dpdk_sent_packets sent_packets;
    struct sl_dpdk_received_packets received;
    struct sl_dpdk_rate rate;
    struct sl_dpdk_grant grant;
    uint32_t granted_theirs; /* message bytes that this side may send in total */
    uint32_t offered;        /* message bytes sent in total, without retransmissions */
    bool ack_due, ack_now;
    bool full_size_acked;  /* a full-size packet was acknowledged since the last liveness check */
    struct sl_timer timer; /* ASKING: deadline and retransmission of OPEN. Else: loss detection,
                              pacing, drain */
    uint64_t pace_ns;      /* the last result of sl_dpdk_send_flush */
    uint64_t deadline_ns;  /* ASKING: of the connect. DRAINING: of the disconnect */
    uint64_t last_seen_ns; /* time of the last valid packet from the peer */
    uint64_t confirm_ns;   /* the first packet after this confirms the neighbour entry */
    uint64_t asked_ns;     /* ASKING: when OPEN was sent last; pause_ns: interval to the next */
    uint64_t pause_ns;
    uint32_t asked_count; /* OPENs sent with this cookie */
    uint32_t late_count;  /* ASKING: timer expirations after the deadline */
    uint64_t cookie;
    struct sl_dpdk_liveness liveness; /* see liveness.c */
    struct sl_dpdk_sending *send;
    struct sl_dpdk_receiving *receive;
};

static inline struct sl_dpdk_conn *sl_dpdk_conn_alive(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_dpdk_conn, alive);
}

static inline uint64_t sl_dpdk_now_ns(const struct sl_dpdk *dpdk)
{
    return sl_reactor_now_ns(dpdk->base.reactor);
}

/* A peer that does not answer for so long is gone. */
static inline uint64_t sl_dpdk_patience_ns(const struct sl_dpdk *dpdk)
{
    return dpdk->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

static inline void sl_dpdk_mark_dirty(struct sl_dpdk_conn *conn)
{
    if (!sl_list_linked(&conn->dirty)) {
        sl_list_prepend(&conn->dpdk->dirty, &conn->dirty);
    }
}

/* Adds the connection to the next poll without keeping the reactor awake: `sink` returned NULL. */
static inline void sl_dpdk_mark_waiting(struct sl_dpdk_conn *conn)
{
    if (!sl_list_linked(&conn->ready)) {
        sl_list_prepend(&conn->dpdk->ready, &conn->ready);
    }
}

static inline void sl_dpdk_mark_ready(struct sl_dpdk_conn *conn)
{
    sl_dpdk_mark_waiting(conn);
    conn->dpdk->awake = true;
}

/* poll.c */

uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget);
void sl_dpdk_flush(struct sl_transport *transport);

/* Dispatches a packet of class OURS for a local address, received or from misrouted.c. Returns
 * whether the packet's memory was kept. */
bool sl_dpdk_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif, struct sl_dpdk_packet *packet,
                  const struct sl_dpdk_parsed *parsed, bool is_misrouted);
/* Dispatches a packet of another version: OPEN is answered with REFUSE, and REFUSE ends a connect.
 * False: it is neither. */
bool sl_dpdk_take_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                        const struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed,
                        bool is_misrouted);

/* route.c */

bool sl_dpdk_route_is_v4(const struct in6_addr *ip);
bool sl_dpdk_route_is_any(const struct in6_addr *ip);
/* Whether the address can be answered: not multicast, broadcast or unspecified, and the port is not
 * 0. */
bool sl_dpdk_route_is_answerable(const struct sl_dpdk_address *from);
/* Errors: those of sl_endpoint_resolve, logged. */
int sl_dpdk_route_parse(const struct sl_endpoint *endpoint, bool passive, struct in6_addr *out);
void sl_dpdk_route_host(const struct in6_addr *ip, char host[SL_LIMIT_ENDPOINT_BYTES]);
void sl_dpdk_route_format(const struct sl_dpdk_address *address,
                          char text[SL_LIMIT_ENDPOINT_BYTES]);
/* The netif that reaches this address; NULL: none has its family. */
struct sl_dpdk_netif *sl_dpdk_route_side(struct sl_dpdk *dpdk, const struct in6_addr *ip);
struct sl_dpdk_queues sl_dpdk_route_queues(const struct sl_dpdk_hello *hello);
/* A local queue of this reactor; if possible the one that leads to the peer's reactor. */
uint16_t sl_dpdk_route_queue(const struct sl_dpdk_queues *ours,
                             const struct sl_dpdk_queues *theirs);
/* `set` sets conn->route and conn->queue for this Ethernet address. `learn` does so only if the
 * address changed. `find` looks the address up in the neighbour table; false: unknown, and a
 * request was sent. */
void sl_dpdk_route_set(struct sl_dpdk_conn *conn, const uint8_t mac[6]);
void sl_dpdk_route_learn(struct sl_dpdk_conn *conn, const uint8_t mac[6]);
bool sl_dpdk_route_find(struct sl_dpdk_conn *conn);
/* The peer's address is that of the local device. */
bool sl_dpdk_route_is_own(const struct sl_dpdk_conn *conn);
/* arp.c */

/* Handles an ARP or neighbour discovery packet. came: the packet; NULL: another reactor received
 * it. */
void sl_dpdk_arp_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif, const uint8_t *bytes,
                      uint32_t length, const struct sl_dpdk_packet *came);

/* connect.c, listen.c */

int sl_dpdk_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out);

/* Handles RETRY, ACCEPT and REFUSE. conn: the connection with the header's id, or NULL. */
void sl_dpdk_setup_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                        struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *packet);
/* A REFUSE of another version ends the connect. False: it is not from the peer, or comes too late.
 */
bool sl_dpdk_setup_take_other(struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                              const struct sl_dpdk_parsed *packet);
/* A PROBE of an unknown connection: answers RESET if the id is from before a restart of this
 * process. */
void sl_dpdk_setup_stranger(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                            const struct sl_dpdk_parsed *packet);
void sl_dpdk_setup_timer(struct sl_dpdk_conn *conn);  /* ASKING only */
void sl_dpdk_setup_routed(struct sl_dpdk_conn *conn); /* ASKING only: the neighbour was resolved */
void sl_dpdk_setup_say(struct sl_dpdk_conn *conn, enum sl_dpdk_kind kind); /* kind: OPEN, ACCEPT */
/* Makes the connection LIVE with the peer's hello. */
void sl_dpdk_setup_begin(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello,
                         const uint8_t mac[6]);

int sl_dpdk_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_dpdk_listen_close(struct sl_dpdk *dpdk);
void sl_dpdk_listen_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                         const struct sl_dpdk_parsed *packet); /* handles OPEN */
void sl_dpdk_listen_other(
    struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
    const struct sl_dpdk_parsed *packet); /* handles OPEN of another version */

/* conn.c, liveness.c */

/* `new` chooses an id, `make` takes one. NULL: no memory. */
struct sl_dpdk_conn *sl_dpdk_conn_new(struct sl_dpdk *dpdk,
                                      const struct sl_transport_events *events, void *ctx);
struct sl_dpdk_conn *sl_dpdk_conn_make(struct sl_dpdk *dpdk,
                                       const struct sl_transport_events *events, void *ctx,
                                       uint64_t id);
struct sl_dpdk_conn *sl_dpdk_conn_find(const struct sl_dpdk *dpdk, uint64_t id);
uint64_t sl_dpdk_conn_random(struct sl_dpdk *dpdk);
/* An id of this reactor: its index, its boot epoch and 40 random bits. Any thread. */
#define SL_DPDK_ID_SHIFT 24
uint64_t sl_dpdk_conn_id(const struct sl_dpdk *dpdk, uint64_t random);

/* Handles a valid packet of class OURS with the connection's id: checks sender and number, then
 * passes it to the handshake, send or receive code. Returns whether the packet's memory was
 * kept. */
bool sl_dpdk_conn_take(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                       struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed);

/* Whether the packet's addresses are those of the peer. */
bool sl_dpdk_conn_is_from_peer(const struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_parsed *parsed);

/* Ends the connection: the next poll reports `closed` with this error. Idempotent: the first error
 * stays. tell: send the peer a RESET. */
void sl_dpdk_conn_end(struct sl_dpdk_conn *conn, int err, bool tell);
void sl_dpdk_conn_refuse(struct sl_dpdk_conn *conn,
                         const char *what); /* ends with PROTOCOL, logged */
void sl_dpdk_conn_lost(struct sl_dpdk_conn *conn,
                       const char *what); /* ends with DEADLINE, logged */
bool sl_dpdk_conn_visit(
    struct sl_dpdk_conn *conn); /* called by poll for `ready`; returns whether it did work */
void sl_dpdk_conn_set_timer(
    struct sl_dpdk_conn *conn); /* to the earliest time that send.c and sent_packets need */
void sl_dpdk_conn_stop_timer(struct sl_dpdk_conn *conn);
void sl_dpdk_conn_disconnect(struct sl_conn *conn);
/* Used when the transport closes. end_all ends all connections, which then hold no packet of a
 * port. After the ports are closed, cancel_all reports `closed`. */
void sl_dpdk_conn_end_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_cancel_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_free_all(struct sl_dpdk *dpdk); /* frees the memory */

void sl_dpdk_liveness_add(struct sl_dpdk_conn *conn); /* a connection became LIVE */
void sl_dpdk_liveness_open(struct sl_dpdk *dpdk);
void sl_dpdk_liveness_close(struct sl_dpdk *dpdk);

/* The length of each piece of a message except the last. Both sides compute the same. */
static inline uint32_t sl_dpdk_piece_bytes(const struct sl_dpdk_conn *conn)
{
    return conn->body_max & ~7U;
}

/* send.c, send_queue.c, ack.c */

int sl_dpdk_send_open(struct sl_dpdk_conn *conn);
void sl_dpdk_send_close(struct sl_dpdk_conn *conn); /* drops queued frames without an upcall */
/* Both free memory that an idle connection no longer needs. */
void sl_dpdk_send_shrink(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_shrink(struct sl_dpdk_conn *conn);
uint32_t sl_dpdk_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);
/* Sends retransmissions, then new content, as far as window, grant, pacing and buffers allow; or a
 * single ACK if one is due. Returns the time of the next packet that pacing delays; SL_CLOCK_NEVER:
 * none. */
uint64_t sl_dpdk_send_flush(struct sl_dpdk_conn *conn);
/* Whether more than one packet is queued, estimated from the next frame's length. */
bool sl_dpdk_send_is_full(const struct sl_dpdk_conn *conn);
/* Handles the acknowledgement and grant in a packet. False: no honest peer sends this
 * acknowledgement. */
bool sl_dpdk_send_acknowledged(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed);
/* The peer delivered everything before our FIN: mark all packets as acknowledged, also those whose
 * content arrived under other numbers. The connection is ending. */
void sl_dpdk_send_all_came(struct sl_dpdk_conn *conn);
void sl_dpdk_send_expired(struct sl_dpdk_conn *conn); /* the timer of sent_packets */
void sl_dpdk_send_report(
    struct sl_dpdk_conn *conn); /* reports `sent` and `writable`; called by poll */
/* Whether the device still reads sent memory; `closed` waits for that. */
bool sl_dpdk_send_is_reading(const struct sl_dpdk_conn *conn);
bool sl_dpdk_send_is_done(const struct sl_dpdk_conn *conn); /* nothing is queued or outstanding */
void sl_dpdk_send_probe(struct sl_dpdk_conn *conn);         /* with the next flush */
/* A probe of full size. Its acknowledgement sets conn->full_size_acked. */
void sl_dpdk_send_wide_probe(struct sl_dpdk_conn *conn);
/* A number that changes when new content is sent or a message is acknowledged. */
uint32_t sl_dpdk_send_progress(const struct sl_dpdk_conn *conn);
/* Queues a FIN after the last frame. */
void sl_dpdk_send_bye(struct sl_dpdk_conn *conn);
/* Sends an unnumbered packet: RESET, REFUSE, RETRY, ACCEPT, OPEN. */
void sl_dpdk_send_unnumbered(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                             const struct sl_dpdk_route *route, uint16_t queue,
                             const struct sl_dpdk_header *header, const void *body);

/* store.c, receive.c, long_message.c */

int sl_dpdk_store_open(struct sl_dpdk *dpdk); /* called by open when the netifs are known */
/* Frees all memory, also of messages that were not released. */
void sl_dpdk_store_close(struct sl_dpdk *dpdk);

int sl_dpdk_receive_open(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_close(struct sl_dpdk_conn *conn);

enum sl_dpdk_taken {
    SL_DPDK_TAKEN,         /* the content was copied */
    SL_DPDK_PARKED,        /* the packet's memory was kept */
    SL_DPDK_NO_ROOM,       /* dropped, as if lost */
    SL_DPDK_PROTOCOL_ERROR /* the connection ends with PROTOCOL */
};
/* Handles a new DATA or BUNDLE of a LIVE connection; sl_dpdk_receive_deliver, called by poll,
 * delivers. conn.c records the number if the packet was taken or parked, and marks the connection.
 */
enum sl_dpdk_taken sl_dpdk_receive_take(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                                        const struct sl_dpdk_parsed *parsed);
/* LIVE only. Asks `sink` and delivers complete messages from the head on. Returns whether it did
 * work. Marks the connection as waiting if `sink` returned NULL. Stops when an upcall ends or
 * disconnects the connection, or when a frame is malformed: sl_conn_fail, which conn.c handles. */
bool sl_dpdk_receive_deliver(struct sl_dpdk_conn *conn);
/* The number of the message at the head. */
uint32_t sl_dpdk_receive_next(const struct sl_dpdk_conn *conn);
/* Whether `sink` has not yet returned memory for the message at the head. */
bool sl_dpdk_receive_waits_for_sink(const struct sl_dpdk_conn *conn);
/* Whether the peer has begun a message, may send more of it, and does not wait for our `sink`. */
bool sl_dpdk_receive_is_owed(const struct sl_dpdk_conn *conn);
void sl_dpdk_release(struct sl_conn *conn, const struct sl_transport_message *message);

/* time_wait.c, misrouted.c */

/* The content of a RESET. It is an acknowledgement of all received packets too. err: OK if neither
 * side waits for anything: the peer has acknowledged our FIN, or all before the peer's FIN was
 * delivered. */
struct sl_dpdk_last_words {
    struct sl_dpdk_header header;
    _Alignas(8) uint8_t body[SL_DPDK_SACK_WORDS * sizeof(uint64_t) + 1];
};
void sl_dpdk_time_wait_last_words(const struct sl_dpdk_conn *conn, int err,
                                  struct sl_dpdk_last_words *out);

int sl_dpdk_time_wait_open(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_close(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_ended(const struct sl_dpdk_conn *conn);
bool sl_dpdk_time_wait_has(struct sl_dpdk *dpdk, uint64_t id);
/* Handles a packet for an id that ended: repeats the RESET. False: unknown id. */
bool sl_dpdk_time_wait_take(struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *parsed);

void sl_dpdk_misrouted_open(struct sl_dpdk *dpdk); /* when the netifs are known */
void sl_dpdk_misrouted_close(struct sl_dpdk *dpdk);
/* Posts a copy of the packet to the reactor that owns its id, or for OPEN its UDP port. False: that
 * is this reactor, or none. */
bool sl_dpdk_misrouted_forward(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_packet *packet,
                               const struct sl_dpdk_parsed *parsed);
/* Posts a neighbour packet to all other reactors of the device. */
void sl_dpdk_misrouted_neighbour(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                 const struct sl_dpdk_packet *packet);

#endif
