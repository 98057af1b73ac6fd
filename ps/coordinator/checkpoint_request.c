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
#define OTHERS_NS    SL_CLOCK_NS_PER_S

/* The error that names the missing servers must arrive before the client times out by itself. */
#define EARLY_MAX_NS SL_CLOCK_NS_PER_S

static bool is_ps(const struct sl_coordinator_member *member)
{
    return member->hello.role == SL_MESSAGE_ROLE_PS;
}

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
    while (ask != NULL && (ask->member != member || ask->request != request)) {
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
    if (has_ended && !is_ps(member)) {
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
                                            const struct sl_coordinator_member *member,
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
    uint64_t timeout_ns = message->timeout_ms * SL_CLOCK_NS_PER_MS;
    uint64_t early_ns = timeout_ns / 8 < EARLY_MAX_NS ? timeout_ns / 8 : EARLY_MAX_NS;
    /* A server that stops later shares the last checkpoint: no other follows, because the servers
     * that were answered are leaving. */
    bool joins =
        checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE && checkpoint->is_last && is_ps(member);
    *ask = (struct sl_coordinator_checkpoint_request){
        .next = coordinator->asks,
        .member = member,
        .request = message->id,
        .number = joins ? checkpoint->number : 0,
        .asked_ns = now_ns,
        .remind_ns = now_ns + coordinator->options.waiting_interval_ns,
        .deadline_ns = timeout_ns == 0 ? SL_CLOCK_NEVER : now_ns + timeout_ns - early_ns,
        .timeout_ms = message->timeout_ms,
    };
    coordinator->asks = ask;
    coordinator->ask_count++;
    sl_coordinator_checkpoint_update(coordinator, now_ns);
}

void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        if ((*at)->member == member) {
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
        if (!is_ps(ask->member) || now_ns - ask->asked_ns >= OTHERS_NS) {
            return true;
        }
        bool *asked = &has_asked[ask->member->hello.task_index];
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
        if (ask->number == 0 && is_ps(ask->member)) {
            sl_coordinator_refuse(coordinator, ask->member, ask->request, SL_ERR_CLOSED,
                                  "%s has left", missing);
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
        by_ps = by_ps || (ask->number == 0 && is_ps(ask->member));
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
        message.id = (*at)->request;
        sl_coordinator_send(coordinator, (*at)->member, &message);
        ask_remove(coordinator, at);
    }
}

/* Waiting */

/* Fails a timed-out request, and names the servers it waited for. */
static void give_up(struct sl_coordinator *coordinator,
                    const struct sl_coordinator_checkpoint_request *ask,
                    const struct sl_message_waiting *waiting)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_ERROR,
        .id = ask->request,
        .error.err = SL_ERR_DEADLINE,
    };
    char *text = message.error.text;
    const size_t bytes = sizeof message.error.text;
    int at = snprintf(text, bytes, "the checkpoint: still waiting after %" PRIu32 " ms for",
                      ask->timeout_ms);
    for (uint32_t i = 0; i < waiting->missing_count && (size_t)at < bytes; i++) {
        at += snprintf(text + at, bytes - (size_t)at, "%s %s", i == 0 ? "" : ",",
                       waiting->missing[i]);
    }
    sl_log_warn("%s timed out: %s", ask->member->name, text);
    sl_coordinator_send(coordinator, ask->member, &message);
}

void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message message = {.kind = SL_MESSAGE_WAITING};
    if (coordinator->asks != NULL) {
        sl_coordinator_checkpoint_list_missing(coordinator, &message.waiting);
    }
    struct sl_coordinator_checkpoint_request **at = &coordinator->asks;
    while (*at != NULL) {
        struct sl_coordinator_checkpoint_request *ask = *at;
        if (now_ns >= ask->deadline_ns) {
            give_up(coordinator, ask, &message.waiting);
            ask_remove(coordinator, at);
            continue;
        }
        if (now_ns >= ask->remind_ns) {
            ask->remind_ns = now_ns + coordinator->options.waiting_interval_ns;
            message.id = ask->request;
            sl_coordinator_send(coordinator, ask->member, &message);
        }
        at = &ask->next;
    }
}

void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->asks != NULL) {
        ask_remove(coordinator, &coordinator->asks);
    }
}
