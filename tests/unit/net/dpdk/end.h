/* One end of a connection, driven by hand: a sending and a receiving half on a port that is not
 * there. What it sends is kept until the test looks at it; what it receives, the test makes. */
#ifndef SL_TESTS_UNIT_NET_DPDK_END_H
#define SL_TESTS_UNIT_NET_DPDK_END_H

#include "net/dpdk/receive.h"
#include "tests/support/unit.h"

#define END_BODY_MAX 1440U
#define END_FIRST    1000U /* number of the first packet that it sends */
#define END_FRAMES   4096U
#define END_PACKETS  512U /* that the port lends */

struct end_packet {
    uint32_t length;
    struct sl_dpdk_parsed parsed;
    uint8_t bytes[2048];
};

struct end_frame {
    struct sl_frame header;
    uint8_t *payload; /* a copy */
    struct sl_transport_message message;
};

struct end {
    struct sl_dpdk_port port; /* first */
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_dpdk *dpdk;
    struct sl_dpdk_conn *conn;
    /* The port. */
    uint32_t lent;                 /* packets that the transport has */
    uint32_t lends_max;            /* reserve gives no more */
    uint8_t flags;                 /* of the packets that end_take makes */
    uint32_t *reading[END_FRAMES]; /* what was sent from where it lies: counts, and what it was */
    struct {
        const uint8_t *at;
        uint8_t *copy;
        uint32_t bytes;
    } rests[END_FRAMES];
    uint32_t tail_count;
    struct end_packet *sent[END_FRAMES];
    uint32_t sent_count;
    uint64_t when_ns; /* as flush said last */
    /* The layer above. */
    struct end_frame frames[END_FRAMES];
    uint32_t frame_count;
    void *kept[END_FRAMES]; /* until end_close */
    uint32_t kept_count;
    bool holds; /* messages, instead of releasing them */
    void *cookies[END_FRAMES];
    uint32_t cookie_count, writables, asked;
    uint8_t *sink; /* for the next long frame; NULL: none now */
};

/* facts: of the port; NULL: one that does neither gather nor sum, and lends END_PACKETS. */
void end_open(struct end *end, const struct sl_dpdk_port_info *info);
/* All packets and blocks must be back. */
void end_close(struct end *end);

/* A frame of so many payload bytes whose content follows from `number`; the caller frees it. */
uint8_t *end_frame_make(uint32_t number, uint32_t payload_bytes);
void end_frame_check(const struct end_frame *frame, uint32_t number, uint32_t payload_bytes);

/* The same, of this number, which end_close frees, as it does what is kept. */
uint8_t *end_make(struct end *end, uint32_t number, uint32_t payload_bytes);
void *end_keep(struct end *end, void *memory);

/* Offers one frame, the last `apart` bytes of which are its payload; returns whether it was taken.
 */
bool end_offer(struct end *end, const uint8_t *frame, uint32_t bytes, uint32_t apart, void *cookie);

/* One that is made for it, all of it head. */
uint8_t *end_offer_made(struct end *end, uint32_t number, uint32_t payload_bytes, void *cookie);

/* Flushes, and parses what was sent. */
void end_flush(struct end *end);
/* The device has read all that it was given; nobody may have changed it meanwhile. */
void end_read_rests(struct end *end);
/* The n-th packet that was sent, and its header. */
const struct end_packet *end_sent(const struct end *end, uint32_t n);
void end_forget_sent(struct end *end);
/* The frame lies in a train at *at, which moves behind it. */
void end_expect_frame(const struct end_packet *packet, uint32_t *at, const uint8_t *frame,
                      uint32_t payload_bytes);

/* The peer says that it has all before `acknowledged`, and these beyond; returns what the sending
 * half does. */
bool end_acknowledge(struct end *end, uint32_t acknowledged, uint64_t sack, uint32_t granted);

/* A packet that comes, with this content: what the receiving half says of it. */
enum sl_dpdk_taken end_take(struct end *end, enum sl_dpdk_kind kind, uint32_t message,
                            uint32_t offset, const uint8_t *body, uint32_t bytes);
/* The n-th piece of a message that lies at `message_bytes` bytes of memory. */
enum sl_dpdk_taken end_take_piece(struct end *end, uint32_t message, const uint8_t *frame,
                                  uint32_t frame_bytes, uint32_t n);
void end_deliver(struct end *end);
void end_release(struct end *end, uint32_t n);

#endif
