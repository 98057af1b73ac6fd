#include "objects/subscription.h"

#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/call.h"
#include "objects/error.h"
#include "objects/node.h"

struct sl_subscription {
    struct sl_list_link link; /* of node->subscriptions */
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t newest; /* 0: none yet */
    struct sl_list waits;
    struct sl_objects_ask follow; /* after a restart of the catalogue */
    struct sl_objects_message message;
};

struct subscription_call {
    struct sl_objects_call call;
    struct sl_list_link link; /* of subscription->waits */
    struct sl_timer late;
    struct sl_subscription *subscription;
    uint64_t above, newest, deadline_ns;
};

/* On the reactor */

static void end_wait(struct subscription_call *wait, int err)
{
    struct sl_subscription *subscription = wait->subscription;
    wait->newest = subscription->newest;
    sl_list_remove(&wait->link);
    sl_reactor_disarm(subscription->node->reactor, &wait->late);
    sl_objects_answer(&wait->call, err, "%s: no version above %llu in time", subscription->name,
                      (unsigned long long)wait->above);
}

static void take_newest(struct sl_subscription *subscription, uint64_t version)
{
    if (version <= subscription->newest) {
        return;
    }
    subscription->newest = version;
    SL_LIST_FOREACH (link, &subscription->waits) {
        struct subscription_call *wait = SL_CONTAINER_OF(link, struct subscription_call, link);
        if (wait->above < version) {
            end_wait(wait, 0);
        }
    }
}

/* After NEWS the catalogue counts this node as a fetcher of the version. The node fetches only when
 * the application asks for a get. A version that it publishes itself is not declined. */
static void decline(struct sl_objects *node, const struct sl_objects_message *news)
{
    const struct sl_objects_record *record = &news->record;
    if (news->record_count == 1 && record->parts[news->part].holder != node->id &&
        sl_objects_copy_find(node, record->name, record->version, news->part) == NULL) {
        sl_objects_report_none(node, record->name, record->version, news->part);
    }
}

void sl_objects_subscription_news(struct sl_objects *node, const struct sl_objects_message *news)
{
    decline(node, news);
    SL_LIST_FOREACH (link, &node->subscriptions) {
        struct sl_subscription *subscription = SL_CONTAINER_OF(link, struct sl_subscription, link);
        if (news->record_count == 1 && strcmp(subscription->name, news->record.name) == 0) {
            take_newest(subscription, news->record.version);
        }
    }
}

static void followed(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                     const char *reason)
{
    struct sl_subscription *subscription = SL_CONTAINER_OF(ask, struct sl_subscription, follow);
    if (err == 0) {
        sl_objects_subscription_news(subscription->node, answer);
    }
}

static void fill_follow(struct sl_subscription *subscription)
{
    subscription->message =
        (struct sl_objects_message){.kind = SL_OBJECTS_FOLLOW, .name = subscription->name};
}

void sl_objects_subscription_again(struct sl_objects *node)
{
    SL_LIST_FOREACH (link, &node->subscriptions) {
        struct sl_subscription *subscription = SL_CONTAINER_OF(link, struct sl_subscription, link);
        sl_objects_ask_cancel(&subscription->follow);
        fill_follow(subscription);
        subscription->follow.message = &subscription->message;
        subscription->follow.answered = followed;
        sl_objects_ask(node, &subscription->follow, SL_CLOCK_NEVER);
    }
}

/* The list has it, before the catalogue can send NEWS. */
static void add_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_subscription *subscription =
        SL_CONTAINER_OF(call, struct subscription_call, call)->subscription;
    sl_list_append(&node->subscriptions, &subscription->link);
    sl_objects_answer(call, 0, "added");
}

static void take_followed(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_subscription *subscription = ctx;
    sl_objects_subscription_news(subscription->node, answer);
}

static void newest_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct subscription_call *newest = SL_CONTAINER_OF(call, struct subscription_call, call);
    newest->newest = newest->subscription->newest;
    sl_objects_answer(call, 0, "newest");
}

static void wait_late(struct sl_timer *timer, uint64_t now_ns)
{
    end_wait(SL_CONTAINER_OF(timer, struct subscription_call, late), SL_ERR_DEADLINE);
}

static void wait_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct subscription_call *wait = SL_CONTAINER_OF(call, struct subscription_call, call);
    const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
    wait->late.run = wait_late;
    if (wait->subscription->newest > wait->above) {
        end_wait(wait, 0);
        return;
    }
    sl_list_append(&wait->subscription->waits, &wait->link);
    sl_reactor_arm(node->reactor, &wait->late,
                   wait->deadline_ns > now_ns ? wait->deadline_ns - now_ns : 0);
}

static bool is_followed(const struct sl_objects *node, const char *name)
{
    SL_LIST_FOREACH (link, &node->subscriptions) {
        if (strcmp(SL_CONTAINER_OF(link, struct sl_subscription, link)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void close_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_subscription *subscription =
        SL_CONTAINER_OF(call, struct subscription_call, call)->subscription;
    sl_objects_ask_cancel(&subscription->follow);
    sl_list_remove(&subscription->link);
    if (!is_followed(node, subscription->name)) {
        sl_objects_report_none(node, subscription->name, 0, 0);
    }
    sl_objects_answer(call, 0, "closed");
}

/* Public */

int sl_subscription_open(struct sl_objects *objects, const char *name, uint32_t timeout_ms,
                         struct sl_subscription **out)
{
    sl_assert(objects != NULL);
    sl_assert(out != NULL);
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    if (err != 0) {
        return err;
    }
    struct sl_subscription *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    made->node = objects;
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    sl_list_init(&made->waits);
    fill_follow(made);
    struct subscription_call add = {.call = {.run = add_here}, .subscription = made};
    struct sl_objects_message message = made->message;
    err = sl_objects_call(objects, &add.call);
    if (err != 0) {
        free(made);
        return err;
    }
    err = sl_objects_ask_and_wait(objects, &message, timeout_ms, take_followed, made);
    if (err != 0) {
        sl_subscription_close(&made);
        return err;
    }
    *out = made;
    return sl_objects_succeed();
}

uint64_t sl_subscription_newest(const struct sl_subscription *subscription)
{
    sl_assert(subscription != NULL);
    struct subscription_call newest = {.call = {.run = newest_here},
                                       .subscription =
                                           (struct sl_subscription *)(uintptr_t)subscription};
    return sl_objects_call(subscription->node, &newest.call) == 0 ? newest.newest : 0;
}

int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above, uint32_t timeout_ms,
                         uint64_t *version)
{
    sl_assert(subscription != NULL);
    sl_assert(version != NULL);
    int err = sl_objects_check_timeout(timeout_ms);
    if (err != 0) {
        return err;
    }
    struct subscription_call wait = {.call = {.run = wait_here},
                                     .subscription = subscription,
                                     .above = above,
                                     .deadline_ns =
                                         sl_objects_deadline_ns(subscription->node, timeout_ms)};
    err = sl_objects_call(subscription->node, &wait.call);
    if (err != 0) {
        return err;
    }
    *version = wait.newest;
    return sl_objects_succeed();
}

void sl_subscription_close(struct sl_subscription **subscription)
{
    sl_assert(subscription != NULL);
    struct sl_subscription *gone = *subscription;
    *subscription = NULL;
    if (gone != NULL) {
        const struct sl_reason saved = sl_objects_error_save();
        struct subscription_call closed = {.call = {.run = close_here}, .subscription = gone};
        (void)sl_objects_call(gone->node, &closed.call);
        free(gone);
        sl_objects_error_restore(&saved);
    }
}
