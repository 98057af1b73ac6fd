#include "ps/coordinator/state.h"

#include "core/event.h"
#include "core/format.h"

#include <stdio.h>
#include <stdlib.h>

void sl_coordinator_free_member(struct sl_coordinator_member *member)
{
    free(member->reports);
    free(member);
}

void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message)
{
    if (member->connected) {
        coordinator->options.send(coordinator->options.ctx, member->peer, message);
    }
}

void sl_coordinator_note(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                         uint32_t index)
{
    if (coordinator->options.changed != NULL) {
        coordinator->options.changed(coordinator->options.ctx, kind, index);
    }
}

void sl_coordinator_note_member(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member)
{
    if (sl_coordinator_is_ps(member)) {
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, member->hello.task_index);
    } else if (sl_coordinator_is_worker(member)) {
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_WORKER, member->hello.task_index);
    }
}

void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    SL_FORMAT(message.error.text, format);
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("request_refused", SL_EVENT_TEXT("member", member->name),
                          SL_EVENT_TEXT("reason", message.error.text)),
                 "refused %s: %s", member->name, message.error.text);
    sl_coordinator_send(coordinator, member, &message);
}

struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == role && member->hello.task_index == task_index) {
            return member;
        }
    }
    return NULL;
}

uint32_t sl_coordinator_count_workers(struct sl_coordinator *coordinator)
{
    if (coordinator->job.counted_workers_known) {
        return coordinator->job.counted_workers;
    }
    uint32_t count = 0;
    for (uint32_t task = 0; task < coordinator->job.worker_count; task++) {
        count += coordinator->workers[task].left_job ? 0 : 1;
    }
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        bool is_more = sl_coordinator_is_worker(member) &&
                       member->hello.task_index >= coordinator->job.worker_count;
        count += is_more ? 1 : 0;
    }
    coordinator->job.counted_workers = count;
    coordinator->job.counted_workers_known = true;
    return count;
}

void sl_coordinator_reset_job(struct sl_coordinator *coordinator)
{
    const char *source = coordinator->options.worker_count_source;
    coordinator->job =
        (struct sl_coordinator_job){.worker_count = coordinator->options.worker_count};
    (void)snprintf(coordinator->job.worker_count_from, sizeof coordinator->job.worker_count_from,
                   "the coordinator%s%s%s", source == NULL ? "" : " (",
                   source == NULL ? "" : source, source == NULL ? "" : ")");
}
