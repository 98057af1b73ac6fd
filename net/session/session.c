#include "net/session/session.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/session/session_internal.h"

static void check_preferred(const struct sl_session_preferred *preferred,
                            const struct sl_reactor *reactor)
{
    sl_assert(preferred->transport == NULL || preferred->transport->reactor == reactor);
    sl_assert(preferred->transport == NULL || preferred->outbox != NULL);
}

static void check_options(const struct sl_session_options *options)
{
    check_preferred(&options->preferred, options->transport->reactor);
    sl_assert(options->other_count == 0 || (options->others != NULL && options->follows));
    sl_assert(options->transport != NULL);
    sl_assert(options->outbox != NULL);
    sl_assert(options->events != NULL);
    sl_assert(options->events->welcomed != NULL);
    sl_assert(options->events->closed != NULL);
    sl_assert(options->peer_name != NULL);
    sl_assert(options->start_timeout_ns > 0);
    sl_assert(!options->persistent || options->events->lost != NULL);
    if (!sl_session_is_control(options)) {
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
    session->reactor = options->transport->reactor;
    session->options.hello.protocol_version = SL_FRAME_PROTOCOL_VERSION;
    (void)snprintf(session->options.hello.software, sizeof session->options.hello.software,
                   "starling %s", STARLING_VERSION);
    (void)snprintf(session->peer_name, sizeof session->peer_name, "%s", options->peer_name);
    session->options.peer_name = session->peer_name;
    sl_session_take_path(session, false);
    session->candidate.first = options->endpoint;
    session->requests.next_id = 1;
    sl_session_begin(session);
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
    sl_reactor_assert_owner(closing->reactor);
    *session = NULL;
    sl_session_enter(closing);
    closing->abandoned = true;
    if (closing->state == SL_SESSION_WELCOMED) {
        /* Best effort: without it the peer sees the connection end. */
        struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
        (void)sl_session_send(closing, &goodbye);
    }
    if (closing->state != SL_SESSION_ENDED) {
        sl_session_shut(closing, SL_ERR_CANCELLED, "closed");
    }
    /* For a close from inside an answer, while sl_session_shut is answering the requests. */
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

struct sl_outbox *sl_session_outbox(struct sl_session *session)
{
    sl_assert(session != NULL);
    return session->path.outbox;
}

void sl_session_reconnect(struct sl_session *session, const char *why)
{
    sl_assert(session != NULL);
    sl_assert(session->options.persistent);
    sl_assert(why != NULL);
    sl_reactor_assert_owner(session->reactor);
    if (session->state != SL_SESSION_ENDED && !session->breaking.has_begun) {
        session->breaking.by_owner = true;
        sl_session_break(session, SL_ERR_CLOSED, why);
    }
}

void sl_session_move(struct sl_session *session, const char *why)
{
    sl_assert(session != NULL);
    if (session->candidate.next == SL_SESSION_NEXT_SAME) {
        session->candidate.next = SL_SESSION_NEXT_CANDIDATE;
    }
    sl_session_reconnect(session, why);
}

void sl_session_set_endpoint(struct sl_session *session, const struct sl_endpoint *endpoint)
{
    sl_assert(session != NULL);
    sl_assert(endpoint != NULL);
    sl_reactor_assert_owner(session->reactor);
    if (sl_endpoint_same(&session->options.endpoint, endpoint)) {
        return;
    }
    session->options.endpoint = *endpoint;
    session->candidate.first = *endpoint;
    session->candidate.place = 0;
    session->candidate.next = SL_SESSION_NEXT_NAMED; /* before the other candidates */
    if (!session->path.is_preferred || session->conn == NULL) {
        sl_session_take_path(session, false);
    }
    sl_session_retry_soon(session);
}

void sl_session_set_shard(struct sl_session *session, uint32_t shard, uint32_t target)
{
    sl_assert(session != NULL);
    sl_reactor_assert_owner(session->reactor);
    session->options.hello.shard = shard;
    session->options.target = target;
}

void sl_session_set_lane_epoch(struct sl_session *session, uint64_t lane_epoch)
{
    sl_assert(session != NULL);
    sl_reactor_assert_owner(session->reactor);
    session->options.hello.lane_epoch = lane_epoch;
}

void sl_session_set_preferred(struct sl_session *session,
                              const struct sl_session_preferred *preferred)
{
    sl_assert(session != NULL);
    sl_assert(preferred != NULL);
    sl_reactor_assert_owner(session->reactor);
    check_preferred(preferred, session->reactor);
    session->options.preferred = *preferred;
    if (sl_session_path_changed(session)) {
        sl_session_retry_soon(session);
    }
}

const char *sl_session_waits_for(const struct sl_session *session)
{
    return session->requests.waited_for;
}

const struct sl_endpoint *sl_session_endpoint(const struct sl_session *session)
{
    sl_assert(session != NULL);
    return &session->path.endpoint;
}

int sl_session_notify(struct sl_session *session, struct sl_message *message)
{
    sl_assert(session != NULL);
    sl_assert(message != NULL);
    sl_reactor_assert_owner(session->reactor);
    if (session->state != SL_SESSION_WELCOMED || session->breaking.has_begun) {
        return SL_ERR_CLOSED;
    }
    message->id = 0;
    return sl_session_send(session, message);
}
