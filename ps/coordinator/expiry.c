#include "ps/coordinator/expiry.h"

#include <stdio.h>

#include "core/clock.h"

static void send_expired(struct sl_coordinator *coordinator, const struct sl_coordinator_member *to,
                         enum sl_message_role role, uint32_t task_index, uint64_t client_id,
                         enum sl_coordinator_end end)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_EXPIRED,
        .expired = {.role = role, .task_index = task_index, .client_id = client_id},
    };
    char *why = message.expired.why;
    const size_t bytes = sizeof message.expired.why;
    if (end == SL_COORDINATOR_END_EXPIRED) {
        (void)snprintf(why, bytes, "no heartbeat for %g s",
                       (double)coordinator->options.lease_ns / (double)SL_CLOCK_NS_PER_S);
    } else if (end == SL_COORDINATOR_END_REPLACED) {
        (void)snprintf(why, bytes, "another process has its task now");
    } else {
        (void)snprintf(why, bytes, "it has left");
    }
    sl_coordinator_send(coordinator, to, &message);
}

void sl_coordinator_expiry_notify(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *expired,
                                  enum sl_coordinator_end end)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *to = coordinator->members[i];
        bool is_ready_ps =
            sl_coordinator_is_ps(to) && to->missed_expirations_since_ns == SL_CLOCK_NEVER;
        if (is_ready_ps || sl_coordinator_is_worker(to)) {
            send_expired(coordinator, to, expired->hello.role, expired->hello.task_index,
                         expired->hello.client_id, end);
        }
    }
}

static void notify_departure(struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *to = coordinator->members[i];
        if (sl_coordinator_is_ps(to) && coordinator->ps[to->hello.task_index].restarted) {
            send_expired(coordinator, to, SL_MESSAGE_ROLE_WORKER, task, worker->client_id,
                         worker->end);
        }
    }
}

void sl_coordinator_expiry_notify_departures(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS && coordinator->unnotified_count > 0; task++) {
        struct sl_coordinator_worker *worker = &coordinator->workers[task];
        if (!worker->unnotified || now_ns - worker->end_ns < coordinator->options.lease_ns) {
            continue;
        }
        worker->unnotified = false;
        coordinator->unnotified_count--;
        if (worker->left_job) {
            notify_departure(coordinator, task);
        }
    }
}

/* Decides whether a server that has (re)connected needs a message about the end of worker `task`:
 * - The worker left the job, and the server is a new process (since_ns is 0).
 * - The worker left the job, a lease or more before the server was last seen. Such old ends are
 *   sent after every reconnect: the earlier connection may have closed before the server read them.
 *   A duplicate does no harm.
 * - The worker expired or was replaced after since_ns, and has not come back. */
static bool needs_expiry(const struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *ps, uint32_t task, uint64_t since_ns)
{
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    const bool is_old = ps->last_seen_ns >= worker->end_ns &&
                        ps->last_seen_ns - worker->end_ns >= coordinator->options.lease_ns;
    if (since_ns == 0 || (worker->left_job && is_old)) {
        return worker->left_job;
    }
    const struct sl_coordinator_member *now =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_WORKER, task);
    const bool came_back = now != NULL && now->hello.client_id == worker->client_id;
    return worker->end != SL_COORDINATOR_END_LEFT && worker->end_ns >= since_ns && !came_back;
}

void sl_coordinator_expiry_notify_missed(struct sl_coordinator *coordinator,
                                         struct sl_coordinator_member *ps)
{
    uint64_t since_ns = ps->missed_expirations_since_ns;
    ps->missed_expirations_since_ns = SL_CLOCK_NEVER;
    if (since_ns == SL_CLOCK_NEVER) {
        return;
    }
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS; task++) {
        const struct sl_coordinator_worker *worker = &coordinator->workers[task];
        if (worker->end != SL_COORDINATOR_END_NONE &&
            needs_expiry(coordinator, ps, task, since_ns)) {
            send_expired(coordinator, ps, SL_MESSAGE_ROLE_WORKER, task, worker->client_id,
                         worker->end);
        }
    }
}

uint64_t sl_coordinator_expiry_since(const struct sl_coordinator *coordinator,
                                     uint64_t last_seen_ns)
{
    uint64_t lease_ns = coordinator->options.lease_ns;
    return last_seen_ns > lease_ns ? last_seen_ns - lease_ns : 1;
}

void sl_coordinator_expiry_mark_missed(struct sl_coordinator *coordinator,
                                       struct sl_coordinator_member *ps, uint64_t last_seen_ns)
{
    const uint64_t since_ns = sl_coordinator_expiry_since(coordinator, last_seen_ns);
    ps->missed_expirations_since_ns =
        ps->missed_expirations_since_ns < since_ns ? ps->missed_expirations_since_ns : since_ns;
}
