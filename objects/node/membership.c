#include "objects/node/membership.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text_file.h"
#include "objects/node/call.h"
#include "objects/node/node.h"

#define RETRY_NS    (100 * SL_CLOCK_NS_PER_MS) /* at least; 5 ms for each node of the catalogue */
#define TRY_MS      2000 /* of one attempt: the catalogue may have ended in between */
#define DETACH_MS   500  /* without an answer: its lease ends later */
#define PROGRESS_NS SL_CLOCK_NS_PER_S

static void send_asks(struct sl_objects *node);

/* Sends the next ATTACH or ALIVE at the latest then. */
static void membership_arm(struct sl_objects *node, uint64_t pause_ns)
{
    struct sl_timer *timer = &node->membership.timer;
    if (!sl_timer_armed(timer) || sl_reactor_now_ns(node->reactor) + pause_ns < timer->due_ns) {
        sl_reactor_arm(node->reactor, timer, pause_ns);
    }
}

/* Something has failed: what waits is sent again after a pause. */
static void membership_retry(struct sl_objects *node)
{
    membership_arm(node,
                   sl_backoff_next(&node->membership.backoff, sl_reactor_random(node->reactor)));
}

/* Attaching */

static void attached(struct sl_objects *node, const struct sl_objects_message *answer)
{
    struct sl_objects_membership *membership = &node->membership;
    membership->is_attached = true;
    membership->term = answer->term;
    membership->lease_ms = answer->attach.lease_ms;
    membership->reported_ns = sl_reactor_now_ns(node->reactor);
    sl_objects_reports_cancel(node); /* those of an earlier catalogue */
    sl_objects_reports_begin(node);
    membership->attached(node);
}

static void membership_lose(struct sl_objects *node, const char *reason)
{
    struct sl_objects_membership *membership = &node->membership;
    if (membership->is_attached) {
        sl_log_warn("objects: the catalogue at %s is lost: %s; attaching again",
                    membership->catalogue, reason);
        sl_backoff_reset(&membership->backoff);
        sl_reactor_disarm(node->reactor, &membership->timer);
    }
    membership->is_attached = false;
    (void)snprintf(membership->reason, sizeof membership->reason, "%s", reason);
}

/* Another one may begin at its address: this node tells it soon what it holds. */
static void catalogue_ended(struct sl_objects_peer_use *use, const char *reason)
{
    struct sl_objects *node = SL_CONTAINER_OF(use, struct sl_objects, membership.use);
    membership_lose(node, reason);
    membership_retry(node);
}

static void membership_answered(struct sl_objects_request *request,
                                const struct sl_objects_message *answer, int err,
                                const char *reason)
{
    struct sl_objects_membership *membership =
        SL_CONTAINER_OF(request, struct sl_objects_membership, request);
    struct sl_objects *node = SL_CONTAINER_OF(membership, struct sl_objects, membership);
    const uint64_t since_ns = sl_reactor_now_ns(node->reactor) - membership->reported_ns;
    if (err == 0) {
        const uint64_t spread_ns = answer->attach.spread_ms * SL_CLOCK_NS_PER_MS;
        membership->backoff.least_ns = spread_ns > RETRY_NS ? spread_ns : RETRY_NS;
    }
    membership->is_asking = false;
    if (err == 0 && !membership->is_attached) {
        attached(node, answer);
    } else if (err != 0 || answer->term != membership->term) {
        membership_lose(node, err != 0 ? reason : "it has restarted");
    } else if (since_ns >= membership->lease_ms * SL_CLOCK_NS_PER_MS / 4) {
        membership->reported_ns = sl_reactor_now_ns(node->reactor);
        sl_objects_reports_continue(node);
    }
    const bool is_due = membership->reports.is_complete && membership->are_reports_awaited;
    if (membership->is_attached) {
        membership_arm(node, is_due ? 0 : membership->lease_ms * SL_CLOCK_NS_PER_MS / 3);
    } else {
        membership_retry(node);
    }
    send_asks(node);
}

/* A number of its label, or of the boot id of its kernel; without both, no other node has it. */
static uint64_t host_of(const struct sl_objects *node)
{
    char id[64];
    if (node->setup.host != NULL) {
        return sl_hash_bytes(node->setup.host, strlen(node->setup.host), 1);
    }
    const size_t bytes = sl_text_file_read("/proc/sys/kernel/random/boot_id", id, sizeof id);
    return bytes > 0 ? sl_hash_bytes(id, bytes, 0) : node->id;
}

static void attach(struct sl_objects *node)
{
    struct sl_objects_membership *membership = &node->membership;
    membership->are_reports_awaited =
        membership->is_attached ? !membership->reports.is_complete
                                : !sl_list_empty(&node->copies) || !sl_list_empty(&node->stored);
    struct sl_objects_message message = {
        .kind = membership->is_attached ? SL_OBJECTS_ALIVE : SL_OBJECTS_ATTACH,
        .term = membership->term,
        .attach.host = membership->host,
        .attach.roles = (node->setup.is_keeper ? SL_OBJECTS_ROLE_KEEPER : 0) |
                        (node->setup.agent != NULL ? SL_OBJECTS_ROLE_AGENT : 0) |
                        (node->directory != NULL ? SL_OBJECTS_ROLE_DISK : 0) |
                        (membership->are_reports_awaited ? SL_OBJECTS_ROLE_REPORTS : 0),
        .attach.location = node->names.location,
        .attach.spread_ms = (uint32_t)(membership->backoff.least_ns / SL_CLOCK_NS_PER_MS),
    };
    if (membership->use.peer == NULL) {
        membership->use.ended = catalogue_ended;
        membership->use.ends_with_connection = true;
        sl_objects_link_peer_get(node->link, &membership->use, membership->catalogue, TRY_MS);
    }
    membership->is_asking = true;
    membership->request.answered = membership_answered;
    sl_objects_link_request(node->link, &membership->request, membership->catalogue, &message,
                            TRY_MS);
}

static void membership_timer_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_membership *membership =
        SL_CONTAINER_OF(timer, struct sl_objects_membership, timer);
    struct sl_objects *node = SL_CONTAINER_OF(membership, struct sl_objects, membership);
    if (!membership->is_asking && membership->catalogue[0] != '\0') {
        attach(node);
    }
    send_asks(node);
}

/* Asks */

static void ask_answered(struct sl_objects_request *request,
                         const struct sl_objects_message *answer, int err, const char *reason)
{
    struct sl_objects_ask *ask = SL_CONTAINER_OF(request, struct sl_objects_ask, request);
    struct sl_objects_membership *membership = &ask->node->membership;
    ask->is_sent = false;
    if (answer == NULL || err == SL_ERR_AGAIN) { /* it is sent again */
        (void)snprintf(membership->reason, sizeof membership->reason, "%s", reason);
        membership_retry(ask->node);
        return;
    }
    membership->reason[0] = '\0'; /* it was that of an earlier try */
    sl_objects_ask_cancel(ask);
    ask->answered(ask, answer, err, reason);
}

const char *sl_objects_membership_place(const struct sl_objects_membership *membership)
{
    return membership->catalogue[0] != '\0' ? membership->catalogue : "an unknown address";
}

const char *sl_objects_membership_reason(const struct sl_objects_membership *membership)
{
    return membership->trouble[0] != '\0'  ? membership->trouble
           : membership->reason[0] != '\0' ? membership->reason
                                           : "no answer yet";
}

static void ask_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_ask *ask = SL_CONTAINER_OF(timer, struct sl_objects_ask, late);
    const struct sl_objects_membership *membership = &ask->node->membership;
    char text[SL_REASON_BYTES];
    (void)snprintf(text, sizeof text, "the catalogue at %s has not answered %s: %s",
                   sl_objects_membership_place(membership),
                   sl_objects_message_name(ask->message.kind),
                   sl_objects_membership_reason(membership));
    sl_objects_ask_cancel(ask);
    ask->answered(ask, NULL, SL_ERR_DEADLINE, text);
}

static void send_asks(struct sl_objects *node)
{
    SL_LIST_FOREACH (link, &node->membership.asks) {
        struct sl_objects_ask *ask = SL_CONTAINER_OF(link, struct sl_objects_ask, link);
        if (!ask->is_sent && node->membership.is_attached) {
            ask->is_sent = true;
            ask->message.term = node->membership.term;
            ask->request.answered = ask_answered;
            sl_objects_link_request(node->link, &ask->request, node->membership.catalogue,
                                    &ask->message, TRY_MS);
        }
    }
}

void sl_objects_ask(struct sl_objects *node, struct sl_objects_ask *ask, uint64_t deadline_ns)
{
    sl_reactor_assert_owner(node->reactor);
    const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
    ask->node = node;
    ask->is_sent = false;
    ask->late = (struct sl_timer){.run = ask_late};
    sl_list_append(&node->membership.asks, &ask->link);
    sl_reactor_arm(node->reactor, &ask->late, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    send_asks(node);
}

void sl_objects_ask_cancel(struct sl_objects_ask *ask)
{
    if (sl_list_linked(&ask->link)) {
        sl_objects_link_cancel(ask->node->link, &ask->request);
        sl_reactor_disarm(ask->node->reactor, &ask->late);
        sl_list_remove(&ask->link);
    }
}

struct ask_call {
    struct sl_objects_call call;
    struct sl_objects_ask ask;
    uint64_t deadline_ns;
    void (*take)(void *ctx, const struct sl_objects_message *answer);
    void *ctx;
};

static void waited(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                   const char *reason)
{
    struct ask_call *call = SL_CONTAINER_OF(ask, struct ask_call, ask);
    if (err == 0 && call->take != NULL) {
        call->take(call->ctx, answer);
    }
    sl_objects_answer(&call->call, err, "%s", reason);
}

static void ask_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct ask_call *ask = SL_CONTAINER_OF(call, struct ask_call, call);
    sl_objects_ask(node, &ask->ask, ask->deadline_ns);
}

int sl_objects_ask_and_wait(struct sl_objects *node, const struct sl_objects_message *message,
                            uint32_t timeout_ms,
                            void (*take)(void *ctx, const struct sl_objects_message *answer),
                            void *ctx)
{
    struct ask_call ask = {.call = {.run = ask_here},
                           .ask = {.message = *message, .answered = waited},
                           .deadline_ns = sl_objects_deadline_ns(node, timeout_ms),
                           .take = take,
                           .ctx = ctx};
    return sl_objects_call(node, &ask.call);
}

static void report_progress(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_membership *membership =
        SL_CONTAINER_OF(timer, struct sl_objects_membership, progress);
    struct sl_objects *node = SL_CONTAINER_OF(membership, struct sl_objects, membership);
    SL_LIST_FOREACH (link, &node->copies) {
        const struct sl_objects_copy *copy = SL_CONTAINER_OF(link, struct sl_objects_copy, link);
        if (copy->fetch != NULL) {
            sl_objects_report(node, copy);
        }
    }
    sl_objects_serve_look(node);
    sl_reactor_arm(node->reactor, timer, PROGRESS_NS);
}

/* Start and stop */

void sl_objects_membership_start(struct sl_objects *node, void (*attached_fn)(struct sl_objects *))
{
    struct sl_objects_membership *membership = &node->membership;
    membership->attached = attached_fn;
    membership->host = host_of(node);
    membership->timer.run = membership_timer_passed;
    membership->progress.run = report_progress;
    membership->backoff.least_ns = RETRY_NS;
    sl_reactor_arm(node->reactor, &membership->timer, 0);
    sl_reactor_arm(node->reactor, &membership->progress, PROGRESS_NS);
}

static void detached(struct sl_objects_request *request, const struct sl_objects_message *answer,
                     int err, const char *reason)
{
    SL_CONTAINER_OF(request, struct sl_objects_membership, request)->is_asking = false;
}

void sl_objects_membership_stop(struct sl_objects *node)
{
    struct sl_objects_membership *membership = &node->membership;
    const bool is_host = strcmp(membership->catalogue, sl_transfer_name(node->transfer)) == 0;
    struct sl_objects_message detach = {.kind = SL_OBJECTS_DETACH, .term = membership->term};
    sl_assert(sl_list_empty(&membership->asks));
    sl_objects_link_cancel(node->link, &membership->request);
    sl_objects_reports_cancel(node);
    sl_objects_link_peer_put(node->link, &membership->use);
    sl_reactor_disarm(node->reactor, &membership->timer);
    sl_reactor_disarm(node->reactor, &membership->progress);
    membership->is_asking = membership->is_attached && !is_host;
    membership->is_attached = false; /* a report that is lost from now on is not sent again */
    if (membership->is_asking) {
        membership->request.answered = detached;
        sl_objects_link_request(node->link, &membership->request, membership->catalogue, &detach,
                                DETACH_MS);
    }
}

void sl_objects_membership_move(struct sl_objects *node, const char *address)
{
    struct sl_objects_membership *membership = &node->membership;
    if (strcmp(membership->catalogue, address) == 0) {
        return;
    }
    membership_lose(node, address[0] == '\0'                 ? "no process hosts it"
                          : membership->catalogue[0] != '\0' ? "it has moved"
                                                             : "");
    (void)snprintf(membership->catalogue, sizeof membership->catalogue, "%s", address);
    sl_objects_link_peer_put(node->link, &membership->use);
    sl_objects_link_cancel(node->link, &membership->request);
    sl_objects_reports_cancel(node);
    membership->is_asking = false;
    SL_LIST_FOREACH (link, &membership->asks) {
        struct sl_objects_ask *ask = SL_CONTAINER_OF(link, struct sl_objects_ask, link);
        sl_objects_link_cancel(node->link, &ask->request);
        ask->is_sent = false;
    }
    if (membership->term == 0) {
        sl_reactor_arm(node->reactor, &membership->timer, 0);
    } else { /* its other nodes come, too */
        membership_retry(node);
    }
}
