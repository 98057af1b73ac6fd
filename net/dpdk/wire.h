/* What travels: Ethernet, IPv4 or IPv6, UDP, and behind it a fixed header of 32 bytes,
 * little-endian, which docs/dpdk.md specifies. Pure functions; any thread. */
#ifndef SL_NET_DPDK_WIRE_H
#define SL_NET_DPDK_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define SL_DPDK_VERSION      1
#define SL_DPDK_HEADER_BYTES 32U
#define SL_DPDK_OUTER_MAX    62U /* Ethernet, IPv6, UDP; IPv4: 42 */
#define SL_DPDK_SACK_WORDS   4U  /* of 64 bits, at most, in an acknowledgement */

enum sl_dpdk_kind {
    /* Set-up. `connection` is the receiver's id, 0 in the first; the body is struct sl_dpdk_hello.
     */
    SL_DPDK_OPEN = 1,   /* who connects, asks; with the cookie once it has one */
    SL_DPDK_RETRY = 2,  /* who listens, without keeping anything: ask again with this cookie */
    SL_DPDK_ACCEPT = 3, /* who listens: here is my id */
    SL_DPDK_REFUSE = 4, /* who listens: no; behind the hello words for people may follow */
    /* Of a connection. Numbered by `sequence`, acknowledged, sent again in a packet of another
     * number: */
    SL_DPDK_DATA = 5,   /* a piece of one message: it lies at `offset` */
    SL_DPDK_BUNDLE = 6, /* whole frames, each padded to 8 bytes: together one message */
    /* To be acknowledged, for keep-alive and lost tails. The body begins with the sender's id, for
     * whom does not know the connection. */
    SL_DPDK_PROBE = 7,
    SL_DPDK_MOVED = 8, /* the body is struct sl_dpdk_hello: from now on my id and port are these */
    SL_DPDK_FIN = 9,   /* behind the last message: `message` does not follow */
    /* Not numbered: `sequence` is the next that its sender will use. */
    SL_DPDK_ACK = 10,
    SL_DPDK_RESET = 11, /* the connection is gone here; the last byte of the body is an sl_err */
};

enum sl_dpdk_flag {
    /* Behind the header, before the rest of the body: 1 to SL_DPDK_SACK_WORDS words, their number
     * in the flags' low bits; bit i of word w: packet acknowledged + 1 + 64 w + i has come. */
    SL_DPDK_FLAG_SACK = 0x07,
    SL_DPDK_FLAG_ANSWER = 0x08, /* acknowledge at once */
    SL_DPDK_FLAG_MORE = 0x10,   /* DATA, TRAIN: more is queued than has been granted */
};

struct sl_dpdk_header {
    uint64_t connection; /* the receiver's; see sl_dpdk_id_reactor */
    uint32_t sequence;   /* of this packet; never used again */
    /* All before this have come, or count no more (behind). */
    uint32_t acknowledged;
    uint32_t granted; /* message bytes that the receiver may send in all; runs over */
    uint32_t message; /* a frame in pieces, or a train: ascends by one, from 0; runs over */
    uint32_t offset;  /* in the message, whose first 32 bytes are the frame header */
    /* All packets before sequence - behind are settled: acknowledged, or lost, and then what they
     * carried goes in packets of other numbers. Whoever receives this waits for none of them any
     * more. sl_dpdk_sent_packets_behind; set-up: 0. */
    uint16_t behind;
    uint8_t kind;  /* sl_dpdk_kind; sl_dpdk_write adds the version, sl_dpdk_parse removes it */
    uint8_t flags; /* sl_dpdk_flag */
    uint16_t body_bytes; /* behind this header, SACK words included; travels as UDP's length */
};

/* The body of OPEN, RETRY, ACCEPT, REFUSE and MOVED. */
struct sl_dpdk_hello {
    /* The sender's id: what the peer writes into its headers. RETRY, REFUSE: their sender has none,
     * and repeats the receiver's. */
    uint64_t connection;
    uint64_t cookie;   /* OPEN: as RETRY gave it; 0: none yet */
    uint32_t sequence; /* the first that the sender will use */
    uint32_t granted;  /* to begin with */
    uint16_t body_max; /* the longest body that the sender can receive; both use the lesser; all
                        * kinds: at least SL_DPDK_BODY_MIN */
    uint16_t port;     /* MOVED: the sender's UDP port from now on */
    /* struct sl_dpdk_queues of the sender's device; 0 queues: not straight */
    uint16_t queues, reactors, index;
    uint8_t blocks;
    uint8_t err; /* REFUSE: the absolute value of an sl_err */
};
#define SL_DPDK_HELLO_BYTES 40U  /* on the wire */
#define SL_DPDK_BODY_MIN    512U /* what the least MTU of IPv4, 576, leaves, about */

/* The reactor that a connection's id is of: so that every other knows where a stray belongs. */
static inline uint32_t sl_dpdk_id_reactor(uint64_t connection)
{
    return (uint32_t)(connection & 0xff);
}

/* Where a peer is: all that stands before our header, ready to be copied, but for lengths and sums.
 */
struct sl_dpdk_route {
    uint8_t outer[SL_DPDK_OUTER_MAX];
    uint8_t outer_bytes;
    bool is_v6;
};

/* An address: IPv4 as ::ffff:a.b.c.d. */
struct sl_dpdk_address {
    struct in6_addr ip;
    uint16_t port; /* host order */
};

void sl_dpdk_route_build(struct sl_dpdk_route *route, const uint8_t from_mac[6],
                         const uint8_t to_mac[6], const struct sl_dpdk_address *from,
                         const struct sl_dpdk_address *to);

/* Writes outer headers, with all lengths, and header into packet[], with 0 for the UDP checksum;
 * SL_DPDK_OUTER_MAX + SL_DPDK_HEADER_BYTES bytes must be there to be written in any case.
 * header->body_bytes is what the body is or will be: who does not know it yet writes the body
 * first, at packet + sl_dpdk_route_bytes. Returns the bytes before the body. */
uint32_t sl_dpdk_write(uint8_t *packet, const struct sl_dpdk_route *route,
                       const struct sl_dpdk_header *header);

static inline uint32_t sl_dpdk_route_bytes(const struct sl_dpdk_route *route)
{
    return route->outer_bytes + SL_DPDK_HEADER_BYTES;
}

/* Fills in the UDP checksum of what sl_dpdk_write wrote, once the body is there, but for its end
 * `rest`, which may be NULL with 0 bytes. length: of packet[], without rest. */
void sl_dpdk_seal(uint8_t *packet, uint32_t length, const uint8_t *tail, uint32_t tail_length);
/* The same where the body's sum (SACK words, rest and all) is known, from sl_dpdk_checksum_copy. */
void sl_dpdk_seal_sum(uint8_t *packet, uint64_t body_checksum);

/* What a received packet is. */
enum sl_dpdk_class {
    SL_DPDK_OURS,      /* UDP with our header: all of *out is filled. To whom, the caller looks */
    SL_DPDK_NEIGHBOUR, /* ARP, or ICMPv6 neighbour discovery; not checked further */
    SL_DPDK_NOT_OURS,  /* nothing to us: other protocols, fragments, options */
    SL_DPDK_MALFORMED  /* UDP, and a checksum, a length, a version, a kind or a flag is wrong */
};

struct sl_dpdk_parsed {
    struct sl_dpdk_header header;
    uint64_t sack[SL_DPDK_SACK_WORDS]; /* missing words are 0 */
    uint32_t sack_words;
    const uint8_t *body; /* behind the SACK words */
    uint32_t body_bytes;
    struct sl_dpdk_address from, to;
    const uint8_t *from_mac;
    /* BROKEN, where no more than the version is wrong: that. Then header, addresses and body, words
     * included, are filled. Else 0. */
    uint8_t version;
};

/* packet: as it was received, any length, any content. `checked`: the device has checked the UDP
 * checksum. A UDP checksum of 0 is BROKEN. */
enum sl_dpdk_class sl_dpdk_parse(const uint8_t *packet, uint32_t length, bool checked,
                                 struct sl_dpdk_parsed *out);

void sl_dpdk_hello_encode(const struct sl_dpdk_hello *hello, uint8_t to[SL_DPDK_HELLO_BYTES]);
/* Errors: PROTOCOL: too short, a body_max under SL_DPDK_BODY_MIN, an id of 0, queues that cannot be
 * (0 queues: what else is said of them is not looked at). */
int sl_dpdk_hello_decode(const uint8_t *body, uint32_t bytes, struct sl_dpdk_hello *out);

/* The Internet checksum (RFC 1071) of bytes that follow others whose sum is `sum` (0 at first): the
 * total is folded by sl_dpdk_checksum_fold, and stored as it stands. `sum_copy` copies on the way;
 * the two do not overlap. A piece that begins at an odd place, behind others of odd length
 * together, is summed by itself and added as sl_dpdk_checksum_odd has it. Sums of up to 2^28 pieces
 * may be added. */
uint64_t sl_dpdk_checksum(uint64_t checksum, const uint8_t *bytes, uint32_t length);
uint64_t sl_dpdk_checksum_copy(uint64_t checksum, uint8_t *to, const uint8_t *from,
                               uint32_t length);

/* Each half is added to the other, and what is carried out of the lower one into the upper: that is
 * the sum of both, modulo what they can count. */
static inline uint16_t sl_dpdk_checksum_fold(uint64_t checksum)
{
    checksum += checksum << 32 | checksum >> 32;
    uint32_t half = (uint32_t)(checksum >> 32);
    half += half << 16 | half >> 16;
    return (uint16_t) ~(half >> 16);
}

/* What a piece's sum counts when a byte stands before it. */
static inline uint64_t sl_dpdk_checksum_odd(uint64_t checksum)
{
    return (uint64_t)(uint16_t)~sl_dpdk_checksum_fold(checksum) << 8;
}

/* Sequence numbers and offsets run over: a before b. */
static inline bool sl_dpdk_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
