/* wire encodes and decodes packets: Ethernet, IPv4 or IPv6, UDP, then a fixed header of 32 bytes,
 * little-endian, which docs/dpdk-protocol.md specifies. Pure; any thread. */
#ifndef SL_NET_DPDK_WIRE_H
#define SL_NET_DPDK_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define SL_DPDK_VERSION      2
#define SL_DPDK_HEADER_BYTES 32U
#define SL_DPDK_OUTER_MAX    62U /* Ethernet, IPv6, UDP; IPv4: 42 */
#define SL_DPDK_SACK_WORDS   4U  /* of 64 bits; most in an acknowledgement */

enum sl_dpdk_kind {
    /* Handshake. `connection` is the receiver's id, 0 in OPEN; the body is struct sl_dpdk_hello. */
    SL_DPDK_OPEN = 1,   /* client: request; with the cookie once RETRY has sent one */
    SL_DPDK_RETRY = 2,  /* listener, stateless: repeat OPEN with this cookie */
    SL_DPDK_ACCEPT = 3, /* listener: accepted, with the listener's id */
    SL_DPDK_REFUSE = 4, /* listener: refused; readable text may follow the hello */
    /* Of a connection. Numbered by `sequence`, acknowledged, retransmitted under another number: */
    SL_DPDK_DATA = 5,   /* the piece of a message at `offset` */
    SL_DPDK_BUNDLE = 6, /* whole frames, each padded to 8 bytes: one message */
    /* Requests an acknowledgement, for keep-alive and lost tails. The body begins with the sender's
       id, for a receiver that does not know the connection. */
    SL_DPDK_PROBE = 7,
    SL_DPDK_FIN = 8, /* after the last message; `message` is the number after it */
    /* Not numbered: `sequence` is the next number of the sender. */
    SL_DPDK_ACK = 9,
    SL_DPDK_RESET =
        10, /* the connection ended; the last byte of the body is the absolute value of an sl_err */
};

enum sl_dpdk_flag {
    /* The number of SACK words (1 to SL_DPDK_SACK_WORDS) between the header and the rest of the
       body. Bit i of word w: packet acknowledged + 1 + 64 w + i was received. */
    SL_DPDK_FLAG_SACK = 0x07,
    SL_DPDK_FLAG_ANSWER = 0x08, /* acknowledge at once */
    SL_DPDK_FLAG_MORE = 0x10,   /* DATA, BUNDLE: the sender has queued more than it was granted */
};

struct sl_dpdk_header {
    uint64_t connection; /* the receiver's id; see sl_dpdk_id_reactor */
    uint32_t sequence;   /* number of this packet; never reused */
    uint32_t granted;    /* message bytes that the receiver may send in total; wraps around */
    uint32_t offset;     /* in the message, whose first 32 bytes are the frame header */
    /* All numbers before this are received or settled. */
    uint32_t acknowledged;
    uint32_t
        message; /* number of a frame in pieces or a bundle: ascends by one from 0; wraps around */
    /* All numbers before sequence - behind are settled: acknowledged, or lost and retransmitted
     * under other numbers. The receiver need not wait for them. Handshake: 0. See
     * sl_dpdk_sent_packets_behind. */
    uint16_t behind;
    uint8_t kind;  /* sl_dpdk_kind; sl_dpdk_write adds the version, sl_dpdk_parse removes it */
    uint8_t flags; /* sl_dpdk_flag */
    uint16_t body_bytes; /* after this header, SACK words included; sent as UDP's length */
};

/* The body of OPEN, RETRY, ACCEPT and REFUSE. */
struct sl_dpdk_hello {
    /* The sender's id, which the peer writes into its headers. RETRY and REFUSE repeat the
     * receiver's: their sender has no id. */
    uint64_t connection;
    uint64_t cookie;   /* OPEN: the cookie of RETRY; 0: none yet */
    uint32_t sequence; /* first number of the sender */
    uint32_t granted;  /* initial grant */
    uint16_t body_max; /* longest body that the sender can receive; both sides use the smaller; at
                          least SL_DPDK_BODY_MIN in all kinds */
    /* struct sl_dpdk_queues of the sender's device; 0 queues: not straight */
    uint16_t queues, reactors, index;
    uint8_t blocks;
    uint8_t err; /* REFUSE: the absolute value of an sl_err */
};
#define SL_DPDK_HELLO_BYTES 40U  /* on the wire */
#define SL_DPDK_BODY_MIN    512U /* about what IPv4's least MTU, 576, leaves */

/* The reactor that owns the connection: any reactor can forward a misrouted packet. */
static inline uint32_t sl_dpdk_id_reactor(uint64_t connection)
{
    return (uint32_t)(connection & 0xff);
}

/* The headers of packets to a peer, ready to copy, except lengths and checksums. */
struct sl_dpdk_route {
    uint8_t outer[SL_DPDK_OUTER_MAX];
    uint8_t outer_bytes;
    bool is_v6;
};

/* An address; IPv4 as ::ffff:a.b.c.d. */
struct sl_dpdk_address {
    struct in6_addr ip;
    uint16_t port; /* host order */
};

void sl_dpdk_route_build(struct sl_dpdk_route *route, const uint8_t from_mac[6],
                         const uint8_t to_mac[6], const struct sl_dpdk_address *from,
                         const struct sl_dpdk_address *to);

/* Writes the outer headers, with lengths, and `header` into packet[], with UDP checksum 0. Returns
 * the bytes before the body. packet[] must have room for SL_DPDK_OUTER_MAX + SL_DPDK_HEADER_BYTES
 * bytes. header->body_bytes must be known: if it depends on the body, write the body first, at
 * packet + sl_dpdk_route_bytes. */
uint32_t sl_dpdk_write(uint8_t *packet, const struct sl_dpdk_route *route,
                       const struct sl_dpdk_header *header);

static inline uint32_t sl_dpdk_route_bytes(const struct sl_dpdk_route *route)
{
    return route->outer_bytes + SL_DPDK_HEADER_BYTES;
}

/* Fills in the UDP checksum of a packet of sl_dpdk_write with its body. */
void sl_dpdk_seal(uint8_t *packet, uint32_t length);
/* The same with the body's checksum (SACK words included), from sl_dpdk_checksum_copy. */
void sl_dpdk_seal_sum(uint8_t *packet, uint64_t body_checksum);

/* The class of a received packet. */
enum sl_dpdk_class {
    SL_DPDK_OURS,      /* UDP with our header: *out is filled. The caller checks the destination */
    SL_DPDK_NEIGHBOUR, /* ARP or ICMPv6 neighbour discovery, not checked further */
    SL_DPDK_NOT_OURS,  /* other protocols, fragments, IP options */
    SL_DPDK_MALFORMED  /* UDP with a wrong checksum, length, version, kind or flag */
};

struct sl_dpdk_parsed {
    struct sl_dpdk_header header;
    uint64_t sack[SL_DPDK_SACK_WORDS]; /* missing words are 0 */
    uint32_t sack_words;
    const uint8_t *body; /* after the SACK words */
    uint32_t body_bytes;
    struct sl_dpdk_address from, to;
    const uint8_t *from_mac;
    /* MALFORMED with only the version wrong: that version; then header, addresses and body (SACK
     * words included) are filled. Else 0. */
    uint8_t version;
};

/* packet: as received, any length and content. checked: the device has verified the UDP checksum. A
 * UDP checksum of 0 is MALFORMED. */
enum sl_dpdk_class sl_dpdk_parse(const uint8_t *packet, uint32_t length, bool checked,
                                 struct sl_dpdk_parsed *out);

void sl_dpdk_hello_encode(const struct sl_dpdk_hello *hello, uint8_t to[SL_DPDK_HELLO_BYTES]);
/* Errors: PROTOCOL: too short, a body_max under SL_DPDK_BODY_MIN, an id of 0, or inconsistent
 * queues (with 0 queues the other queue fields are ignored). */
int sl_dpdk_hello_decode(const uint8_t *body, uint32_t bytes, struct sl_dpdk_hello *out);

/* Whether a is before b; sequence numbers and offsets wrap around. */
static inline bool sl_dpdk_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
