#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "tests/support/fault_transport_internal.h"

/* Whether a fault of this share befalls the frame at hand. */
static bool befalls(struct sl_fault_transport *fault, uint32_t share)
{
    return share != 0 && sl_hash_random(&fault->random_state) % SL_FAULT_PER_FRAME < share;
}

/* ---- Connections ----------------------------------------------------------------------------- */

struct sl_fault_conn *sl_fault_conn_create(struct sl_fault_transport *fault,
                                           const struct sl_transport_events *events, void *ctx)
{
    struct sl_fault_conn *conn = calloc(1, sizeof *conn);
    if (conn != NULL) {
        sl_conn_init(&conn->base, &fault->base, events, ctx);
    }
    return conn;
}

void sl_fault_conn_link(struct sl_fault_conn *conn, struct sl_conn *inner)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    conn->inner = inner;
    conn->next = fault->conns;
    fault->conns = conn;
    inner->user = conn;
    memcpy(conn->base.peer, inner->peer, sizeof conn->base.peer);
}

/* Gives the memory of messages that will not be delivered back. */
void sl_fault_conn_drop_held(struct sl_fault_conn *conn)
{
    while (conn->held_first != NULL) {
        struct sl_fault_held *held = conn->held_first;
        conn->held_first = held->next;
        sl_transport_release(conn->inner, &held->message);
        free(held);
    }
    conn->held_last = NULL;
}

void sl_fault_conn_report_closed(struct sl_fault_conn *conn, int err)
{
    sl_fault_conn_drop_held(conn);
    sl_conn_report_closed(&conn->base, conn->end_err != SL_OK ? conn->end_err : err);
}

static void break_with(struct sl_fault_conn *conn, int err)
{
    conn->end_err = err;
    conn->base.state = SL_CONN_CLOSING;
    if (!conn->inner_closed) {
        sl_transport_disconnect(conn->inner);
    }
}

/* Breaks the connection; `closed` with IO follows when the wrapped one is closed. */
void sl_fault_conn_break(struct sl_fault_conn *conn)
{
    break_with(conn, SL_ERR_IO);
}

static void wake_at(struct sl_fault_transport *fault, uint64_t due_ns)
{
    if (!sl_timer_armed(&fault->wake) || fault->wake.due_ns > due_ns) {
        sl_timer_arm(sl_reactor_timers(fault->reactor), &fault->wake, due_ns);
    }
}

static void cut(struct sl_fault_conn *conn)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    fault->counts.cut++;
    conn->cut = true;
    conn->cut_until_ns = sl_reactor_now_ns(fault->reactor) + fault->peer_timeout_ns;
    wake_at(fault, conn->cut_until_ns);
}

bool sl_fault_conn_notice_cut(struct sl_fault_conn *conn)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    if (!conn->cut || conn->base.state != SL_CONN_OPEN) {
        return false;
    }
    if (sl_reactor_now_ns(fault->reactor) < conn->cut_until_ns) {
        wake_at(fault, conn->cut_until_ns);
        return false;
    }
    break_with(conn, SL_ERR_DEADLINE);
    return true;
}

/* Reports frames as sent in the order of sending: each waits for those before it. */
uint32_t sl_fault_conn_report_sent(struct sl_fault_conn *conn)
{
    uint32_t count = 0;
    while (sl_fault_queue_count(conn) != 0 &&
           conn->queue[conn->first % SL_FAULT_QUEUE_FRAMES].pending == 0 &&
           conn->base.state != SL_CONN_CLOSED) {
        void *cookie = conn->queue[conn->first++ % SL_FAULT_QUEUE_FRAMES].cookie;
        sl_conn_report_sent(&conn->base, cookie);
        count++;
    }
    return count;
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool may_lose(const struct sl_fault_transport *fault, const struct sl_transport_frame *frame)
{
    if (fault->plan->may_lose == NULL) {
        return false;
    }
    struct sl_frame header;
    memcpy(&header, frame->head, sizeof header);
    return fault->plan->may_lose(&header);
}

/* Hands one frame on, or does what the plan has for it. False: not taken. */
static bool take(struct sl_fault_conn *conn, const struct sl_transport_frame *frame)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    struct sl_fault_outgoing *outgoing = &conn->queue[conn->end % SL_FAULT_QUEUE_FRAMES];
    *outgoing = (struct sl_fault_outgoing){.conn = conn, .cookie = frame->cookie};
    struct sl_transport_frame offered = *frame;
    offered.cookie = outgoing;
    bool loses = may_lose(fault, frame);
    if (!conn->cut && befalls(fault, fault->plan->cut)) {
        cut(conn);
    }
    if (conn->cut) {
        outgoing->pending = 1; /* for ever: the cable does not give it back */
    } else if (befalls(fault, fault->plan->truncate)) {
        fault->counts.truncated++;
        sl_fault_conn_break(conn);
    } else if (loses && befalls(fault, fault->plan->drop)) {
        fault->counts.dropped++;
    } else {
        outgoing->pending = sl_transport_send_burst(conn->inner, &offered, 1);
        if (outgoing->pending == 0) {
            return false;
        }
        if (loses && befalls(fault, fault->plan->duplicate) &&
            sl_transport_send_burst(conn->inner, &offered, 1) == 1) {
            fault->counts.duplicated++;
            outgoing->pending++;
        }
    }
    conn->end++;
    return true;
}

uint32_t sl_fault_conn_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                                  uint32_t count)
{
    struct sl_fault_conn *conn = sl_fault_conn_of(base);
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    uint32_t taken = 0;
    if (!conn->inner_closed) {
        conn->inner->is_welcome = base->is_welcome;
    }
    while (taken < count && base->state == SL_CONN_OPEN && !conn->inner_closed) {
        if (befalls(fault, fault->plan->take_short)) {
            fault->counts.taken_short++;
            conn->short_taken = true;
            break;
        }
        if (sl_fault_queue_count(conn) == SL_FAULT_QUEUE_FRAMES) {
            conn->short_taken = true;
            break;
        }
        if (!take(conn, &frames[taken])) {
            break; /* the wrapped transport's `writable` will come */
        }
        taken++;
    }
    return taken;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static void hold(struct sl_fault_conn *conn, const struct sl_transport_message *message,
                 uint64_t delay_ns)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    struct sl_fault_held *held = malloc(sizeof *held);
    sl_assert(held != NULL); /* a tool for tests: no memory ends them */
    uint64_t due_ns = sl_reactor_now_ns(fault->reactor) + delay_ns;
    *held = (struct sl_fault_held){.due_ns = due_ns, .message = *message};
    if (conn->held_last == NULL) {
        conn->held_first = held;
    } else {
        conn->held_last->next = held;
    }
    conn->held_last = held;
    wake_at(fault, due_ns);
}

/* Delivers what is due; keeps the order, so one that is not holds up those behind it. */
uint32_t sl_fault_conn_deliver_held(struct sl_fault_conn *conn)
{
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    uint64_t now_ns = sl_reactor_now_ns(fault->reactor);
    uint32_t count = 0;
    while (conn->held_first != NULL && conn->base.state == SL_CONN_OPEN) {
        struct sl_fault_held *held = conn->held_first;
        if (held->due_ns > now_ns) {
            wake_at(fault, held->due_ns);
            break;
        }
        conn->held_first = held->next;
        if (conn->held_first == NULL) {
            conn->held_last = NULL;
        }
        struct sl_transport_message message = held->message;
        free(held);
        sl_conn_report_received(&conn->base, &message);
        count++;
    }
    return count;
}

static void on_received(void *ctx, struct sl_conn *inner,
                        const struct sl_transport_message *message)
{
    (void)ctx;
    struct sl_fault_conn *conn = inner->user;
    struct sl_fault_transport *fault = sl_fault_home_of(conn);
    if (conn->base.state != SL_CONN_OPEN || conn->cut) {
        sl_transport_release(inner, message);
        return;
    }
    if (befalls(fault, fault->plan->fail)) {
        fault->counts.failed++;
        sl_transport_release(inner, message);
        sl_fault_conn_break(conn);
        return;
    }
    bool late = message->header.type != SL_FRAME_CONTROL && fault->plan->delay_us_max != 0 &&
                befalls(fault, fault->plan->delay);
    if (late) {
        fault->counts.delayed++;
        uint64_t delay_us = 1 + sl_hash_random(&fault->random_state) % fault->plan->delay_us_max;
        hold(conn, message, delay_us * SL_CLOCK_NS_PER_US);
    } else if (conn->held_first != NULL) {
        hold(conn, message, 0);
    } else {
        sl_conn_report_received(&conn->base, message);
    }
}

/* While messages are held back nobody above expects to be asked about a later one. */
static void *on_sink(void *ctx, struct sl_conn *inner, const struct sl_frame *header)
{
    (void)ctx;
    struct sl_fault_conn *conn = inner->user;
    if (conn->base.state != SL_CONN_OPEN || conn->cut || conn->held_first != NULL) {
        return NULL;
    }
    return sl_conn_ask_sink(&conn->base, header);
}

/* ---- The wrapped transport's other upcalls ----------------------------------------------------
 */

static void on_accepted(void *ctx, struct sl_conn *inner)
{
    struct sl_fault_conn *conn = inner->user; /* set when it was handed over */
    if (conn == NULL) {
        struct sl_fault_listener *listener = ctx;
        conn = sl_fault_conn_create(listener->fault, listener->events, listener->ctx);
        sl_assert(conn != NULL);
    }
    sl_fault_conn_link(conn, inner);
    sl_conn_report_accepted(&conn->base);
}

static void on_connected(void *ctx, struct sl_conn *inner)
{
    (void)ctx;
    struct sl_fault_conn *conn = inner->user;
    memcpy(conn->base.peer, inner->peer, sizeof conn->base.peer);
    if (conn->base.state == SL_CONN_CONNECTING) {
        sl_conn_report_connected(&conn->base);
    }
}

static void on_sent(void *ctx, struct sl_conn *inner, void *cookie)
{
    (void)ctx;
    (void)inner;
    struct sl_fault_outgoing *outgoing = cookie;
    outgoing->pending--;
    (void)sl_fault_conn_report_sent(outgoing->conn);
}

static void on_writable(void *ctx, struct sl_conn *inner)
{
    (void)ctx;
    struct sl_fault_conn *conn = inner->user;
    conn->short_taken = true; /* poll reports it */
}

static void on_closed(void *ctx, struct sl_conn *inner, int err)
{
    (void)ctx;
    struct sl_fault_conn *conn = inner->user;
    conn->inner_closed = true;
    if (conn->held_first != NULL && conn->base.state == SL_CONN_OPEN && err == SL_ERR_CLOSED) {
        conn->end_err = err; /* after what came before the end */
        return;
    }
    sl_fault_conn_report_closed(conn, err);
}

const struct sl_transport_events sl_fault_conn_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};
