#include "worker/client/substep.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/list.h"
#include "reactor/reactor.h"
#include "worker/client/client_io.h"
#include "worker/client/shard_conn_connect.h"

/* Longest wait after the deadline for shards that may be writing replies into the caller's
 * memory. */
#define REPLY_BUFFER_NS (50 * SL_CLOCK_NS_PER_MS)

static void substep_post(struct sl_substep *substep, sl_mail_fn *run, uint64_t a)
{
    if (substep->answers == NULL) {
        run(substep, a, 0);
        return;
    }
    int err =
        sl_mailbox_post(substep->answers, (struct sl_mail){.run = run, .ctx = substep, .a = a});
    sl_assert(err == 0); /* bounded by the thread context: thread_ctx.h */
}

/* One of `left` is over. Afterwards the substep may be freed, unless it has unsent memory. */
static void substep_release(struct sl_substep *substep)
{
    sl_assert(substep->left > 0);
    substep->left--;
    if (substep->left > 0) {
        return;
    }
    sl_reactor_disarm(substep->io->reactor, &substep->timer);
    substep->completed = true;
    substep->ended_ns = sl_reactor_now_ns(substep->io->reactor);
    substep_post(substep, substep->on_complete, substep->unsent == 0 ? 1 : 0);
}

void sl_substep_settle(struct sl_request *request)
{
    if (request->over || request->waits != 0) {
        return;
    }
    struct sl_substep *substep = request->substep;
    request->over = true;
    substep_release(substep);
}

/* Abandons every request that the transport does not hold. by_force: breaks the connections of the
 * others; these requests are over when it has closed. The caller counts in `left`. */
static void substep_abandon(struct sl_substep *substep, bool by_force)
{
    for (struct sl_request *at = substep->requests.first; at != NULL; at = at->next) {
        if (at->over) {
            continue;
        }
        struct sl_shard_conn *conn = sl_client_io_conn(substep->io, at->shard);
        if (sl_flags_has(at->waits, SL_REQUEST_QUEUED)) {
            sl_shard_conn_withdraw(conn, at);
        }
        if (sl_flags_has(at->waits, SL_REQUEST_IN_FLIGHT) &&
            !sl_flags_has(at->waits, SL_REQUEST_REPLY_MEMORY_LENT)) {
            sl_shard_conn_forget(conn, at);
        }
        if (by_force &&
            sl_flags_has(at->waits, SL_REQUEST_TAIL_UNSENT | SL_REQUEST_REPLY_MEMORY_LENT)) {
            sl_shard_conn_break(
                conn, "disconnected when a deadline passed in the middle of a transfer", false);
        }
        sl_substep_settle(at);
    }
}

static void substep_fail(struct sl_substep *substep, const struct sl_shard_conn *conn, int err,
                         const char *text)
{
    if (substep->err == 0) {
        substep->err = err;
        snprintf(substep->error, sizeof substep->error, "%s: %s", conn->name, text);
        substep_abandon(substep, false);
    }
}

/* Called at the deadline, or just before the timer if the shard reports the deadline first. */
static void substep_fail_late(struct sl_substep *substep, const struct sl_shard_conn *conn,
                              const char *kind, const char *why)
{
    char text[SL_SUBSTEP_ERROR_BYTES - SL_SHARD_CONN_NAME_BYTES - 2];
    snprintf(text, sizeof text, "deadline of %u ms passed%s%s", substep->timeout_ms,
             why[0] == '\0' ? "" : kind, why);
    substep_fail(substep, conn, SL_ERR_DEADLINE, text);
}

void sl_substep_failed(struct sl_request *request, int err, const char *text)
{
    struct sl_substep *substep = request->substep;
    struct sl_shard_conn *conn = sl_client_io_conn(substep->io, request->shard);
    sl_cell_add(&substep->io->cells.failures, 1);
    substep->left++;
    if (err == SL_ERR_DEADLINE) {
        substep_fail_late(substep, conn, ": ", text);
    } else {
        substep_fail(substep, conn, err, text);
    }
    sl_substep_settle(request);
    substep_release(substep);
}

void sl_substep_replied(struct sl_request *request, uint32_t floor)
{
    struct sl_substep *substep = request->substep;
    if (request->first_read != NULL && request->clock > floor) {
        uint32_t staleness = request->clock - floor;
        substep->staleness = staleness > substep->staleness ? staleness : substep->staleness;
    }
    sl_substep_settle(request);
}

void sl_substep_tail_sent(void *ctx)
{
    struct sl_request *request = ctx;
    struct sl_substep *substep = request->substep;
    sl_assert(substep->unsent > 0);
    substep->unsent--;
    sl_flags_set(&request->waits, SL_REQUEST_TAIL_UNSENT, false);
    if (!substep->completed) {
        sl_substep_settle(request);
    } else if (substep->unsent == 0) {
        substep_post(substep, substep->on_return, 0);
    }
}

static struct sl_substep *substep_of(struct sl_timer *timer)
{
    return SL_CONTAINER_OF(timer, struct sl_substep, timer);
}

/* Returns the connection to blame for the deadline: one that is not connected, else the first with
 * an open request. */
static const struct sl_shard_conn *culprit_of(const struct sl_substep *substep)
{
    const struct sl_shard_conn *culprit = NULL;
    for (const struct sl_request *at = substep->requests.first; at != NULL; at = at->next) {
        const struct sl_shard_conn *conn = sl_client_io_conn(substep->io, at->shard);
        if (at->over) {
            continue;
        }
        if (conn->state != SL_SHARD_CONN_OPEN) {
            return conn;
        }
        culprit = culprit == NULL ? conn : culprit;
    }
    sl_assert(culprit != NULL);
    return culprit;
}

/* Returns whether only replies are outstanding that shards may be writing into the caller's memory.
 * Shards enforce the deadline too and answer shortly after it. */
static bool is_worth_waiting(const struct sl_substep *substep)
{
    uint32_t count = 0;
    for (const struct sl_request *at = substep->requests.first; at != NULL; at = at->next) {
        const struct sl_shard_conn *conn = sl_client_io_conn(substep->io, at->shard);
        if (!at->over &&
            (sl_flags_has(at->waits, SL_REQUEST_TAIL_UNSENT) || conn->state != SL_SHARD_CONN_OPEN ||
             !conn->reactor->path.direct_replies)) {
            return false;
        }
        count += at->over ? 0 : 1;
    }
    return count > 0;
}

static void expire_at_last(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_substep *substep = substep_of(timer);
    substep->left++;
    substep_abandon(substep, true);
    substep_release(substep);
}

static void substep_expire(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_substep *substep = substep_of(timer);
    const struct sl_shard_conn *culprit = culprit_of(substep);
    substep->left++;
    sl_cell_add(&substep->io->cells.failures, 1);
    const char *kind = culprit->state == SL_SHARD_CONN_RESTORING ? ": " : ": not connected: ";
    substep_fail_late(substep, culprit, kind, sl_shard_conn_last_error(culprit));
    if (is_worth_waiting(substep)) {
        substep->timer.run = expire_at_last;
        sl_reactor_arm(substep->io->reactor, &substep->timer, REPLY_BUFFER_NS);
    } else {
        substep_abandon(substep, true);
    }
    substep_release(substep);
}

/* Returns NULL if all requests were submitted; else the first that its connection cannot take, with
 * the error, and nothing was. */
static struct sl_request *substep_start(struct sl_substep *substep, int *err, const char **text)
{
    sl_reactor_assert_owner(substep->io->reactor);
    substep->left = substep->requests.count;
    substep->timer = (struct sl_timer){.run = substep_expire};
    for (struct sl_request *at = substep->requests.first; at != NULL; at = at->next) {
        *err = sl_shard_conn_check(sl_client_io_conn(substep->io, at->shard), at, text);
        if (*err != 0) {
            return at;
        }
    }
    sl_timer_arm(sl_reactor_timers(substep->io->reactor), &substep->timer, substep->deadline_ns);
    for (struct sl_request *at = substep->requests.first; at != NULL; at = at->next) {
        sl_shard_conn_submit(sl_client_io_conn(substep->io, at->shard), at);
    }
    return NULL;
}

bool sl_substep_try_start(struct sl_substep *substep)
{
    int err;
    const char *text;
    return substep_start(substep, &err, &text) == NULL;
}

void sl_substep_start(void *ctx, uint64_t a, uint64_t b)
{
    int err;
    const char *text;
    struct sl_request *refused = substep_start(ctx, &err, &text);
    if (refused != NULL) {
        sl_substep_failed(refused, err, text);
    }
}
