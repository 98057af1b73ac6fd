#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/list.h"
#include "core/log.h"
#include "net/session/session_internal.h"

#define RESEND_NS (10 * SL_CLOCK_NS_PER_MS)

struct sl_session_request {
    struct sl_session_request *next;
    struct sl_session *session;
    struct sl_message message; /* resent after a reconnect */
    bool sent;                 /* on the current connection */
    enum sl_message_kind wanted;
    uint64_t asked_ns, timeout_ns;
    struct sl_timer deadline;
    sl_session_answer_fn *answer;
    void *ctx;
};

static enum sl_message_kind answer_kind(const struct sl_message *request)
{
    switch (request->kind) {
    case SL_MESSAGE_REGISTER:
        return SL_MESSAGE_CLUSTER;
    case SL_MESSAGE_TABLE_OPEN:
        return request->table_open.asks ? SL_MESSAGE_TABLE_OPEN : SL_MESSAGE_TABLE_OPENED;
    case SL_MESSAGE_TABLE_DROP:
        return SL_MESSAGE_TABLE_DROPPED;
    case SL_MESSAGE_BARRIER:
        return SL_MESSAGE_BARRIER_DONE;
    case SL_MESSAGE_JOIN:
        return SL_MESSAGE_JOINED;
    case SL_MESSAGE_CHECKPOINT_ASK:
        return SL_MESSAGE_CHECKPOINT_DONE;
    case SL_MESSAGE_TABLES_GET:
        return SL_MESSAGE_TABLES;
    case SL_MESSAGE_OPERATION:
        return SL_MESSAGE_OPERATION_ALLOWED;
    case SL_MESSAGE_PLACEMENT_CHANGE:
        return SL_MESSAGE_PLACEMENT_CHANGED;
    case SL_MESSAGE_HEARTBEAT:
        return SL_MESSAGE_HEARTBEAT;
    case SL_MESSAGE_SEGMENT_GET:
        return SL_MESSAGE_SEGMENT;
    case SL_MESSAGE_NOTICE:
        return SL_MESSAGE_NOTICE_TAKEN;
    case SL_MESSAGE_FENCE:
        return SL_MESSAGE_FENCED;
    case SL_MESSAGE_ATTACH:
        return SL_MESSAGE_WELCOME;
    case SL_MESSAGE_RELAY:
        return SL_MESSAGE_RELAY_ANSWER;
    default:
        sl_assert(request->kind == SL_MESSAGE_STATS_GET); /* no other kind is a request */
        return SL_MESSAGE_STATS;
    }
}

void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting)
{
    char *names = session->requests.waited_for;
    names[0] = '\0';
    for (uint32_t i = 0; i < waiting->missing_count; i++) {
        const bool fits = sl_format_add(names, sizeof session->requests.waited_for, ", ", "%s",
                                        waiting->missing[i]);
        sl_assert(fits);
    }
    sl_log_info("waiting for %s (says %s)", names[0] == '\0' ? "others" : names,
                session->peer_name);
}

/* Removes the request and calls its owner. */
static void session_request_finish(struct sl_session_request **at, const struct sl_message *answer,
                                   int err, const char *reason)
{
    struct sl_session_request *request = *at;
    struct sl_session *session = request->session;
    *at = request->next;
    sl_reactor_disarm(session->reactor, &request->deadline);
    sl_session_enter(session);
    request->answer(request->ctx, answer, err, reason);
    free(request);
    sl_session_leave(session);
}

static struct sl_session_request **session_request_find(struct sl_session *session, uint64_t id)
{
    struct sl_session_request **at = &session->requests.first;
    while (*at != NULL && (*at)->message.id != id) {
        at = &(*at)->next;
    }
    return at;
}

static uint64_t session_request_now_of(const struct sl_session *session)
{
    return sl_reactor_now_ns(session->reactor);
}

static bool session_request_is_up(const struct sl_session *session)
{
    return session->state == SL_SESSION_WELCOMED && !session->breaking.has_begun;
}

static void session_request_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_session_request *request =
        SL_CONTAINER_OF(timer, struct sl_session_request, deadline);
    struct sl_session *session = request->session;
    const char *more = session->requests.waited_for[0] == '\0' ? "" : ": still waiting for ";
    const char *what = session->requests.waited_for;
    if (!session_request_is_up(session)) {
        more = ": it is not connected: ";
        what = sl_session_last_error(session);
    }
    char reason[SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s (%s) did not answer within %llu ms%s%s",
                   session->peer_name, session->path.text, request->timeout_ns / SL_CLOCK_NS_PER_MS,
                   more, what);
    session_request_finish(session_request_find(session, request->message.id), NULL,
                           SL_ERR_DEADLINE, reason);
}

static void refuse(struct sl_session *session, sl_session_answer_fn *answer, void *ctx, int err,
                   const char *why)
{
    char reason[SL_SESSION_REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s (%s): %s", session->peer_name, session->path.text,
                   why);
    sl_session_enter(session);
    answer(ctx, NULL, err, reason);
    sl_session_leave(session);
}

static void start_deadline(struct sl_session_request *request)
{
    uint64_t left_ns = SL_CLOCK_NEVER - request->asked_ns;
    sl_timer_arm(sl_reactor_timers(request->session->reactor), &request->deadline,
                 request->timeout_ns < left_ns ? request->asked_ns + request->timeout_ns
                                               : SL_CLOCK_NEVER);
}

/* Whether the shard that the message is for, if any, takes messages. */
static bool is_ready(const struct sl_session *session, const struct sl_message *message)
{
    const struct sl_session_events *events = session->options.events;
    return message->kind == SL_MESSAGE_ATTACH || events->is_ready == NULL ||
           events->is_ready(session->options.ctx, sl_frame_shard(message->id));
}

static bool has_unsent(const struct sl_session *session, const struct sl_message *message)
{
    const struct sl_session_request *at = session->requests.first;
    while (at != NULL && (at->sent || at->message.kind != message->kind ||
                          sl_frame_shard(at->message.id) != sl_frame_shard(message->id))) {
        at = at->next;
    }
    return at != NULL;
}

/* Requests of a kind are sent in their order: one that waits to be sent again is not overtaken. The
 * sequences of notices rely on it. */
void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx)
{
    sl_assert(session != NULL);
    sl_assert(message != NULL);
    sl_assert(timeout_ns > 0);
    sl_assert(answer != NULL);
    sl_reactor_assert_owner(session->reactor);
    bool keeps = session->options.persistent && session->state != SL_SESSION_ENDED;
    if (!session_request_is_up(session) && !keeps) {
        refuse(session, answer, ctx, SL_ERR_CLOSED, "not connected");
        return;
    }
    struct sl_session_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        refuse(session, answer, ctx, SL_ERR_NO_MEMORY, "no memory for a request");
        return;
    }
    message->id = sl_frame_id(sl_frame_shard(message->id), session->requests.next_id++);
    const bool is_sent = session_request_is_up(session) && is_ready(session, message) &&
                         !has_unsent(session, message);
    if (is_sent && sl_session_send(session, message) != SL_OK) {
        free(request);
        refuse(session, answer, ctx, SL_ERR_NO_MEMORY, "outgoing buffers are full");
        return;
    }
    *request = (struct sl_session_request){
        .session = session,
        .message = *message,
        .sent = is_sent,
        .wanted = answer_kind(message),
        .asked_ns = session_request_now_of(session),
        .timeout_ns = timeout_ns,
        .deadline = {.run = session_request_deadline_passed},
        .answer = answer,
        .ctx = ctx,
    };
    *session_request_find(session, 0) =
        request; /* no request has id 0: session_request_find() returns the end of the list */
    start_deadline(request);
}

void sl_session_cancel(struct sl_session *session, const void *ctx)
{
    sl_reactor_assert_owner(session->reactor);
    struct sl_session_request **at = &session->requests.first;
    while (*at != NULL && (*at)->ctx != ctx) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        session_request_finish(at, NULL, SL_ERR_CANCELLED, "interrupted");
    }
}

void sl_session_fail_shard(struct sl_session *session, uint32_t shard, int err, const char *reason)
{
    sl_session_enter(session);
    struct sl_session_request **at = &session->requests.first;
    while (*at != NULL) {
        if (sl_frame_shard((*at)->message.id) == shard) {
            session_request_finish(at, NULL, err, reason);
            at = &session->requests.first;
        } else {
            at = &(*at)->next;
        }
    }
    sl_session_leave(session);
}

void sl_session_migrate_shard(struct sl_session *from, struct sl_session *to, uint32_t shard)
{
    struct sl_session_request **at = &from->requests.first;
    while (*at != NULL) {
        struct sl_session_request *request = *at;
        if (sl_frame_shard(request->message.id) != shard) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->next = NULL;
        request->session = to;
        request->sent = false;
        request->message.id = sl_frame_id(shard, to->requests.next_id++);
        *session_request_find(to, 0) = request;
    }
}

bool sl_session_request_renew(struct sl_session *session, const struct sl_message *message)
{
    struct sl_session_request *at = session->requests.first;
    while (at != NULL && (at->sent || at->message.kind != message->kind)) {
        at = at->next;
    }
    if (at == NULL) {
        return false;
    }
    const uint64_t id = at->message.id;
    at->message = *message;
    at->message.id = id;
    return true;
}

/* A relayed message may have arrived: it is not sent twice. */
void sl_session_request_lose_all(struct sl_session *session)
{
    struct sl_session_request **at = &session->requests.first;
    while (*at != NULL) {
        if ((*at)->sent && (*at)->message.kind == SL_MESSAGE_RELAY) {
            session_request_finish(at, NULL, SL_ERR_CLOSED,
                                   "the connection broke: the message may have arrived");
            at = &session->requests.first;
        } else {
            (*at)->sent = false;
            at = &(*at)->next;
        }
    }
}

static uint32_t timeout_left_ms(const struct sl_session_request *request, uint32_t timeout_ms)
{
    uint64_t gone_ms =
        (session_request_now_of(request->session) - request->asked_ns) / SL_CLOCK_NS_PER_MS;
    return timeout_ms == 0 ? 0 : gone_ms < timeout_ms ? timeout_ms - (uint32_t)gone_ms : 1;
}

/* The timeout inside a message is counted from the request, also when the message is resent. */
static struct sl_message as_of_now(const struct sl_session_request *request)
{
    struct sl_message message = request->message;
    if (message.kind == SL_MESSAGE_BARRIER) {
        message.barrier.timeout_ms = timeout_left_ms(request, message.barrier.timeout_ms);
    } else if (message.kind == SL_MESSAGE_RELAY) {
        message.relay.timeout_ms = timeout_left_ms(request, message.relay.timeout_ms);
    } else if (message.kind == SL_MESSAGE_CHECKPOINT_ASK) {
        message.timeout_ms = timeout_left_ms(request, message.timeout_ms);
    }
    return message;
}

static bool keeps_id(const struct sl_session_request *request)
{
    return request->message.kind == SL_MESSAGE_TABLE_OPEN && request->message.table_open.keep_id;
}

/* Returns false if the outbox is full. */
static bool send_those(struct sl_session *session, bool that_keep_ids)
{
    for (struct sl_session_request *at = session->requests.first;
         at != NULL && session_request_is_up(session); at = at->next) {
        struct sl_message message = as_of_now(at);
        if (at->sent || keeps_id(at) != that_keep_ids || !is_ready(session, &message)) {
            continue;
        }
        if (sl_session_send(session, &message) != SL_OK) {
            return false;
        }
        at->sent = true;
    }
    return true;
}

/* Requests that keep their table ids go first: a table opened before them could be given one of the
 * ids. */
void sl_session_request_send_all(struct sl_session *session)
{
    if (!send_those(session, true) || !send_those(session, false)) {
        sl_session_arm(session, &session->requests.resend, RESEND_NS);
    }
}

void sl_session_send_ready(struct sl_session *session)
{
    if (session_request_is_up(session)) {
        sl_session_request_send_all(session);
    }
}

bool sl_session_request_answered(struct sl_session *session, const struct sl_message *message)
{
    if (message->kind == SL_MESSAGE_WAITING) {
        sl_session_note_waiting(session, &message->waiting);
        return true;
    }
    session->requests.waited_for[0] = '\0';
    struct sl_session_request **at = session_request_find(session, message->id);
    if (message->id == 0 || *at == NULL) {
        return false;
    }
    if (message->kind == SL_MESSAGE_ERROR) {
        session_request_finish(at, NULL, message->error.err, message->error.text);
    } else if (message->kind == (*at)->wanted) {
        session_request_finish(at, message, SL_OK, "");
    } else {
        session_request_finish(at, NULL, SL_ERR_PROTOCOL,
                               "the answer is of another kind than was asked for");
    }
    return true;
}

void sl_session_request_fail_all(struct sl_session *session, int err, const char *reason)
{
    while (session->requests.first != NULL) {
        session_request_finish(&session->requests.first, NULL, err, reason);
    }
}
