#include "ps/coordinator/identity.h"

#include <inttypes.h>

/* Returns the identity that members bring from an earlier coordinator; 0: none. */
static uint64_t continued(const struct sl_coordinator *coordinator)
{
    const bool has_scheduler = coordinator->options.stage_changed != NULL;
    uint64_t of_worker = 0, of_server = 0;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (!member->registered) {
            continue;
        }
        if (sl_coordinator_is_worker(member)) {
            of_worker = member->job != 0 ? member->job : of_worker;
        } else if (sl_coordinator_is_ps(member) &&
                   coordinator->ps[member->hello.task_index].serving) {
            of_server = member->job != 0 ? member->job : of_server;
        }
    }
    return !has_scheduler && of_server != 0 ? of_server : of_worker;
}

static void identity_refuse(struct sl_coordinator *coordinator,
                            struct sl_coordinator_member *member)
{
    member->registered = false;
    member->waits_for_cluster = false;
    sl_coordinator_note_member(coordinator, member);
}

bool sl_coordinator_identity_refuses(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member)
{
    if (member->job == 0 || coordinator->identity == 0 || member->job == coordinator->identity) {
        return false;
    }
    sl_coordinator_refuse(coordinator, member, member->cluster_waiter.request, SL_ERR_REFUSED,
                          "%s has tables and clocks of an earlier job: start it again",
                          member->name);
    identity_refuse(coordinator, member);
    return true;
}

static bool refuses_unclaimed(struct sl_coordinator *coordinator,
                              struct sl_coordinator_member *member)
{
    const uint64_t number = coordinator->ps[member->hello.task_index].checkpoints.unclaimed;
    if (number == 0) {
        return false;
    }
    sl_coordinator_refuse(coordinator, member, member->cluster_waiter.request, SL_ERR_IN_USE,
                          "%s has checkpoints of an earlier job, the newest is %" PRIu64
                          ": --restore newest continues that job, --fresh starts empty and keeps "
                          "them",
                          member->name, number);
    identity_refuse(coordinator, member);
    return true;
}

/* Calls `refuses` for each registered server that is serving, or for the others. */
static bool any_refused(struct sl_coordinator *coordinator, bool serving,
                        bool (*refuses)(struct sl_coordinator *, struct sl_coordinator_member *))
{
    bool is_any = false;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        struct sl_coordinator_ps *ps = &coordinator->ps[member->hello.task_index];
        if (!sl_coordinator_is_ps(member) || !member->registered || ps->serving != serving ||
            !refuses(coordinator, member)) {
            continue;
        }
        is_any = true;
        *ps = (struct sl_coordinator_ps){0}; /* for another process */
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, member->hello.task_index);
    }
    return is_any;
}

static bool any_serving(const struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (coordinator->ps[task].serving) {
            return true;
        }
    }
    return false;
}

bool sl_coordinator_identity_settle(struct sl_coordinator *coordinator)
{
    const uint64_t identity = continued(coordinator);
    coordinator->identity = identity != 0 ? identity : coordinator->options.identity;
    const bool is_any = any_refused(coordinator, true, sl_coordinator_identity_refuses);
    const bool is_new = !any_serving(coordinator);
    if (is_any && is_new) {
        coordinator->tables.are_older = false;
    }
    return !is_any && !(is_new && any_refused(coordinator, false, refuses_unclaimed));
}
