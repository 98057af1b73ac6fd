#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/session/session_internal.h"

/* Timers */

void sl_session_arm(struct sl_session *session, struct sl_timer *timer, uint64_t wait_ns)
{
    sl_reactor_arm(session->reactor, timer, wait_ns);
}

void sl_session_disarm_all(struct sl_session *session)
{
    struct sl_timer_wheel *timers = sl_reactor_timers(session->reactor);
    sl_timer_disarm(timers, &session->retry.timer);
    sl_timer_disarm(timers, &session->report.timer);
    sl_timer_disarm(timers, &session->start.deadline);
    sl_timer_disarm(timers, &session->attempt.deadline);
    sl_timer_disarm(timers, &session->requests.resend);
    sl_timer_disarm(timers, &session->probe.timer);
}

/* Lifetime */

void sl_session_enter(struct sl_session *session)
{
    session->in_use++;
}

void sl_session_leave(struct sl_session *session)
{
    sl_assert(session->in_use > 0);
    session->in_use--;
    if (session->in_use == 0 && session->abandoned && session->conn == NULL &&
        session->probe.conn == NULL) {
        sl_assert(session->requests.first == NULL);
        free(session->control_memory);
        free(session);
    }
}

/* The connection */

void sl_session_name_reason(const struct sl_session *session, const char *why,
                            char reason[SL_SESSION_REASON_BYTES])
{
    (void)snprintf(reason, SL_SESSION_REASON_BYTES, "%s (%s): %s", session->peer_name,
                   session->path.text, why);
}

void sl_session_set_last_error(struct sl_session *session, const char *what)
{
    (void)snprintf(session->last_error, sizeof session->last_error, "%s", what);
    if (sl_endpoint_same(&session->options.endpoint, &session->refusal.endpoint)) {
        session->refusal.since_ns = 0;
    }
}

void sl_session_break(struct sl_session *session, int err, const char *why)
{
    if (session->breaking.has_begun || session->conn == NULL) {
        return;
    }
    session->breaking.has_begun = true;
    session->breaking.err = err;
    sl_session_set_last_error(session, why);
    sl_transport_disconnect(session->conn);
}

bool sl_session_has_failed(const struct sl_session *session)
{
    sl_assert(session != NULL);
    return session->state != SL_SESSION_WELCOMED && session->last_error[0] != '\0';
}

int sl_session_local_err(const struct sl_session *session)
{
    sl_assert(session != NULL);
    return session->attempt.local_err;
}

const char *sl_session_last_error(const struct sl_session *session)
{
    sl_assert(session != NULL);
    if (session->state == SL_SESSION_WELCOMED && !session->breaking.has_begun) {
        return "";
    }
    if (session->last_error[0] != '\0') {
        return session->last_error;
    }
    return session->state == SL_SESSION_GREETING ? "its welcome has not come yet"
                                                 : "it is being connected to";
}

bool sl_session_is_final(int err)
{
    return err == SL_ERR_VERSION || err == SL_ERR_PROTOCOL || err == SL_ERR_REFUSED ||
           err == SL_ERR_EXISTS || err == SL_ERR_INVALID || err == SL_ERR_UNSUPPORTED;
}

int sl_session_send(struct sl_session *session, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    sl_assert(bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    uint8_t *room = sl_outbox_reserve(session->path.outbox, (uint32_t)bytes);
    if (room == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    sl_outbox_commit(session->path.outbox, session->conn, &session->queue, &frame, NULL, 0, NULL,
                     NULL);
    return SL_OK;
}
