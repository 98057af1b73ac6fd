#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "ps/coordinator_internal.h"

static void barrier_free(struct sl_coordinator *coordinator, struct sl_coordinator_barrier *barrier)
{
    struct sl_coordinator_barrier **at = &coordinator->barriers;
    while (*at != barrier) {
        at = &(*at)->next;
    }
    *at = barrier->next;
    coordinator->barrier_count--;
    free(barrier->arrivals);
    free(barrier);
}

static struct sl_coordinator_barrier *barrier_find(const struct sl_coordinator *coordinator,
                                                   const char *name)
{
    struct sl_coordinator_barrier *at = coordinator->barriers;
    while (at != NULL && strcmp(at->name, name) != 0) {
        at = at->next;
    }
    return at;
}

static struct sl_coordinator_barrier *barrier_make(struct sl_coordinator *coordinator,
                                                   const struct sl_message_barrier *asked)
{
    struct sl_coordinator_barrier *barrier =
        coordinator->barrier_count < SL_COORDINATOR_BARRIERS ? calloc(1, sizeof *barrier) : NULL;
    if (barrier != NULL) {
        memcpy(barrier->name, asked->name, sizeof barrier->name);
        barrier->count = asked->count;
        barrier->next = coordinator->barriers;
        coordinator->barriers = barrier;
        coordinator->barrier_count++;
    }
    return barrier;
}

/* The member's place among the arrivals: the one that it has, or a new one; NULL: no memory. The
 * array grows with the arrivals, not with the count that somebody asked for. */
static struct sl_coordinator_arrival *arrival_of(struct sl_coordinator_barrier *barrier,
                                                 const struct sl_coordinator_member *member)
{
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        if (barrier->arrivals[i].member == member) {
            return &barrier->arrivals[i];
        }
    }
    if (barrier->arrived == barrier->arrivals_max) {
        uint32_t max = barrier->arrivals_max == 0 ? 8 : 2 * barrier->arrivals_max;
        void *grown = reallocarray(barrier->arrivals, max, sizeof *barrier->arrivals);
        if (grown == NULL) {
            return NULL;
        }
        barrier->arrivals = grown;
        barrier->arrivals_max = max;
    }
    return &barrier->arrivals[barrier->arrived++];
}

static void barrier_complete(struct sl_coordinator *coordinator,
                             struct sl_coordinator_barrier *barrier)
{
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        struct sl_message done = {
            .kind = SL_MESSAGE_BARRIER_DONE,
            .id = barrier->arrivals[i].request,
        };
        sl_coordinator_send(coordinator, barrier->arrivals[i].member, &done);
    }
    barrier_free(coordinator, barrier);
}

void sl_coordinator_barrier_come(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member,
                                 const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_message_barrier *asked = &message->barrier;
    if (asked->count == 0) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "barrier %s: the count must be at least 1", asked->name);
        return;
    }
    struct sl_coordinator_barrier *barrier = barrier_find(coordinator, asked->name);
    if (barrier == NULL) {
        barrier = barrier_make(coordinator, asked);
    } else if (barrier->count != asked->count) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "barrier %s: %s asks for a count of %u, %s for %u", asked->name,
                              member->name, asked->count, barrier->arrivals[0].member->name,
                              barrier->count);
        return;
    }
    struct sl_coordinator_arrival *arrival = barrier == NULL ? NULL : arrival_of(barrier, member);
    if (arrival == NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NO_MEMORY,
                              "barrier %s: no memory, or more than %d barriers in use", asked->name,
                              SL_COORDINATOR_BARRIERS);
        if (barrier != NULL && barrier->arrived == 0) {
            barrier_free(coordinator, barrier);
        }
        return;
    }
    *arrival = (struct sl_coordinator_arrival){
        .member = member,
        .request = message->id,
        .remind_ns = now_ns + coordinator->options.waiting_interval_ns,
    };
    if (barrier->arrived == barrier->count) {
        barrier_complete(coordinator, barrier);
    }
}

void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member)
{
    struct sl_coordinator_barrier *next;
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers; barrier != NULL;
         barrier = next) {
        next = barrier->next;
        for (uint32_t i = 0; i < barrier->arrived; i++) {
            if (barrier->arrivals[i].member == member) {
                barrier->arrivals[i] = barrier->arrivals[--barrier->arrived];
                break;
            }
        }
        if (barrier->arrived == 0) {
            barrier_free(coordinator, barrier);
        }
    }
}

static bool has_arrived(const struct sl_coordinator_barrier *barrier, uint32_t worker)
{
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        const struct sl_message_hello *hello = &barrier->arrivals[i].member->hello;
        if (hello->role == SL_MESSAGE_ROLE_WORKER && hello->task_index == worker) {
            return true;
        }
    }
    return false;
}

/* A barrier of all workers can name those who are missing; another only their number. */
static void fill_waiting(const struct sl_coordinator *coordinator,
                         const struct sl_coordinator_barrier *barrier,
                         struct sl_message_waiting *waiting)
{
    uint32_t total = 0;
    if (barrier->count == coordinator->worker_count) {
        for (uint32_t worker = 0; worker < barrier->count; worker++) {
            if (!has_arrived(barrier, worker)) {
                sl_coordinator_miss(waiting, &total, "worker", worker);
            }
        }
        return;
    }
    waiting->missing_count = 1;
    (void)snprintf(waiting->missing[0], sizeof waiting->missing[0], "%u of the %u at the barrier",
                   barrier->count - barrier->arrived, barrier->count);
}

static bool remind_due(const struct sl_coordinator_barrier *barrier, uint64_t now_ns)
{
    for (uint32_t i = 0; i < barrier->arrived; i++) {
        if (now_ns >= barrier->arrivals[i].remind_ns) {
            return true;
        }
    }
    return false;
}

void sl_coordinator_barrier_remind(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (struct sl_coordinator_barrier *barrier = coordinator->barriers; barrier != NULL;
         barrier = barrier->next) {
        if (!remind_due(barrier, now_ns)) {
            continue;
        }
        struct sl_message message = {.kind = SL_MESSAGE_WAITING};
        fill_waiting(coordinator, barrier, &message.waiting);
        for (uint32_t i = 0; i < barrier->arrived; i++) {
            struct sl_coordinator_arrival *arrival = &barrier->arrivals[i];
            if (now_ns >= arrival->remind_ns) {
                arrival->remind_ns = now_ns + coordinator->options.waiting_interval_ns;
                message.id = arrival->request;
                sl_coordinator_send(coordinator, arrival->member, &message);
            }
        }
    }
}

void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->barriers != NULL) {
        barrier_free(coordinator, coordinator->barriers);
    }
}
