#include "ps/coordinator/checkpoint_request.h"

#include <stdlib.h>

#include "core/clock.h"

/* Time for the other servers to request too. If all stop together, they fence writes one shortly
 * after the other, and their shared checkpoint must hold all writes acknowledged until then. */
#define OTHERS_NS SL_CLOCK_NS_PER_S

static void request_remove(struct sl_coordinator *coordinator,
                           struct sl_coordinator_checkpoint_request **at)
{
    struct sl_coordinator_checkpoint_request *request = *at;
    *at = request->next;
    coordinator->checkpoint.request_count--;
    free(request);
}

/* Arrivals and departures */

/* True if the request is a repetition after a reconnect: it has the same id. */
static bool is_known(const struct sl_coordinator *coordinator,
                     const struct sl_coordinator_member *member, uint64_t id)
{
    const struct sl_coordinator_checkpoint_request *at = coordinator->checkpoint.requests;
    while (at != NULL && (at->waiter.member != member || at->waiter.request != id)) {
        at = at->next;
    }
    return at != NULL;
}

/* Returns false if the request is refused. */
static bool check_request(struct sl_coordinator *coordinator,
                          const struct sl_coordinator_member *member, uint64_t id)
{
    bool has_ended = coordinator->job.stage == SL_COORDINATOR_ENDING ||
                     coordinator->job.stage == SL_COORDINATOR_OVER;
    if (has_ended && !sl_coordinator_is_ps(member)) {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_CLOSED,
                              "no checkpoint any more: the job has ended");
        return false;
    }
    if (coordinator->checkpoint.request_count >= SL_COORDINATOR_CHECKPOINT_REQUESTS) {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_AGAIN,
                              "%d others wait for a checkpoint: the limit",
                              SL_COORDINATOR_CHECKPOINT_REQUESTS);
        return false;
    }
    return true;
}

bool sl_coordinator_checkpoint_request_add(struct sl_coordinator *coordinator,
                                           struct sl_coordinator_member *member,
                                           const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    if (is_known(coordinator, member, message->id) ||
        !check_request(coordinator, member, message->id)) {
        return false;
    }
    struct sl_coordinator_checkpoint_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NO_MEMORY,
                              "no memory to remember who asked for a checkpoint");
        return false;
    }
    /* A server that stops later shares the last checkpoint: no other follows, because the servers
     * that were answered are leaving. */
    bool joins = checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE && checkpoint->is_last &&
                 sl_coordinator_is_ps(member);
    *request = (struct sl_coordinator_checkpoint_request){
        .next = coordinator->checkpoint.requests,
        .number = joins ? checkpoint->number : 0,
        .asked_ns = now_ns,
    };
    sl_coordinator_waiter_init(&request->waiter, coordinator, member, message->id,
                               message->timeout_ms, now_ns);
    coordinator->checkpoint.requests = request;
    coordinator->checkpoint.request_count++;
    return true;
}

void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->checkpoint.requests;
    while (*at != NULL) {
        if ((*at)->waiter.member == member) {
            request_remove(coordinator, at);
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
    for (const struct sl_coordinator_checkpoint_request *request = coordinator->checkpoint.requests;
         request != NULL; request = request->next) {
        if (request->number != 0) {
            continue;
        }
        if (!sl_coordinator_is_ps(request->waiter.member) ||
            now_ns - request->asked_ns >= OTHERS_NS) {
            return true;
        }
        bool *asked = &has_asked[request->waiter.member->hello.task_index];
        ps_count += *asked ? 0 : 1;
        *asked = true;
    }
    uint32_t expected = 0;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        expected += sl_coordinator_has_ps(coordinator, task) ? 1 : 0;
    }
    return ps_count == expected;
}

void sl_coordinator_checkpoint_request_refuse_ps(struct sl_coordinator *coordinator,
                                                 const char *missing)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->checkpoint.requests;
    while (*at != NULL) {
        const struct sl_coordinator_checkpoint_request *request = *at;
        if (request->number == 0 && sl_coordinator_is_ps(request->waiter.member)) {
            sl_coordinator_refuse(coordinator, request->waiter.member, request->waiter.request,
                                  SL_ERR_CLOSED, "%s is missing", missing);
            request_remove(coordinator, at);
        } else {
            at = &(*at)->next;
        }
    }
}

bool sl_coordinator_checkpoint_request_take(struct sl_coordinator *coordinator, uint64_t number)
{
    bool by_ps = false;
    for (struct sl_coordinator_checkpoint_request *request = coordinator->checkpoint.requests;
         request != NULL; request = request->next) {
        by_ps = by_ps || (request->number == 0 && sl_coordinator_is_ps(request->waiter.member));
        request->number = request->number == 0 ? number : request->number;
    }
    return by_ps;
}

void sl_coordinator_checkpoint_request_answer(struct sl_coordinator *coordinator, uint64_t number,
                                              const struct sl_message *answer)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->checkpoint.requests;
    while (*at != NULL) {
        if ((*at)->number != number) {
            at = &(*at)->next;
            continue;
        }
        struct sl_message message = *answer;
        message.id = (*at)->waiter.request;
        sl_coordinator_send(coordinator, (*at)->waiter.member, &message);
        request_remove(coordinator, at);
    }
}

/* Waiting */

void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator,
                                            const struct sl_message_waiting *waiting,
                                            uint64_t now_ns)
{
    struct sl_coordinator_checkpoint_request **at = &coordinator->checkpoint.requests;
    while (*at != NULL) {
        if (sl_coordinator_waiter_tick(&(*at)->waiter, coordinator, "the checkpoint", waiting,
                                       now_ns)) {
            request_remove(coordinator, at);
        } else {
            at = &(*at)->next;
        }
    }
}

void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->checkpoint.requests != NULL) {
        request_remove(coordinator, &coordinator->checkpoint.requests);
    }
}
