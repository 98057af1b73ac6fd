#include "ps/coordinator/member.h"

#include <stdlib.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/event.h"
#include "ps/coordinator/barrier.h"
#include "ps/coordinator/checkpoint.h"
#include "ps/coordinator/cluster.h"
#include "ps/coordinator/expiry.h"
#include "ps/coordinator/placement.h"
#include "ps/coordinator/relay.h"
#include "ps/coordinator/task.h"

static double member_seconds(uint64_t ns)
{
    return (double)ns / (double)SL_CLOCK_NS_PER_S;
}

struct sl_coordinator_member *sl_coordinator_member_of(const struct sl_coordinator *coordinator,
                                                       sl_coordinator_peer peer)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (coordinator->peers[i] == peer && coordinator->members[i]->connected) {
            return coordinator->members[i];
        }
    }
    return NULL;
}

static uint32_t member_index_of(const struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member)
{
    uint32_t index = 0;
    while (coordinator->members[index] != member) {
        index++;
        sl_assert(index < coordinator->member_count);
    }
    return index;
}

static uint64_t lease_end_ns(const struct sl_coordinator *coordinator,
                             const struct sl_coordinator_member *member)
{
    uint64_t lease_ns = coordinator->options.lease_ns;
    uint64_t from_ns =
        member->last_seen_ns > member->lease_from_ns ? member->last_seen_ns : member->lease_from_ns;
    return from_ns > SL_CLOCK_NEVER - lease_ns ? SL_CLOCK_NEVER : from_ns + lease_ns;
}

static uint64_t lease_left_ns(const struct sl_coordinator *coordinator,
                              const struct sl_coordinator_member *member, uint64_t now_ns)
{
    uint64_t end_ns = lease_end_ns(coordinator, member);
    return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* An event about a member: its name for a server or for a worker; none about other clients. */
#define MEMBER_EVENT(member, server_event, worker_event, ...)                                      \
    SL_EVENT(sl_coordinator_is_ps(member)       ? (server_event)                                   \
             : sl_coordinator_is_worker(member) ? (worker_event)                                   \
                                                : NULL,                                            \
             SL_EVENT_NUMBER("task", (member)->hello.task_index), __VA_ARGS__)

/* End of a membership */

static const char *what_others_do(const struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member)
{
    switch (member->hello.role) {
    case SL_MESSAGE_ROLE_PS:
        return coordinator->placement.shard_count == 0 ||
                       (coordinator->placement.replicas == 0 &&
                        sl_coordinator_placement_needs(coordinator, member->hello.task_index))
                   ? "; the job waits until it is restarted"
                   : ""; /* placement_log.c logs its own lines */
    case SL_MESSAGE_ROLE_WORKER:
        return "; the others continue without it";
    default:
        return "";
    }
}

static bool any_restarted(const struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (coordinator->ps[task].restarted) {
            return true;
        }
    }
    return false;
}

/* Keeps the part of the member's state that outlives its membership. */
static void remember(struct sl_coordinator *coordinator, const struct sl_coordinator_member *member,
                     enum sl_coordinator_end end, uint64_t now_ns)
{
    const struct sl_message_hello *hello = &member->hello;
    if (hello->role == SL_MESSAGE_ROLE_PS) {
        struct sl_coordinator_ps *ps = &coordinator->ps[hello->task_index];
        bool left_early =
            end == SL_COORDINATOR_END_LEFT && coordinator->job.stage == SL_COORDINATOR_RUNNING;
        if (ps->gone == SL_COORDINATOR_END_NONE &&
            (left_early || end == SL_COORDINATOR_END_EXPIRED)) {
            ps->gone = end;
        }
        ps->last_seen_ns =
            ps->client_id == hello->client_id ? member->last_seen_ns : ps->last_seen_ns;
    } else if (sl_coordinator_is_worker(member) && end != SL_COORDINATOR_END_NONE) {
        struct sl_coordinator_worker *worker = &coordinator->workers[hello->task_index];
        bool unnotified = end == SL_COORDINATOR_END_LEFT && any_restarted(coordinator);
        coordinator->unnotified_count += (unnotified ? 1U : 0U) - (worker->unnotified ? 1U : 0U);
        *worker = (struct sl_coordinator_worker){
            .end = end,
            .end_ns = now_ns,
            .client_id = hello->client_id,
            .left_job = end != SL_COORDINATOR_END_REPLACED,
            .unnotified = unnotified,
        };
    }
}

/* Removes the member, notifies the other members, and frees it. */
static void end_member(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                       enum sl_coordinator_end end, uint64_t now_ns)
{
    uint32_t index = member_index_of(coordinator, member);
    coordinator->departures++;
    coordinator->member_count--;
    coordinator->peers[index] = coordinator->peers[coordinator->member_count];
    coordinator->members[index] = coordinator->members[coordinator->member_count];
    coordinator->job.counted_workers_known = false;
    remember(coordinator, member, end, now_ns);
    sl_coordinator_note_member(coordinator, member);
    sl_coordinator_barrier_leave(coordinator, member);
    sl_coordinator_relay_disconnect(coordinator, member);
    struct sl_coordinator_node node;
    if (end != SL_COORDINATOR_END_NONE && sl_coordinator_node_of(member, &node)) {
        sl_coordinator_barrier_lose(coordinator, node, end);
        sl_coordinator_relay_lose(coordinator, node, end);
    }
    sl_coordinator_checkpoint_leave(coordinator, member, end != SL_COORDINATOR_END_LEFT, now_ns);
    bool is_client = member->hello.role == SL_MESSAGE_ROLE_CLIENT;
    if (!is_client && (end == SL_COORDINATOR_END_EXPIRED || end == SL_COORDINATOR_END_REPLACED)) {
        sl_coordinator_expiry_notify(coordinator, member, end);
    }
    bool is_fewer =
        sl_coordinator_is_worker(member) && coordinator->workers[member->hello.task_index].left_job;
    const bool was_ps =
        sl_coordinator_is_ps(member) && member->registered && end != SL_COORDINATOR_END_NONE;
    const uint32_t task = member->hello.task_index;
    const uint64_t last_seen_ns = member->last_seen_ns;
    sl_coordinator_free_member(member);
    if (was_ps) {
        sl_coordinator_placement_leave(coordinator, task, last_seen_ns);
        sl_coordinator_cluster_update(coordinator, now_ns);
    }
    if (is_fewer) {
        sl_coordinator_barrier_update(coordinator);
    }
}

/* Stops using the member's connection. */
static void close_connection(struct sl_coordinator *coordinator,
                             struct sl_coordinator_member *member, const char *why)
{
    if (!member->connected) {
        return;
    }
    member->connected = false;
    sl_coordinator_relay_disconnect(coordinator, member);
    if (coordinator->options.close != NULL) {
        coordinator->options.close(coordinator->options.ctx, member->peer, why);
    }
}

/* A client that connects and disconnects in a loop must not fill the log. */
static bool member_may_log(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t now_ns)
{
    return member->hello.role != SL_MESSAGE_ROLE_CLIENT ||
           sl_log_limit_allows(&coordinator->log_limit, now_ns);
}

static void expire(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                   uint64_t now_ns)
{
    if (member_may_log(coordinator, member, now_ns)) {
        sl_log_event(SL_LOG_WARN,
                     MEMBER_EVENT(member, "server_expired", "worker_expired",
                                  SL_EVENT_NUMBER("lease_ms", coordinator->options.lease_ns /
                                                                  SL_CLOCK_NS_PER_MS)),
                     "%s expired: no heartbeat for %g s%s", member->name,
                     member_seconds(coordinator->options.lease_ns),
                     what_others_do(coordinator, member));
    }
    close_connection(coordinator, member, "its lease has ended");
    end_member(coordinator, member, SL_COORDINATOR_END_EXPIRED, now_ns);
}

void sl_coordinator_member_leave(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member, uint64_t now_ns)
{
    sl_log_event(SL_LOG_DEBUG, MEMBER_EVENT(member, "server_left", "worker_left"), "%s left",
                 member->name);
    end_member(coordinator, member, SL_COORDINATOR_END_LEFT, now_ns);
}

static void limit_disconnected_clients(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_coordinator_member *longest = NULL;
    uint32_t disconnected_count = 0;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == SL_MESSAGE_ROLE_CLIENT && !member->connected) {
            disconnected_count++;
            longest =
                longest == NULL || member->last_seen_ns < longest->last_seen_ns ? member : longest;
        }
    }
    if (disconnected_count > SL_COORDINATOR_DISCONNECTED_MAX) {
        sl_log_debug("%s expired: too many clients are disconnected", longest->name);
        end_member(coordinator, longest, SL_COORDINATOR_END_EXPIRED, now_ns);
    }
}

void sl_coordinator_gone(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         bool expected, uint64_t now_ns)
{
    struct sl_coordinator_member *member = sl_coordinator_member_of(coordinator, peer);
    if (member == NULL) {
        return;
    }
    member->connected = false;
    sl_coordinator_relay_disconnect(coordinator, member);
    if (expected) {
        sl_log_debug("%s is disconnected", member->name);
        end_member(coordinator, member, SL_COORDINATOR_END_NONE, now_ns);
        return;
    }
    if (sl_log_limit_allows(&coordinator->log_limit, now_ns)) {
        const uint64_t left_ns = lease_left_ns(coordinator, member, now_ns);
        sl_log_event(SL_LOG_WARN,
                     MEMBER_EVENT(member, "server_disconnected", "worker_disconnected",
                                  SL_EVENT_NUMBER("left_ms", left_ns / SL_CLOCK_NS_PER_MS)),
                     "%s is disconnected; it has %.1f s to reconnect", member->name,
                     member_seconds(left_ns));
    }
    if (member->hello.role == SL_MESSAGE_ROLE_CLIENT) {
        limit_disconnected_clients(coordinator, now_ns);
    }
}

/* If this reactor was delayed, heartbeats were not read: members get half a lease from now. The
 * threshold is a quarter of a lease (two ticks): a lease may have no more than that left, and
 * messages that arrived meanwhile are read only after this tick. */
static void forgive_own_delay(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    uint64_t lease_ns = coordinator->options.lease_ns;
    uint64_t since_ns = now_ns - coordinator->ticked_ns;
    bool is_late = coordinator->ticked_ns != 0 && since_ns > lease_ns / 4;
    coordinator->ticked_ns = now_ns;
    if (!is_late) {
        return;
    }
    sl_log_event(
        SL_LOG_WARN,
        SL_EVENT("coordinator_delayed", SL_EVENT_NUMBER("delay_ms", since_ns / SL_CLOCK_NS_PER_MS)),
        "the coordinator was delayed by %.1f s: members have half a lease to send a heartbeat",
        member_seconds(since_ns));
    /* The clock starts when the machine boots, possibly less than half a lease ago. */
    const uint64_t excused_ns = now_ns > lease_ns / 2 ? now_ns - lease_ns / 2 : 0;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        member->lease_from_ns =
            member->lease_from_ns < excused_ns ? excused_ns : member->lease_from_ns;
    }
}

void sl_coordinator_member_expire(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    forgive_own_delay(coordinator, now_ns);
    /* Iterates backwards: removing a member moves the last one into its place. */
    for (uint32_t i = coordinator->member_count; i-- > 0;) {
        if (lease_left_ns(coordinator, coordinator->members[i], now_ns) == 0) {
            expire(coordinator, coordinator->members[i], now_ns);
        }
    }
}

/* Start of a membership */

/* Returns the member that holds the requested role and task index; for a client, the one beside the
 * same process, else with the same client_id. */
static struct sl_coordinator_member *find_place(const struct sl_coordinator *coordinator,
                                                const struct sl_message_hello *hello)
{
    if (hello->role != SL_MESSAGE_ROLE_CLIENT) {
        return sl_coordinator_find(coordinator, hello->role, hello->task_index);
    }
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_message_hello *other = &coordinator->members[i]->hello;
        if (other->role == SL_MESSAGE_ROLE_CLIENT && other->beside == hello->beside &&
            (hello->beside != 0 || other->client_id == hello->client_id)) {
            return coordinator->members[i];
        }
    }
    return NULL;
}

static int check_task(const struct sl_coordinator *coordinator,
                      const struct sl_message_hello *hello, struct sl_reason *reason)
{
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        return 0; /* `beside` may name a server that the job does not have yet */
    }
    bool is_ps = hello->role == SL_MESSAGE_ROLE_PS;
    const char *role = is_ps ? "ps" : "worker";
    uint32_t count = is_ps ? coordinator->options.ps_count : coordinator->job.worker_count;
    if (hello->join_running || count == 0 ||
        (is_ps && coordinator->ps[hello->task_index].place != SL_COORDINATOR_AT_START)) {
        count = is_ps ? SL_LIMIT_PS : SL_LIMIT_WORKERS;
    }
    if (hello->task_index >= count) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s/%u: the cluster has %u %s, %s/0 to %s/%u",
                              role, hello->task_index, count,
                              is_ps        ? "ps"
                              : count == 1 ? "worker"
                                           : "workers",
                              role, role, count - 1);
    }
    return 0;
}

/* Another process holds the task and is connected. It is certainly alive if it sent something after
 * the second process first asked; until then its connection may be half-open. */
static int refuse_second(const struct sl_coordinator *coordinator,
                         struct sl_coordinator_member *first, uint64_t rival_id, uint64_t now_ns,
                         struct sl_reason *reason)
{
    if (first->replacement_id != rival_id) {
        first->replacement_id = rival_id;
        first->rival_ns = now_ns;
    }
    double silent_s =
        member_seconds(now_ns > first->last_seen_ns ? now_ns - first->last_seen_ns : 0);
    if (first->last_seen_ns > first->rival_ns) {
        return sl_reason_fail(
            reason, SL_ERR_EXISTS,
            "%s is a member already (last heartbeat %.1f s ago): the task is started twice",
            first->name, silent_s);
    }
    return sl_reason_fail(reason, SL_ERR_AGAIN,
                          "%s is a member already (last heartbeat %.1f s ago): if that process "
                          "died, its lease ends in %.1f s; else the task is started twice",
                          first->name, silent_s,
                          member_seconds(lease_left_ns(coordinator, first, now_ns)));
}

/* Resumes a member on another connection of the same process. */
static void take_over(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                      sl_coordinator_peer peer, const struct sl_message_hello *hello,
                      uint64_t now_ns)
{
    if (member_may_log(coordinator, member, now_ns)) {
        sl_log_event(SL_LOG_INFO, MEMBER_EVENT(member, "server_reconnected", "worker_reconnected"),
                     "%s reconnected%s", member->name,
                     member->connected ? " on another connection" : "");
    }
    close_connection(coordinator, member, "it reconnected");
    if (member->missed_expirations_since_ns == SL_CLOCK_NEVER) {
        member->missed_expirations_since_ns =
            sl_coordinator_expiry_since(coordinator, member->last_seen_ns);
    }
    coordinator->peers[member_index_of(coordinator, member)] = peer;
    member->peer = peer;
    member->hello = *hello;
    member->connected = true;
    member->last_seen_ns = now_ns;
    member->waits_for_cluster = false; /* it registers again */
}

static bool members_grow(struct sl_coordinator *coordinator)
{
    const uint32_t count = coordinator->member_count;
    uint32_t peer_max = coordinator->member_max;
    return sl_array_make_room(&coordinator->peers, &peer_max, count, sizeof *coordinator->peers) &&
           sl_array_make_room(&coordinator->members, &coordinator->member_max, count,
                              sizeof(void *));
}

/* True if this very server process was registered before: it still has its shards. */
static bool member_is_known_ps(const struct sl_coordinator *coordinator,
                               const struct sl_message_hello *hello)
{
    if (hello->role != SL_MESSAGE_ROLE_PS) {
        return false;
    }
    const struct sl_coordinator_ps *known = &coordinator->ps[hello->task_index];
    return sl_coordinator_is_known(known) && known->client_id == hello->client_id;
}

static struct sl_coordinator_member *make_member(struct sl_coordinator *coordinator,
                                                 sl_coordinator_peer peer,
                                                 const struct sl_message_hello *hello,
                                                 uint64_t now_ns)
{
    struct sl_coordinator_member *member = calloc(1, sizeof *member);
    if (member == NULL || !members_grow(coordinator)) {
        free(member);
        return NULL;
    }
    member->hello = *hello;
    member->peer = peer;
    member->connected = true;
    member->last_seen_ns = now_ns;
    sl_message_hello_name(&member->hello, member->name);
    if (member_is_known_ps(coordinator, hello)) {
        uint64_t last_seen_ns = coordinator->ps[hello->task_index].last_seen_ns;
        member->missed_expirations_since_ns =
            sl_coordinator_expiry_since(coordinator, last_seen_ns);
    }
    return member;
}

static void add_member(struct sl_coordinator *coordinator, struct sl_coordinator_member *member)
{
    coordinator->peers[coordinator->member_count] = member->peer;
    coordinator->members[coordinator->member_count] = member;
    coordinator->member_count++;
    if (sl_coordinator_is_worker(member)) {
        const uint32_t task = member->hello.task_index;
        struct sl_coordinator_job *job = &coordinator->job;
        job->worker_end = task < job->worker_end ? job->worker_end : task + 1;
        coordinator->workers[task].left_job = false;
        coordinator->job.counted_workers_known = false;
    }
    sl_coordinator_note_member(coordinator, member);
}

int sl_coordinator_member_load(struct sl_coordinator *coordinator, enum sl_message_role role,
                               uint32_t task, uint64_t client_id, bool registered)
{
    const struct sl_message_hello hello = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = role,
        .task_index = task,
        .client_id = client_id,
    };
    struct sl_coordinator_member *member = make_member(coordinator, 0, &hello, 0);
    if (member == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    member->connected = false;
    member->registered = registered;
    member->cluster_version = registered ? SL_COORDINATOR_CLUSTER_OF_RECORDS : 0;
    member->missed_expirations_since_ns =
        1; /* the former leader may have died before it sent them */
    add_member(coordinator, member);
    return 0;
}

/* Logs a returned or replaced member. A new server process is logged when it registers. */
static void log_return(const struct sl_coordinator *coordinator,
                       const struct sl_coordinator_member *member)
{
    const struct sl_coordinator_worker *worker =
        sl_coordinator_is_worker(member) ? &coordinator->workers[member->hello.task_index] : NULL;
    bool was_expired = worker != NULL && worker->end != SL_COORDINATOR_END_NONE &&
                       worker->end != SL_COORDINATOR_END_LEFT;
    if (member_is_known_ps(coordinator, &member->hello) ||
        (was_expired && worker->client_id == member->hello.client_id)) {
        sl_log_event(SL_LOG_INFO, MEMBER_EVENT(member, "server_reconnected", "worker_reconnected"),
                     "%s reconnected", member->name);
    } else if (!was_expired) {
        sl_log_event(SL_LOG_DEBUG, MEMBER_EVENT(member, "server_connected", "worker_joined"),
                     "%s joined (%s)", member->name, member->hello.software);
    } else {
        sl_log_event(SL_LOG_INFO, MEMBER_EVENT(member, "server_replaced", "worker_replaced"),
                     "%s was replaced: another process has its task now", member->name);
    }
}

int sl_coordinator_member_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                                const struct sl_message_hello *said, uint64_t now_ns,
                                struct sl_reason *reason)
{
    sl_assert(sl_coordinator_member_of(coordinator, peer) == NULL);
    struct sl_message_hello placed = *said;
    const struct sl_message_hello *hello = &placed;
    int err = sl_coordinator_task_choose(coordinator, &placed, reason);
    err = err != 0 ? err : check_task(coordinator, hello, reason);
    if (err != 0) {
        return err;
    }
    struct sl_coordinator_member *first = find_place(coordinator, hello);
    if (first != NULL && first->hello.client_id == hello->client_id) {
        take_over(coordinator, first, peer, hello, now_ns);
        return 0;
    }
    if (first != NULL && first->connected) {
        return refuse_second(coordinator, first, hello->client_id, now_ns, reason);
    }
    struct sl_coordinator_member *member = make_member(coordinator, peer, hello, now_ns);
    if (member == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                              "the coordinator has no memory for another member");
    }
    if (first != NULL) {
        end_member(coordinator, first, SL_COORDINATOR_END_REPLACED, now_ns);
    }
    log_return(coordinator, member);
    add_member(coordinator, member);
    return 0;
}
