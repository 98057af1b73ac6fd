/* What fault.c (the transport) and fault_conn.c (its connections) share. */
#ifndef SL_TESTS_SUPPORT_FAULT_TRANSPORT_INTERNAL_H
#define SL_TESTS_SUPPORT_FAULT_TRANSPORT_INTERNAL_H

#include "tests/support/fault_transport.h"

/* Of one connection, taken and not reported sent; a power of two. */
#define SL_FAULT_QUEUE_FRAMES 256

struct sl_fault_conn;

/* A frame that was taken from above. */
struct sl_fault_outgoing {
    struct sl_fault_conn *conn;
    void *cookie;
    uint32_t pending; /* how often the wrapped transport has it: 0, 1 or 2 */
};

/* A received message that is delivered later. */
struct sl_fault_held {
    struct sl_fault_held *next;
    uint64_t due_ns;
    struct sl_transport_message message;
};

struct sl_fault_conn {
    struct sl_conn base;
    struct sl_fault_conn *next;
    struct sl_conn *inner; /* stays when it has closed, for messages that are released later */
    bool inner_closed;
    int end_err; /* what `closed` will say, when it is not what the wrapped transport says */
    bool short_taken;
    bool cut;
    uint64_t cut_until_ns; /* when it is noticed */
    uint32_t first, end;   /* of queue, modulo SL_FAULT_QUEUE_FRAMES */
    struct sl_fault_outgoing queue[SL_FAULT_QUEUE_FRAMES];
    struct sl_fault_held *held_first, *held_last;
};

struct sl_fault_listener {
    struct sl_fault_listener *next;
    struct sl_fault_transport *fault;
    const struct sl_transport_events *events;
    void *ctx;
};

struct sl_fault_transport {
    struct sl_transport base;
    struct sl_reactor *reactor;
    const struct sl_fault_plan *plan;
    struct sl_transport *inner;
    uint64_t random_state;
    uint64_t peer_timeout_ns;
    struct sl_fault_conn *conns, *buried; /* buried: closed, but messages may still name them */
    struct sl_fault_listener *listeners;
    struct sl_timer wake; /* for the earliest held message */
    struct sl_fault_counts counts;
};

static inline struct sl_fault_transport *sl_fault_of(const struct sl_transport *transport)
{
    return (struct sl_fault_transport *)(uintptr_t)transport;
}

static inline struct sl_fault_conn *sl_fault_conn_of(struct sl_conn *conn)
{
    return (struct sl_fault_conn *)conn;
}

static inline struct sl_fault_transport *sl_fault_home_of(const struct sl_fault_conn *conn)
{
    return sl_fault_of(conn->base.transport);
}

static inline uint32_t sl_fault_queue_count(const struct sl_fault_conn *conn)
{
    return conn->end - conn->first;
}

/* NULL: no memory. */
struct sl_fault_conn *sl_fault_conn_create(struct sl_fault_transport *fault,
                                           const struct sl_transport_events *events, void *ctx);

/* Puts it around a connection of the wrapped transport, into the list of its own. */
void sl_fault_conn_link(struct sl_fault_conn *conn, struct sl_conn *inner);

/* Breaks the connection; `closed` with IO follows when the wrapped one is closed. */
void sl_fault_conn_break(struct sl_fault_conn *conn);

/* Breaks a connection that was cut, once it is time. True: it did. */
bool sl_fault_conn_notice_cut(struct sl_fault_conn *conn);

/* Gives the memory of messages that will not be delivered back. */
void sl_fault_conn_drop_held(struct sl_fault_conn *conn);

/* With end_err where that is set. */
void sl_fault_conn_report_closed(struct sl_fault_conn *conn, int err);

/* What the transport's poll does for it: each returns how many it reported. */
uint32_t sl_fault_conn_report_sent(struct sl_fault_conn *conn);
uint32_t sl_fault_conn_deliver_held(struct sl_fault_conn *conn);

/* The slot of that name. */
uint32_t sl_fault_conn_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                                  uint32_t count);

/* Of the wrapped transport; ctx is a listener's, else NULL. */
extern const struct sl_transport_events sl_fault_conn_events;

#endif
