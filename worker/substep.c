#include "worker/substep.h"

#include <stdio.h>

#include "core/assert.h"
#include "reactor/reactor.h"
#include "worker/client_io.h"

/* How long beyond the deadline a shard may take to say that it writes no more. */
#define LANDING_NS (50 * SL_CLOCK_NS_PER_MS)

static void post(struct sl_substep *part, sl_mail_fn *run, uint64_t a)
{
    if (part->answers == NULL) {
        run(part, a, 0);
        return;
    }
    int err = sl_mailbox_post(part->answers, (struct sl_mail){.run = run, .ctx = part, .a = a});
    sl_assert(err == 0); /* the port bounds what is under way: port.h */
}

/* After this the part may be gone, unless something of it is unsent. */
static void complete_if_over(struct sl_substep *part)
{
    if (part->left > 0) {
        return;
    }
    if (sl_timer_armed(&part->timer)) {
        sl_timer_disarm(sl_reactor_timers(part->hub->reactor), &part->timer);
    }
    part->completed = true;
    post(part, part->on_complete, part->unsent == 0 ? 1 : 0);
}

void sl_substep_settle(struct sl_request *request)
{
    if (request->over || request->queued || request->in_flight || request->tail_unsent ||
        request->is_landing) {
        return;
    }
    struct sl_substep *part = request->part;
    request->over = true;
    sl_assert(part->left > 0);
    part->left--;
    complete_if_over(part);
}

/* Gives up every request that nobody else holds; with `by_force`, also those whose caller's memory
 * is in the transport's hands, by breaking their connections: they are over when it has closed. */
static void abandon(struct sl_substep *part, bool by_force)
{
    part->left++; /* so that the part is not complete, and gone, inside the loop */
    for (struct sl_request *at = part->requests.first; at != NULL; at = at->next) {
        if (at->over) {
            continue;
        }
        struct sl_shard_conn *link = sl_client_io_link(part->hub, at->shard);
        if (at->queued) {
            sl_shard_conn_withdraw(link, at);
        }
        if (at->in_flight && !at->is_landing) {
            sl_shard_conn_forget(link, at);
        }
        if (by_force && (at->tail_unsent || at->is_landing)) {
            sl_shard_conn_break(
                link, "disconnected when a deadline passed in the middle of a transfer", false);
        }
        sl_substep_settle(at);
    }
    part->left--;
}

static void fail(struct sl_substep *part, const struct sl_shard_conn *link, int err,
                 const char *text)
{
    if (part->err == 0) {
        part->err = err;
        snprintf(part->error, sizeof part->error, "%s: %s", link->name, text);
        abandon(part, false);
    }
}

/* The deadline has passed: the shard's own words for it may come just before the timer. */
static void fail_late(struct sl_substep *part, const struct sl_shard_conn *link, const char *kind,
                      const char *why)
{
    char text[SL_SUBSTEP_ERROR_BYTES - SL_SHARD_CONN_NAME_BYTES - 2];
    snprintf(text, sizeof text, "deadline of %u ms passed%s%s", part->timeout_ms,
             why[0] == '\0' ? "" : kind, why);
    fail(part, link, SL_ERR_DEADLINE, text);
}

void sl_substep_failed(struct sl_request *request, int err, const char *text)
{
    struct sl_substep *part = request->part;
    struct sl_shard_conn *link = sl_client_io_link(part->hub, request->shard);
    part->hub->stats.failures++;
    part->left++;
    if (err == SL_ERR_DEADLINE) {
        fail_late(part, link, ": ", text);
    } else {
        fail(part, link, err, text);
    }
    sl_substep_settle(request);
    part->left--;
    complete_if_over(part);
}

void sl_substep_replied(struct sl_request *request, uint32_t floor)
{
    struct sl_substep *part = request->part;
    if (request->first_read != NULL && request->clock > floor) {
        uint32_t staleness = request->clock - floor;
        part->staleness = staleness > part->staleness ? staleness : part->staleness;
    }
    sl_substep_settle(request);
}

void sl_substep_rest_sent(void *ctx)
{
    struct sl_request *request = ctx;
    struct sl_substep *part = request->part;
    sl_assert(part->unsent > 0);
    part->unsent--;
    request->tail_unsent = false;
    if (!part->completed) {
        sl_substep_settle(request);
    } else if (part->unsent == 0) {
        post(part, part->on_return, 0);
    }
}

static struct sl_substep *part_of(struct sl_timer *timer)
{
    return (struct sl_substep *)(void *)((uint8_t *)timer - offsetof(struct sl_substep, timer));
}

/* Whom the deadline is blamed on: a link that is not connected, if there is one, else the first
 * that owes something. */
static const struct sl_shard_conn *culprit_of(const struct sl_substep *part)
{
    const struct sl_shard_conn *culprit = NULL;
    for (const struct sl_request *at = part->requests.first; at != NULL; at = at->next) {
        const struct sl_shard_conn *link = sl_client_io_link(part->hub, at->shard);
        if (at->over) {
            continue;
        }
        if (link->state != SL_SHARD_CONN_OPEN) {
            return link;
        }
        culprit = culprit == NULL ? link : culprit;
    }
    sl_assert(culprit != NULL);
    return culprit;
}

/* What is left are answers that shards may be writing into the caller's memory. They keep the
 * deadline too, and say so, a little later. */
static bool is_worth_waiting(const struct sl_substep *part)
{
    uint32_t count = 0;
    for (const struct sl_request *at = part->requests.first; at != NULL; at = at->next) {
        const struct sl_shard_conn *link = sl_client_io_link(part->hub, at->shard);
        if (!at->over && (at->tail_unsent || !link->lands || link->state != SL_SHARD_CONN_OPEN)) {
            return false;
        }
        count += at->over ? 0 : 1;
    }
    return count > 0;
}

static void expire_at_last(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_substep *part = part_of(timer);
    part->left++;
    abandon(part, true);
    part->left--;
    complete_if_over(part);
}

static void expire(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_substep *part = part_of(timer);
    const struct sl_shard_conn *culprit = culprit_of(part);
    part->left++;
    part->hub->stats.failures++;
    fail_late(part, culprit, ": not connected: ", sl_shard_conn_obstacle(culprit));
    if (is_worth_waiting(part)) {
        part->timer.run = expire_at_last;
        sl_timer_arm(sl_reactor_timers(part->hub->reactor), &part->timer, now_ns + LANDING_NS);
    } else {
        abandon(part, true);
    }
    part->left--;
    complete_if_over(part);
}

/* True when a link will not take what the part has for it; then nothing of it is sent. */
static bool refuse(struct sl_substep *part)
{
    for (struct sl_request *at = part->requests.first; at != NULL; at = at->next) {
        const char *text;
        int err = sl_shard_conn_check(sl_client_io_link(part->hub, at->shard), at, &text);
        if (err != 0) {
            sl_substep_failed(at, err, text);
            return true;
        }
    }
    return false;
}

void sl_substep_start(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_substep *part = ctx;
    sl_reactor_assert_owner(part->hub->reactor);
    part->left = part->requests.count;
    part->timer = (struct sl_timer){.run = expire};
    if (refuse(part)) {
        return;
    }
    sl_timer_arm(sl_reactor_timers(part->hub->reactor), &part->timer, part->deadline_ns);
    for (struct sl_request *at = part->requests.first; at != NULL; at = at->next) {
        sl_shard_conn_submit(sl_client_io_link(part->hub, at->shard), at);
    }
}
