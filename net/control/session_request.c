#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/control/session_internal.h"

struct sl_session_request {
    struct sl_session_request *next;
    struct sl_session *session;
    uint64_t id;
    enum sl_message_kind wanted;
    uint64_t timeout_ns;
    struct sl_timer deadline;
    sl_session_answer_fn *answer;
    void *ctx;
};

static enum sl_message_kind answer_kind(enum sl_message_kind request)
{
    switch (request) {
    case SL_MESSAGE_REGISTER:
        return SL_MESSAGE_CLUSTER;
    case SL_MESSAGE_TABLE_OPEN:
        return SL_MESSAGE_TABLE_OPENED;
    case SL_MESSAGE_BARRIER:
        return SL_MESSAGE_BARRIER_DONE;
    default:
        sl_assert(request == SL_MESSAGE_STATS_GET); /* the others are no requests */
        return SL_MESSAGE_STATS;
    }
}

static struct sl_timer_wheel *timers_of(struct sl_session *session)
{
    return sl_reactor_timers(session->options.transport->reactor);
}

/* Takes the request out and tells its owner. */
static void finish(struct sl_session_request **at, const struct sl_message *answer, int err,
                   const char *reason)
{
    struct sl_session_request *request = *at;
    struct sl_session *session = request->session;
    *at = request->next;
    sl_timer_disarm(timers_of(session), &request->deadline);
    sl_session_enter(session);
    request->answer(request->ctx, answer, err, reason);
    free(request);
    sl_session_leave(session);
}

static struct sl_session_request **find(struct sl_session *session, uint64_t id)
{
    struct sl_session_request **at = &session->requests;
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

static void deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_session_request *request =
        (void *)((char *)timer - offsetof(struct sl_session_request, deadline));
    struct sl_session *session = request->session;
    char reason[SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s (%s) did not answer within %llu ms%s%s",
                   session->peer_name, session->peer, request->timeout_ns / SL_CLOCK_NS_PER_MS,
                   session->waited_for[0] == '\0' ? "" : ": it still waits for ",
                   session->waited_for);
    finish(find(session, request->id), NULL, SL_ERR_DEADLINE, reason);
}

static void refuse(struct sl_session *session, sl_session_answer_fn *answer, void *ctx, int err,
                   const char *why)
{
    char reason[SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s (%s): %s", session->peer_name, session->peer, why);
    sl_session_enter(session);
    answer(ctx, NULL, err, reason);
    sl_session_leave(session);
}

void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx)
{
    sl_assert(session != NULL);
    sl_assert(message != NULL);
    sl_assert(timeout_ns > 0);
    sl_assert(answer != NULL);
    sl_reactor_assert_owner(session->options.transport->reactor);
    if (session->state != SL_SESSION_WELCOMED) {
        refuse(session, answer, ctx, SL_ERR_CLOSED, "not connected");
        return;
    }
    struct sl_session_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        refuse(session, answer, ctx, SL_ERR_NO_MEMORY, "no memory for a request");
        return;
    }
    message->id = session->next_id++;
    if (sl_session_send(session, message) != SL_OK) {
        free(request);
        refuse(session, answer, ctx, SL_ERR_NO_MEMORY, "outgoing buffers are full");
        return;
    }
    *request = (struct sl_session_request){
        .session = session,
        .id = message->id,
        .wanted = answer_kind(message->kind),
        .timeout_ns = timeout_ns,
        .deadline = {.run = deadline_passed},
        .answer = answer,
        .ctx = ctx,
    };
    *find(session, 0) = request; /* no request has id 0: the end of the list */
    uint64_t now_ns = sl_reactor_now_ns(session->options.transport->reactor);
    uint64_t due_ns = timeout_ns < SL_CLOCK_NEVER - now_ns ? now_ns + timeout_ns : SL_CLOCK_NEVER;
    sl_timer_arm(timers_of(session), &request->deadline, due_ns);
}

/* An Error that answers no request is about the connection; the peer closes it next. */
static void unasked(struct sl_session *session, const struct sl_message *message)
{
    if (message->kind == SL_MESSAGE_ERROR && message->id == 0) {
        char reason[SL_SESSION_REASON_BYTES];
        (void)snprintf(reason, sizeof reason, "%s (%s): %s", session->peer_name, session->peer,
                       message->error.text);
        sl_session_end(session, message->error.err, reason);
    } else if (message->kind == SL_MESSAGE_GOODBYE) {
        char reason[SL_SESSION_REASON_BYTES];
        (void)snprintf(reason, sizeof reason, "%s (%s) is shutting down", session->peer_name,
                       session->peer);
        sl_session_end(session, SL_ERR_CLOSED, reason);
    } else {
        sl_log_debug("%s (%s): an answer to nothing, or too late", session->peer_name,
                     session->peer);
    }
}

void sl_session_request_answered(struct sl_session *session, const struct sl_message *message)
{
    if (message->kind == SL_MESSAGE_WAITING) {
        sl_session_note_waiting(session, &message->waiting);
        return;
    }
    session->waited_for[0] = '\0';
    struct sl_session_request **at = find(session, message->id);
    if (message->id == 0 || *at == NULL) {
        unasked(session, message);
    } else if (message->kind == SL_MESSAGE_ERROR) {
        finish(at, NULL, message->error.err, message->error.text);
    } else if (message->kind == (*at)->wanted) {
        finish(at, message, SL_OK, "");
    } else {
        finish(at, NULL, SL_ERR_PROTOCOL, "the answer is of another kind than was asked for");
    }
}

void sl_session_request_fail_all(struct sl_session *session, int err, const char *reason)
{
    while (session->requests != NULL) {
        finish(&session->requests, NULL, err, reason);
    }
}
