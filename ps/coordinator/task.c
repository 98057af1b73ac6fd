#include "ps/coordinator/task.h"

#include <assert.h>

#include "core/log.h"

/* State of each task index of a role. */
struct places {
    uint32_t count; /* tasks of the job; 0: unknown */
    uint32_t limit; /* greatest possible number of tasks */
    bool taken[SL_LIMIT_WORKERS];
    bool away[SL_LIMIT_WORKERS]; /* taken by a disconnected member */
};

static_assert(SL_LIMIT_PS <= SL_LIMIT_WORKERS, "places of ps");

/* True if this process held the index before its membership ended. */
static bool had_place(const struct sl_coordinator *coordinator,
                      const struct sl_message_hello *hello, uint32_t task)
{
    if (hello->role == SL_MESSAGE_ROLE_PS) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[task];
        return (sl_coordinator_is_known(ps) || ps->place == SL_COORDINATOR_DRAINED) &&
               ps->client_id == hello->client_id;
    }
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    return worker->end != SL_COORDINATOR_END_NONE && worker->client_id == hello->client_id;
}

/* Once the job has begun, no process can replace a worker that left. A server that joins takes the
 * place of none that is there from the start, and only such a server that of one that was drained.
 */
static bool is_finished(const struct sl_coordinator *coordinator,
                        const struct sl_message_hello *hello, uint32_t task)
{
    if (hello->role == SL_MESSAGE_ROLE_PS) {
        const bool is_at_start = coordinator->ps[task].place == SL_COORDINATOR_AT_START &&
                                 task < coordinator->options.ps_count;
        return hello->join_running ? is_at_start : !is_at_start;
    }
    return hello->role == SL_MESSAGE_ROLE_WORKER &&
           coordinator->job.stage != SL_COORDINATOR_WAITING_FOR_MEMBERS &&
           coordinator->workers[task].end == SL_COORDINATOR_END_LEFT;
}

/* Fills in the places. Returns true, with *task, if this process has or had one. */
static bool look(const struct sl_coordinator *coordinator, const struct sl_message_hello *hello,
                 struct places *places, uint32_t *task)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role != hello->role) {
            continue;
        }
        if (member->hello.client_id == hello->client_id) {
            *task = member->hello.task_index;
            return true;
        }
        places->taken[member->hello.task_index] = true;
        places->away[member->hello.task_index] = !member->connected;
    }
    for (uint32_t i = 0; i < places->limit; i++) {
        if (had_place(coordinator, hello, i)) {
            *task = i;
            return true;
        }
    }
    return false;
}

/* Finds the lowest free index in [first, end), else the lowest one of a disconnected member. */
static bool find(const struct sl_coordinator *coordinator, const struct sl_message_hello *hello,
                 const struct places *places, uint32_t first, uint32_t end, uint32_t *task)
{
    bool found = false;
    for (uint32_t i = first; i < end; i++) {
        const bool is_open = !is_finished(coordinator, hello, i);
        if (!places->taken[i] && is_open) {
            *task = i;
            return true;
        }
        if (places->away[i] && !found && (is_open || hello->role == SL_MESSAGE_ROLE_WORKER)) {
            *task = i;
            found = true;
        }
    }
    return found;
}

static void set_limits(const struct sl_coordinator *coordinator, enum sl_message_role role,
                       struct places *places)
{
    bool is_ps = role == SL_MESSAGE_ROLE_PS;
    places->count = is_ps ? coordinator->options.ps_count : coordinator->job.worker_count;
    places->limit = is_ps ? SL_LIMIT_PS : SL_LIMIT_WORKERS;
}

int sl_coordinator_task_choose(const struct sl_coordinator *coordinator,
                               struct sl_message_hello *hello, struct sl_reason *reason)
{
    if (!hello->any_task) {
        return 0;
    }
    hello->any_task = false;
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        return 0; /* clients have no task */
    }
    struct places places = {0};
    set_limits(coordinator, hello->role, &places);
    uint32_t end = places.count == 0 ? places.limit : places.count;
    if (look(coordinator, hello, &places, &hello->task_index) ||
        find(coordinator, hello, &places, 0, end, &hello->task_index) ||
        (hello->join_running &&
         find(coordinator, hello, &places, end, places.limit, &hello->task_index))) {
        return 0;
    }
    return sl_reason_fail(
        reason, SL_ERR_AGAIN,
        "the job has %u %s%s, and %s there: a further process waits until one expires", end,
        hello->role == SL_MESSAGE_ROLE_PS ? "server" : "worker", sl_log_plural(end),
        end == 1 ? "it is" : "all of them are");
}
