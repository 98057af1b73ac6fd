#include "ps/coordinator/job.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/event.h"
#include "core/format.h"
#include "core/log.h"
#include "ps/coordinator/placement.h"

/* Two lists of names and the words around them fit in SL_MESSAGE_TEXT_BYTES. */
#define NAMES_BYTES  (SL_MESSAGE_TEXT_BYTES / 2 - 64)

/* Two full lists of the longest names fit, and the words around them in SL_MESSAGE_TEXT_BYTES. */
#define ABSENT_BYTES (SL_MESSAGE_TEXT_BYTES - 64)

static void coordinator_job_enter(struct sl_coordinator *coordinator,
                                  enum sl_coordinator_stage stage, int err, const char *why,
                                  uint64_t now_ns)
{
    coordinator->job.stage = stage;
    coordinator->job.stage_ns = now_ns;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    coordinator->options.stage_changed(coordinator->options.ctx, stage, err, why);
}

uint32_t sl_coordinator_job_missing(const struct sl_coordinator *coordinator, uint32_t total,
                                    struct sl_message_waiting *waiting)
{
    if (coordinator->options.stage_changed == NULL ||
        coordinator->job.stage != SL_COORDINATOR_WAITING_FOR_MEMBERS) {
        return total;
    }
    bool here[SL_LIMIT_WORKERS] = {false};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (sl_coordinator_is_worker(member) && member->registered) {
            here[member->hello.task_index] = true;
        }
    }
    for (uint32_t task = 0; task < coordinator->job.worker_count; task++) {
        if (!here[task]) {
            sl_coordinator_list_missing(waiting, &total, "worker", task);
        }
    }
    return total;
}

void sl_coordinator_job_begin(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    if (coordinator->options.stage_changed == NULL ||
        coordinator->job.stage != SL_COORDINATOR_WAITING_FOR_MEMBERS) {
        return;
    }
    uint32_t shards = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        shards += coordinator->ps[task].shard_count;
    }
    char what[96];
    (void)snprintf(what, sizeof what, "%u server%s with %u shard%s, %u worker%s",
                   coordinator->options.ps_count, sl_log_plural(coordinator->options.ps_count),
                   shards, sl_log_plural(shards), coordinator->job.worker_count,
                   sl_log_plural(coordinator->job.worker_count));
    coordinator_job_enter(coordinator, SL_COORDINATOR_RUNNING, 0, what, now_ns);
}

/* Missing tasks: those that never registered, and those that registered and then left or
 * disconnected before the start. An operator looks for the former. */
struct absent {
    struct sl_message_waiting never, left;
    uint32_t never_count, left_count;
};

static void find_absent(const struct sl_coordinator *coordinator, enum sl_message_role role,
                        struct absent *absent)
{
    bool is_ps = role == SL_MESSAGE_ROLE_PS;
    uint32_t count = is_ps ? coordinator->options.ps_count : coordinator->job.worker_count;
    bool here[SL_LIMIT_WORKERS] = {false};
    bool away[SL_LIMIT_WORKERS] = {false};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == role && member->registered) {
            (member->connected ? here : away)[member->hello.task_index] = true;
        }
    }
    for (uint32_t task = 0; task < count; task++) {
        bool had_come = is_ps ? sl_coordinator_is_known(&coordinator->ps[task])
                              : coordinator->workers[task].end != SL_COORDINATOR_END_NONE;
        bool was_here = away[task] || had_come;
        if (!here[task]) {
            sl_coordinator_list_missing(was_here ? &absent->left : &absent->never,
                                        was_here ? &absent->left_count : &absent->never_count,
                                        is_ps ? "ps" : "worker", task);
        }
    }
}

/* E.g. "ps/1, worker/3; came and left: worker/0". */
static void write_absent(const struct sl_coordinator *coordinator, char *text, size_t bytes)
{
    struct absent absent = {0};
    find_absent(coordinator, SL_MESSAGE_ROLE_PS, &absent);
    find_absent(coordinator, SL_MESSAGE_ROLE_WORKER, &absent);
    const bool all_left = absent.never_count == 0;
    sl_coordinator_write_missing(all_left ? &absent.left : &absent.never, text, bytes);
    if (all_left) {
        (void)sl_format_add(text, bytes, ", ", "which came and left");
    } else if (absent.left_count != 0) {
        (void)sl_format_add(text, bytes, "; ", "came and left: ");
        sl_coordinator_write_missing(&absent.left, text + strlen(text), bytes - strlen(text));
    }
}

void sl_coordinator_job_notify_end(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member)
{
    if (sl_coordinator_is_ps(member) && coordinator->job.stage == SL_COORDINATOR_ENDING) {
        struct sl_message message = {.kind = SL_MESSAGE_ENDED};
        (void)snprintf(message.why, sizeof message.why, "%s", coordinator->job.end_why);
        sl_coordinator_send(coordinator, member, &message);
    }
}

static bool is_expired_worker(const struct sl_coordinator *coordinator, uint32_t task)
{
    return task < coordinator->job.worker_count &&
           coordinator->workers[task].end == SL_COORDINATOR_END_EXPIRED;
}

/* True for a worker of the job that has not said goodbye. */
static bool is_unfinished_worker(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    const bool has_left = worker->left_job && worker->end == SL_COORDINATOR_END_LEFT;
    return !has_left && (task < coordinator->job.worker_count ||
                         sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_WORKER, task) != NULL);
}

static bool is_gone_ps(const struct sl_coordinator *coordinator, uint32_t task)
{
    return task < coordinator->placement.ps_end && coordinator->ps[task].gone &&
           sl_coordinator_placement_needs(coordinator, task);
}

static bool is_gone_or_away_ps(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
    return is_gone_ps(coordinator, task) || (member != NULL && !member->connected &&
                                             sl_coordinator_placement_needs(coordinator, task));
}

/* Writes the names of the tasks for which `is_named` is true. Returns their number. */
static uint32_t write_tasks(const struct sl_coordinator *coordinator, const char *role,
                            bool (*is_named)(const struct sl_coordinator *, uint32_t task),
                            char *text, size_t bytes)
{
    struct sl_message_waiting names = {0};
    uint32_t count = 0;
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS; task++) {
        if (is_named(coordinator, task)) {
            sl_coordinator_list_missing(&names, &count, role, task);
        }
    }
    sl_coordinator_write_missing(&names, text, bytes);
    return count;
}

static void add_gone_ps(char *why, size_t bytes, const char *names, uint32_t count)
{
    (void)sl_format_add(why, bytes, "; ", "%s expired, and no process replaced %s", names,
                        count == 1 ? "it" : "them");
}

/* Enters ENDING and sends end_why to every server. */
static void coordinator_job_conclude(struct sl_coordinator *coordinator, int err, uint64_t now_ns)
{
    coordinator->job.end_err = err;
    coordinator_job_enter(coordinator, SL_COORDINATOR_ENDING, err, coordinator->job.end_why,
                          now_ns);
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        sl_coordinator_job_notify_end(coordinator, coordinator->members[i]);
    }
}

/* Ends the job after its last worker. */
static void end(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    char *why = coordinator->job.end_why;
    const size_t bytes = sizeof coordinator->job.end_why;
    char names[NAMES_BYTES];
    uint32_t expired_count =
        write_tasks(coordinator, "worker", is_expired_worker, names, sizeof names);
    if (expired_count != 0) {
        (void)snprintf(why, bytes, "%s expired, and no process is left", names);
    } else if (coordinator->job.worker_count == 1) {
        (void)snprintf(why, bytes, "its worker has left");
    } else {
        (void)snprintf(why, bytes, "all %u workers have left", coordinator->job.worker_count);
    }
    uint32_t gone_count = write_tasks(coordinator, "ps", is_gone_ps, names, sizeof names);
    if (gone_count != 0) {
        add_gone_ps(why, bytes, names, gone_count);
    }
    coordinator_job_conclude(coordinator, expired_count + gone_count == 0 ? 0 : SL_ERR_CLOSED,
                             now_ns);
}

/* Enters OVER when every server has left, or after one lease. */
static void finish(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_member *left = NULL;
    for (uint32_t i = 0; i < coordinator->member_count && left == NULL; i++) {
        bool is_ps = sl_coordinator_is_ps(coordinator->members[i]);
        left = is_ps ? coordinator->members[i] : NULL;
    }
    /* A checkpoint that stopping servers requested may take longer; it has its own timeout. */
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    uint64_t since_ns = checkpoint->ended_ns > coordinator->job.stage_ns
                            ? checkpoint->ended_ns
                            : coordinator->job.stage_ns;
    bool is_late = checkpoint->stage == SL_COORDINATOR_CHECKPOINT_IDLE &&
                   now_ns - since_ns >= coordinator->options.lease_ns;
    if (left != NULL && !is_late) {
        return;
    }
    if (left != NULL && left->connected) {
        sl_log_event(SL_LOG_WARN,
                     SL_EVENT("server_lingers", SL_EVENT_NUMBER("task", left->hello.task_index)),
                     "%s does not end, though the job has", left->name);
    }
    char why[sizeof coordinator->job.end_why];
    memcpy(why, coordinator->job.end_why, sizeof why);
    char names[NAMES_BYTES];
    uint32_t gone_count = 0;
    if (coordinator->job.end_err == 0) {
        gone_count = write_tasks(coordinator, "ps", is_gone_or_away_ps, names, sizeof names);
    }
    if (gone_count != 0) {
        add_gone_ps(why, sizeof why, names, gone_count);
    }
    coordinator_job_enter(coordinator, SL_COORDINATOR_OVER, gone_count == 0 ? 0 : SL_ERR_CLOSED,
                          why, now_ns);
}

static const char *end_word(const struct sl_coordinator *coordinator)
{
    return coordinator->job.end_err == SL_ERR_DEADLINE ? "the job has not begun"
                                                       : "the job has ended";
}

/* Servers get DEADLINE, which lets a server that is serving a job register again later: a restarted
 * scheduler may time out while that job runs. */
bool sl_coordinator_job_refuses(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request)
{
    bool is_ps = sl_coordinator_is_ps(member);
    if (coordinator->job.never_began && is_ps && coordinator->job.stage == SL_COORDINATOR_ENDING) {
        sl_coordinator_job_notify_end(coordinator, member);
    } else if (coordinator->job.never_began) {
        sl_coordinator_refuse(coordinator, member, request,
                              is_ps ? SL_ERR_DEADLINE : SL_ERR_REFUSED, "%s: %s",
                              end_word(coordinator), coordinator->job.end_why);
    }
    return coordinator->job.never_began;
}

/* A server that was notified of the end needs no answer. */
static void refuse_waiting(struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        bool was_notified =
            sl_coordinator_is_ps(member) && coordinator->job.stage == SL_COORDINATOR_ENDING;
        if (member->waits_for_cluster && !was_notified) {
            (void)sl_coordinator_job_refuses(coordinator, member, member->cluster_waiter.request);
        }
        member->waits_for_cluster = false;
    }
}

/* Ends a job that did not begin in time. Refuses waiting members at once, before their own
 * timeouts. */
static void give_up(struct sl_coordinator *coordinator, uint64_t waited_ns, const char *names,
                    uint64_t now_ns)
{
    coordinator->job.never_began = true;
    coordinator->job.end_err = SL_ERR_DEADLINE;
    (void)snprintf(coordinator->job.end_why, sizeof coordinator->job.end_why,
                   "still waiting after %llu s for %s", waited_ns / SL_CLOCK_NS_PER_S, names);
    coordinator_job_enter(coordinator, SL_COORDINATOR_OVER, SL_ERR_DEADLINE,
                          coordinator->job.end_why, now_ns);
    refuse_waiting(coordinator);
}

/* Logs the missing tasks, and ends the job after the start timeout. */
static void gather(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_options *options = &coordinator->options;
    if (coordinator->job.stage_ns == 0) {
        coordinator->job.stage_ns = now_ns;
        coordinator->job.remind_ns = now_ns + options->waiting_interval_ns;
    }
    uint64_t waited_ns = now_ns - coordinator->job.stage_ns;
    bool is_over = options->start_timeout_ns != 0 && waited_ns >= options->start_timeout_ns;
    if (!is_over && now_ns < coordinator->job.remind_ns) {
        return;
    }
    char names[ABSENT_BYTES];
    write_absent(coordinator, names, sizeof names);
    if (is_over) {
        give_up(coordinator, waited_ns, names, now_ns);
    } else {
        coordinator->job.remind_ns = now_ns + options->waiting_interval_ns;
        sl_log_event(SL_LOG_INFO, SL_EVENT("job_waiting", SL_EVENT_TEXT("missing", names)),
                     "waiting for %s", names);
    }
}

void sl_coordinator_end_job(struct sl_coordinator *coordinator, const char *why, uint64_t now_ns)
{
    char *text = coordinator->job.end_why;
    const size_t bytes = sizeof coordinator->job.end_why;
    if (coordinator->job.stage == SL_COORDINATOR_WAITING_FOR_MEMBERS) {
        coordinator->job.never_began = true;
        (void)snprintf(text, bytes, "%s came before it had begun", why);
        coordinator_job_conclude(coordinator, coordinator->member_count == 0 ? 0 : SL_ERR_CLOSED,
                                 now_ns);
        refuse_waiting(coordinator);
    } else if (coordinator->job.stage == SL_COORDINATOR_RUNNING) {
        char names[NAMES_BYTES];
        (void)write_tasks(coordinator, "worker", is_unfinished_worker, names, sizeof names);
        (void)snprintf(text, bytes, "%s came before %s had left", why, names);
        coordinator_job_conclude(coordinator, SL_ERR_CLOSED, now_ns);
    }
    sl_coordinator_job_update(coordinator, 0, now_ns);
}

void sl_coordinator_job_update(struct sl_coordinator *coordinator, uint32_t missing_count,
                               uint64_t now_ns)
{
    if (coordinator->options.stage_changed == NULL) {
        return;
    }
    if (coordinator->job.stage == SL_COORDINATOR_WAITING_FOR_MEMBERS && missing_count > 0) {
        gather(coordinator, now_ns);
    }
    if (coordinator->job.stage == SL_COORDINATOR_RUNNING &&
        sl_coordinator_count_workers(coordinator) == 0) {
        end(coordinator, now_ns);
    }
    if (coordinator->job.stage == SL_COORDINATOR_ENDING) {
        finish(coordinator, now_ns);
    }
}

int sl_coordinator_job_admits(const struct sl_coordinator *coordinator,
                              const struct sl_message_hello *hello, struct sl_reason *reason)
{
    bool has_ended = coordinator->job.stage == SL_COORDINATOR_ENDING ||
                     coordinator->job.stage == SL_COORDINATOR_OVER;
    bool is_known = false;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        is_known = is_known || (hello->role == SL_MESSAGE_ROLE_PS &&
                                coordinator->ps[task].client_id == hello->client_id);
    }
    if (!has_ended || is_known) {
        return 0;
    }
    return sl_reason_fail(reason, SL_ERR_REFUSED, "%s: %s", end_word(coordinator),
                          coordinator->job.end_why);
}
