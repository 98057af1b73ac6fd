#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "net/session/session_internal.h"

#define REPORT_NS     (3 * SL_CLOCK_NS_PER_S)
#define REPORT_MAX_NS (60 * SL_CLOCK_NS_PER_S)
/* A deadline that is farther away is not logged. */
#define NO_END_NS     (UINT64_C(1000) * 86400 * SL_CLOCK_NS_PER_S)

static const struct sl_transport_events transport_events;

/* Attempts to connect */

static struct sl_transport *transport_in_use(const struct sl_session *session)
{
    return session->path.is_preferred ? session->options.preferred.transport
                                      : session->options.transport;
}

static const char *last_error_name(const struct sl_session *session, int err)
{
    switch (err) {
    case SL_ERR_REFUSED:
        return session->path.is_preferred ? "refused"
               : session->options.transport->secure
                   ? "refused: no process listens there yet, or TLS failed, as the log says then"
                   : "refused: no process listens there yet";
    case SL_ERR_DEADLINE:
        return "no answer from the host";
    case SL_ERR_CLOSED:
        return "it closes the connection before its welcome";
    case SL_ERR_NOT_FOUND:
        return "this host has no way to the address, or lacks that to connect from";
    default:
        return sl_err_name(err);
    }
}

void sl_session_take_path(struct sl_session *session, bool preferred)
{
    session->path.is_preferred = preferred;
    session->path.endpoint =
        preferred ? session->options.preferred.endpoint : session->options.endpoint;
    session->path.outbox = preferred ? session->options.preferred.outbox : session->options.outbox;
    sl_endpoint_format(&session->path.endpoint, session->path.text, sizeof session->path.text);
}

/* After a failed attempt: selects the next candidate endpoint. */
static void choose_place(struct sl_session *session)
{
    if (session->options.follows && session->candidate.next == SL_SESSION_NEXT_CANDIDATE) {
        session->candidate.place =
            (session->candidate.place + 1) % (session->options.other_count + 1);
        session->options.endpoint = session->candidate.place == 0
                                        ? session->candidate.first
                                        : session->options.others[session->candidate.place - 1];
    }
    session->candidate.next = SL_SESSION_NEXT_CANDIDATE;
}

static void pause_and_retry(struct sl_session *session)
{
    session->state = SL_SESSION_PAUSING;
    choose_place(session);
    sl_session_arm(session, &session->retry.timer,
                   sl_backoff_next(&session->retry.backoff, sl_reactor_random(session->reactor)));
}

static void attempt_failed(struct sl_session *session, const char *why);

/* From now on, not from the begin of the turn: a device may have been opened in it, which takes
 * seconds. */
static void limit_attempt(struct sl_session *session, uint64_t wait_ns)
{
    const uint64_t now_ns = sl_clock_now_ns(sl_reactor_clock(session->reactor));
    sl_timer_arm(sl_reactor_timers(session->reactor), &session->attempt.deadline, now_ns + wait_ns);
}

static void session_connection_connect_to(struct sl_session *session,
                                          const struct sl_endpoint *numeric)
{
    session->proof.state = SL_SESSION_UNPROVED;
    session->breaking.by_owner = false;
    int err = sl_transport_connect(transport_in_use(session), numeric, session->options.target,
                                   &transport_events, NULL, session, &session->conn);
    session->attempt.local_err = err;
    if (err != SL_OK) {
        session->conn = NULL;
        attempt_failed(session, last_error_name(session, err));
        return;
    }
    session->state = SL_SESSION_CONNECTING;
    if (session->path.is_preferred) {
        limit_attempt(session, sl_session_path_patience_ns(session));
    } else if (session->options.other_count > 0) {
        limit_attempt(session, SL_SESSION_CANDIDATE_NS);
    } else if (session->was_welcomed) {
        limit_attempt(session, SL_SESSION_GREETING_NS);
    }
}

/* Each attempt uses the next address of a name: some addresses may have no listener. */
static void session_connection_resolved(void *ctx, const struct sl_resolve_found *found)
{
    struct sl_session *session = ctx;
    session->resolve = NULL;
    if (found->err != SL_OK) {
        attempt_failed(session, found->reason);
        return;
    }
    uint32_t attempt = session->attempt.counts[session->path.is_preferred]++;
    session_connection_connect_to(session, &found->addresses[attempt % found->address_count]);
}

static void attempt_by(struct sl_session *session, bool preferred)
{
    sl_session_take_path(session, preferred);
    const struct sl_endpoint *path = &session->path.endpoint;
    if (path->scheme == SL_ENDPOINT_SHM || sl_resolve_is_numeric(path)) {
        session_connection_connect_to(session, path);
        return;
    }
    int err = sl_resolve_start(session->reactor, path, SL_SESSION_RESOLVE_NS, sl_resolve_lookup,
                               session_connection_resolved, session, &session->resolve);
    if (err != SL_OK) {
        attempt_failed(session, err == SL_ERR_AGAIN ? "too many names are being resolved at a time"
                                                    : "no memory or thread to resolve its name");
        return;
    }
    session->state = SL_SESSION_RESOLVING;
}

/* Over the preferred path: falls back at once. Whether the path or the peer failed is known when
 * the fallback is welcomed. */
static void attempt_failed(struct sl_session *session, const char *why)
{
    if (session->path.is_preferred) {
        session->preferred.failed = true;
        (void)snprintf(session->preferred.last_error, sizeof session->preferred.last_error, "%s",
                       why);
        attempt_by(session, false);
    } else {
        sl_session_set_last_error(session, why);
        pause_and_retry(session);
    }
}

static void attempt(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = SL_CONTAINER_OF(timer, struct sl_session, retry.timer);
    attempt_by(session, session->options.preferred.transport != NULL &&
                            now_ns >= session->preferred.from_ns);
}

static void greeting_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = SL_CONTAINER_OF(timer, struct sl_session, attempt.deadline);
    sl_session_break(session, SL_ERR_DEADLINE,
                     session->state == SL_SESSION_CONNECTING ? "no answer from the host"
                                                             : "it does not welcome this process");
}

/* Logs that the session waits; less and less often if there is no deadline. */
static void session_connection_report(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = SL_CONTAINER_OF(timer, struct sl_session, report.timer);
    const char *what = session->state == SL_SESSION_GREETING || session->refusal.since_ns != 0
                           ? "waiting for the welcome of"
                           : "cannot reach";
    const char *colon = session->last_error[0] == '\0' ? "" : ": ";
    const uint64_t end_ns = session->start.opened_ns + session->options.start_timeout_ns;
    const uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
    if (session->was_welcomed || left_ns > NO_END_NS) {
        sl_log_info("%s %s at %s%s%s; retrying", what, session->peer_name, session->path.text,
                    colon, session->last_error);
        session->report.wait_ns *= session->report.wait_ns < REPORT_MAX_NS ? 2 : 1;
    } else {
        sl_log_info("%s %s at %s%s%s; giving up in %llu s", what, session->peer_name,
                    session->path.text, colon, session->last_error, left_ns / SL_CLOCK_NS_PER_S);
    }
    sl_session_arm(session, &session->report.timer, session->report.wait_ns);
}

static void start_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = SL_CONTAINER_OF(timer, struct sl_session, start.deadline);
    const bool is_refused = session->refusal.since_ns != 0;
    const char *what = session->state == SL_SESSION_GREETING || is_refused ? "was not welcomed by"
                                                                           : "could not reach";
    char reason[2 * SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s %s at %s within %llu ms%s%s", what,
                   session->peer_name, session->path.text,
                   (now_ns - session->start.opened_ns) / SL_CLOCK_NS_PER_MS,
                   session->last_error[0] == '\0' ? "" : ": ", session->last_error);
    sl_session_end(session, is_refused ? session->refusal.err : SL_ERR_DEADLINE, reason);
}

/* Messages and transport events */

/* An Error without a request is about the connection, which the peer closes next. A lane of the
 * transfer engine continues: its memory is in use until the connection has closed, which `lost`
 * reports. A peer that refuses it for good refuses its next hello. */
static void complained(struct sl_session *session, const struct sl_message_error *error)
{
    const bool is_lane = session->options.hello.lane > 0;
    if (sl_session_is_final(error->err) && !is_lane) {
        sl_session_end_because(session, error->err, error->text);
    } else {
        sl_session_distrust(session, error->err, error->text);
    }
}

/* The memory of a transfer engine ends with its process: no later one continues it. */
static bool is_transfer_control(const struct sl_session *session)
{
    const struct sl_message_hello *hello = &session->options.hello;
    return hello->purpose == SL_MESSAGE_PURPOSE_TRANSFER && hello->lane == 0;
}

static bool is_notification(enum sl_message_kind kind)
{
    return kind == SL_MESSAGE_CLUSTER || kind == SL_MESSAGE_EXPIRED || kind == SL_MESSAGE_ENDED ||
           kind == SL_MESSAGE_CHECKPOINT || kind == SL_MESSAGE_CHECKPOINT_PUBLISH ||
           kind == SL_MESSAGE_CHECKPOINT_DONE || kind == SL_MESSAGE_BUFFER_ADDED ||
           kind == SL_MESSAGE_BUFFER_GONE || kind == SL_MESSAGE_RELAY;
}

static void unasked(struct sl_session *session, const struct sl_message *message)
{
    const struct sl_session_events *events = session->options.events;
    if (message->id != 0) {
        sl_log_debug("%s (%s): an answer to nothing, or too late", session->peer_name,
                     session->path.text);
    } else if (message->kind == SL_MESSAGE_ERROR) {
        complained(session, &message->error);
    } else if (message->kind == SL_MESSAGE_GOODBYE && is_transfer_control(session)) {
        sl_session_end_because(session, SL_ERR_CLOSED, "it has shut down");
    } else if (message->kind == SL_MESSAGE_GOODBYE) {
        sl_session_distrust(session, SL_ERR_CLOSED, "it is shutting down");
    } else if (is_notification(message->kind)) {
        if (events->notified != NULL) {
            events->notified(session->options.ctx, session, message);
        }
    } else {
        sl_log_debug("%s (%s): a message of kind %d that means nothing here", session->peer_name,
                     session->path.text, (int)message->kind);
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
        sl_session_distrust(session, err, "it sent a control message that is malformed");
        return;
    }
    if (session->state == SL_SESSION_GREETING) {
        sl_session_greeted(session, &message);
    } else if (!sl_session_request_answered(session, &message)) {
        unasked(session, &message);
    }
    sl_message_fini(&message);
}

static bool takes_data(const struct sl_session *session)
{
    return session->state == SL_SESSION_WELCOMED && !sl_session_is_control(&session->options);
}

static void session_connection_on_connected(void *ctx, struct sl_conn *conn)
{
    struct sl_session *session = conn->user;
    if (session->state != SL_SESSION_CONNECTING || session->breaking.has_begun) {
        return; /* `closed` follows */
    }
    session->state = SL_SESSION_GREETING;
    if (session->refusal.since_ns == 0) {
        sl_session_set_last_error(session, "");
    }
    if (session->path.is_preferred && session->was_welcomed) {
        sl_session_arm(session, &session->attempt.deadline, SL_SESSION_GREETING_NS);
    } else if (session->path.is_preferred) {
        sl_reactor_disarm(session->reactor, &session->attempt.deadline);
    }
    sl_session_greet(session);
}

static void *session_connection_on_sink(void *ctx, struct sl_conn *conn,
                                        const struct sl_frame *header)
{
    struct sl_session *session = conn->user;
    if (session->state == SL_SESSION_ENDED || session->breaking.has_begun) {
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
    sl_session_distrust(session, SL_ERR_PROTOCOL, "it sent a frame that does not belong here");
    return NULL;
}

static void session_connection_on_received(void *ctx, struct sl_conn *conn,
                                           const struct sl_transport_message *message)
{
    struct sl_session *session = conn->user;
    uint8_t type = message->header.type;
    if (session->state == SL_SESSION_ENDED || session->breaking.has_begun) {
        sl_transport_release(conn, message);
        return;
    }
    sl_session_enter(session);
    if (message->header.version != SL_FRAME_PROTOCOL_VERSION) {
        sl_transport_release(conn, message);
        if (session->state == SL_SESSION_WELCOMED) {
            sl_session_distrust(session, SL_ERR_VERSION, "it sent a frame of another version");
        } else {
            sl_session_reject_version(session, message->header.version, "");
        }
    } else if (sl_frame_verify(&message->header, message->payload) != SL_OK) {
        sl_transport_release(conn, message);
        sl_session_distrust(session, SL_ERR_CORRUPT, "it sent a frame with a wrong checksum");
    } else if (type == SL_FRAME_CONTROL) {
        control_received(session, conn, message);
    } else if ((type == SL_FRAME_REPLY || type == SL_FRAME_CREDIT) && takes_data(session)) {
        session->options.events->received(session->options.ctx, session, message);
    } else {
        sl_transport_release(conn, message);
        sl_session_distrust(session, SL_ERR_PROTOCOL, "it sent a frame that does not belong here");
    }
    sl_session_leave(session);
}

static void session_connection_on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct sl_session *session = conn->user;
    sl_outbox_sent(session->path.outbox, cookie);
}

static void session_connection_on_writable(void *ctx, struct sl_conn *conn)
{
    struct sl_session *session = conn->user;
    sl_outbox_writable(session->path.outbox, conn, &session->queue);
    if (session->state == SL_SESSION_WELCOMED && session->options.events->writable != NULL) {
        sl_session_enter(session);
        session->options.events->writable(session->options.ctx, session);
        sl_session_leave(session);
    }
}

/* Whether a later attempt may succeed: the peer may be starting or restarting. A peer with another
 * protocol or version will not change. */
static bool may_change(int err)
{
    return err != SL_ERR_VERSION && err != SL_ERR_PROTOCOL && err != SL_ERR_TOO_LARGE &&
           err != SL_ERR_CANCELLED;
}

static void reject_closed(struct sl_session *session, int err, const char *why)
{
    sl_session_reject(session, err, why);
    if (session->state != SL_SESSION_ENDED) {
        pause_and_retry(session);
    }
}

static void closed_early(struct sl_session *session, int err)
{
    if (session->path.is_preferred && err != SL_ERR_CANCELLED) {
        attempt_failed(session, last_error_name(session, err));
    } else if (err == SL_ERR_REFUSED &&
               session->retry.backoff.limit_ns > 0 && /* not once, as by a full backlog */
               (session->was_welcomed ? session->options.ends.with_process
                                      : session->options.ends.if_refused)) {
        sl_session_end_because(session, err, last_error_name(session, err));
    } else if (may_change(err)) {
        sl_session_set_last_error(session, last_error_name(session, err));
        pause_and_retry(session);
    } else if (err == SL_ERR_CANCELLED) {
        sl_session_end_because(session, err, "given up");
    } else if (err == SL_ERR_VERSION) {
        char why[96];
        (void)snprintf(why, sizeof why,
                       "it does not speak protocol version %d, the only one this program speaks",
                       SL_FRAME_PROTOCOL_VERSION);
        reject_closed(session, err, why);
    } else {
        reject_closed(session, err, "the process there does not speak Starling's protocol");
    }
}

/* A trusted peer gives the same answer on every path. A silent peer may be unreachable on this path
 * only; a peer that refuses without proof may be another process. */
static void closed_by_us(struct sl_session *session)
{
    if (session->path.is_preferred &&
        (session->breaking.err == SL_ERR_DEADLINE || session->refusal.since_ns != 0)) {
        attempt_failed(session, session->last_error);
    } else {
        pause_and_retry(session);
    }
}

/* A connection that lasted longer than the current pause resets it. Else the pause keeps growing: a
 * peer that closes each connection at once must not be flooded. */
static void lose(struct sl_session *session, int err)
{
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    if (session->path.is_preferred) {
        sl_session_path_lost(session, err);
    }
    sl_session_path_stop(session);
    if (now_ns - session->welcomed_ns >= session->retry.backoff.limit_ns) {
        sl_backoff_reset(&session->retry.backoff);
    }
    session->requests.waited_for[0] = '\0';
    sl_reactor_disarm(session->reactor, &session->requests.resend);
    sl_session_request_lose_all(session);
    pause_and_retry(session);
    session->report.wait_ns = REPORT_NS;
    sl_session_arm(session, &session->report.timer, REPORT_NS);
    char reason[SL_SESSION_REASON_BYTES];
    sl_session_name_reason(session, session->last_error, reason);
    session->options.events->lost(session->options.ctx, session, err, reason);
}

static void closed_late(struct sl_session *session, int err)
{
    err = err == SL_OK ? SL_ERR_CLOSED : err;
    if (session->options.persistent && err != SL_ERR_CANCELLED) {
        lose(session, err);
    } else {
        char why[SL_SESSION_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%s", session->last_error);
        sl_session_end_because(session, err, why);
    }
}

static void session_connection_on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct sl_session *session = conn->user;
    sl_session_enter(session);
    session->conn = NULL;
    sl_outbox_closed(session->path.outbox, conn, &session->queue);
    free(session->control_memory);
    session->control_memory = NULL;
    sl_reactor_disarm(session->reactor, &session->attempt.deadline);
    /* CANCELLED: the transport is closing, which takes precedence. */
    bool broken = session->breaking.has_begun && err != SL_ERR_CANCELLED;
    session->breaking.has_begun = false;
    if (session->state == SL_SESSION_WELCOMED) {
        if (!broken) {
            (void)snprintf(session->last_error, sizeof session->last_error,
                           "the connection ended: %s", sl_err_name(err));
        }
        closed_late(session, broken ? session->breaking.err : err);
    } else if (session->state != SL_SESSION_ENDED && broken) {
        closed_by_us(session);
    } else if (session->state != SL_SESSION_ENDED) {
        closed_early(session, err);
    }
    sl_session_leave(session);
}

static const struct sl_transport_events transport_events = {
    .connected = session_connection_on_connected,
    .sink = session_connection_on_sink,
    .received = session_connection_on_received,
    .sent = session_connection_on_sent,
    .writable = session_connection_on_writable,
    .closed = session_connection_on_closed,
};

/* Start */

static void resend(struct sl_timer *timer, uint64_t now_ns)
{
    sl_session_request_send_all(SL_CONTAINER_OF(timer, struct sl_session, requests.resend));
}

void sl_session_begin(struct sl_session *session)
{
    session->retry.backoff = (struct sl_backoff){.least_ns = SL_SESSION_BACK_OFF_MIN_NS,
                                                 .most_ns = SL_SESSION_BACK_OFF_MAX_NS};
    session->report.wait_ns = REPORT_NS;
    session->start.opened_ns = sl_reactor_now_ns(session->reactor);
    session->retry.timer.run = attempt;
    session->report.timer.run = session_connection_report;
    session->start.deadline.run = start_deadline_passed;
    session->attempt.deadline.run = greeting_deadline_passed;
    session->requests.resend.run = resend;
    session->probe.timer.run = sl_session_path_timer;
    session->state = SL_SESSION_PAUSING;
    /* By a timer, since no event may come before open returns. */
    sl_session_arm(session, &session->retry.timer, 0);
    sl_session_arm(session, &session->report.timer, REPORT_NS);
    sl_session_arm(session, &session->start.deadline, session->options.start_timeout_ns);
}

/* The pause or lookup in progress was for another endpoint. */
void sl_session_retry_soon(struct sl_session *session)
{
    if (session->state == SL_SESSION_PAUSING || session->state == SL_SESSION_RESOLVING) {
        sl_resolve_cancel(&session->resolve);
        sl_backoff_reset(&session->retry.backoff);
        pause_and_retry(session);
    }
}
