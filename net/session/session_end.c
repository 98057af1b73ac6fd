#include <inttypes.h>
#include <stdio.h>

#include "core/clock.h"
#include "core/log.h"
#include "net/session/session_internal.h"

#define REFUSAL_LOG_NS (60 * SL_CLOCK_NS_PER_S)

void sl_session_shut(struct sl_session *session, int err, const char *reason)
{
    session->state = SL_SESSION_ENDED;
    sl_session_disarm_all(session);
    sl_session_path_stop(session);
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
    sl_session_shut(session, err, reason);
    if (!session->abandoned) {
        session->options.events->closed(session->options.ctx, session, err, reason);
    }
    sl_session_leave(session);
}

void sl_session_end_because(struct sl_session *session, int err, const char *why)
{
    char reason[SL_SESSION_REASON_BYTES];
    sl_session_name_reason(session, why, reason);
    sl_session_end(session, err, reason);
}

/* Refusals */

/* Whether an error from the peer may end the session (see sl_session_options.secret). */
static bool is_trusted(const struct sl_session *session)
{
    return sl_session_has_secret(session) ? session->proof.state == SL_SESSION_PROVED
                                          : !session->was_welcomed;
}

/* Without a secret no refusal can be proved. A session that is refused for refusal.wait_ns still
 * ends: another process may have replaced this member. */
static bool is_refused_for_long(const struct sl_session *session)
{
    const uint64_t since_ns = session->refusal.since_ns;
    return !sl_session_has_secret(session) && since_ns != 0 &&
           sl_reactor_now_ns(session->reactor) - since_ns >= session->refusal.wait_ns;
}

static void log_refusal(struct sl_session *session, const char *why)
{
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    if (now_ns < session->refusal.log_ns) {
        return;
    }
    session->refusal.log_ns = now_ns + REFUSAL_LOG_NS;
    sl_log_warn("%s (%s): %s; retrying, since the peer has not proved that it is a member%s",
                session->peer_name, session->path.text, why,
                sl_session_has_secret(session) ? ": compare the secret files of both ends" : "");
}

void sl_session_reject(struct sl_session *session, int err, const char *why)
{
    if (is_trusted(session) || is_refused_for_long(session)) {
        sl_session_end_because(session, err, why);
        return;
    }
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    const uint64_t since_ns = session->refusal.since_ns;
    sl_session_break(session, err, why);
    sl_session_set_last_error(session, why);
    session->refusal.since_ns = since_ns != 0 ? since_ns : now_ns;
    session->refusal.endpoint = session->options.endpoint;
    session->refusal.err = err;
    log_refusal(session, why);
}

void sl_session_reject_version(struct sl_session *session, uint32_t version, const char *software)
{
    char why[128];
    (void)snprintf(why, sizeof why,
                   "it speaks protocol version %" PRIu32 "%s%.40s, this program version %d",
                   version, software[0] == '\0' ? "" : " as ", software, SL_FRAME_PROTOCOL_VERSION);
    sl_session_reject(session, SL_ERR_VERSION, why);
}

void sl_session_distrust(struct sl_session *session, int err, const char *why)
{
    if (session->state == SL_SESSION_WELCOMED && session->options.persistent) {
        sl_session_break(session, err, why);
    } else if (session->state == SL_SESSION_WELCOMED) {
        sl_session_end_because(session, err, why);
    } else {
        sl_session_reject(session, err, why);
    }
}
