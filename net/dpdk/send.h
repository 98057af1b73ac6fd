/* The sending half of a connection: what send.c, queue.c and train.c share. Owner reactor. */
#ifndef SL_NET_DPDK_SEND_H
#define SL_NET_DPDK_SEND_H

#include "core/clock.h"
#include "net/dpdk/internal.h"
#include "net/dpdk/ring.h"

/* How long is waited before a peer is asked whether it has granted more, at first. */
#define SL_DPDK_ASK_NS_MIN SL_CLOCK_NS_PER_MS

/* A frame that was taken, or several in a row (SL_TRANSPORT_MULTI_FRAME): the bytes of head, then
 * those of payload. */
struct sl_dpdk_entry {
    const uint8_t *head, *payload;
    uint32_t head_bytes, payload_bytes;
    void *cookie;
};

/* Where a frame begins among the entries. */
struct sl_dpdk_place {
    uint32_t entry; /* its index; runs over */
    uint32_t at;    /* bytes into it */
};

/* A message that was begun, as it was cut. */
struct sl_dpdk_message {
    struct sl_dpdk_place begin;
    uint32_t entries_end; /* entries before this one are whole when it has come */
    uint32_t pending;     /* packets of it that have not come, those included that were not made */
    uint32_t reading;     /* by the device, where it lies: its end in so many packets */
    bool gathers_head, gathers_payload; /* the entry's lies in memory that the device can read */
};

/* What is to be sent again. */
struct sl_dpdk_lost {
    uint32_t message, offset;
    uint16_t body_bytes;
    uint8_t kind; /* sl_dpdk_kind */
};

struct sl_dpdk_sending {
    uint32_t head, done, tail; /* entries: not reported; before `done` all has come; free */
    struct sl_dpdk_place next; /* the first frame that is not wholly in packets */
    uint32_t cut, cut_bytes;   /* of the message in pieces in progress: how far; in all, or 0 */
    uint32_t message_first;    /* the first that has not come whole */
    uint32_t message_next;     /* the next to be begun, or the one in progress plus one */
    uint32_t lost_head, lost_tail;
    bool wants_room; /* send_burst took fewer than it was offered */
    bool goes_on;    /* the next poll is to mark it dirty */
    bool probe_due, fin_due, moved_due;
    bool wide_due;       /* a probe as long as a packet of content may be */
    uint32_t wide_tries; /* how often such a one may be lost and is sent again at once */
    /* All that was sent has come, and more waits for a grant, of which the word may be lost: when
     * the peer is asked, 0: that is not so; and how long is waited before. */
    uint64_t ask_ns, ask_pause_ns;
    /* ring.h: at most SL_DPDK_QUEUE, SL_DPDK_MESSAGES, and as many as the flights' ring has: what
     * is lost goes before what is new, so that it is never more than flights were. */
    uint32_t entries_mask, messages_mask, lost_mask;
    struct sl_dpdk_entry *entries;
    struct sl_dpdk_message *messages;
    struct sl_dpdk_lost *lost;
};

static inline struct sl_dpdk_entry *sl_dpdk_entry_at(const struct sl_dpdk_sending *send,
                                                     uint32_t index)
{
    return &send->entries[index & send->entries_mask];
}

static inline struct sl_dpdk_message *sl_dpdk_message_at(const struct sl_dpdk_sending *send,
                                                         uint32_t number)
{
    return &send->messages[number & send->messages_mask];
}

static inline struct sl_dpdk_lost *sl_dpdk_lost_at(const struct sl_dpdk_sending *send,
                                                   uint32_t index)
{
    return &send->lost[index & send->lost_mask];
}

/* ---- queue.c --------------------------------------------------------------------------------- */

/* One more message may be begun: not too many, and there is memory. */
bool sl_dpdk_queue_takes_message(struct sl_dpdk_conn *conn);
/* All that is on its way may be lost. False: no memory for that. */
bool sl_dpdk_queue_takes_lost(struct sl_dpdk_conn *conn);
/* A packet of the message has come. */
void sl_dpdk_queue_came(struct sl_dpdk_conn *conn, uint32_t message);
/* Whether some entries can be reported, or might be as soon as the device has read them. */
bool sl_dpdk_queue_is_ready(struct sl_dpdk_sending *send);

/* ---- train.c --------------------------------------------------------------------------------- */

/* A body that is being written, and its sum where the device does not make it. */
struct sl_dpdk_body {
    uint8_t *to;
    uint32_t bytes;
    bool checksums;
    uint64_t checksum;
};

void sl_dpdk_body_add(struct sl_dpdk_body *body, const uint8_t *from, uint32_t bytes);

/* The frame that begins there, its header included. */
uint32_t sl_dpdk_frame_bytes(struct sl_dpdk_sending *send, const struct sl_dpdk_place *place);

/* Whole frames from *place on, as many as there are and fit into `room`; *place moves behind them.
 * Returns how many. */
uint32_t sl_dpdk_bundle_fill(struct sl_dpdk_sending *send, struct sl_dpdk_place *place,
                             struct sl_dpdk_body *body, uint32_t room);

/* `bytes` of an entry from `at` on, copied. */
void sl_dpdk_piece_fill(const struct sl_dpdk_entry *entry, uint32_t at, struct sl_dpdk_body *body,
                        uint32_t bytes);

/* place moves behind a frame of so many bytes. */
void sl_dpdk_place_pass(struct sl_dpdk_sending *send, struct sl_dpdk_place *place, uint32_t bytes);

#endif
