/* Requests for a checkpoint. Each is answered once, by the first checkpoint that begins after it. A
 * server sends one when it stops: that checkpoint begins when every server has asked, or one second
 * later. Servers that ask later share it, and none waits for a missing server. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator/internal.h"

/* Time for the other servers to ask too. If all stop together, they fence writes one shortly after
 * the other, and their shared checkpoint must hold all writes acknowledged until then. */
#define OTHERS_NS SL_CLOCK_NS_PER_S

static void ask_remove(struct sl_coordinator *coordinator,
                       struct sl_coordinator_checkpoint_request **at)
{
    struct sl_coordinator_checkpoint_request *ask = *at;
    *at = ask->next;
    coordinator->ask_count--;
    free(ask);
}

/* Arrivals and departures */

/* True if the request is a repetition after a reconnect: it has the same id. */
static bool is_known(const struct sl_coordinator *coordinator,
                     const struct sl_coordinator_member *member, uint64_t request)
{
    const struct sl_coordinator_checkpoint_request *ask = coordinator->asks;
    while (ask != NULL && (ask->waiter.member != member || ask->waiter.request != request)) {
        ask = ask->next;
    }
    return ask != NULL;
}

/* Returns false if the request is refused. */
static bool check_ask(struct sl_coordinator *coordinator,
                      const struct sl_coordinator_member *member, uint64_t request)
{
    bool has_ended =
        coordinator->stage == SL_COORDINATOR_ENDING || coordinator->stage == SL_COORDINATOR_OVER;
    if (has_ended && !sl_coordinator_is_ps(member)) {
        sl_coordinator_refuse(coordinator, member, request, SL_ERR_CLOSED,
                              "no checkpoint any more: the job has ended");
        return false;
    }
    if (coordinator->ask_count >= SL_COORDINATOR_CHECKPOINT_REQUESTS) {
        sl_coordinator_refuse(coordinator, member, request, SL_ERR_AGAIN,
                              "%d others wait for a checkpoint: the limit",
                              SL_COORDINATOR_CHECKPOINT_REQUESTS);
        return false;
    }
    return true;
}

void sl_coordinator_checkpoint_request_come(struct sl_coordinator *coordinator,
                                            struct sl_coordinator_member *member,
                                            const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    if (is_known(coordinator, member, message->id) ||
        !check_ask(coordinator, member, message->id)) {
        return;
    }
    struct sl_coordinator_checkpoint_request *ask = calloc(1, sizeof *ask);
    if (ask == NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NO_MEMORY,
                              "no memory to remember who asked for a checkpoint");
        return;
    }
    /* A server that stops later shares the last checkpoint: no other follows, because the servers
     * that were answered are leaving. */
    bool joins = checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE && checkpoint->is_last &&
                 sl_coordinator_is_ps(member);
    *ask = (struct sl_coordinator_checkpoint_request){
        .next = coordinator->asks,
        .number = joins ? checkpoint->number : 0,
        .asked_ns = now_ns,
    };
    sl_coordinator_waiter_init(&ask->waiter, coordinator, member, message->id, message->timeout_ms,
                               now_ns);
    coordinator->asks = ask;
    coordinator->ask_count++;
    sl_coordinator_checkpoint_update(coordinator, now_ns);
}

void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        if ((*at)->waiter.member == member) {
            ask_remove(coordinator, at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* Answers */

bool sl_coordinator_checkpoint_request_is_due(const struct sl_coordinator *coordinator,
                                              uint64_t now_ns)
{
    bool has_asked[SL_LIMIT_PS] = {false};
    uint32_t ps_count = 0;
    for (const struct sl_coordinator_checkpoint_request *ask = coordinator->asks; ask != NULL;
         ask = ask->next) {
        if (ask->number != 0) {
            continue;
        }
        if (!sl_coordinator_is_ps(ask->waiter.member) || now_ns - ask->asked_ns >= OTHERS_NS) {
            return true;
        }
        bool *asked = &has_asked[ask->waiter.member->hello.task_index];
        ps_count += *asked ? 0 : 1;
        *asked = true;
    }
    return ps_count == coordinator->options.ps_count;
}

void sl_coordinator_checkpoint_request_refuse_ps(struct sl_coordinator *coordinator,
                                                 const char *missing)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        const struct sl_coordinator_checkpoint_request *ask = *at;
        if (ask->number == 0 && sl_coordinator_is_ps(ask->waiter.member)) {
            sl_coordinator_refuse(coordinator, ask->waiter.member, ask->waiter.request,
                                  SL_ERR_CLOSED, "%s has left", missing);
            ask_remove(coordinator, at);
        } else {
            at = &(*at)->next;
        }
    }
}

bool sl_coordinator_checkpoint_request_take(struct sl_coordinator *coordinator, uint64_t number)
{
    bool by_ps = false;
    for (struct sl_coordinator_checkpoint_request *ask = coordinator->asks; ask != NULL;
         ask = ask->next) {
        by_ps = by_ps || (ask->number == 0 && sl_coordinator_is_ps(ask->waiter.member));
        ask->number = ask->number == 0 ? number : ask->number;
    }
    return by_ps;
}

void sl_coordinator_checkpoint_request_answer(struct sl_coordinator *coordinator, uint64_t number,
                                              const struct sl_message *answer)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        if ((*at)->number != number) {
            at = &(*at)->next;
            continue;
        }
        struct sl_message message = *answer;
        message.id = (*at)->waiter.request;
        sl_coordinator_send(coordinator, (*at)->waiter.member, &message);
        ask_remove(coordinator, at);
    }
}

/* Waiting */

void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message_waiting waiting = {0};
    if (coordinator->asks != NULL) {
        sl_coordinator_checkpoint_list_missing(coordinator, &waiting);
    }
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        if (sl_coordinator_waiter_tick(&(*at)->waiter, coordinator, "the checkpoint", &waiting,
                                       now_ns)) {
            ask_remove(coordinator, at);
        } else {
            at = &(*at)->next;
        }
    }
}

void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->asks != NULL) {
        ask_remove(coordinator, &coordinator->asks);
    }
}
