#include "ps/coordinator/node.h"

#include <stdio.h>

#include "core/clock.h"

bool sl_coordinator_node_of(const struct sl_coordinator_member *member,
                            struct sl_coordinator_node *out)
{
    const struct sl_message_hello *hello = &member->hello;
    if (hello->role != SL_MESSAGE_ROLE_CLIENT) {
        *out = (struct sl_coordinator_node){
            .group = sl_coordinator_is_ps(member) ? SL_MESSAGE_GROUP_PS : SL_MESSAGE_GROUP_WORKER,
            .rank = hello->task_index};
    } else if (hello->beside == SL_MESSAGE_BESIDE_SCHEDULER) {
        *out = (struct sl_coordinator_node){.group = SL_MESSAGE_GROUP_SCHEDULER};
    } else if (hello->beside != 0) {
        *out = (struct sl_coordinator_node){.group = SL_MESSAGE_GROUP_PS,
                                            .rank = hello->beside - SL_MESSAGE_BESIDE_PS};
    }
    return hello->role != SL_MESSAGE_ROLE_CLIENT || hello->beside != 0;
}

struct sl_coordinator_member *sl_coordinator_node_find(const struct sl_coordinator *coordinator,
                                                       struct sl_coordinator_node node)
{
    if (node.group == SL_MESSAGE_GROUP_WORKER) {
        return sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_WORKER, node.rank);
    }
    const uint32_t beside = node.group == SL_MESSAGE_GROUP_SCHEDULER
                                ? SL_MESSAGE_BESIDE_SCHEDULER
                                : SL_MESSAGE_BESIDE_PS + node.rank;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (coordinator->members[i]->hello.beside == beside) {
            return coordinator->members[i];
        }
    }
    return NULL;
}

/* Ranks below it may exist. */
static uint32_t end_of(const struct sl_coordinator *coordinator, uint32_t group)
{
    switch (group) {
    case SL_MESSAGE_GROUP_SCHEDULER:
        return 1;
    case SL_MESSAGE_GROUP_PS:
        return coordinator->placement.ps_end;
    default:
        return coordinator->job.worker_count;
    }
}

bool sl_coordinator_node_exists(const struct sl_coordinator *coordinator,
                                struct sl_coordinator_node node)
{
    return node.rank < end_of(coordinator, node.group) &&
           (node.group != SL_MESSAGE_GROUP_PS || sl_coordinator_has_ps(coordinator, node.rank));
}

bool sl_coordinator_node_next(const struct sl_coordinator *coordinator, uint32_t groups,
                              struct sl_coordinator_node *node)
{
    struct sl_coordinator_node next = {.group = node->group == 0 ? 1 : node->group,
                                       .rank = node->group == 0 ? 0 : node->rank + 1};
    for (; next.group <= SL_MESSAGE_GROUP_WORKER; next.group *= 2, next.rank = 0) {
        const uint32_t end = (groups & next.group) != 0 ? end_of(coordinator, next.group) : 0;
        for (; next.rank < end; next.rank++) {
            if (sl_coordinator_node_exists(coordinator, next)) {
                *node = next;
                return true;
            }
        }
    }
    return false;
}

enum sl_coordinator_end sl_coordinator_node_ended(const struct sl_coordinator *coordinator,
                                                  struct sl_coordinator_node node)
{
    if (node.group == SL_MESSAGE_GROUP_PS) {
        return coordinator->ps[node.rank].gone;
    }
    return node.group == SL_MESSAGE_GROUP_WORKER &&
                   coordinator->workers[node.rank].end != SL_COORDINATOR_END_NONE &&
                   sl_coordinator_node_find(coordinator, node) == NULL
               ? coordinator->workers[node.rank].end
               : SL_COORDINATOR_END_NONE;
}

void sl_coordinator_node_why(const struct sl_coordinator *coordinator,
                             struct sl_coordinator_node node, enum sl_coordinator_end end,
                             char why[SL_MESSAGE_TEXT_BYTES])
{
    char name[SL_MESSAGE_NAME_BYTES] = "the scheduler";
    if (node.group != SL_MESSAGE_GROUP_SCHEDULER) {
        (void)snprintf(name, sizeof name, "%s/%u", sl_coordinator_node_role(node.group), node.rank);
    }
    if (end == SL_COORDINATOR_END_EXPIRED) {
        (void)snprintf(why, SL_MESSAGE_TEXT_BYTES, "%s expired: no heartbeat for %g s", name,
                       (double)coordinator->options.lease_ns / (double)SL_CLOCK_NS_PER_S);
    } else {
        (void)snprintf(why, SL_MESSAGE_TEXT_BYTES, "%s %s", name,
                       end == SL_COORDINATOR_END_REPLACED ? "was replaced by another process"
                                                          : "has left");
    }
}

const char *sl_coordinator_node_role(uint32_t group)
{
    return group == SL_MESSAGE_GROUP_SCHEDULER ? "scheduler"
           : group == SL_MESSAGE_GROUP_PS      ? "ps"
                                               : "worker";
}
