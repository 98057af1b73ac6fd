#include "objects/session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "objects/call.h"
#include "objects/error.h"
#include "objects/follow.h"
#include "objects/node.h"

struct sl_objects_session {
    struct sl_objects *node;
    int pid; /* of the reader */
    sl_objects_session_answered_fn *answered;
    void *ctx;
    struct sl_objects_follow *follow; /* NULL: not yet */
    struct sl_objects_follow_wait wait;

    struct sl_objects_session_request request; /* in progress; kind 0: none */
    struct sl_timer late;
};

/* Answers */

static void answer(struct sl_objects_session *session, struct sl_objects_session_answer *answer,
                   const int *fds)
{
    answer->kind = session->request.kind;
    session->request.kind = 0;
    sl_reactor_disarm(session->node->reactor, &session->late);
    sl_list_remove(&session->wait.link);
    session->answered(session->ctx, answer, fds);
}

static void fail(struct sl_objects_session *session, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(struct sl_objects_session *session, int err, const char *format, ...)
{
    struct sl_objects_session_answer failed = {.err = err};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(failed.text, sizeof failed.text, format, args);
    va_end(args);
    answer(session, &failed, NULL);
}

static void late_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_session *session = SL_CONTAINER_OF(timer, struct sl_objects_session, late);
    const struct sl_objects_membership *membership = &session->node->membership;
    const struct sl_objects_follow *follow = session->follow;
    if (session->request.kind == SL_OBJECTS_SESSION_FOLLOW) {
        fail(session, SL_ERR_DEADLINE, "the catalogue at %s has not answered FOLLOW: %s",
             membership->catalogue,
             membership->reason[0] != '\0' ? membership->reason : "no answer yet");
    } else {
        fail(session, SL_ERR_DEADLINE,
             "%s: no version above %" PRIu64 " in time; the catalogue at %s %s%s", follow->name,
             session->request.version, membership->catalogue,
             membership->is_attached ? "answers" : "does not answer: ",
             membership->is_attached ? "" : membership->reason);
    }
}

/* Requests */

static void look(struct sl_objects_session *session)
{
    const struct sl_objects_follow *follow = session->follow;
    const uint64_t newest = sl_objects_board_announced(follow->entry);
    if (session->request.kind == SL_OBJECTS_SESSION_WAIT ? newest > session->request.version
                                                         : follow->is_known) {
        answer(session,
               &(struct sl_objects_session_answer){.version = newest, .board_entry = follow->index},
               NULL);
    } else if (!sl_list_linked(&session->wait.link)) {
        sl_list_append(&session->follow->waits, &session->wait.link);
    }
}

static void changed(struct sl_objects_follow_wait *wait, int err, const char *reason)
{
    struct sl_objects_session *session = SL_CONTAINER_OF(wait, struct sl_objects_session, wait);
    if (err != 0 && session->request.kind == SL_OBJECTS_SESSION_FOLLOW) {
        fail(session, err, "%s", reason);
    } else {
        look(session);
    }
}

static void hello(struct sl_objects_session *session)
{
    const int err = sl_objects_follow_open_board(session->node);
    if (session->request.version != SL_OBJECTS_SESSION_MAGIC) {
        fail(session, SL_ERR_VERSION, "process %d of this host uses another version of the library",
             (int)getpid());
    } else if (session->request.name[0] != '\0' &&
               strcmp(session->request.name, session->node->membership.catalogue) != 0) {
        fail(session, SL_ERR_REFUSED, "the agent has the catalogue at %s",
             session->node->membership.catalogue);
    } else if (err != 0) {
        fail(session, err, "the board: %s", sl_err_name(err));
    } else {
        answer(session, &(struct sl_objects_session_answer){.fd_count = 1},
               &session->node->follows.board.fd);
    }
}

static void follow(struct sl_objects_session *session)
{
    const int err = sl_objects_follow_get(session->node, session->request.name, &session->follow);
    if (err != 0) {
        fail(session, err, "%s: cannot follow it: %s", session->request.name, sl_err_name(err));
        return;
    }
    look(session);
}

static bool is_request(const struct sl_objects_session *session,
                       const struct sl_objects_session_request *request)
{
    const bool is_follow = request->kind == SL_OBJECTS_SESSION_FOLLOW;
    return session->request.kind == 0 && request->kind >= SL_OBJECTS_SESSION_HELLO &&
           request->kind <= SL_OBJECTS_SESSION_RESIDENT && request->timeout_ms >= 1 &&
           request->timeout_ms <= SL_TRANSFER_TIMEOUT_MS_MAX &&
           request->stop_count <= SL_OBJECTS_SESSION_STOPS_MAX &&
           memchr(request->name, '\0', sizeof request->name) != NULL &&
           (!is_follow || sl_objects_name_is_valid(request->name)) &&
           (request->kind == SL_OBJECTS_SESSION_HELLO || is_follow == (session->follow == NULL));
}

int sl_objects_session_request(struct sl_objects_session *session,
                               const struct sl_objects_session_request *request)
{
    if (!is_request(session, request)) {
        return SL_ERR_PROTOCOL;
    }
    session->request = *request;
    sl_reactor_arm(session->node->reactor, &session->late,
                   request->timeout_ms * SL_CLOCK_NS_PER_MS);
    switch (request->kind) {
    case SL_OBJECTS_SESSION_HELLO:
        hello(session);
        break;
    case SL_OBJECTS_SESSION_FOLLOW:
        follow(session);
        break;
    case SL_OBJECTS_SESSION_WAIT:
        look(session);
        break;
    default:
        fail(session, SL_ERR_UNSUPPORTED, "views are not implemented");
        break;
    }
    return 0;
}

/* Sessions */

int sl_objects_session_create(struct sl_objects *node, int pid,
                              sl_objects_session_answered_fn *answered, void *ctx,
                              struct sl_objects_session **out)
{
    struct sl_objects_session *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->node = node;
    made->pid = pid;
    made->answered = answered;
    made->ctx = ctx;
    made->late.run = late_passed;
    made->wait.changed = changed;
    *out = made;
    return 0;
}

void sl_objects_session_destroy(struct sl_objects_session **session)
{
    struct sl_objects_session *gone = *session;
    *session = NULL;
    sl_reactor_disarm(gone->node->reactor, &gone->late);
    sl_list_remove(&gone->wait.link);
    if (gone->follow != NULL) {
        sl_objects_follow_put(gone->follow);
    }
    free(gone);
}

/* Of this process */

struct session_call {
    struct sl_objects_call call;
    struct sl_objects_session *session;
    const struct sl_objects_session_request *request;
    struct sl_objects_session_answer *answer;
    int *fds;
};

static void call_answered(void *ctx, const struct sl_objects_session_answer *answer, const int *fds)
{
    struct session_call *call = ctx;
    int err = answer->err;
    for (uint32_t i = 0; i < answer->fd_count; i++) {
        call->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        err = call->fds[i] >= 0 ? err : sl_err_from_errno(errno);
    }
    for (uint32_t i = 0; err != 0 && i < answer->fd_count; i++) {
        (void)(call->fds[i] >= 0 && close(call->fds[i]));
    }
    *call->answer = *answer;
    call->answer->err = err;
    sl_objects_answer(&call->call, err, "%s", answer->err != 0 ? answer->text : sl_err_name(err));
}

static void request_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct session_call *request = SL_CONTAINER_OF(call, struct session_call, call);
    request->session->ctx = request;
    if (sl_objects_session_request(request->session, request->request) != 0) {
        sl_objects_answer(call, SL_ERR_INVALID, "not a request of a session");
    }
}

static void close_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_session_destroy(&SL_CONTAINER_OF(call, struct session_call, call)->session);
    sl_objects_answer(call, 0, "closed");
}

int sl_objects_session_open(struct sl_objects *node, struct sl_objects_session **out)
{
    const int err = sl_objects_session_create(node, (int)getpid(), call_answered, NULL, out);
    return err == 0 ? 0 : sl_objects_fail(err, "out of memory");
}

int sl_objects_session_call(struct sl_objects_session *session,
                            const struct sl_objects_session_request *request,
                            struct sl_objects_session_answer *answer,
                            int fds[SL_OBJECTS_SESSION_FDS_MAX])
{
    struct session_call call = {.call = {.run = request_here},
                                .session = session,
                                .request = request,
                                .answer = answer,
                                .fds = fds};
    return sl_objects_call(session->node, &call.call);
}

void sl_objects_session_close(struct sl_objects_session **session)
{
    struct sl_objects_session *gone = *session;
    *session = NULL;
    if (gone != NULL) {
        struct session_call call = {.call = {.run = close_here}, .session = gone};
        (void)sl_objects_call(gone->node, &call.call);
    }
}
