/* The preferred path of a session: its time limit, its pauses, and the probes that find it working
 * again while the session uses the fallback. */

#include "core/list.h"
#include "core/log.h"
#include "net/session/session_internal.h"

/* A working peer accepts at once, unless its reactor is busy or all processes connect together, as
 * when a job starts. At the start the limit is longer: a session that gives up stays on the
 * fallback for long. Later the lease is running, and the fallback must be tried within it. */
#define CONNECT_NS     (3 * SL_CLOCK_NS_PER_S)
#define CONNECT_MAX_NS (10 * SL_CLOCK_NS_PER_S)
#define START_SHARE    4 /* limit: start timeout / START_SHARE, up to CONNECT_MAX_NS */

/* Weights of lost connections. A failure of the medium costs seconds each time (an RDMA NIC
 * retransmits for that long), so two of them are enough. */
#define LOSSES_MAX     6
#define LOSS           2
#define FAULT          3

/* For failed probes, which cost nothing. A probe that succeeds wrongly costs a connection: there
 * the maximum is SL_SESSION_PATH_PAUSE_MAX_NS. */
#define PAUSE_MAX_NS   (4 * SL_SESSION_PATH_PAUSE_NS)

uint64_t sl_session_path_patience_ns(const struct sl_session *session)
{
    if (session->was_welcomed) {
        return CONNECT_NS;
    }
    uint64_t share_ns = session->options.start_timeout_ns / START_SHARE;
    return share_ns < CONNECT_MAX_NS ? share_ns : CONNECT_MAX_NS;
}

/* Pauses: what is known of the path, as events change it */

/* Pauses the path, longer each time. */
static void pause_path(struct sl_session_preferred_state *path, uint64_t now_ns)
{
    path->backoff.least_ns = SL_SESSION_PATH_PAUSE_NS;
    path->backoff.most_ns = path->found ? SL_SESSION_PATH_PAUSE_MAX_NS : PAUSE_MAX_NS;
    path->pause_ns = sl_backoff_next(&path->backoff, 0);
    path->found = false;
    path->from_ns = now_ns + path->pause_ns;
}

/* A welcomed connection broke. Returns whether the path is paused for it: connections that do not
 * last over this path may last over the fallback. */
static bool note_loss(struct sl_session_preferred_state *path, uint64_t lasted_ns, int err,
                      uint64_t now_ns)
{
    if (lasted_ns >= SL_SESSION_PATH_LASTS_NS) {
        sl_backoff_reset(&path->backoff);
        path->losses = 0;
        path->found = false;
        return false;
    }
    path->losses += err == SL_ERR_IO || err == SL_ERR_DEADLINE ? FAULT : LOSS;
    if (path->losses < LOSSES_MAX) {
        return false;
    }
    path->losses = 0;
    pause_path(path, now_ns);
    return true;
}

/* Whether the session is on the fallback and may return to the preferred path. */
static bool may_go_back(const struct sl_session *session)
{
    return session->state == SL_SESSION_WELCOMED && !session->path.is_preferred &&
           !session->breaking.has_begun && session->options.persistent &&
           session->options.preferred.transport != NULL;
}

/* The jitter spreads clients that lost the path at the same time. */
static void probe_later(struct sl_session *session)
{
    if (!may_go_back(session)) {
        return;
    }
    uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    uint64_t wait_ns =
        session->preferred.from_ns > now_ns ? session->preferred.from_ns - now_ns : 0;
    wait_ns = wait_ns > SL_SESSION_PATH_PAUSE_NS ? wait_ns : SL_SESSION_PATH_PAUSE_NS;
    uint64_t jitter_ns = sl_reactor_random(session->reactor) % (wait_ns / 4);
    sl_session_arm(session, &session->probe.timer, wait_ns + jitter_ns);
}

void sl_session_path_lost(struct sl_session *session, int err)
{
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    const uint64_t lasted_ns = now_ns - session->welcomed_ns;
    if (session->breaking.by_owner && lasted_ns < SL_SESSION_PATH_LASTS_NS) {
        return;
    }
    if (note_loss(&session->preferred, lasted_ns, err, now_ns)) {
        sl_log_warn("%s: connections over %s do not last: paused for %llu s", session->peer_name,
                    session->path.text, session->preferred.pause_ns / SL_CLOCK_NS_PER_S);
    }
}

void sl_session_path_welcomed(struct sl_session *session)
{
    if (session->preferred.failed && !session->path.is_preferred) {
        char preferred[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(&session->options.preferred.endpoint, preferred, sizeof preferred);
        sl_log_warn("%s: not through %s: %s; over %s", session->peer_name, preferred,
                    session->preferred.last_error, session->path.text);
        pause_path(&session->preferred, sl_reactor_now_ns(session->reactor));
    }
    session->preferred.failed = false;
    probe_later(session);
}

bool sl_session_path_changed(struct sl_session *session)
{
    session->preferred = (struct sl_session_preferred_state){0};
    if (session->state == SL_SESSION_WELCOMED) {
        sl_session_path_stop(session);
        probe_later(session);
        return false;
    }
    return session->path.is_preferred && session->state == SL_SESSION_RESOLVING;
}

/* Probes */

static void probe_failed(struct sl_session *session)
{
    if (may_go_back(session)) {
        pause_path(&session->preferred, sl_reactor_now_ns(session->reactor));
        probe_later(session);
    }
}

/* A probe only tests whether a peer accepts. The session's next connection does the handshake. */
static void session_path_on_connected(void *ctx, struct sl_conn *conn)
{
    struct sl_session *session = conn->user;
    if (session->probe.result == SL_SESSION_PROBE_FAILED) {
        session->probe.result = SL_SESSION_PROBE_CONNECTED;
    }
    sl_transport_disconnect(conn);
}

static void *session_path_on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void session_path_on_received(void *ctx, struct sl_conn *conn,
                                     const struct sl_transport_message *message)
{
    sl_transport_release(conn, message);
}

static void session_path_on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void session_path_on_writable(void *ctx, struct sl_conn *conn)
{
}

static void session_path_on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct sl_session *session = conn->user;
    sl_session_enter(session);
    session->probe.conn = NULL;
    if (session->probe.result == SL_SESSION_PROBE_STOPPED || err == SL_ERR_CANCELLED) {
        sl_session_leave(session);
        return;
    }
    sl_reactor_disarm(session->reactor, &session->probe.timer);
    if (session->probe.result == SL_SESSION_PROBE_FAILED) {
        probe_failed(session);
    } else if (may_go_back(session)) {
        session->preferred.from_ns = 0;
        session->preferred.found = true;
        sl_session_break(session, SL_ERR_CLOSED, "the preferred path works again");
    }
    sl_session_leave(session);
}

static const struct sl_transport_events probe_events = {
    .connected = session_path_on_connected,
    .sink = session_path_on_sink,
    .received = session_path_on_received,
    .sent = session_path_on_sent,
    .writable = session_path_on_writable,
    .closed = session_path_on_closed,
};

static void probe_at(struct sl_session *session, const struct sl_endpoint *numeric)
{
    session->probe.result = SL_SESSION_PROBE_FAILED; /* until session_path_on_connected */
    int err =
        sl_transport_connect(session->options.preferred.transport, numeric, session->options.target,
                             &probe_events, NULL, session, &session->probe.conn);
    if (err != SL_OK) {
        session->probe.conn = NULL;
        probe_failed(session);
        return;
    }
    sl_session_arm(session, &session->probe.timer, CONNECT_NS);
}

static void session_path_resolved(void *ctx, const struct sl_resolve_found *found)
{
    struct sl_session *session = ctx;
    session->resolve = NULL;
    if (found->err != SL_OK) {
        probe_failed(session);
        return;
    }
    uint32_t attempt = session->attempt.counts[true]++;
    probe_at(session, &found->addresses[attempt % found->address_count]);
}

/* Called when no probe is in progress: a stopped one may still be closing. */
static void probe(struct sl_session *session)
{
    const struct sl_endpoint *preferred = &session->options.preferred.endpoint;
    if (preferred->scheme == SL_ENDPOINT_SHM || sl_resolve_is_numeric(preferred)) {
        probe_at(session, preferred);
    } else if (sl_resolve_start(session->reactor, preferred, SL_SESSION_RESOLVE_NS,
                                sl_resolve_lookup, session_path_resolved, session,
                                &session->resolve) != SL_OK) {
        probe_failed(session);
    }
}

void sl_session_path_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session *session = SL_CONTAINER_OF(timer, struct sl_session, probe.timer);
    if (session->probe.conn != NULL) {
        sl_transport_disconnect(session->probe.conn); /* timed out */
    } else if (may_go_back(session)) {
        probe(session);
    }
}

void sl_session_path_stop(struct sl_session *session)
{
    sl_reactor_disarm(session->reactor, &session->probe.timer);
    sl_resolve_cancel(&session->resolve);
    if (session->probe.conn != NULL) {
        session->probe.result = SL_SESSION_PROBE_STOPPED;
        sl_transport_disconnect(session->probe.conn);
    }
}
