/* The send queue of a connection: frames, the messages that were cut from them, and lost content.
 * Owner reactor. */
#ifndef SL_NET_DPDK_SEND_QUEUE_H
#define SL_NET_DPDK_SEND_QUEUE_H

#include "core/clock.h"
#include "net/dpdk/ring.h"
#include "net/dpdk/state.h"

/* Initial wait before the peer is asked whether it has granted more. */
#define SL_DPDK_ASK_NS_MIN SL_CLOCK_NS_PER_MS

/* A queued frame, or several in a row (SL_TRANSPORT_MULTI_FRAME): the bytes of head, then those of
 * payload. */
struct sl_dpdk_entry {
    const uint8_t *head, *payload;
    uint32_t head_bytes, payload_bytes;
    void *cookie;
};

/* The position of a frame among the entries. */
struct sl_dpdk_place {
    uint32_t entry; /* index; wraps around */
    uint32_t at;    /* byte offset in the entry */
};

/* A message and how it was cut into packets. */
struct sl_dpdk_message {
    struct sl_dpdk_place begin;
    uint32_t
        entries_end;  /* entries before this one are complete when the message is acknowledged */
    uint32_t pending; /* packets not acknowledged yet, including those not yet built */
    uint32_t reading; /* packets whose tail the device still reads in place */
    bool gathers_head, gathers_payload; /* the entry's memory is registered with the device */
};

/* Content to retransmit. */
struct sl_dpdk_lost {
    uint32_t message, offset;
    uint16_t body_bytes;
    uint8_t kind; /* sl_dpdk_kind */
};

struct sl_dpdk_sending {
    uint32_t head, done, tail; /* entry indices: head: oldest not reported; before `done`: all
                                  acknowledged; tail: first free */
    struct sl_dpdk_place next; /* the first frame that is not completely in packets */
    uint32_t cut, cut_bytes;   /* of the message that is being cut: bytes done and total; 0: none */
    uint32_t message_first;    /* the first that is not completely acknowledged */
    uint32_t message_next;     /* the number of the next message */
    uint32_t lost_head, lost_tail;
    bool wants_room; /* send_burst took fewer frames than offered */
    bool goes_on;    /* the next poll marks the connection dirty */
    struct {
        bool probe, fin;
        bool wide;           /* a full-size probe */
        uint32_t wide_tries; /* remaining immediate retransmissions of a lost full-size probe */
    } due;
    /* All sent content is acknowledged, and more waits for a grant, whose update may be lost.
     * ask_ns: when the peer is asked; 0: not waiting. ask_pause_ns: the current wait. */
    uint64_t ask_ns, ask_pause_ns;
    /* Rings (ring.h) of at most SL_DPDK_QUEUE and SL_DPDK_MESSAGES items. `lost` has as many as the
     * ring of sent_packets: lost content is sent before new content, so that it never exceeds that.
     */
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

int sl_dpdk_send_open(struct sl_dpdk_conn *conn);
void sl_dpdk_send_close(struct sl_dpdk_conn *conn); /* drops queued frames without an upcall */

/* Frees memory that an idle connection no longer needs. */
void sl_dpdk_send_shrink(struct sl_dpdk_conn *conn);
uint32_t sl_dpdk_send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                            uint32_t count);
/* The peer delivered everything before our FIN: mark all packets as acknowledged, also those whose
 * content arrived under other numbers. The connection is ending. */
void sl_dpdk_send_all_came(struct sl_dpdk_conn *conn);
void sl_dpdk_send_report(struct sl_dpdk_conn *conn); /* reports `sent` and `writable` */
/* Whether the device still reads sent memory; `closed` waits for that. */
bool sl_dpdk_send_is_reading(const struct sl_dpdk_conn *conn);
bool sl_dpdk_send_is_done(const struct sl_dpdk_conn *conn); /* nothing is queued or outstanding */
/* A number that changes when new content is sent or a message is acknowledged. */
uint32_t sl_dpdk_send_progress(const struct sl_dpdk_conn *conn);

/* Whether another message can begin: the limit is not reached, and there is memory. */
bool sl_dpdk_queue_takes_message(struct sl_dpdk_conn *conn);
/* Makes room to record all packets in flight as lost. False: no memory. */
bool sl_dpdk_queue_takes_lost(struct sl_dpdk_conn *conn);
/* A packet of the message was acknowledged. */
void sl_dpdk_queue_came(struct sl_dpdk_conn *conn, uint32_t message);
/* Whether entries can be reported, perhaps only when the device has read them. */
bool sl_dpdk_queue_is_ready(struct sl_dpdk_sending *send);

#endif
