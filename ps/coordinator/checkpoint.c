#include "ps/coordinator/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/event.h"
#include "core/format.h"
#include "core/log.h"
#include "ps/coordinator/checkpoint_request.h"
#include "ps/coordinator/metrics.h"
#include "ps/coordinator/placement.h"

/* Why a job that lost values writes no checkpoint. */
#define VALUES_LOST "ps/%" PRIu32 " was restarted without the values of its shards"

/* Sends to every primary; that a checkpoint is complete, to all servers: a new coordinator learns
 * it from those that are left. */
static void send_to_all(struct sl_coordinator *coordinator, const struct sl_message *message)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (sl_coordinator_is_ps(member) &&
            (message->kind == SL_MESSAGE_CHECKPOINT_DONE ||
             sl_coordinator_placement_needs(coordinator, member->hello.task_index))) {
            sl_coordinator_send(coordinator, member, message);
        }
    }
}

/* Waits for every primary. A server that has only backups takes no part. */
static void wait_for_all(struct sl_coordinator *coordinator)
{
    coordinator->checkpoint.acks_pending = 0;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        const bool serves = sl_coordinator_placement_needs(coordinator, task);
        coordinator->ps[task].checkpoints.ack_pending = serves;
        coordinator->checkpoint.acks_pending += serves;
    }
}

static void coordinator_checkpoint_idle(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    checkpoint->stage = SL_COORDINATOR_CHECKPOINT_IDLE;
    checkpoint->ended_ns = now_ns;
    free(checkpoint->files);
    checkpoint->files = NULL;
}

/* Start */

static struct sl_message checkpoint_message(const struct sl_coordinator_checkpoint *checkpoint)
{
    return (struct sl_message){
        .kind = SL_MESSAGE_CHECKPOINT,
        .checkpoint = {.number = checkpoint->number,
                       .base = checkpoint->base,
                       .complete = checkpoint->last_on_all_servers},
    };
}

/* Fails the requests that wait for the next checkpoint. */
static void refuse_next(struct sl_coordinator *coordinator, int err, const char *why)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .error.err = err};
    (void)snprintf(message.error.text, sizeof message.error.text, "%s", why);
    sl_log_event(SL_LOG_WARN, SL_EVENT("checkpoint_refused", SL_EVENT_TEXT("reason", why)),
                 "no checkpoint: %s", why);
    sl_coordinator_checkpoint_request_answer(coordinator, 0, &message);
}

static void begin(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_options *options = &coordinator->options;
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    checkpoint->next_ns = options->checkpoint_interval_ns == 0
                              ? SL_CLOCK_NEVER
                              : now_ns + options->checkpoint_interval_ns;
    if (coordinator->values_lost != 0) {
        char why[96];
        (void)snprintf(why, sizeof why, VALUES_LOST, coordinator->values_lost - 1);
        refuse_next(coordinator, SL_ERR_CORRUPT, why);
        return;
    }
    if (checkpoint->max_seen >= SL_LIMIT_CHECKPOINT_NUMBER) {
        refuse_next(coordinator, SL_ERR_TOO_LARGE,
                    "number 999999999999 is taken, and numbers end there: move the directory "
                    "checkpoint-999999999999 away and start the job again");
        return;
    }
    checkpoint->file_count = coordinator->placement.shard_count;
    checkpoint->files = calloc(checkpoint->file_count, sizeof *checkpoint->files);
    if (checkpoint->files == NULL) {
        refuse_next(coordinator, SL_ERR_NO_MEMORY, "the coordinator has no memory for it");
        return;
    }
    bool adds =
        checkpoint->incremental_base != 0 && checkpoint->incrementals < options->incrementals_max;
    checkpoint->stage = SL_COORDINATOR_CHECKPOINT_WRITING;
    checkpoint->number = ++checkpoint->max_seen;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    checkpoint->base = adds ? checkpoint->incremental_base : 0;
    checkpoint->begun_ns = checkpoint->stage_ns = now_ns;
    checkpoint->has_worker = false;
    checkpoint->time_ms = options->time_ms == NULL ? 0 : options->time_ms(options->ctx);
    checkpoint->is_last = sl_coordinator_checkpoint_request_take(coordinator, checkpoint->number);
    wait_for_all(coordinator);
    sl_log_event(SL_LOG_DEBUG,
                 SL_EVENT("checkpoint_started", SL_EVENT_NUMBER("number", checkpoint->number),
                          SL_EVENT_NUMBER("base", checkpoint->base)),
                 "checkpoint %" PRIu64 " begins%s", checkpoint->number, adds ? "" : ", a full one");
    struct sl_message message = checkpoint_message(checkpoint);
    send_to_all(coordinator, &message);
}

void sl_coordinator_checkpoint_update(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    struct sl_message_waiting missing = {0};
    if (checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE ||
        coordinator->placement.shard_count == 0 || coordinator->job.stage == SL_COORDINATOR_OVER) {
        return;
    }
    bool is_due = now_ns >= checkpoint->next_ns && coordinator->job.stage != SL_COORDINATOR_ENDING;
    if (sl_coordinator_placement_list_missing(coordinator, &missing) != 0) {
        sl_coordinator_checkpoint_request_refuse_ps(coordinator, missing.missing[0]);
    } else if (is_due || sl_coordinator_checkpoint_request_is_due(coordinator, now_ns)) {
        begin(coordinator, now_ns);
    }
}

/* End */

static void coordinator_checkpoint_give_up(struct sl_coordinator *coordinator, uint64_t now_ns,
                                           int err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A server that wrote the manifest may have replaced its base, so the next checkpoint is full. */
static void coordinator_checkpoint_give_up(struct sl_coordinator *coordinator, uint64_t now_ns,
                                           int err, const char *format, ...)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .error.err = err};
    char why[SL_MESSAGE_TEXT_BYTES - 64];
    SL_FORMAT(why, format);
    (void)snprintf(message.error.text, sizeof message.error.text,
                   "checkpoint %" PRIu64 " is aborted: %s", checkpoint->number, why);
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("checkpoint_failed", SL_EVENT_NUMBER("number", checkpoint->number),
                          SL_EVENT_TEXT("reason", why)),
                 "%s", message.error.text);
    sl_coordinator_metrics_failed(coordinator, err);
    checkpoint->incremental_base = 0;
    coordinator_checkpoint_idle(coordinator, now_ns);
    sl_coordinator_checkpoint_request_answer(coordinator, checkpoint->number, &message);
    sl_coordinator_checkpoint_update(coordinator, now_ns);
}

void sl_coordinator_checkpoint_lose(struct sl_coordinator *coordinator)
{
    if (coordinator->checkpoint.stage != SL_COORDINATOR_CHECKPOINT_IDLE) {
        coordinator_checkpoint_give_up(coordinator, coordinator->ticked_ns, SL_ERR_CORRUPT,
                                       VALUES_LOST, coordinator->values_lost - 1);
    }
}

static void finish(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < checkpoint->file_count; i++) {
        bytes += checkpoint->files[i].bytes;
    }
    const uint64_t took_ns = now_ns - checkpoint->begun_ns;
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("checkpoint_done", SL_EVENT_NUMBER("number", checkpoint->number),
                          SL_EVENT_NUMBER("base", checkpoint->base),
                          SL_EVENT_NUMBER("bytes", bytes),
                          SL_EVENT_NUMBER("duration_ms", took_ns / SL_CLOCK_NS_PER_MS)),
                 "checkpoint %" PRIu64 " is complete: %s%" PRIu32 " shard%s, %.1f MiB in %.1f s",
                 checkpoint->number, checkpoint->base == 0 ? "" : "incremental, ",
                 checkpoint->file_count, sl_log_plural(checkpoint->file_count),
                 (double)bytes / (1 << 20), (double)took_ns / (double)SL_CLOCK_NS_PER_S);
    checkpoint->incremental_base = checkpoint->last_on_all_servers = checkpoint->job_latest =
        checkpoint->number;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    checkpoint->incrementals = checkpoint->base == 0 ? 0 : checkpoint->incrementals + 1;
    coordinator_checkpoint_idle(coordinator, now_ns);
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_DONE,
        .checkpoint_number = checkpoint->number,
    };
    send_to_all(coordinator, &message);
    sl_coordinator_checkpoint_request_answer(coordinator, checkpoint->number, &message);
    sl_coordinator_checkpoint_update(coordinator, now_ns);
}

/* Messages of servers */

static struct sl_message publish_message(const struct sl_coordinator_checkpoint *checkpoint)
{
    return (struct sl_message){
        .kind = SL_MESSAGE_CHECKPOINT_PUBLISH,
        .checkpoint_publish = {.number = checkpoint->number,
                               .base = checkpoint->base,
                               .files = checkpoint->files,
                               .file_count = checkpoint->file_count,
                               .time_ms = checkpoint->time_ms,
                               .has_worker = checkpoint->has_worker},
    };
}

/* True if the message concerns the current checkpoint; late messages are ignored. */
static bool is_current(struct sl_coordinator *coordinator,
                       const struct sl_coordinator_member *member, const struct sl_message *message,
                       uint64_t number)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    if (!sl_coordinator_is_ps(member)) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_PROTOCOL,
                              "only a server takes part in a checkpoint");
        return false;
    }
    bool is_known = checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE && member->registered &&
                    number == checkpoint->number;
    if (!is_known) {
        sl_log_debug("%s answers for checkpoint %" PRIu64 ", which is not in progress",
                     member->name, number);
    }
    return is_known;
}

/* Returns true on the last acknowledgement. */
static bool acknowledge(struct sl_coordinator *coordinator,
                        const struct sl_coordinator_member *member)
{
    coordinator->ps[member->hello.task_index].checkpoints.ack_pending = false;
    return --coordinator->checkpoint.acks_pending == 0;
}

/* Accepts exactly one file for each shard that the server serves, in their order. */
static bool take_files(struct sl_coordinator *coordinator,
                       const struct sl_coordinator_member *member,
                       const struct sl_message_checkpoint_part *part)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        if (coordinator->placement.shards[i].primary != member->hello.task_index) {
            continue;
        }
        if (taken == part->file_count || part->files[taken].shard != i) {
            return false;
        }
        coordinator->checkpoint.files[i] = part->files[taken++];
    }
    return taken == part->file_count;
}

void sl_coordinator_checkpoint_part(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    const struct sl_message_checkpoint_part *part = &message->checkpoint_part;
    if (!is_current(coordinator, member, message, part->number)) {
        return;
    }
    if (part->err != 0) {
        coordinator_checkpoint_give_up(coordinator, now_ns, part->err, "%s: %s", member->name,
                                       part->text[0] == '\0' ? sl_err_name(part->err) : part->text);
        return;
    }
    if (checkpoint->stage != SL_COORDINATOR_CHECKPOINT_WRITING ||
        !coordinator->ps[member->hello.task_index].checkpoints.ack_pending) {
        return; /* a repeated message */
    }
    if (!take_files(coordinator, member, part)) {
        coordinator_checkpoint_give_up(
            coordinator, now_ns, SL_ERR_PROTOCOL,
            "%s has written other files than those of the shards that it serves", member->name);
        return;
    }
    checkpoint->has_worker = checkpoint->has_worker || part->has_worker;
    if (acknowledge(coordinator, member)) {
        checkpoint->stage = SL_COORDINATOR_CHECKPOINT_PUBLISHING;
        checkpoint->stage_ns = now_ns;
        wait_for_all(coordinator);
        struct sl_message publish = publish_message(checkpoint);
        send_to_all(coordinator, &publish);
    }
}

void sl_coordinator_checkpoint_done(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns)
{
    if (is_current(coordinator, member, message, message->checkpoint_number) &&
        coordinator->checkpoint.stage == SL_COORDINATOR_CHECKPOINT_PUBLISHING &&
        coordinator->ps[member->hello.task_index].checkpoints.ack_pending &&
        acknowledge(coordinator, member)) {
        finish(coordinator, now_ns);
    }
}

/* Servers that come and go */

void sl_coordinator_checkpoint_cluster_ready(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    uint64_t interval_ns = coordinator->options.checkpoint_interval_ns;
    coordinator->checkpoint.next_ns = interval_ns == 0 ? SL_CLOCK_NEVER : now_ns + interval_ns;
}

void sl_coordinator_checkpoint_resend(struct sl_coordinator *coordinator,
                                      const struct sl_coordinator_member *member)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    if (!sl_coordinator_is_ps(member) || checkpoint->stage == SL_COORDINATOR_CHECKPOINT_IDLE ||
        !coordinator->ps[member->hello.task_index].checkpoints.ack_pending) {
        return;
    }
    struct sl_message message = checkpoint->stage == SL_COORDINATOR_CHECKPOINT_WRITING
                                    ? checkpoint_message(checkpoint)
                                    : publish_message(checkpoint);
    sl_coordinator_send(coordinator, member, &message);
}

void sl_coordinator_checkpoint_register(struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_member *member,
                                        const struct sl_message_register *reg, bool is_new,
                                        uint64_t now_ns)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    uint64_t known = reg->restore > reg->checkpoint_newest ? reg->restore : reg->checkpoint_newest;
    if (known > checkpoint->max_seen) {
        checkpoint->max_seen = known;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    }
    if (reg->serving && !coordinator->cluster.is_ready && reg->restore > checkpoint->job_latest) {
        checkpoint->job_latest = reg->restore;
    }
    if (!is_new) {
        return;
    }
    checkpoint->incremental_base =
        0; /* a new process may lack its files, and does not know its content */
    if (coordinator->ps[member->hello.task_index].checkpoints.restore !=
        checkpoint->last_on_all_servers) {
        checkpoint->last_on_all_servers = 0;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    }
    if (checkpoint->stage != SL_COORDINATOR_CHECKPOINT_IDLE) {
        coordinator_checkpoint_give_up(coordinator, now_ns, SL_ERR_CLOSED, "%s was restarted",
                                       member->name);
    }
}

void sl_coordinator_checkpoint_leave(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member, bool is_expired,
                                     uint64_t now_ns)
{
    sl_coordinator_checkpoint_request_leave(coordinator, member);
    if (sl_coordinator_is_ps(member) &&
        coordinator->checkpoint.stage != SL_COORDINATOR_CHECKPOINT_IDLE) {
        coordinator_checkpoint_give_up(coordinator, now_ns, SL_ERR_CLOSED, "%s %s", member->name,
                                       is_expired ? "expired" : "has left");
    }
    sl_coordinator_checkpoint_update(coordinator, now_ns);
}

/* Names the servers that the current checkpoint waits for, or that the next one needs. */
static void coordinator_checkpoint_list_missing(const struct sl_coordinator *coordinator,
                                                struct sl_message_waiting *waiting)
{
    uint32_t total = 0;
    if (coordinator->checkpoint.stage == SL_COORDINATOR_CHECKPOINT_IDLE) {
        (void)sl_coordinator_placement_list_missing(coordinator, waiting);
        return;
    }
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (coordinator->ps[task].checkpoints.ack_pending) {
            sl_coordinator_list_missing(waiting, &total, "ps", task);
        }
    }
}

/* Writing files has no timeout if there are leases: a server with a stalled disk reports it, and a
 * silent server expires. */
static void expire(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    uint64_t timeout_ns = coordinator->options.checkpoint_timeout_ns;
    const bool has_end = checkpoint->stage == SL_COORDINATOR_CHECKPOINT_PUBLISHING ||
                         coordinator->options.lease_ns == SL_CLOCK_NEVER;
    if (checkpoint->stage == SL_COORDINATOR_CHECKPOINT_IDLE || !has_end ||
        now_ns - checkpoint->stage_ns < timeout_ns) {
        return;
    }
    struct sl_message_waiting waiting = {0};
    coordinator_checkpoint_list_missing(coordinator, &waiting);
    coordinator_checkpoint_give_up(coordinator, now_ns, SL_ERR_DEADLINE,
                                   "still waiting after %llu s for %s%s",
                                   timeout_ns / SL_CLOCK_NS_PER_S, waiting.missing[0],
                                   waiting.missing_count > 1 ? " and others" : "");
}

void sl_coordinator_checkpoint_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    expire(coordinator, now_ns);
    sl_coordinator_checkpoint_update(coordinator, now_ns);
    struct sl_message_waiting waiting = {0};
    coordinator_checkpoint_list_missing(coordinator, &waiting);
    sl_coordinator_checkpoint_request_tick(coordinator, &waiting, now_ns);
}

void sl_coordinator_checkpoint_fini(struct sl_coordinator *coordinator)
{
    sl_coordinator_checkpoint_request_fini(coordinator);
    free(coordinator->checkpoint.files);
    coordinator->checkpoint.files = NULL;
}
