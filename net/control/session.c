#include "net/control/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/control/session_internal.h"

#define BACK_OFF_MIN_NS (50 * SL_CLOCK_NS_PER_MS)
#define BACK_OFF_MAX_NS (1 * SL_CLOCK_NS_PER_S)
#define REPORT_NS       (3 * SL_CLOCK_NS_PER_S)

static const struct sl_transport_events transport_events;

static struct sl_reactor *reactor_of(const struct sl_session *session)
{
    return session->options.transport->reactor;
}

static void arm(struct sl_session *session, struct sl_timer *timer, uint64_t wait_ns)
{
    uint64_t now_ns = sl_reactor_now_ns(reactor_of(session));
    uint64_t due_ns = wait_ns < SL_CLOCK_NEVER - now_ns ? now_ns + wait_ns : SL_CLOCK_NEVER;
    sl_timer_arm(sl_reactor_timers(reactor_of(session)), timer, due_ns);
}

static void disarm_all(struct sl_session *session)
{
    struct sl_timer_wheel *timers = sl_reactor_timers(reactor_of(session));
    sl_timer_disarm(timers, &session->retry);
    sl_timer_disarm(timers, &session->report);
    sl_timer_disarm(timers, &session->start_deadline);
}

/* ---- Life and death -------------------------------------------------------------------------- */

void sl_session_enter(struct sl_session *session)
{
    session->in_use++;
}

void sl_session_leave(struct sl_session *session)
{
    sl_assert(session->in_use > 0);
    session->in_use--;
    if (session->in_use == 0 && session->abandoned && session->conn == NULL) {
        sl_assert(session->requests == NULL);
        free(session->control_memory);
        free(session);
    }
}

/* No more of it: the timers stop, the connection closes, who waits for an answer is told. */
static void shut(struct sl_session *session, int err, const char *reason)
{
    session->state = SL_SESSION_ENDED;
    disarm_all(session);
    if (session->conn != NULL) {
        sl_transport_disconnect(session->conn);
    }
    sl_session_request_fail_all(session, err, reason);
}

void sl_session_end(struct sl_session *session, int err, const char *reason)
{
    if (session->state == SL_SESSION_ENDED) {
        return;
    }
    sl_session_enter(session);
    shut(session, err, reason);
    if (!session->abandoned) {
        session->options.events->closed(session->options.ctx, session, err, reason);
    }
    sl_session_leave(session);
}

static void end_because(struct sl_session *session, int err, const char *why)
{
    char reason[SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s (%s): %s", session->peer_name, session->peer, why);
    sl_session_end(session, err, reason);
}

/* ---- Attempts to connect --------------------------------------------------------------------- */

static void set_obstacle(struct sl_session *session, const char *what)
{
    (void)snprintf(session->obstacle, sizeof session->obstacle, "%s", what);
}

static const char *obstacle_name(int err)
{
    switch (err) {
    case SL_ERR_REFUSED:
        return "refused: nobody listens there yet";
    case SL_ERR_DEADLINE:
        return "no answer from the host";
    case SL_ERR_CLOSED:
        return "it closes the connection before its welcome";
    default:
        return sl_err_name(err);
    }
}

/* Doubles the pause up to its maximum; the jitter, up to half of it, keeps those who failed
 * together from coming back together. */
static void pause_and_retry(struct sl_session *session)
{
    session->state = SL_SESSION_PAUSING;
    uint64_t jitter_ns = sl_reactor_random(reactor_of(session)) % (session->back_off_ns / 2);
    arm(session, &session->retry, session->back_off_ns + jitter_ns);
    session->back_off_ns *= 2;
    if (session->back_off_ns > BACK_OFF_MAX_NS) {
        session->back_off_ns = BACK_OFF_MAX_NS;
    }
}

/* The endpoint with its host as a numeric address. */
static int resolve(struct sl_session *session, struct sl_endpoint *out)
{
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int err = sl_endpoint_resolve(&session->options.endpoint, false, &address, &address_bytes,
                                  session->obstacle, sizeof session->obstacle);
    if (err != SL_OK) {
        return err;
    }
    err = sl_endpoint_from_sockaddr(&address, out);
    if (err != SL_OK) {
        set_obstacle(session, "its address is of a family that is not supported");
        return err;
    }
    out->scheme = session->options.endpoint.scheme;
    return SL_OK;
}

static void attempt(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_session *session = (void *)((char *)timer - offsetof(struct sl_session, retry));
    struct sl_endpoint numeric;
    if (resolve(session, &numeric) != SL_OK) {
        pause_and_retry(session);
        return;
    }
    int err = sl_transport_connect(session->options.transport, &numeric, &transport_events, NULL,
                                   session, &session->conn);
    if (err != SL_OK) {
        session->conn = NULL;
        set_obstacle(session, obstacle_name(err));
        pause_and_retry(session);
        return;
    }
    session->state = SL_SESSION_CONNECTING;
}

static void report(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = (void *)((char *)timer - offsetof(struct sl_session, report));
    const char *what =
        session->state == SL_SESSION_GREETING ? "waiting for the welcome of" : "cannot reach";
    uint64_t left_ns = session->deadline_ns > now_ns ? session->deadline_ns - now_ns : 0;
    sl_log_info("%s %s at %s%s%s; giving up in %llu s", what, session->peer_name, session->peer,
                session->obstacle[0] == '\0' ? "" : ": ", session->obstacle,
                left_ns / SL_CLOCK_NS_PER_S);
    arm(session, &session->report, REPORT_NS);
}

static void start_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session =
        (void *)((char *)timer - offsetof(struct sl_session, start_deadline));
    const char *what =
        session->state == SL_SESSION_GREETING ? "was not welcomed by" : "could not reach";
    char reason[2 * SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s %s at %s within %llu ms%s%s", what,
                   session->peer_name, session->peer,
                   (now_ns - session->opened_ns) / SL_CLOCK_NS_PER_MS,
                   session->obstacle[0] == '\0' ? "" : ": ", session->obstacle);
    sl_session_end(session, SL_ERR_DEADLINE, reason);
}

/* ---- Messages -------------------------------------------------------------------------------- */

int sl_session_send(struct sl_session *session, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    sl_assert(bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    uint8_t *room = sl_outbox_reserve(session->options.outbox, (uint32_t)bytes);
    if (room == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    sl_outbox_commit(session->options.outbox, session->conn, &session->queue, &frame, NULL, 0, NULL,
                     NULL);
    return SL_OK;
}

void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting)
{
    char *names = session->waited_for;
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < waiting->missing_count; i++) {
        int more = snprintf(names + used, sizeof session->waited_for - used, "%s%s",
                            i == 0 ? "" : ", ", waiting->missing[i]);
        used += (size_t)more;
        sl_assert(used < sizeof session->waited_for);
    }
    sl_log_info("waiting for %s (says %s)", used == 0 ? "others" : names, session->peer_name);
}

static void end_by_version(struct sl_session *session, uint32_t version, const char *software)
{
    char why[128];
    (void)snprintf(why, sizeof why,
                   "it speaks protocol version %" PRIu32 "%s%.40s, this program version %d",
                   version, software[0] == '\0' ? "" : " as ", software, SL_FRAME_PROTOCOL_VERSION);
    end_because(session, SL_ERR_VERSION, why);
}

static void welcome(struct sl_session *session, const struct sl_message_welcome *message)
{
    if (message->protocol_version != SL_FRAME_PROTOCOL_VERSION) {
        end_by_version(session, message->protocol_version, message->software);
        return;
    }
    if (session->options.hello.purpose == SL_MESSAGE_PURPOSE_DATA && message->shard_count == 0) {
        end_because(session, SL_ERR_PROTOCOL, "its welcome names no shard");
        return;
    }
    session->state = SL_SESSION_WELCOMED;
    disarm_all(session);
    session->options.events->welcomed(session->options.ctx, session, message);
}

static void greeted(struct sl_session *session, const struct sl_message *message)
{
    switch (message->kind) {
    case SL_MESSAGE_WELCOME:
        welcome(session, &message->welcome);
        break;
    case SL_MESSAGE_WAITING:
        sl_session_note_waiting(session, &message->waiting);
        break;
    case SL_MESSAGE_ERROR: {
        char why[SL_MESSAGE_TEXT_BYTES + 32];
        (void)snprintf(why, sizeof why, "it refuses this process: %s", message->error.text);
        end_because(session, message->error.err, why);
        break;
    }
    default:
        end_because(session, SL_ERR_PROTOCOL, "its first message is no welcome");
        break;
    }
}

static void control_received(struct sl_session *session, struct sl_conn *conn,
                             const struct sl_transport_message *frame)
{
    struct sl_message message;
    int err = sl_message_decode(frame->payload, frame->header.payload_bytes, &message);
    sl_transport_release(conn, frame);
    free(session->control_memory);
    session->control_memory = NULL;
    if (err != SL_OK) {
        end_because(session, err, "it sent a control message that is malformed");
        return;
    }
    if (session->state == SL_SESSION_GREETING) {
        greeted(session, &message);
    } else {
        sl_session_request_answered(session, &message);
    }
    sl_message_fini(&message);
}

/* ---- The transport's upcalls ----------------------------------------------------------------- */

static bool takes_data(const struct sl_session *session)
{
    return session->state == SL_SESSION_WELCOMED &&
           session->options.hello.purpose == SL_MESSAGE_PURPOSE_DATA;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    if (session->state != SL_SESSION_CONNECTING) {
        return; /* ended meanwhile; `closed` follows */
    }
    session->state = SL_SESSION_GREETING;
    set_obstacle(session, "");
    struct sl_message message = {.kind = SL_MESSAGE_HELLO, .hello = session->options.hello};
    if (sl_session_send(session, &message) != SL_OK) {
        set_obstacle(session, "outgoing buffers are full");
        sl_transport_disconnect(conn); /* `closed` then tries again */
    }
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    if (session->state == SL_SESSION_ENDED) {
        return NULL;
    }
    if (header->type == SL_FRAME_CONTROL) {
        free(session->control_memory);
        session->control_memory = malloc(header->payload_bytes);
        return session->control_memory;
    }
    if (header->type == SL_FRAME_REPLY && takes_data(session)) {
        sl_session_enter(session);
        void *memory = session->options.events->sink(session->options.ctx, session, header);
        sl_session_leave(session);
        return memory;
    }
    end_because(session, SL_ERR_PROTOCOL, "it sent a frame that does not belong here");
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    uint8_t type = message->header.type;
    if (session->state == SL_SESSION_ENDED) {
        sl_transport_release(conn, message);
        return;
    }
    sl_session_enter(session);
    if (message->header.version != SL_FRAME_PROTOCOL_VERSION) {
        sl_transport_release(conn, message);
        end_by_version(session, message->header.version, "");
    } else if (sl_frame_verify(&message->header, message->payload) != SL_OK) {
        sl_transport_release(conn, message);
        end_because(session, SL_ERR_CORRUPT, "it sent a frame with a wrong checksum");
    } else if (type == SL_FRAME_CONTROL) {
        control_received(session, conn, message);
    } else if ((type == SL_FRAME_REPLY || type == SL_FRAME_CREDIT) && takes_data(session)) {
        session->options.events->received(session->options.ctx, session, message);
    } else {
        sl_transport_release(conn, message);
        end_because(session, SL_ERR_PROTOCOL, "it sent a frame that does not belong here");
    }
    sl_session_leave(session);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    sl_outbox_sent(session->options.outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    sl_outbox_writable(session->options.outbox, conn, &session->queue);
    if (session->state == SL_SESSION_WELCOMED && session->options.events->writable != NULL) {
        sl_session_enter(session);
        session->options.events->writable(session->options.ctx, session);
        sl_session_leave(session);
    }
}

/* Whether an end before the welcome may be followed by a better attempt: the peer is starting, or
 * starting anew. What is no Starling at all, or another version of it, will not change. */
static bool may_change(int err)
{
    return err != SL_ERR_VERSION && err != SL_ERR_PROTOCOL && err != SL_ERR_TOO_LARGE &&
           err != SL_ERR_CANCELLED;
}

static void closed_early(struct sl_session *session, int err)
{
    if (may_change(err)) {
        if (session->obstacle[0] == '\0' || session->state == SL_SESSION_CONNECTING) {
            set_obstacle(session, obstacle_name(err));
        }
        pause_and_retry(session);
    } else if (err == SL_ERR_VERSION) {
        char why[96];
        (void)snprintf(why, sizeof why,
                       "it does not speak protocol version %d, the only one this program speaks",
                       SL_FRAME_PROTOCOL_VERSION);
        end_because(session, err, why);
    } else if (err == SL_ERR_CANCELLED) {
        end_because(session, err, "given up");
    } else {
        end_because(session, err, "what answers there does not speak Starling's protocol");
    }
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)ctx;
    struct sl_session *session = conn->user;
    sl_session_enter(session);
    session->conn = NULL;
    sl_outbox_closed(session->options.outbox, conn, &session->queue);
    free(session->control_memory);
    session->control_memory = NULL;
    if (session->state == SL_SESSION_WELCOMED) {
        char why[64];
        (void)snprintf(why, sizeof why, "the connection ended: %s", sl_err_name(err));
        end_because(session, err == SL_OK ? SL_ERR_CLOSED : err, why);
    } else if (session->state != SL_SESSION_ENDED) {
        closed_early(session, err);
    }
    sl_session_leave(session);
}

static const struct sl_transport_events transport_events = {
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- For the owner --------------------------------------------------------------------------- */

static void check_options(const struct sl_session_options *options)
{
    sl_assert(options->transport != NULL);
    sl_assert(options->outbox != NULL);
    sl_assert(options->events != NULL);
    sl_assert(options->events->welcomed != NULL);
    sl_assert(options->events->closed != NULL);
    sl_assert(options->peer_name != NULL);
    sl_assert(options->start_timeout_ns > 0);
    if (options->hello.purpose == SL_MESSAGE_PURPOSE_DATA) {
        sl_assert(options->events->received != NULL);
        sl_assert(options->events->sink != NULL);
    }
    sl_reactor_assert_owner(options->transport->reactor);
}

int sl_session_open(const struct sl_session_options *options, struct sl_session **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    check_options(options);
    struct sl_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    session->options = *options;
    session->options.hello.protocol_version = SL_FRAME_PROTOCOL_VERSION;
    (void)snprintf(session->options.hello.software, sizeof session->options.hello.software,
                   "starling %s", STARLING_VERSION);
    (void)snprintf(session->peer_name, sizeof session->peer_name, "%s", options->peer_name);
    session->options.peer_name = session->peer_name;
    sl_endpoint_format(&options->endpoint, session->peer, sizeof session->peer);
    session->next_id = 1;
    session->back_off_ns = BACK_OFF_MIN_NS;
    session->opened_ns = sl_reactor_now_ns(reactor_of(session));
    session->deadline_ns = session->opened_ns + options->start_timeout_ns;
    session->retry.run = attempt;
    session->report.run = report;
    session->start_deadline.run = start_deadline_passed;
    session->state = SL_SESSION_PAUSING;
    arm(session, &session->retry, 0); /* the first attempt: no event comes before this returns */
    arm(session, &session->report, REPORT_NS);
    arm(session, &session->start_deadline, options->start_timeout_ns);
    *out = session;
    return SL_OK;
}

void sl_session_close(struct sl_session **session)
{
    sl_assert(session != NULL);
    struct sl_session *closing = *session;
    if (closing == NULL) {
        return;
    }
    sl_reactor_assert_owner(reactor_of(closing));
    *session = NULL;
    sl_session_enter(closing);
    closing->abandoned = true;
    if (closing->state == SL_SESSION_WELCOMED) {
        /* Best effort: a peer that hears no goodbye sees the connection end all the same. */
        struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
        (void)sl_session_send(closing, &goodbye);
    }
    if (closing->state != SL_SESSION_ENDED) {
        shut(closing, SL_ERR_CANCELLED, "closed");
    }
    /* Closed from inside an answer while the others are being told of the end. */
    sl_session_request_fail_all(closing, SL_ERR_CANCELLED, "closed");
    sl_session_leave(closing);
}

struct sl_conn *sl_session_conn(struct sl_session *session)
{
    sl_assert(session != NULL);
    return session->state == SL_SESSION_WELCOMED ? session->conn : NULL;
}

struct sl_outbox_queue *sl_session_queue(struct sl_session *session)
{
    sl_assert(session != NULL);
    return &session->queue;
}

const char *sl_session_peer_name(const struct sl_session *session)
{
    sl_assert(session != NULL);
    return session->peer_name;
}
