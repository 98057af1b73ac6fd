#include "objects/node/session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/format.h"
#include "core/log.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/follow.h"
#include "objects/node/node.h"
#include "objects/node/pin.h"

#define VIEWS_MAX 64 /* of a session */
#define STREAM_NS (SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)

struct view {
    struct sl_list_link link; /* of session->views */
    struct sl_objects_session *session;
    uint64_t number;
    struct sl_timer old;
    struct sl_objects_pin *pin;
    struct sl_shared memory; /* of the table, while it changes; base NULL: it does not */
};

struct sl_objects_session {
    struct sl_objects *node;
    int pid; /* of the reader */
    sl_objects_session_answered_fn *answered;
    void *ctx;
    struct sl_objects_follow *follow; /* NULL: not yet */
    bool fetches;
    struct sl_list views;
    uint32_t view_count;
    uint64_t last_view; /* its number */

    struct sl_objects_session_request request; /* in progress; kind 0: none */
    struct sl_timer late;
    struct sl_objects_follow_wait wait;
    struct view *opening; /* in the list, not answered yet */
    uint64_t tried;       /* OPEN of the newest: this one went away */
    struct sl_objects_ask find;
};

/* Answers */

/* Ends the wait of a request. */
static void end_request(struct sl_objects_session *session)
{
    sl_reactor_disarm(session->node->reactor, &session->late);
    sl_list_remove(&session->wait.link);
    session->request.kind = 0;
    session->opening = NULL;
}

static void answer(struct sl_objects_session *session, struct sl_objects_session_answer *answer,
                   const int *fds)
{
    answer->kind = session->request.kind;
    end_request(session);
    session->answered(session->ctx, answer, fds);
}

static void node_session_fail(struct sl_objects_session *session, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void node_session_fail(struct sl_objects_session *session, int err, const char *format, ...)
{
    struct sl_objects_session_answer failed = {.err = err};
    SL_FORMAT(failed.text, format);
    answer(session, &failed, NULL);
}

/* Views */

static void close_view(struct view *view)
{
    sl_reactor_disarm(view->session->node->reactor, &view->old);
    sl_list_remove(&view->link);
    view->session->view_count--;
    sl_objects_pin_close(&view->pin);
    sl_shared_destroy(&view->memory);
    free(view);
}

static struct view *find_view(struct sl_objects_session *session)
{
    SL_LIST_EACH (struct view, view, link, &session->views) {
        if (view->number == session->request.view) {
            return view;
        }
    }
    return NULL;
}

static void old_passed(struct sl_timer *timer, uint64_t now_ns)
{
    const struct view *view = SL_CONTAINER_OF(timer, struct view, old);
    sl_log_warn("objects: process %d has a view of %s@%" PRIu64 " open for %" PRIu64
                " s, and keeps its memory in the pool",
                view->session->pid, view->session->follow->name, view->pin->version,
                (uint64_t)(view->session->node->setup.pin_warn_ns / SL_CLOCK_NS_PER_S));
}

static void fill_part(struct sl_objects_table *table, uint32_t index,
                      struct sl_objects_pin_part *part)
{
    const struct sl_objects_copy *copy = sl_objects_pin_copy(part);
    struct sl_objects_table_part *to = &table->parts[index];
    to->image_bytes = copy->info.bytes;
    to->manifest_bytes = copy->info.manifest_bytes;
    to->first_slot = table->slot_count;
    to->copy = part->own != NULL ? (uintptr_t)copy : 0;
    to->slot_count = part->own != NULL ? 0 : copy->place_count;
    for (uint32_t i = 0; i < to->slot_count; i++) {
        table->slots[table->slot_count++] = copy->pooled->blocks[i].slot;
    }
    sl_objects_table_set_verified(to, sl_objects_copy_beginning(copy));
}

static int make_table(struct view *view)
{
    struct sl_objects_pin *pin = view->pin;
    uint64_t slots = 0;
    for (uint32_t i = 0; i < pin->part_count; i++) {
        slots += sl_objects_pin_copy(&pin->parts[i])->place_count;
    }
    const int err = sl_shared_create("starling-objects-view",
                                     sizeof(struct sl_objects_table) + slots * sizeof(uint32_t),
                                     SL_SHARED_READ, &view->memory);
    if (err != 0) {
        return err;
    }
    struct sl_objects_table *table = (void *)view->memory.base;
    table->version = pin->version;
    table->part_count = pin->part_count;
    for (uint32_t i = 0; i < pin->part_count; i++) {
        fill_part(table, i, &pin->parts[i]);
    }
    return 0;
}

static void answer_open(struct sl_objects_session *session, struct view *view)
{
    const struct sl_objects *node = session->node;
    const struct sl_shared *pool =
        node->pool.base != NULL ? sl_shared_find(node->pool.base, node->pool_bytes) : NULL;
    const int err = make_table(view);
    if (err != 0) {
        node_session_fail(session, err, "no memory for the view");
        close_view(view);
        return;
    }
    struct sl_objects_session_answer opened = {
        .version = view->pin->version, .view = view->number, .fd_count = pool != NULL ? 2 : 1};
    (void)snprintf(opened.text, sizeof opened.text, "%s",
                   sl_objects_pin_copy(&view->pin->parts[0])->note);
    const int fds[] = {view->memory.fd, pool != NULL ? pool->fd : -1};
    if (node->setup.pin_warn_ns != 0) {
        sl_reactor_arm(session->node->reactor, &view->old, node->setup.pin_warn_ns);
    }
    session->follow->in_use = opened.version;
    answer(session, &opened, fds);
    if (view->pin->has_ended) {
        sl_shared_destroy(&view->memory); /* the reader has it */
    }
}

static void answer_wait_view(struct sl_objects_session *session, struct view *view)
{
    const struct sl_objects_pin *pin = view->pin;
    if ((pin->has_ended && pin->err == 0) ||
        sl_objects_pin_verified(view->pin) >= session->request.image_bytes) {
        answer(session, &(struct sl_objects_session_answer){.version = pin->version}, NULL);
    } else if (pin->has_ended) {
        node_session_fail(session, pin->err, "%s@%" PRIu64 ": %s", session->follow->name,
                          pin->version, pin->reason);
    }
}

static void node_session_grown(struct sl_objects_pin *pin)
{
    struct view *view = pin->ctx;
    struct sl_objects_session *session = view->session;
    struct sl_objects_table *table = (void *)view->memory.base;
    for (uint32_t i = 0; table != NULL && i < pin->part_count; i++) {
        sl_objects_table_set_verified(
            &table->parts[i], sl_objects_copy_beginning(sl_objects_pin_copy(&pin->parts[i])));
    }
    if (session->opening == view) {
        if ((session->request.options & SL_OBJECTS_OPEN_STREAM) != 0 &&
            sl_objects_pin_is_placed(pin)) {
            answer_open(session, view);
        }
    } else if (session->request.kind == SL_OBJECTS_SESSION_WAIT_VIEW &&
               session->request.view == view->number) {
        answer_wait_view(session, view);
    }
}

/* Whether another version will do: the newest one has gone away. */
static bool takes_other(const struct sl_objects_session *session, int err)
{
    return session->request.version == 0 && (err == SL_ERR_NOT_FOUND || err == SL_ERR_CANCELLED);
}

static void node_session_look(struct sl_objects_session *session);

static void node_session_ended(struct sl_objects_pin *pin)
{
    struct view *view = pin->ctx;
    struct sl_objects_session *session = view->session;
    if (pin->err == 0) {
        sl_objects_follow_completed(session->follow, pin->version);
    }
    if (session->opening != view) {
        node_session_grown(pin);
    } else if (pin->err == 0) {
        answer_open(session, view);
    } else if (takes_other(session, pin->err)) {
        session->tried = pin->version;
        session->opening = NULL;
        close_view(view);
        node_session_look(session);
    } else {
        node_session_fail(session, pin->err, "%s@%" PRIu64 ": %s", session->follow->name,
                          pin->version, pin->reason);
        close_view(view);
    }
}

/* OPEN */

static void node_session_open_view(struct sl_objects_session *session,
                                   const struct sl_objects_message *news)
{
    struct sl_objects *node = session->node;
    struct view *view = calloc(1, sizeof *view);
    struct sl_reason reason = {.text = "out of memory"};
    /* The deadline is the request's; a stream goes on after its answer. */
    const int err =
        view == NULL ? SL_ERR_NO_MEMORY
                     : sl_objects_pin_open(node, news, sl_reactor_now_ns(node->reactor) + STREAM_NS,
                                           &view->pin, &reason);
    if (err != 0) {
        free(view);
        node_session_fail(session, err, "%s@%" PRIu64 ": %s", session->follow->name,
                          news->commit.record.version, reason.text);
        return;
    }
    view->session = session;
    view->number = ++session->last_view;
    view->old.run = old_passed;
    sl_objects_pin_set_stops(view->pin, session->request.stops, session->request.stop_count);
    view->pin->ctx = view;
    view->pin->grown = node_session_grown;
    view->pin->ended = node_session_ended;
    session->opening = view;
    session->view_count++;
    sl_list_append(&session->views, &view->link);
    node_session_grown(view->pin);
}

static void node_session_found(struct sl_objects_ask *ask, const struct sl_objects_message *answer,
                               int err, const char *reason)
{
    struct sl_objects_session *session = SL_CONTAINER_OF(ask, struct sl_objects_session, find);
    const int failed = err == 0 && answer->commit.record_count == 0 ? SL_ERR_NOT_FOUND : err;
    if (takes_other(session, failed)) {
        session->tried = session->find.message.version;
        node_session_look(session);
    } else if (failed != 0) {
        node_session_fail(session, failed, "%s@%" PRIu64 ": %s", session->follow->name,
                          session->find.message.version, reason);
    } else {
        node_session_open_view(session, answer);
    }
}

static uint64_t newest(const struct sl_objects_session *session)
{
    const struct sl_objects_board_entry *entry = session->follow->entry;
    return session->fetches ? sl_objects_board_complete(entry) : sl_objects_board_announced(entry);
}

/* 0: there is none yet. */
static uint64_t choose_version(const struct sl_objects_session *session)
{
    const struct sl_objects_board_entry *entry = session->follow->entry;
    const uint64_t complete = sl_objects_board_complete(entry);
    const bool is_good =
        complete != 0 && sl_objects_board_behind(entry, complete) <= session->request.behind_max;
    /* When the newest one was removed, older ones are tried. */
    const uint64_t tried = session->tried <= sl_objects_board_announced(entry) ? session->tried : 0;
    const uint64_t chosen = is_good && complete > tried ? complete : newest(session);
    return session->request.version != 0 ? session->request.version : chosen > tried ? chosen : 0;
}

/* A version of which this process has something has its record here. */
static void begin_open(struct sl_objects_session *session, uint64_t version)
{
    const struct sl_objects_copy *copy =
        sl_objects_copy_find(session->node, session->follow->name, version, 0);
    if (copy != NULL && copy->record != NULL && copy->record->time_ms != 0) {
        struct sl_objects_message news = {
            .kind = SL_OBJECTS_NEWS, .commit.record_count = 1, .commit.record = *copy->record};
        node_session_open_view(session, &news);
        return;
    }
    session->find.message = (struct sl_objects_message){
        .kind = SL_OBJECTS_FIND, .name = session->follow->name, .version = version};
    session->find.answered = node_session_found;
    sl_objects_ask(session->node, &session->find, SL_CLOCK_NEVER);
}

static void cancel_find(struct sl_objects_session *session)
{
    if (sl_list_linked(&session->find.link)) {
        sl_objects_ask_cancel(&session->find);
        sl_objects_report_none(session->node, session->follow->name, session->find.message.version,
                               0);
    }
}

/* Requests */

/* Answers a request if it can be, else waits. */
static void node_session_look(struct sl_objects_session *session)
{
    const struct sl_objects_follow *follow = session->follow;
    const uint32_t kind = session->request.kind;
    const uint64_t version =
        kind == SL_OBJECTS_SESSION_OPEN ? choose_version(session) : newest(session);
    const bool is_ready = kind == SL_OBJECTS_SESSION_WAIT   ? version > session->request.version
                          : kind == SL_OBJECTS_SESSION_OPEN ? version != 0
                                                            : follow->is_known;
    if (!is_ready) {
        if (!sl_list_linked(&session->wait.link)) {
            sl_list_append(&session->follow->waits, &session->wait.link);
        }
    } else if (kind == SL_OBJECTS_SESSION_OPEN) {
        sl_list_remove(&session->wait.link);
        begin_open(session, version);
    } else {
        answer(
            session,
            &(struct sl_objects_session_answer){.version = version, .board_entry = follow->index},
            NULL);
    }
}

static void node_session_changed(struct sl_objects_follow_wait *wait, int err, const char *reason)
{
    struct sl_objects_session *session = SL_CONTAINER_OF(wait, struct sl_objects_session, wait);
    if (err != 0 && session->request.kind == SL_OBJECTS_SESSION_FOLLOW) {
        node_session_fail(session, err, "%s", reason);
    } else {
        node_session_look(session);
    }
}

static void hello(struct sl_objects_session *session)
{
    const int err = sl_objects_follow_open_board(session->node);
    if (session->request.version != SL_OBJECTS_SESSION_MAGIC) {
        node_session_fail(session, SL_ERR_VERSION,
                          "process %d of this host uses another version of the library",
                          (int)getpid());
    } else if (session->request.name[0] != '\0' &&
               strcmp(session->request.name, session->node->membership.identity) != 0) {
        node_session_fail(session, SL_ERR_REFUSED, "the agent has the catalogue at %s",
                          session->node->membership.identity);
    } else if (err != 0) {
        node_session_fail(session, err, "the board: %s", sl_err_name(err));
    } else {
        answer(session, &(struct sl_objects_session_answer){.fd_count = 1},
               &session->node->follows.board.fd);
    }
}

static void follow(struct sl_objects_session *session)
{
    session->fetches = (session->request.options & SL_OBJECTS_FOLLOW_FETCH) != 0;
    const int err = sl_objects_follow_get(session->node, session->request.name, session->fetches,
                                          &session->follow);
    if (err != 0) {
        node_session_fail(session, err, "%s: cannot follow it: %s", session->request.name,
                          sl_err_name(err));
        return;
    }
    node_session_look(session);
}

static void request_view(struct sl_objects_session *session)
{
    struct view *view = find_view(session);
    if (view == NULL) {
        node_session_fail(session, SL_ERR_NOT_FOUND, "there is no such view");
    } else if (session->request.kind == SL_OBJECTS_SESSION_WAIT_VIEW) {
        answer_wait_view(session, view);
    } else {
        close_view(view);
        answer(session, &(struct sl_objects_session_answer){0}, NULL);
    }
}

static void late_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_session *session = SL_CONTAINER_OF(timer, struct sl_objects_session, late);
    const struct sl_objects_membership *membership = &session->node->membership;
    const char *name = session->follow->name;
    struct view *view = session->opening != NULL ? session->opening : find_view(session);
    if (session->request.kind == SL_OBJECTS_SESSION_FOLLOW || sl_list_linked(&session->find.link)) {
        cancel_find(session);
        node_session_fail(session, SL_ERR_DEADLINE, "the catalogue at %s has not answered: %s",
                          sl_objects_membership_place(membership),
                          sl_objects_membership_reason(membership));
    } else if (view != NULL) {
        const bool is_opening = view == session->opening;
        char text[SL_REASON_BYTES];
        sl_objects_pin_describe(view->pin, text);
        node_session_fail(session, SL_ERR_DEADLINE, "%s@%" PRIu64 ": %s", name, view->pin->version,
                          text);
        if (is_opening) {
            close_view(view);
        }
    } else {
        const char *reason = membership->is_attached ? session->follow->reason
                                                     : sl_objects_membership_reason(membership);
        node_session_fail(session, SL_ERR_DEADLINE,
                          "%s: no version above %" PRIu64 " in time; the catalogue at %s %s%s%s",
                          name, session->request.version, sl_objects_membership_place(membership),
                          membership->is_attached ? "answers" : "does not answer",
                          reason[0] != '\0' ? ": " : "", reason);
    }
}

static bool is_request(const struct sl_objects_session *session,
                       const struct sl_objects_session_request *request)
{
    const bool is_follow = request->kind == SL_OBJECTS_SESSION_FOLLOW;
    return session->request.kind == 0 && request->kind >= SL_OBJECTS_SESSION_HELLO &&
           request->kind <= SL_OBJECTS_SESSION_CLOSE && request->timeout_ms >= 1 &&
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
    session->tried = 0;
    sl_reactor_arm(session->node->reactor, &session->late,
                   request->timeout_ms * SL_CLOCK_NS_PER_MS);
    switch (request->kind) {
    case SL_OBJECTS_SESSION_HELLO:
        hello(session);
        break;
    case SL_OBJECTS_SESSION_FOLLOW:
        follow(session);
        break;
    case SL_OBJECTS_SESSION_OPEN:
        if (session->view_count == VIEWS_MAX) {
            node_session_fail(session, SL_ERR_TOO_LARGE, "%d views are open: close some",
                              VIEWS_MAX);
            break;
        }
        node_session_look(session);
        break;
    case SL_OBJECTS_SESSION_WAIT:
        node_session_look(session);
        break;
    default:
        request_view(session);
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
    sl_list_init(&made->views);
    made->late.run = late_passed;
    made->wait.changed = node_session_changed;
    *out = made;
    return 0;
}

void sl_objects_session_destroy(struct sl_objects_session **session)
{
    struct sl_objects_session *gone = *session;
    *session = NULL;
    cancel_find(gone);
    end_request(gone);
    SL_LIST_EACH (struct view, view, link, &gone->views) {
        close_view(view);
    }
    if (gone->follow != NULL) {
        sl_objects_follow_put(gone->follow, gone->fetches);
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

static void node_session_close_here(struct sl_objects *node, struct sl_objects_call *call)
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
    const bool uses_pool = request->kind == SL_OBJECTS_SESSION_OPEN ||
                           (request->kind == SL_OBJECTS_SESSION_FOLLOW &&
                            (request->options & SL_OBJECTS_FOLLOW_FETCH) != 0);
    const int err = uses_pool ? sl_objects_copy_open_pool(session->node) : 0;
    return err != 0 ? err : sl_objects_call(session->node, &call.call);
}

void sl_objects_session_close(struct sl_objects_session **session)
{
    struct sl_objects_session *gone = *session;
    *session = NULL;
    if (gone != NULL) {
        struct session_call call = {.call = {.run = node_session_close_here}, .session = gone};
        (void)sl_objects_call(gone->node, &call.call);
    }
}
