#include "ps/coordinator/placement_log.h"

#include <stdio.h>

#include "core/clock.h"
#include "core/event.h"

void sl_coordinator_placement_mark(struct sl_coordinator_shard *shard,
                                   enum sl_coordinator_shard_change change, uint32_t from)
{
    shard->change = change;
    shard->change_from = from;
}

/* An event about some shards of one home. */
#define SHARDS_EVENT(event)                                                                        \
    SL_EVENT(event, SL_EVENT_NUMBER("owner", shard->home),                                         \
             SL_EVENT_NUMBER("primary", shard->primary), SL_EVENT_NUMBER("epoch", shard->epoch),   \
             SL_EVENT_NUMBER("shards", count))

static void log_change(const struct sl_coordinator_shard *shard, uint32_t count, const char *what)
{
    const unsigned long long epoch = shard->epoch;
    switch (shard->change) {
    case SL_COORDINATOR_SHARD_IN_SYNC:
        sl_log_event(SL_LOG_INFO, SHARDS_EVENT("backup_in_sync"),
                     "ps/%u has the backups of %s: they are in sync (epoch %llu)", shard->backup,
                     what, epoch);
        break;
    case SL_COORDINATOR_SHARD_OUT_OF_SYNC:
        sl_log_event(SL_LOG_WARN, SHARDS_EVENT("backup_out_of_sync"),
                     "the backups of %s on ps/%u are not in sync (epoch %llu): until they are, "
                     "writes to ps/%u are acknowledged while degraded",
                     what, shard->backup, epoch, shard->primary);
        break;
    case SL_COORDINATOR_SHARD_BACKUP_STARTED:
        sl_log_event(SL_LOG_INFO, SHARDS_EVENT("backup_started"),
                     "ps/%u receives the backups of %s (epoch %llu)", shard->backup, what, epoch);
        break;
    case SL_COORDINATOR_SHARD_BACKUP_LOST:
        sl_log_event(SL_LOG_WARN, SHARDS_EVENT("backup_lost"), "%s have no backup now (epoch %llu)",
                     what, epoch);
        break;
    case SL_COORDINATOR_SHARD_BACKUP_OVERDUE:
        sl_log_event(SL_LOG_WARN, SHARDS_EVENT("backup_overdue"),
                     "%s have had no backup in sync for %llu s: ps/%u acknowledges writes while "
                     "degraded",
                     what,
                     (shard->degraded_warned_ns - shard->degraded_since_ns) / SL_CLOCK_NS_PER_S,
                     shard->primary);
        break;
    case SL_COORDINATOR_SHARD_PROMOTED:
        sl_log_event(SL_LOG_WARN, SHARDS_EVENT("backup_promoted"),
                     "ps/%u serves %s from now on, instead of ps/%u (epoch %llu)", shard->primary,
                     what, shard->change_from, epoch);
        break;
    case SL_COORDINATOR_SHARD_PROMOTED_AT_START:
        sl_log_event(SL_LOG_WARN, SHARDS_EVENT("backup_promoted"),
                     "ps/%u serves %s from now on, instead of ps/%u, which expired with the "
                     "coordinator (epoch %llu)",
                     shard->primary, what, shard->change_from, epoch);
        break;
    case SL_COORDINATOR_SHARD_UNAVAILABLE:
        sl_log_event(SL_LOG_ERROR, SHARDS_EVENT("shards_unavailable"),
                     "ps/%u had %s without a backup in sync", shard->change_from, what);
        break;
    case SL_COORDINATOR_SHARD_LOST:
        sl_log_event(SL_LOG_ERROR, SHARDS_EVENT("shards_lost"),
                     "%s were lost with the coordinator, and no server has them: they begin empty "
                     "at ps/%u",
                     what, shard->primary);
        break;
    case SL_COORDINATOR_SHARD_UNCHANGED:
        break;
    }
}

/* The backups of a home on one server are logged when all of them are in sync. */
static bool is_complete(const struct sl_coordinator *coordinator,
                        const struct sl_coordinator_shard *shard)
{
    const struct sl_coordinator_ps *home = &coordinator->ps[shard->home];
    for (uint32_t i = 0; i < home->shard_count; i++) {
        const struct sl_coordinator_shard *other =
            &coordinator->placement.shards[home->first_shard + i];
        if (other->primary == shard->primary && other->backup == shard->backup && !other->in_sync) {
            return false;
        }
    }
    return true;
}

void sl_coordinator_placement_log(struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        const struct sl_coordinator_ps *home = &coordinator->ps[shard->home];
        const bool is_sync = shard->change == SL_COORDINATOR_SHARD_IN_SYNC;
        uint32_t count = 0;
        if (shard->change == SL_COORDINATOR_SHARD_UNCHANGED) {
            continue;
        }
        for (uint32_t k = 0; k < home->shard_count; k++) {
            struct sl_coordinator_shard *other =
                &coordinator->placement.shards[home->first_shard + k];
            const bool is_same =
                other->primary == shard->primary && other->backup == shard->backup &&
                (is_sync
                     ? other->in_sync
                     : other->change == shard->change && other->change_from == shard->change_from);
            count += is_same ? 1 : 0;
            if (is_same && other != shard) {
                other->change = SL_COORDINATOR_SHARD_UNCHANGED;
            }
        }
        char what[64];
        if (count == home->shard_count) {
            (void)snprintf(what, sizeof what, "the shards of ps/%u", shard->home);
        } else {
            (void)snprintf(what, sizeof what, "%u of the shards of ps/%u, from %u on,", count,
                           shard->home, i);
        }
        if (!is_sync || is_complete(coordinator, shard)) {
            log_change(shard, count, what);
        }
        shard->change = SL_COORDINATOR_SHARD_UNCHANGED;
    }
}
