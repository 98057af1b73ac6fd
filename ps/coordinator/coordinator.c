#include "ps/coordinator/coordinator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator/internal.h"

#define WAITING_INTERVAL_DEFAULT_NS (3 * SL_CLOCK_NS_PER_S)
#define LEASE_DEFAULT_NS            (10 * SL_CLOCK_NS_PER_S)
#define CHECKPOINT_DEFAULT_NS       (3600 * SL_CLOCK_NS_PER_S)

/* Resets the worker count to that of the options. */
static void take_worker_count(struct sl_coordinator *coordinator)
{
    const char *source = coordinator->options.worker_count_source;
    coordinator->worker_count = coordinator->options.worker_count;
    (void)snprintf(coordinator->worker_count_from, sizeof coordinator->worker_count_from,
                   "the coordinator%s%s%s", source == NULL ? "" : " (",
                   source == NULL ? "" : source, source == NULL ? "" : ")");
}

int sl_coordinator_create(const struct sl_coordinator_options *options, struct sl_coordinator **out)
{
    sl_assert(options->send != NULL);
    sl_assert(options->ps_count > 0);
    sl_assert(options->ps_count <= SL_LIMIT_PS);
    sl_assert(options->stage_changed == NULL || options->worker_count > 0);
    struct sl_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    coordinator->ps = calloc(options->ps_count, sizeof *coordinator->ps);
    coordinator->workers = calloc(SL_LIMIT_WORKERS, sizeof *coordinator->workers);
    if (coordinator->ps == NULL || coordinator->workers == NULL) {
        sl_coordinator_destroy(&coordinator);
        return SL_ERR_NO_MEMORY;
    }
    coordinator->options = *options;
    if (options->waiting_interval_ns == 0) {
        coordinator->options.waiting_interval_ns = WAITING_INTERVAL_DEFAULT_NS;
    }
    if (options->lease_ns == 0) {
        coordinator->options.lease_ns = LEASE_DEFAULT_NS;
    }
    if (options->checkpoint_timeout_ns == 0) {
        coordinator->options.checkpoint_timeout_ns = CHECKPOINT_DEFAULT_NS;
    }
    coordinator->cluster_version = 1;
    take_worker_count(coordinator);
    *out = coordinator;
    return 0;
}

void sl_coordinator_destroy(struct sl_coordinator **coordinator)
{
    sl_coordinator_barrier_fini(*coordinator);
    sl_coordinator_checkpoint_fini(*coordinator);
    sl_coordinator_record_fini(*coordinator);
    for (uint32_t i = 0; i < (*coordinator)->member_count; i++) {
        free((*coordinator)->members[i]);
    }
    free((*coordinator)->members);
    free((*coordinator)->peers);
    free((*coordinator)->ps);
    free((*coordinator)->workers);
    free((*coordinator)->tables);
    free(*coordinator);
    *coordinator = NULL;
}

uint32_t sl_coordinator_task_index(const struct sl_coordinator *coordinator,
                                   sl_coordinator_peer peer)
{
    const struct sl_coordinator_member *member = sl_coordinator_member_of(coordinator, peer);
    sl_assert(member != NULL);
    return member->hello.task_index;
}

uint64_t sl_coordinator_lease_ns(const struct sl_coordinator *coordinator)
{
    return coordinator->options.lease_ns;
}

void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message)
{
    if (member->connected) {
        coordinator->options.send(coordinator->options.ctx, member->peer, message);
    }
}

void sl_coordinator_depart(struct sl_coordinator *coordinator, uint32_t ps_task, uint64_t now_ns)
{
    struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, ps_task);
    if (member != NULL) {
        sl_coordinator_member_leave(coordinator, member, now_ns);
    }
}

bool sl_coordinator_is_deserted(const struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (coordinator->members[i]->hello.role != SL_MESSAGE_ROLE_CLIENT) {
            return false;
        }
    }
    return true;
}

void sl_coordinator_tell(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message *message)
{
    const struct sl_coordinator_member *member = sl_coordinator_member_of(coordinator, peer);
    sl_assert(member != NULL);
    sl_coordinator_send(coordinator, member, message);
}

void sl_coordinator_forget(struct sl_coordinator *coordinator)
{
    while (coordinator->member_count > 0) {
        free(coordinator->members[--coordinator->member_count]);
    }
    memset(coordinator->ps, 0, coordinator->options.ps_count * sizeof *coordinator->ps);
    memset(coordinator->workers, 0, SL_LIMIT_WORKERS * sizeof *coordinator->workers);
    sl_coordinator_record_fini(coordinator);
    coordinator->unnotified_count = 0;
    coordinator->job_workers_known = false;
    take_worker_count(coordinator);
    coordinator->cluster_version = 1;
    coordinator->values_lost = 0;
    coordinator->has_older_tables = false;
    coordinator->cluster_ready = false;
    coordinator->restore = coordinator->abandoned_to = 0;
    coordinator->checkpoint.max_seen = coordinator->checkpoint.last_on_all_servers = 0;
    coordinator->checkpoint.job_latest = 0;
    coordinator->table_count = 0;
    coordinator->stage = SL_COORDINATOR_WAITING_FOR_MEMBERS;
    coordinator->stage_ns = 0;
    coordinator->never_began = false;
    coordinator->end_err = 0;
    coordinator->end_why[0] = '\0';
    coordinator->recovery_deadline_ns = 0;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_ALL, 0);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0); /* marks the prefix as used */
}

void sl_coordinator_note(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                         uint32_t index)
{
    if (coordinator->options.changed != NULL) {
        coordinator->options.changed(coordinator->options.ctx, kind, index);
    }
}

void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message.error.text, sizeof message.error.text, format, args);
    va_end(args);
    sl_log_warn("refused %s: %s", member->name, message.error.text);
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

bool sl_coordinator_grow(void **items, size_t item_bytes, uint32_t max)
{
    void *grown = reallocarray(*items, max, item_bytes);
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    return true;
}

void sl_coordinator_message(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message, uint64_t now_ns)
{
    struct sl_coordinator_member *member = sl_coordinator_member_of(coordinator, peer);
    if (member == NULL) {
        return; /* a closing connection: the member reconnected, left or expired */
    }
    member->last_seen_ns = now_ns;
    switch (message->kind) {
    case SL_MESSAGE_REGISTER:
        sl_coordinator_cluster_register(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_TABLE_OPEN:
        sl_coordinator_table_open(coordinator, member, message);
        break;
    case SL_MESSAGE_BARRIER:
        sl_coordinator_barrier_come(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_CHECKPOINT_PART:
        sl_coordinator_checkpoint_part(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        sl_coordinator_checkpoint_done(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
        sl_coordinator_checkpoint_request_come(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_STATS_GET:
        sl_coordinator_table_stats(coordinator, member, message->id);
        break;
    case SL_MESSAGE_HEARTBEAT:
        if (message->id != 0) {
            sl_coordinator_send(coordinator, member, message);
        }
        break; /* its arrival renewed the lease */
    case SL_MESSAGE_GOODBYE:
        sl_coordinator_member_leave(coordinator, member, now_ns);
        break;
    default:
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_PROTOCOL,
                              "the coordinator does not take messages of kind %d",
                              (int)message->kind);
    }
    sl_coordinator_job_update(coordinator, 0, now_ns);
}

void sl_coordinator_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    sl_coordinator_record_tick(coordinator, now_ns);
    sl_coordinator_member_expire(coordinator, now_ns);
    sl_coordinator_expiry_notify_departures(coordinator, now_ns);
    sl_coordinator_replica_tick(coordinator, now_ns);
    sl_coordinator_cluster_tick(coordinator, now_ns);
    sl_coordinator_barrier_tick(coordinator, now_ns);
    sl_coordinator_checkpoint_tick(coordinator, now_ns);
}
