#include "ps/coordinator/barrier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/clock.h"
#include "core/format.h"

static void barrier_free(struct sl_coordinator *coordinator, struct sl_coordinator_barrier *barrier)
{
    struct sl_coordinator_barrier **at = &coordinator->barriers.first;
    while (*at != barrier) {
        at = &(*at)->next;
    }
    *at = barrier->next;
    coordinator->barriers.count--;
    free(barrier->arrivals);
    free(barrier);
}

static struct sl_coordinator_barrier *barrier_find(const struct sl_coordinator *coordinator,
                                                   const char *name)
{
    struct sl_coordinator_barrier *at = coordinator->barriers.first;
    while (at != NULL && strcmp(at->name, name) != 0) {
        at = at->next;
    }
    return at;
}

static struct sl_coordinator_barrier *barrier_make(struct sl_coordinator *coordinator,
                                                   const struct sl_message_barrier *asked)
{
    struct sl_coordinator_barrier *barrier =
        coordinator->barriers.count < SL_COORDINATOR_BARRIERS ? calloc(1, sizeof *barrier) : NULL;
    if (barrier != NULL) {
        memcpy(barrier->name, asked->name, sizeof barrier->name);
        barrier->count = asked->count;
        barrier->groups = asked->groups;
        barrier->next = coordinator->barriers.first;
        coordinator->barriers.first = barrier;
        coordinator->barriers.count++;
    }
    return barrier;
}

/* Returns the member's arrival, new or existing; NULL: no memory. The array grows with the
 * arrivals, because `count` is chosen by a client. */
static struct sl_coordinator_waiter *arrival_of(struct sl_coordinator_barrier *barrier,
                                                const struct sl_coordinator_member *member)
{
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        if (barrier->arrivals[i].member == member) {
            return &barrier->arrivals[i];
        }
    }
    if (!sl_array_make_room(&barrier->arrivals, &barrier->arrivals_max, barrier->arrived,
                            sizeof *barrier->arrivals)) {
        return NULL;
    }
    barrier->workers_arrived += sl_coordinator_is_worker(member) ? 1 : 0;
    return &barrier->arrivals[barrier->arrived++];
}

/* The caller frees the barrier if this was the last arrival. */
static void arrival_remove(struct sl_coordinator_barrier *barrier, uint32_t index)
{
    barrier->workers_arrived -= sl_coordinator_is_worker(barrier->arrivals[index].member) ? 1 : 0;
    barrier->arrivals[index] = barrier->arrivals[--barrier->arrived];
}

/* Completion */

static uint32_t count_nodes(const struct sl_coordinator *coordinator, uint32_t groups)
{
    uint32_t count = 0;
    struct sl_coordinator_node node = {0};
    while (sl_coordinator_node_next(coordinator, groups, &node)) {
        count++;
    }
    return count;
}

static bool barrier_is_complete(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_barrier *barrier)
{
    return barrier->groups != 0 ? barrier->arrived == count_nodes(coordinator, barrier->groups)
           : barrier->count == 0
               ? barrier->workers_arrived == sl_coordinator_count_workers(coordinator)
               : barrier->arrived == barrier->count;
}

static void barrier_send_done(struct sl_coordinator *coordinator,
                              const struct sl_coordinator_member *member, uint64_t request)
{
    struct sl_message done = {.kind = SL_MESSAGE_BARRIER_DONE, .id = request};
    sl_coordinator_send(coordinator, member, &done);
}

/* Records a completed barrier in the ring, and reports the changed record. */
static void note_done(struct sl_coordinator *coordinator,
                      const struct sl_coordinator_barrier *barrier)
{
    if (coordinator->options.changed == NULL) {
        return;
    }
    const uint64_t number = ++coordinator->barriers.done_number;
    const uint32_t place = (uint32_t)(number % SL_COORDINATOR_DONE_BARRIERS);
    struct sl_coordinator_done *done = &coordinator->barriers.done[place];
    free(done->notified);
    *done = (struct sl_coordinator_done){.number = number};
    done->notified = calloc(barrier->arrived, sizeof *done->notified);
    done->notified_count = done->notified == NULL ? 0 : barrier->arrived;
    for (uint32_t i = 0; i < done->notified_count; i++) {
        const struct sl_coordinator_waiter *arrival = &barrier->arrivals[i];
        done->notified[i] = (struct sl_coordinator_notified){
            .client_id = arrival->member->hello.client_id,
            .request = arrival->request,
        };
    }
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_DONE, place);
}

static void barrier_complete(struct sl_coordinator *coordinator,
                             struct sl_coordinator_barrier *barrier)
{
    note_done(coordinator, barrier);
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        const struct sl_coordinator_waiter *arrival = &barrier->arrivals[i];
        struct sl_coordinator_member *member = arrival->member;
        member->done_ids[member->done_next] = arrival->request;
        member->done_next = (member->done_next + 1) % SL_COORDINATOR_DONE_IDS;
        barrier_send_done(coordinator, member, arrival->request);
    }
    barrier_free(coordinator, barrier);
}

/* Answered by a former leader. */
static bool was_done_before(const struct sl_coordinator_done *done, uint64_t client_id,
                            uint64_t request)
{
    for (uint32_t i = 0; i < done->notified_count; i++) {
        if (done->notified[i].client_id == client_id && done->notified[i].request == request) {
            return true;
        }
    }
    return false;
}

/* True if this request was answered before: the answer may be lost with the connection. */
static bool was_done(const struct sl_coordinator *coordinator,
                     const struct sl_coordinator_member *member, uint64_t request)
{
    for (uint32_t i = 0; request != 0 && i < SL_COORDINATOR_DONE_IDS; i++) {
        if (member->done_ids[i] == request) {
            return true;
        }
    }
    for (uint32_t i = 0; request != 0 && i < SL_COORDINATOR_DONE_BARRIERS; i++) {
        if (was_done_before(&coordinator->barriers.done[i], member->hello.client_id, request)) {
            return true;
        }
    }
    return false;
}

/* Arrivals and departures */

static void describe_count(uint32_t count, uint32_t groups, char *text, size_t bytes)
{
    if (groups != 0) {
        text[0] = '\0';
        for (uint32_t group = 1; group <= SL_MESSAGE_GROUP_WORKER; group *= 2) {
            if ((groups & group) != 0) {
                (void)sl_format_add(text, bytes, " and ", "each %s",
                                    sl_coordinator_node_role(group));
            }
        }
    } else if (count == 0) {
        (void)snprintf(text, bytes, "all workers");
    } else {
        (void)snprintf(text, bytes, "%u", count);
    }
}

/* Refuses a request whose count differs from that of earlier arrivals, or is unknown. */
static bool check_count(struct sl_coordinator *coordinator,
                        const struct sl_coordinator_member *member,
                        const struct sl_coordinator_barrier *barrier,
                        const struct sl_message *message)
{
    const struct sl_message_barrier *asked = &message->barrier;
    if (barrier != NULL && (barrier->count != asked->count || barrier->groups != asked->groups)) {
        char mine[64];
        char theirs[64];
        describe_count(asked->count, asked->groups, mine, sizeof mine);
        describe_count(barrier->count, barrier->groups, theirs, sizeof theirs);
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "barrier %s: %s asks for a count of %s, %s for %s", asked->name,
                              member->name, mine, barrier->arrivals[0].member->name, theirs);
        return false;
    }
    const bool counts_workers =
        asked->groups == 0 ? asked->count == 0 : (asked->groups & SL_MESSAGE_GROUP_WORKER) != 0;
    if (counts_workers && coordinator->job.worker_count == 0) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "barrier %s: the number of workers of the job is unknown: start the "
                              "servers with --worker-hosts, or give the barrier a count",
                              asked->name);
        return false;
    }
    return true;
}

/* Refuses a member that is none of the groups, and any if a node of the groups has ended. */
static bool check_groups(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message)
{
    const struct sl_message_barrier *asked = &message->barrier;
    struct sl_coordinator_node own;
    if (asked->groups != 0 &&
        (sl_coordinator_is_ps(member) || !sl_coordinator_node_of(member, &own) ||
         (own.group & asked->groups) == 0 || !sl_coordinator_node_exists(coordinator, own))) {
        char groups[64];
        describe_count(0, asked->groups, groups, sizeof groups);
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "barrier %s: it is for %s, and %s is none of them", asked->name,
                              groups, member->name);
        return false;
    }
    struct sl_coordinator_node node = {0};
    while (sl_coordinator_node_next(coordinator, asked->groups, &node)) {
        const enum sl_coordinator_end ended = sl_coordinator_node_ended(coordinator, node);
        if (ended != SL_COORDINATOR_END_NONE) {
            char why[SL_MESSAGE_TEXT_BYTES];
            sl_coordinator_node_why(coordinator, node, ended, why);
            sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_CLOSED, "barrier %s: %s",
                                  asked->name, why);
            return false;
        }
    }
    return true;
}

/* barrier: may be NULL. */
static void barrier_leave(struct sl_coordinator *coordinator,
                          struct sl_coordinator_barrier *barrier,
                          const struct sl_coordinator_member *member)
{
    for (uint32_t i = 0; barrier != NULL && i < barrier->arrived; i++) {
        if (barrier->arrivals[i].member == member) {
            arrival_remove(barrier, i);
            break;
        }
    }
    if (barrier != NULL && barrier->arrived == 0) {
        barrier_free(coordinator, barrier);
    }
}

void sl_coordinator_barrier_arrive(struct sl_coordinator *coordinator,
                                   struct sl_coordinator_member *member,
                                   const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_message_barrier *asked = &message->barrier;
    if (was_done(coordinator, member, message->id)) {
        barrier_send_done(coordinator, member, message->id);
        return;
    }
    struct sl_coordinator_barrier *barrier = barrier_find(coordinator, asked->name);
    if (asked->leaves) {
        barrier_leave(coordinator, barrier, member);
        return;
    }
    if (!check_count(coordinator, member, barrier, message) ||
        !check_groups(coordinator, member, message)) {
        return;
    }
    barrier = barrier == NULL ? barrier_make(coordinator, asked) : barrier;
    struct sl_coordinator_waiter *arrival = barrier == NULL ? NULL : arrival_of(barrier, member);
    if (arrival == NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NO_MEMORY,
                              "barrier %s: no memory, or more than %d barriers in use", asked->name,
                              SL_COORDINATOR_BARRIERS);
        if (barrier != NULL && barrier->arrived == 0) {
            barrier_free(coordinator, barrier);
        }
        return;
    }
    sl_coordinator_waiter_init(arrival, coordinator, member, message->id, asked->timeout_ms,
                               now_ns);
    if (barrier_is_complete(coordinator, barrier)) {
        barrier_complete(coordinator, barrier);
    }
}

void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member)
{
    struct sl_coordinator_barrier *next;
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers.first; barrier != NULL;
         barrier = next) {
        next = barrier->next;
        barrier_leave(coordinator, barrier, member);
    }
}

void sl_coordinator_barrier_lose(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_node node, enum sl_coordinator_end end)
{
    char why[SL_MESSAGE_TEXT_BYTES];
    struct sl_coordinator_barrier *next;
    sl_coordinator_node_why(coordinator, node, end, why);
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers.first; barrier != NULL;
         barrier = next) {
        next = barrier->next;
        if ((barrier->groups & node.group) == 0 || !sl_coordinator_node_exists(coordinator, node)) {
            continue;
        }
        for (uint32_t i = 0; i < barrier->arrived; i++) {
            sl_coordinator_refuse(coordinator, barrier->arrivals[i].member,
                                  barrier->arrivals[i].request, SL_ERR_CLOSED, "barrier %s: %s",
                                  barrier->name, why);
        }
        barrier_free(coordinator, barrier);
    }
}

void sl_coordinator_barrier_update(struct sl_coordinator *coordinator)
{
    struct sl_coordinator_barrier *next;
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers.first; barrier != NULL;
         barrier = next) {
        next = barrier->next;
        if (barrier_is_complete(coordinator, barrier)) {
            barrier_complete(coordinator, barrier);
        }
    }
}

/* Waiting */

/* Names the workers of the job that have not arrived. Indexes beyond worker_count count if they are
 * members. */
static void miss_workers(const struct sl_coordinator *coordinator,
                         const struct sl_coordinator_barrier *barrier,
                         struct sl_message_waiting *waiting)
{
    bool here[SL_LIMIT_WORKERS] = {false};
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        const struct sl_coordinator_member *member = barrier->arrivals[i].member;
        if (sl_coordinator_is_worker(member)) {
            here[member->hello.task_index] = true;
        }
    }
    uint32_t total = 0;
    for (uint32_t task = 0; task < coordinator->job.worker_count; task++) {
        bool counts = barrier->count != 0 || !coordinator->workers[task].left_job;
        if (counts && !here[task]) {
            sl_coordinator_list_missing(waiting, &total, "worker", task);
        }
    }
    for (uint32_t i = 0; barrier->count == 0 && i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        uint32_t task = member->hello.task_index;
        if (sl_coordinator_is_worker(member) && task >= coordinator->job.worker_count &&
            !here[task]) {
            sl_coordinator_list_missing(waiting, &total, "worker", task);
        }
    }
}

/* Names the nodes of the groups that have not arrived. */
static void miss_nodes(const struct sl_coordinator *coordinator,
                       const struct sl_coordinator_barrier *barrier,
                       struct sl_message_waiting *waiting)
{
    uint8_t here[SL_LIMIT_WORKERS] = {0}; /* groups, by rank */
    struct sl_coordinator_node node = {0};
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        (void)sl_coordinator_node_of(barrier->arrivals[i].member, &node);
        here[node.rank] |= (uint8_t)node.group;
    }
    uint32_t total = 0;
    node = (struct sl_coordinator_node){0};
    while (sl_coordinator_node_next(coordinator, barrier->groups, &node)) {
        if ((here[node.rank] & node.group) == 0) {
            sl_coordinator_list_missing(waiting, &total, sl_coordinator_node_role(node.group),
                                        node.rank);
        }
    }
}

/* Missing members have names only if the barrier is for groups or for all workers; else their
 * number is sent. */
static void fill_waiting(const struct sl_coordinator *coordinator,
                         const struct sl_coordinator_barrier *barrier,
                         struct sl_message_waiting *waiting)
{
    if (barrier->groups != 0) {
        miss_nodes(coordinator, barrier, waiting);
        return;
    }
    if (barrier->count == 0 || barrier->count == coordinator->job.worker_count) {
        miss_workers(coordinator, barrier, waiting);
        return;
    }
    waiting->missing_count = 1;
    (void)snprintf(waiting->missing[0], sizeof waiting->missing[0], "%u more (%u of %u came)",
                   barrier->count - barrier->arrived, barrier->arrived, barrier->count);
}

static void remind(struct sl_coordinator *coordinator, struct sl_coordinator_barrier *barrier,
                   uint64_t now_ns)
{
    uint32_t i = 0;
    while (i < barrier->arrived && !sl_coordinator_waiter_is_due(&barrier->arrivals[i], now_ns)) {
        i++;
    }
    if (i == barrier->arrived) {
        return;
    }
    struct sl_message_waiting waiting = {0};
    char what[sizeof "barrier " + SL_MESSAGE_NAME_BYTES];
    fill_waiting(coordinator, barrier, &waiting);
    (void)snprintf(what, sizeof what, "barrier %s", barrier->name);
    while (i < barrier->arrived) {
        if (sl_coordinator_waiter_tick(&barrier->arrivals[i], coordinator, what, &waiting,
                                       now_ns)) {
            arrival_remove(barrier, i); /* moves the last arrival here */
        } else {
            i++;
        }
    }
}

void sl_coordinator_barrier_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_coordinator_barrier *next;
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers.first; barrier != NULL;
         barrier = next) {
        next = barrier->next;
        remind(coordinator, barrier, now_ns);
        if (barrier->arrived == 0) {
            barrier_free(coordinator, barrier);
        }
    }
}

void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->barriers.first != NULL) {
        barrier_free(coordinator, coordinator->barriers.first);
    }
}
