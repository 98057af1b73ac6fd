/* The course of a job whose coordinator runs in a process of its own: it begins when all are there,
 * ends when no worker is left, and is over when every ps knows. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator_internal.h"

/* "ps/1, worker/3, 4 more". */
static void write_names(const struct sl_message_waiting *names, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < names->missing_count && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ", ",
                                 names->missing[i]);
    }
}

static void enter(struct sl_coordinator *coordinator, enum sl_coordinator_stage stage, int err,
                  const char *why, uint64_t now_ns)
{
    coordinator->stage = stage;
    coordinator->stage_ns = now_ns;
    coordinator->options.stage_changed(coordinator->options.ctx, stage, err, why);
}

uint32_t sl_coordinator_job_missing(const struct sl_coordinator *coordinator, uint32_t total,
                                    struct sl_message_waiting *waiting)
{
    if (coordinator->options.stage_changed == NULL ||
        coordinator->stage != SL_COORDINATOR_GATHERING) {
        return total;
    }
    bool here[SL_LIMIT_WORKERS] = {false};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == SL_MESSAGE_ROLE_WORKER && member->registered) {
            here[member->hello.task_index] = true;
        }
    }
    for (uint32_t task = 0; task < coordinator->worker_count; task++) {
        if (!here[task]) {
            sl_coordinator_miss(waiting, &total, "worker", task);
        }
    }
    return total;
}

void sl_coordinator_job_begin(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    if (coordinator->options.stage_changed == NULL ||
        coordinator->stage != SL_COORDINATOR_GATHERING) {
        return;
    }
    uint32_t shards = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        shards += coordinator->ps[task].shard_count;
    }
    char what[96];
    (void)snprintf(what, sizeof what, "%u ps with %u shards, %u workers",
                   coordinator->options.ps_count, shards, coordinator->worker_count);
    enter(coordinator, SL_COORDINATOR_RUNNING, 0, what, now_ns);
}

/* Not all have come yet: says who has not, and gives up in the end. */
static void gather(struct sl_coordinator *coordinator, const struct sl_message_waiting *missing,
                   uint64_t now_ns)
{
    const struct sl_coordinator_options *options = &coordinator->options;
    if (coordinator->stage_ns == 0) {
        coordinator->stage_ns = now_ns;
        coordinator->remind_ns = now_ns + options->waiting_interval_ns;
    }
    char names[SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2)];
    write_names(missing, names, sizeof names);
    uint64_t waited_ns = now_ns - coordinator->stage_ns;
    if (options->start_timeout_ns != 0 && waited_ns >= options->start_timeout_ns) {
        char why[sizeof names + 64];
        (void)snprintf(why, sizeof why, "after %llu s it still waits for %s",
                       waited_ns / SL_CLOCK_NS_PER_S, names);
        enter(coordinator, SL_COORDINATOR_OVER, SL_ERR_DEADLINE, why, now_ns);
    } else if (now_ns >= coordinator->remind_ns) {
        coordinator->remind_ns = now_ns + options->waiting_interval_ns;
        sl_log_info("waiting for %s", names);
    }
}

void sl_coordinator_job_tell_end(struct sl_coordinator *coordinator,
                                 const struct sl_coordinator_member *member)
{
    if (member->hello.role == SL_MESSAGE_ROLE_PS && coordinator->stage == SL_COORDINATOR_ENDING) {
        struct sl_message message = {.kind = SL_MESSAGE_ENDED};
        (void)snprintf(message.why, sizeof message.why, "%s", coordinator->end_why);
        sl_coordinator_send(coordinator, member, &message);
    }
}

/* No worker is left. */
static void end(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message_waiting lost = {0};
    uint32_t lost_count = 0;
    for (uint32_t task = 0; task < coordinator->worker_count; task++) {
        if (coordinator->workers[task].end == SL_COORDINATOR_END_LOST) {
            sl_coordinator_miss(&lost, &lost_count, "worker", task);
        }
    }
    if (lost_count == 0) {
        (void)snprintf(coordinator->end_why, sizeof coordinator->end_why,
                       "all %u workers have left", coordinator->worker_count);
    } else {
        char names[sizeof coordinator->end_why - 64]; /* so that what follows them has its place */
        write_names(&lost, names, sizeof names);
        (void)snprintf(coordinator->end_why, sizeof coordinator->end_why,
                       "%s %s lost, and nobody else is left", names,
                       lost_count == 1 ? "is" : "are");
    }
    enter(coordinator, SL_COORDINATOR_ENDING, lost_count == 0 ? 0 : SL_ERR_CLOSED,
          coordinator->end_why, now_ns);
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        sl_coordinator_job_tell_end(coordinator, coordinator->members[i]);
    }
}

/* Those that were told have gone, or nothing is heard of them. */
static void finish(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_member *left = NULL;
    for (uint32_t i = 0; i < coordinator->member_count && left == NULL; i++) {
        bool is_ps = coordinator->members[i]->hello.role == SL_MESSAGE_ROLE_PS;
        left = is_ps ? coordinator->members[i] : NULL;
    }
    bool is_late = now_ns - coordinator->stage_ns >= coordinator->options.lease_ns;
    if (left != NULL && !is_late) {
        return;
    }
    if (left != NULL) {
        sl_log_warn("%s does not end, though the job has", left->name);
    }
    enter(coordinator, SL_COORDINATOR_OVER, 0, coordinator->end_why, now_ns);
}

void sl_coordinator_job_look(struct sl_coordinator *coordinator,
                             const struct sl_message_waiting *missing, uint64_t now_ns)
{
    if (coordinator->options.stage_changed == NULL) {
        return;
    }
    if (coordinator->stage == SL_COORDINATOR_GATHERING && missing != NULL &&
        missing->missing_count > 0) {
        gather(coordinator, missing, now_ns);
    }
    if (coordinator->stage == SL_COORDINATOR_RUNNING &&
        sl_coordinator_member_job_workers(coordinator) == 0) {
        end(coordinator, now_ns);
    }
    if (coordinator->stage == SL_COORDINATOR_ENDING) {
        finish(coordinator, now_ns);
    }
}

int sl_coordinator_job_admits(const struct sl_coordinator *coordinator,
                              const struct sl_message_hello *hello, char *reason,
                              size_t reason_bytes)
{
    bool has_ended =
        coordinator->stage == SL_COORDINATOR_ENDING || coordinator->stage == SL_COORDINATOR_OVER;
    bool is_known = false;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        is_known = is_known || (hello->role == SL_MESSAGE_ROLE_PS &&
                                coordinator->ps[task].client_id == hello->client_id);
    }
    if (!has_ended || is_known) {
        return 0;
    }
    (void)snprintf(reason, reason_bytes, "the job has ended: %s",
                   coordinator->end_why[0] == '\0' ? "it has not begun in time"
                                                   : coordinator->end_why);
    return SL_ERR_REFUSED;
}
