/* What a loop transport is made of, for its two files: loop_transport.c has the connections and the
 * contract's slots, loop_message.c the messages, from the taking of a frame to its release. */
#ifndef SL_TESTS_SUPPORT_LOOP_MESSAGE_H
#define SL_TESTS_SUPPORT_LOOP_MESSAGE_H

#include "core/hash.h"
#include "tests/support/loop_transport.h"

#define LOOP_QUEUE_FRAMES      16 /* taken and not reported sent, of one connection */
#define LOOP_REGIONS_MAX       16
#define LOOP_REPLY_BUFFERS_MAX 32 /* of requests of one connection that are not answered */

struct loop_transport;

/* A frame on its way, whole. */
struct loop_message {
    struct loop_message *next;
    struct loop_transport *holder; /* delivered here and not released; NULL: on its way */
    uint8_t *rest;                 /* the frame's end, when it lies apart; else NULL */
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    uint32_t rest_bytes;   /* not of `bytes` */
    const uint8_t *landed; /* a device has written the payload there too, or NULL */
    uint32_t bytes;
    bool in_place;
    _Alignas(16) uint8_t data[];
};

/* Where a device writes the answer to a request of the peer. */
struct loop_reply_buffer {
    uint64_t request_id;
    uint8_t *at; /* NULL: the entry is free */
    uint32_t bytes;
};

struct loop_conn {
    struct sl_conn base;
    struct loop_reply_buffer reply_buffers[LOOP_REPLY_BUFFERS_MAX];
    struct loop_conn *next;
    struct loop_conn *peer; /* NULL: none yet, or gone */
    struct sl_endpoint target;
    struct sl_transport_frame queue[LOOP_QUEUE_FRAMES];
    uint32_t sent, carried, taken; /* counters, each <= the next <= sent + LOOP_QUEUE_FRAMES */
    struct loop_message *inbox_first, *inbox_last;
    struct loop_message *part; /* a frame for the inbox that has come in part, or NULL */
    uint32_t part_have;
    uint8_t head[SL_FRAME_HEADER_BYTES]; /* of the next frame, as far as it has come */
    uint32_t head_have;
    bool arriving;    /* `accepted` is due */
    bool short_taken; /* `writable` is due */
    bool peer_ended;  /* nothing more comes */
    bool handed_over; /* lives on in another object */
};

struct loop_region {
    const uint8_t *base;
    size_t bytes;
};

struct loop_transport {
    struct sl_transport base;
    struct loop_region regions[LOOP_REGIONS_MAX];
    struct sl_loop_network *network;
    struct loop_conn *conns, *buried; /* buried: closed, their memory still named by messages */
    struct loop_message *held;
};

static inline struct loop_transport *loop_of(struct sl_transport *transport)
{
    return (struct loop_transport *)transport;
}

static inline struct loop_conn *conn_of(struct sl_conn *conn)
{
    return (struct loop_conn *)conn;
}

static inline struct loop_transport *home_of(const struct loop_conn *conn)
{
    return loop_of(conn->base.transport);
}

/* 0 to count, as the seed has it. */
static inline uint32_t some_of(struct sl_loop_network *network, uint32_t count)
{
    return (uint32_t)(sl_hash_random(&network->random_state) % ((uint64_t)count + 1));
}

/* Copies the oldest frame, or frames in one piece, that was taken and not carried to the peer, as
 * it stands now. */
void sl_loop_message_carry(struct loop_conn *conn);

/* Copies the next bytes of the stream; nothing taken waits to be carried. */
void sl_loop_message_carry_now(struct loop_conn *conn, const uint8_t *bytes, uint32_t count);

/* Delivers the first message of the inbox, which is not empty. 1; 0: the receiver has nowhere to
 * put it yet; or what a stream with such bytes ends with. Upcalls may close the connection. */
int sl_loop_message_deliver(struct loop_conn *conn);

/* Drops what lies there and was not delivered. */
void sl_loop_message_empty_inbox(struct loop_conn *conn);

/* Of a message that was delivered, and kept until now. */
void sl_loop_message_release(struct loop_message *message);

/* The senders of what is read in its place write to it. */
void sl_loop_message_spoil(struct loop_transport *loop);

#endif
