/* Private to net/dpdk: limits, and the state of a transport and of its connections. Owner reactor
 * throughout, except the mail handlers of misrouted_packets.c.
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
#ifndef SL_NET_DPDK_STATE_H
#define SL_NET_DPDK_STATE_H

#include "core/assert.h"
#include "core/backoff.h"
#include "core/limits.h"
#include "core/list.h"
#include "net/base/liveness.h"
#include "net/dpdk/grant.h"
#include "net/dpdk/netif.h"
#include "net/dpdk/rate.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/sent_packets.h"
#include "net/dpdk/wire.h"
#include "net/transport_impl.h"
#include "reactor/timer.h"

#define SL_DPDK_PORTS             64U
#define SL_DPDK_QUEUE             512U /* queued frames of one connection; 2^n */
#define SL_DPDK_MESSAGES          512U /* messages ahead of the head that a receiver accepts; 2^n */
#define SL_DPDK_UNSCHEDULED_BYTES 65536U
#define SL_DPDK_BUDGET_BYTES      (4U << 20)
#define SL_DPDK_AHEAD_BYTES       (512U << 10) /* grant for queued data of unknown length */
#define SL_DPDK_IDLE_NS_MIN       (20 * SL_CLOCK_NS_PER_US)
#define SL_DPDK_BUCKETS           4096U /* 2^n */
#define SL_DPDK_REGIONS           64U

struct sl_dpdk_listener;  /* listen.c */
struct sl_dpdk_time_wait; /* time_wait.c */
struct sl_dpdk_store;     /* store.h */
struct sl_dpdk_sending;   /* send_queue.h */
struct sl_dpdk_receiving; /* receive_slots.h */

struct sl_dpdk_settings {
    uint16_t port_base;
    uint16_t port; /* port_base plus this reactor's index among the device's reactors */
};

/* Sources of ids, cookies and first sequence numbers. */
struct sl_dpdk_ids {
    uint8_t secret[16]; /* key of their hash */
    uint64_t random_count;
    uint16_t boot_epoch; /* part of all connection ids: random, so that ids from before a restart
                            are recognised */
};

/* Handles a packet that another reactor has forwarded; its memory is valid during the call. */
typedef void sl_dpdk_misrouted_packets_fn(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                          struct sl_dpdk_packet *packet, bool for_neighbours);

/* State of misrouted_packets.c. */
struct sl_dpdk_misrouting {
    sl_dpdk_misrouted_packets_fn *take;
    struct sl_dpdk *next_here; /* next transport of this thread */
    struct sl_dpdk_misrouted *free;
    uint32_t out[SL_LIMIT_REACTORS]; /* packets posted to each reactor whose memory has not
                                        returned */
    uint64_t owner;
};

struct sl_dpdk_counts {
    uint64_t misrouted_sent, misrouted_taken; /* packets posted to another reactor, or from one */
    uint64_t malformed;
    uint64_t not_ours; /* not for this process */
    uint64_t spoofed;  /* for a connection, but not from its peer */
};

/* A timer that polls ports without interrupts. */
struct sl_dpdk_idle {
    struct sl_timer timer;
    uint64_t ns; /* to its next expiration */
};

/* Memory registered with the transport. */
struct sl_dpdk_region {
    uint8_t *base;
    size_t bytes;
};

struct sl_dpdk {
    struct sl_transport base;
    struct sl_dpdk_settings settings;
    struct sl_dpdk_netif netifs[SL_DPDK_PORTS];
    uint32_t netif_count;
    struct sl_dpdk_conn *by_id[SL_DPDK_BUCKETS]; /* by local id */
    struct sl_liveness liveness;                 /* has all connections */
    struct sl_dpdk_conn *spare;                  /* freed structs, linked by `next` */
    struct sl_list dirty;                        /* for the next flush */
    struct sl_list ready;                        /* for the next poll: pending delivery, ends */
    bool awake;                                  /* the next poll has work for `ready` */
    struct sl_dpdk_listener *listeners;
    struct sl_dpdk_grants grants;
    struct sl_dpdk_time_wait *time_wait; /* ids of connections that ended */
    struct sl_dpdk_store *store;         /* memory of received data */
    struct sl_dpdk_ids ids;
    struct sl_timer links; /* check of one-peer links */
    struct sl_dpdk_idle idle;
    uint32_t bytes_since_grants; /* packet bytes received since the last distribution of grants */
    struct sl_dpdk_misrouting misrouted;
    struct sl_dpdk_region regions[SL_DPDK_REGIONS];
    uint32_t region_count;
    struct sl_dpdk_counts counts;
};

enum sl_dpdk_life {
    SL_DPDK_ASKING, /* connect: OPEN was sent, or waits for neighbour resolution */
    SL_DPDK_LIVE,
    SL_DPDK_DRAINING, /* disconnect: the queued frames are sent, then FIN; received data is dropped
                       */
    SL_DPDK_ENDED     /* poll reports `closed` */
};

/* The way to the peer. */
struct sl_dpdk_path {
    struct sl_dpdk_netif *netif;
    struct sl_dpdk_address here, there;
    bool routed; /* `route` is set */
    struct sl_dpdk_route route;
    uint16_t queue; /* transmit queue */
    struct sl_dpdk_queues queues_peers;
    uint16_t body_max;   /* longest body that both sides can receive */
    uint64_t confirm_ns; /* the first packet after this confirms the neighbour entry */
};

/* State of the handshake; of the connecting side, except first_sequence. */
struct sl_dpdk_handshake {
    uint32_t first_sequence; /* first number that this side sends; each ACCEPT repeats it */
    uint32_t asked_count;    /* OPENs sent with this cookie */
    uint32_t late_count;     /* timer expirations after the deadline */
    uint64_t cookie;
    struct sl_timer timer; /* deadline, and retransmission of OPEN */
    uint64_t deadline_ns;
    uint64_t asked_ns;         /* when OPEN was sent last */
    struct sl_backoff backoff; /* until the next */
};

/* Our FIN. */
enum sl_dpdk_fin { SL_DPDK_FIN_NONE, SL_DPDK_FIN_SENT, SL_DPDK_FIN_ACKNOWLEDGED };

struct sl_dpdk_end {
    int err;              /* of `closed` */
    enum sl_dpdk_fin fin; /* ack.c notes the acknowledgement, and marks the connection ready */
    bool reset_received;
    bool fin_received;  /* the connection ends when all messages before fin_message are delivered */
    bool all_delivered; /* they are */
    uint32_t fin_message; /* number of the first message that the peer will not send */
    uint64_t deadline_ns; /* DRAINING */
};

/* Whether the peer is owed an acknowledgement. */
enum sl_dpdk_ack_due {
    SL_DPDK_ACK_NOT_DUE,
    SL_DPDK_ACK_DUE,    /* with the next flush at the end of a turn */
    SL_DPDK_ACK_DUE_NOW /* with the next group of packets */
};

/* State of the liveness checks. */
struct sl_dpdk_liveness {
    uint64_t heard_ns;         /* time of the last valid packet from the peer */
    uint64_t checked_ns;       /* heard_ns at the last check */
    struct sl_silence silence; /* heard_ns is unchanged while the peer owes an answer */
    uint32_t arrived;          /* grant.arrived at the last check */
    struct sl_silence stuck;   /* `arrived` is unchanged while the peer owes data */
    uint32_t progress;         /* sl_dpdk_send_progress at the last check */
    struct sl_silence narrow;  /* `progress` is unchanged and full_size_acked false */
    bool full_size_acked;      /* a full-size packet was acknowledged since the last check */
};

struct sl_dpdk_conn {
    struct sl_conn base;
    struct sl_dpdk *dpdk;
    enum sl_dpdk_life phase;
    bool inbound;        /* accepted by listen */
    bool accept_pending; /* visit has not yet reported `accepted` or `connected` */
    uint64_t id; /* local id: reactor index (8 bits), boot epoch (16 bits), random (40 bits) */
    uint64_t id_peers;                       /* id of the peer; 0: not known yet */
    struct sl_dpdk_conn *next;               /* in its bucket of by_id, or in `spare` */
    struct sl_list_link alive, dirty, ready; /* alive: in the list of liveness */
    struct sl_dpdk_handshake handshake;
    struct sl_dpdk_path path;
    struct sl_dpdk_end end;
    struct sl_dpdk_liveness liveness;
    struct sl_dpdk_sent_packets sent_packets;
    struct sl_dpdk_received_packets received;
    enum sl_dpdk_ack_due ack;
    struct sl_dpdk_rate rate;
    struct sl_dpdk_grant grant;
    uint32_t granted_theirs; /* message bytes that this side may send in total */
    uint32_t offered;        /* message bytes sent in total, without retransmissions */
    struct {
        struct sl_timer timer; /* LIVE, DRAINING: loss detection, pacing, drain */
        uint64_t pace_ns;      /* the last result of sl_dpdk_send_flush */
    } due;
    struct sl_dpdk_sending *send;
    struct sl_dpdk_receiving *receive;
};

static inline uint64_t sl_dpdk_now_ns(const struct sl_dpdk *dpdk)
{
    return sl_reactor_now_ns(dpdk->base.reactor);
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

/* The length of each piece of a message except the last. Both sides compute the same. */
static inline uint32_t sl_dpdk_piece_bytes(const struct sl_dpdk_conn *conn)
{
    return conn->path.body_max & ~7U;
}

#endif
