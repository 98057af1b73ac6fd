#include "ps/coordinator/coordinator.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/backoff.h"
#include "core/clock.h"
#include "core/event.h"
#include "ps/coordinator/barrier.h"
#include "ps/coordinator/checkpoint.h"
#include "ps/coordinator/checkpoint_request.h"
#include "ps/coordinator/cluster.h"
#include "ps/coordinator/expiry.h"
#include "ps/coordinator/job.h"
#include "ps/coordinator/member.h"
#include "ps/coordinator/metrics.h"
#include "ps/coordinator/move.h"
#include "ps/coordinator/placement.h"
#include "ps/coordinator/record.h"
#include "ps/coordinator/relay.h"
#include "ps/coordinator/report.h"
#include "ps/coordinator/state.h"
#include "ps/coordinator/table.h"

#define WAITING_INTERVAL_DEFAULT_NS   (3 * SL_CLOCK_NS_PER_S)
#define LEASE_DEFAULT_NS              (10 * SL_CLOCK_NS_PER_S)
/* Members that lose the coordinator return spread over at most this part of a lease. */
#define SPREADS_A_LEASE               4
#define SPREAD_MS_MAX                 2500 /* without leases */
#define CHECKPOINT_TIMEOUT_DEFAULT_NS (3600 * SL_CLOCK_NS_PER_S)

int sl_coordinator_create(const struct sl_coordinator_options *options, struct sl_coordinator **out)
{
    sl_assert(options->send != NULL);
    sl_assert(options->ps_count > 0);
    sl_assert(options->ps_count <= SL_LIMIT_PS);
    sl_assert(options->stage_changed == NULL || options->worker_count > 0);
    sl_assert((options->report == NULL) == (options->report_cells == NULL));
    struct sl_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    coordinator->ps = calloc(SL_LIMIT_PS, sizeof *coordinator->ps);
    coordinator->placement.ps_end = options->ps_count;
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
        coordinator->options.checkpoint_timeout_ns = CHECKPOINT_TIMEOUT_DEFAULT_NS;
    }
    if (options->cells != NULL) {
        sl_cell_set(&options->cells->is_active, 1);
    }
    coordinator->cluster.version = 1;
    sl_coordinator_reset_job(coordinator);
    *out = coordinator;
    return 0;
}

void sl_coordinator_destroy(struct sl_coordinator **coordinator)
{
    if ((*coordinator)->options.cells != NULL) {
        sl_cell_set(&(*coordinator)->options.cells->is_active, 0);
    }
    sl_coordinator_barrier_fini(*coordinator);
    sl_coordinator_relay_fini(*coordinator);
    sl_coordinator_checkpoint_fini(*coordinator);
    sl_coordinator_record_fini(*coordinator);
    for (uint32_t i = 0; i < (*coordinator)->member_count; i++) {
        sl_coordinator_free_member((*coordinator)->members[i]);
    }
    free((*coordinator)->members);
    free((*coordinator)->peers);
    free((*coordinator)->ps);
    free((*coordinator)->placement.shards);
    free((*coordinator)->workers);
    free((*coordinator)->tables.specs);
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

void sl_coordinator_welcome(const struct sl_coordinator *coordinator,
                            struct sl_message_welcome *welcome)
{
    const struct sl_coordinator_options *options = &coordinator->options;
    const uint32_t expected = coordinator->placement.ps_end + coordinator->job.worker_count;
    const uint32_t members =
        coordinator->member_count > expected ? coordinator->member_count : expected;
    /* One process may be elected twice, the second time by a store that lost its records: members
     * must see that this is another coordinator, which has to hear of their tables. */
    welcome->incarnation += options->elections;
    welcome->lease_ms = (uint32_t)(options->lease_ns / SL_CLOCK_NS_PER_MS);
    welcome->spread_ms = sl_backoff_spread_ms(
        members, welcome->lease_ms == 0 ? SPREAD_MS_MAX : welcome->lease_ms / SPREADS_A_LEASE);
    welcome->wants_reports = options->report != NULL;
    (void)snprintf(welcome->http, sizeof welcome->http, "%s",
                   options->http == NULL ? "" : options->http);
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

void sl_coordinator_send_to(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message)
{
    const struct sl_coordinator_member *member = sl_coordinator_member_of(coordinator, peer);
    sl_assert(member != NULL);
    sl_coordinator_send(coordinator, member, message);
}

int sl_coordinator_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message_hello *said, uint64_t now_ns,
                         struct sl_reason *reason)
{
    int err = sl_coordinator_record_admits(coordinator, said, reason);
    err = err != 0 ? err : sl_coordinator_job_admits(coordinator, said, reason);
    if (err == 0) {
        err = sl_coordinator_member_hello(coordinator, peer, said, now_ns, reason);
    }
    return err;
}

/* Refuses a request of a member that has not proved the operator's secret, if there is one. */
static bool coordinator_is_operator(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message)
{
    const bool is_operator =
        !coordinator->options.needs_operator || member->hello.secret == SL_MESSAGE_SECRET_OPERATOR;
    if (!is_operator) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_REFUSED,
                              "this needs the operator's secret: --operator-secret-file");
    }
    return is_operator;
}

static bool drains_itself(const struct sl_coordinator_member *member,
                          const struct sl_message *message)
{
    return sl_coordinator_is_ps(member) &&
           message->placement_change.verb == SL_MESSAGE_PLACEMENT_DRAIN &&
           message->placement_change.task == member->hello.task_index;
}

/* A tool announces a change by hand. */
static void coordinator_operate(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member,
                                const struct sl_message *message)
{
    if (!coordinator_is_operator(coordinator, member, message)) {
        return;
    }
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("operation", SL_EVENT_TEXT("by", member->name),
                          SL_EVENT_TEXT("what", message->why)),
                 "%s: %s", member->name, message->why);
    const struct sl_message answer = {.kind = SL_MESSAGE_OPERATION_ALLOWED, .id = message->id};
    sl_coordinator_send(coordinator, member, &answer);
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
    case SL_MESSAGE_REPORT:
        sl_coordinator_report_take(coordinator, member, &message->report, now_ns);
        return; /* changes nothing of the job */
    case SL_MESSAGE_REGISTER:
        sl_coordinator_cluster_register(coordinator, member, message, now_ns);
        sl_coordinator_relay_open(coordinator, member);
        break;
    case SL_MESSAGE_TABLE_OPEN:
        sl_coordinator_table_open(coordinator, member, message);
        break;
    case SL_MESSAGE_TABLE_DROP:
        if (coordinator_is_operator(coordinator, member, message)) {
            sl_coordinator_table_drop(coordinator, member, message);
            sl_coordinator_cluster_update(coordinator, now_ns);
        }
        break;
    case SL_MESSAGE_TABLES_GET:
        sl_coordinator_table_list(coordinator, member, message);
        break;
    case SL_MESSAGE_OPERATION:
        coordinator_operate(coordinator, member, message);
        break;
    case SL_MESSAGE_PLACEMENT_CHANGE:
        if (drains_itself(member, message) ||
            coordinator_is_operator(coordinator, member, message)) {
            sl_coordinator_move_change(coordinator, member, message, now_ns);
            sl_coordinator_cluster_update(coordinator, now_ns);
        }
        break;
    case SL_MESSAGE_BARRIER:
        sl_coordinator_barrier_arrive(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_RELAY:
        sl_coordinator_relay_send(coordinator, member, message, now_ns);
        return;
    case SL_MESSAGE_RELAY_ANSWER:
        sl_coordinator_relay_answer(coordinator, member, &message->relay);
        return;
    case SL_MESSAGE_CHECKPOINT_PART:
        sl_coordinator_checkpoint_part(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        sl_coordinator_checkpoint_done(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
        if (sl_coordinator_checkpoint_request_add(coordinator, member, message, now_ns)) {
            sl_coordinator_checkpoint_update(coordinator, now_ns);
        }
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
    sl_coordinator_placement_tick(coordinator, now_ns);
    sl_coordinator_move_advance(coordinator, now_ns);
    sl_coordinator_cluster_tick(coordinator, now_ns);
    sl_coordinator_barrier_tick(coordinator, now_ns);
    sl_coordinator_relay_tick(coordinator, now_ns);
    sl_coordinator_checkpoint_tick(coordinator, now_ns);
}
