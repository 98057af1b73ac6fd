#include "ps/coordinator/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/event.h"
#include "ps/coordinator/expiry.h"
#include "ps/coordinator/placement_log.h"

/* Interval of the warnings about degraded shards. */
#define DEGRADED_WARN_NS (60 * SL_CLOCK_NS_PER_S)

/* A backup that fails before it is in sync gets a new epoch: at once the first time, then after a
 * pause that doubles. */
#define RETRY_NS         SL_CLOCK_NS_PER_S
#define RETRY_MAX_NS     (4 * SL_CLOCK_NS_PER_S)

#define MOVE_FAILURES    3 /* of catch-ups, until a move is aborted */
#define MOVE_PAUSE_NS    (5 * SL_CLOCK_NS_PER_S)

/* No real epoch gets this far: reports from here on are ignored. */
#define EPOCHS_MAX       ((uint64_t)1 << 63)

#define NO_TASK          SL_COORDINATOR_NO_TASK

/* Servers */

/* A move is one state: it has begun if its target is the backup. */
static bool is_moving(const struct sl_coordinator_shard *shard)
{
    return shard->moves_to != NO_TASK && shard->backup == shard->moves_to;
}

void sl_coordinator_placement_load(const struct sl_coordinator *coordinator,
                                   struct sl_coordinator_load *load)
{
    memset(load, 0, sizeof *load);
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (sl_coordinator_is_ps(member) && member->registered &&
            sl_coordinator_has_ps(coordinator, member->hello.task_index)) {
            load->is_here[member->hello.task_index] = true;
        }
    }
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        load->primaries[shard->moves_to != NO_TASK ? shard->moves_to : shard->primary]++;
        if (shard->backup != NO_TASK && !is_moving(shard)) {
            load->backups[shard->backup]++;
        }
    }
}

bool sl_coordinator_placement_takes(const struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_load *load, uint32_t task)
{
    return task < SL_LIMIT_PS && load->is_here[task] &&
           coordinator->ps[task].place != SL_COORDINATOR_DRAINING;
}

static bool is_same_host(const struct sl_coordinator *coordinator, uint32_t a, uint32_t b)
{
    return a != NO_TASK && b != NO_TASK && coordinator->ps[a].host[0] != '\0' &&
           strcmp(coordinator->ps[a].host, coordinator->ps[b].host) == 0;
}

uint32_t sl_coordinator_placement_least(const struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_load *load, uint32_t but,
                                        uint32_t apart, bool with_backups)
{
    uint32_t best = NO_TASK;
    uint64_t least = UINT64_MAX;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (task == but || !sl_coordinator_placement_takes(coordinator, load, task)) {
            continue;
        }
        const uint64_t weight =
            (is_same_host(coordinator, task, apart) ? (uint64_t)UINT32_MAX : 0) +
            load->primaries[task] + (with_backups ? load->backups[task] : 0);
        if (weight < least) {
            least = weight;
            best = task;
        }
    }
    return best;
}

/* Chooses the backup of a shard with this new primary: the one before, the former primary, or the
 * server with the fewest shards; one on another host, if there is one. */
static uint32_t choose_backup(const struct sl_coordinator *coordinator,
                              const struct sl_coordinator_load *load,
                              const struct sl_coordinator_shard *shard, uint32_t primary)
{
    const uint32_t wanted[] = {
        shard->partner,
        shard->primary,
        sl_coordinator_placement_least(coordinator, load, primary, primary, true),
    };
    for (uint32_t any_host = 0; any_host < 2; any_host++) {
        for (uint32_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            if (wanted[i] != primary &&
                sl_coordinator_placement_takes(coordinator, load, wanted[i]) &&
                (any_host != 0 || !is_same_host(coordinator, wanted[i], primary))) {
                return wanted[i];
            }
        }
    }
    return NO_TASK;
}

bool sl_coordinator_placement_needs(const struct sl_coordinator *coordinator, uint32_t task)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        if (coordinator->placement.shards[i].primary == task) {
            return true;
        }
    }
    return coordinator->placement.shard_count == 0 && task < coordinator->options.ps_count;
}

uint32_t sl_coordinator_placement_list_missing(const struct sl_coordinator *coordinator,
                                               struct sl_message_waiting *waiting)
{
    struct sl_coordinator_load load;
    sl_coordinator_placement_load(coordinator, &load);
    uint32_t total = 0;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (!load.is_here[task] && sl_coordinator_placement_needs(coordinator, task)) {
            sl_coordinator_list_missing(waiting, &total, "ps", task);
        }
    }
    return total;
}

const char *sl_coordinator_placement_check(const struct sl_coordinator *coordinator,
                                           const struct sl_coordinator_member *member,
                                           const struct sl_message_register *reg)
{
    const uint32_t task = member->hello.task_index;
    for (uint32_t other = 0; other < coordinator->placement.ps_end; other++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[other];
        if (other == task || !sl_coordinator_has_ps(coordinator, other) ||
            !sl_coordinator_is_known(ps)) {
            continue;
        }
        if (ps->replicas != reg->replicas) {
            return "it has other --replicas than the others";
        }
        if (reg->replicas > 0 && ps->shard_count != reg->shard_count && reg->shard_count != 0 &&
            ps->shard_count != 0) {
            return "with --replicas all servers need the same number of shards";
        }
    }
    for (uint32_t i = 0; reg->replicas > 0 && i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->deposed_id == member->hello.client_id && shard->primary != task) {
            return "it expired, and its backup serves its shards now: restart it";
        }
    }
    const struct sl_coordinator_ps *known = &coordinator->ps[task];
    if (coordinator->cluster.is_ready && reg->replicas > 0 && reg->serving &&
        sl_coordinator_is_known(known) && known->client_id != member->hello.client_id) {
        return "another process has its task now: restart it";
    }
    return reg->replicas > 0 && coordinator->options.ps_count < 2
               ? "--replicas needs another server to have them"
               : NULL;
}

/* Changes */

void sl_coordinator_placement_note(struct sl_coordinator *coordinator, uint32_t shard)
{
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_SHARDS,
                        shard / SL_COORDINATOR_RECORD_SHARDS_EACH);
}

/* Marks the shard as changed: members need a new cluster. */
static void placement_changed(struct sl_coordinator *coordinator,
                              const struct sl_coordinator_shard *shard)
{
    coordinator->cluster.version++;
    coordinator->placement.has_new_roles = coordinator->placement.has_new_roles || shard->epoch > 1;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_coordinator_placement_note(coordinator, (uint32_t)(shard - coordinator->placement.shards));
}

/* Begins a new epoch. Its backup, if any, is not in sync. */
static void begin_epoch(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard,
                        uint32_t primary, uint32_t backup)
{
    if (shard->primary != primary) {
        coordinator->checkpoint.incremental_base = 0; /* the files of the last one are elsewhere */
    }
    shard->epoch++;
    shard->primary = primary;
    shard->backup = backup;
    shard->in_sync = false;
    shard->retry_ns = 0;
    if (backup != NO_TASK && !is_moving(shard)) {
        shard->partner = backup;
    }
    placement_changed(coordinator, shard);
}

/* Moves */

uint32_t sl_coordinator_placement_moving(const struct sl_coordinator *coordinator)
{
    uint32_t shard = 0;
    while (shard < coordinator->placement.shard_count &&
           !is_moving(&coordinator->placement.shards[shard])) {
        shard++;
    }
    return shard;
}

/* The shard's move is over, or was not begun. */
static void forget_move(struct sl_coordinator_shard *shard)
{
    shard->moves_to = NO_TASK;
    shard->failures = 0;
    shard->backoff.least_ns = 0;
}

void sl_coordinator_placement_set_backup(struct sl_coordinator *coordinator, uint32_t shard,
                                         uint32_t task)
{
    struct sl_coordinator_shard *placed = &coordinator->placement.shards[shard];
    placed->backoff.least_ns = 0;
    begin_epoch(coordinator, placed, placed->primary, task);
    if (!is_moving(placed)) {
        sl_coordinator_placement_mark(placed, SL_COORDINATOR_SHARD_BACKUP_STARTED, task);
        sl_coordinator_placement_log(coordinator);
    }
}

void sl_coordinator_placement_commit(struct sl_coordinator *coordinator, uint32_t shard,
                                     uint64_t last_seen_ns)
{
    struct sl_coordinator_shard *placed = &coordinator->placement.shards[shard];
    const uint32_t from = placed->primary, to = placed->backup;
    struct sl_coordinator_load load;
    sl_coordinator_placement_load(coordinator, &load);
    const uint32_t backup = coordinator->placement.replicas == 0
                                ? NO_TASK
                                : choose_backup(coordinator, &load, placed, to);
    forget_move(placed);
    placed->partner = placed->partner == to ? from : placed->partner;
    begin_epoch(coordinator, placed, to, backup);
    sl_coordinator_expiry_mark_missed(
        coordinator, sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, to), last_seen_ns);
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("shard_moved", SL_EVENT_NUMBER("shard", shard),
                          SL_EVENT_NUMBER("from", from), SL_EVENT_NUMBER("to", to),
                          SL_EVENT_NUMBER("epoch", placed->epoch)),
                 "shard %u has moved from ps/%u to ps/%u (epoch %llu)", shard, from, to,
                 (unsigned long long)placed->epoch);
}

void sl_coordinator_placement_abort(struct sl_coordinator *coordinator, uint32_t shard,
                                    const char *why)
{
    struct sl_coordinator_shard *placed = &coordinator->placement.shards[shard];
    const uint32_t to = placed->moves_to;
    const bool has_begun = is_moving(placed);
    struct sl_coordinator_load load;
    sl_coordinator_placement_load(coordinator, &load);
    forget_move(placed);
    coordinator->placement.move_pause_ns = coordinator->ticked_ns + MOVE_PAUSE_NS;
    if (has_begun) {
        const bool has_backup = coordinator->placement.replicas > 0 &&
                                placed->partner != placed->primary &&
                                sl_coordinator_placement_takes(coordinator, &load, placed->partner);
        begin_epoch(coordinator, placed, placed->primary, has_backup ? placed->partner : NO_TASK);
    } else {
        placement_changed(coordinator, placed);
    }
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("shard_move_aborted", SL_EVENT_NUMBER("shard", shard),
                          SL_EVENT_NUMBER("from", placed->primary), SL_EVENT_NUMBER("to", to),
                          SL_EVENT_NUMBER("epoch", placed->epoch)),
                 "the move of shard %u from ps/%u to ps/%u is aborted: %s (epoch %llu)", shard,
                 placed->primary, to, why, (unsigned long long)placed->epoch);
}

/* Reports of primaries */

/* Begins a new epoch after a failed catch-up or a loss of sync: the backup gets a new snapshot. */
static void retry_backup(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard)
{
    begin_epoch(coordinator, shard, shard->primary, shard->backup);
    sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_OUT_OF_SYNC, shard->backup);
}

/* The target cannot receive the shard. Balancing ends: it would choose this move again. */
static void give_up_move(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard,
                         const char *why)
{
    coordinator->placement.balances = false;
    sl_coordinator_placement_abort(coordinator, (uint32_t)(shard - coordinator->placement.shards),
                                   why);
}

/* The pause is short: a shard that is already in sync holds its replies for the backup until the
 * next epoch, while other shards of the server are not in sync. */
static void note_failure(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard,
                         uint64_t now_ns)
{
    if (shard->retry_ns != 0) {
        return; /* a repeated report */
    }
    if (is_moving(shard) && ++shard->failures == MOVE_FAILURES) {
        give_up_move(coordinator, shard, "the target failed to receive it three times");
    } else if (shard->in_sync || shard->backoff.least_ns == 0) {
        shard->backoff = shard->in_sync
                             ? shard->backoff
                             : (struct sl_backoff){.least_ns = RETRY_NS, .most_ns = RETRY_MAX_NS};
        retry_backup(coordinator, shard);
    } else {
        shard->retry_ns = now_ns + sl_backoff_next(&shard->backoff, 0);
    }
}

static void take_report(struct sl_coordinator *coordinator, uint32_t task,
                        const struct sl_message_replica_report *report, uint64_t now_ns)
{
    if (report->shard >= coordinator->placement.shard_count) {
        return;
    }
    struct sl_coordinator_shard *shard = &coordinator->placement.shards[report->shard];
    if (is_moving(shard) && shard->moves_to == task && !shard->in_sync &&
        report->role == SL_MESSAGE_REPLICA_NEITHER && report->epoch == shard->epoch) {
        give_up_move(coordinator, shard, "the target has no memory for it; its log says more");
        return;
    }
    if (report->role != SL_MESSAGE_REPLICA_PRIMARY || report->is_undecided ||
        shard->primary != task || shard->epoch != report->epoch || shard->backup == NO_TASK ||
        (report->in_sync && shard->in_sync)) {
        return;
    }
    if (!report->in_sync) {
        note_failure(coordinator, shard, now_ns);
        return;
    }
    shard->in_sync = true;
    shard->backoff.least_ns = 0;
    shard->retry_ns = 0;
    placement_changed(coordinator, shard);
    if (!is_moving(shard)) {
        sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_IN_SYNC, shard->backup);
    }
}

/* Shards of a new coordinator */

/* Reports of servers that are already serving on one shard: the coordinator restarted. */
struct claims {
    uint64_t epoch;     /* newest that they report */
    uint32_t successor; /* task with all acknowledged writes; NO_TASK: none */
    const struct sl_message_replica_report *report; /* of the successor */
    bool has_backup;                                /* another server reports its backup */
    uint32_t backup;
};

/* The replica with all acknowledged writes: the last primary or, if its process is gone, the backup
 * that was in sync with it. If the primary's process still runs unnoticed, it acknowledges nothing
 * without that backup, which rejects it from the next epoch. */
static void take_claim(struct claims *claims, uint32_t task,
                       const struct sl_message_replica_report *report)
{
    const bool is_primary = report->role == SL_MESSAGE_REPLICA_PRIMARY;
    const uint64_t epoch = claims->report == NULL ? 0 : claims->report->epoch;
    claims->epoch = report->epoch > claims->epoch ? report->epoch : claims->epoch;
    if ((is_primary || (report->role == SL_MESSAGE_REPLICA_BACKUP && report->in_sync)) &&
        (report->epoch > epoch || (report->epoch == epoch && is_primary))) {
        claims->successor = task;
        claims->report = report;
    }
}

static void take_backup(struct claims *claims, uint32_t task,
                        const struct sl_message_replica_report *report)
{
    if (claims->report != NULL && claims->report->role == SL_MESSAGE_REPLICA_PRIMARY &&
        report->role == SL_MESSAGE_REPLICA_BACKUP && report->epoch == claims->report->epoch &&
        task != claims->successor) {
        claims->has_backup = true;
        claims->backup = task;
    }
}

static void
take_claims(const struct sl_coordinator *coordinator, struct claims *claims, uint32_t count,
            void (*take)(struct claims *, uint32_t, const struct sl_message_replica_report *))
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        const uint32_t task = member->hello.task_index;
        for (uint32_t k = 0; sl_coordinator_is_ps(member) && member->registered &&
                             coordinator->ps[task].serving && k < member->report_count;
             k++) {
            const struct sl_message_replica_report *report = &member->reports[k];
            if (report->epoch > 0 && report->epoch < EPOCHS_MAX && report->shard < count) {
                take(&claims[report->shard], task, report);
            }
        }
    }
}

/* Returns the claims on all shards, which the caller frees; NULL: no memory. */
static struct claims *find_claims(const struct sl_coordinator *coordinator, uint32_t count)
{
    struct claims *claims = calloc(count, sizeof *claims);
    for (uint32_t i = 0; claims != NULL && i < count; i++) {
        claims[i].successor = NO_TASK;
    }
    if (claims != NULL) {
        take_claims(coordinator, claims, count, take_claim);
        take_claims(coordinator, claims, count, take_backup);
    }
    return claims;
}

static uint32_t behind(const struct sl_coordinator *coordinator, uint32_t task)
{
    return (task + 1) % coordinator->options.ps_count;
}

/* No server has the values. Prefers a new process as primary, because it can restore a checkpoint.
 */
static uint32_t find_beginner(const struct sl_coordinator *coordinator,
                              const struct sl_coordinator_load *load, uint32_t home)
{
    const uint32_t next = behind(coordinator, home);
    if (!coordinator->ps[home].serving || !coordinator->ps[next].serving) {
        return coordinator->ps[home].serving ? next : home;
    }
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (load->is_here[task] && !coordinator->ps[task].serving) {
            return task;
        }
    }
    return home;
}

static void begin_shard(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard,
                        const struct claims *claims, const struct sl_coordinator_load *load)
{
    const bool is_lost = claims->successor == NO_TASK;
    const bool was_primary = !is_lost && claims->report->role == SL_MESSAGE_REPLICA_PRIMARY;
    const uint32_t next = behind(coordinator, shard->home);
    const bool has_replicas = coordinator->placement.replicas > 0;
    const uint32_t primary = !is_lost ? claims->successor
                             : claims->epoch != 0 || has_replicas
                                 ? find_beginner(coordinator, load, shard->home)
                                 : shard->home;
    shard->epoch = claims->epoch;
    shard->partner = primary == shard->home ? next : shard->home;
    if (has_replicas && was_primary && claims->has_backup &&
        (claims->report->in_sync || claims->report->is_undecided)) {
        shard->primary = primary;
        shard->backup = shard->partner = claims->backup;
        shard->in_sync = claims->report->in_sync;
        placement_changed(coordinator, shard);
        return;
    }
    /* After a move has begun, the primary may wait for the target: a new epoch ends that. */
    if (!has_replicas && was_primary && !claims->has_backup && claims->epoch == 1) {
        shard->primary = primary;
        placement_changed(coordinator, shard);
        return;
    }
    shard->partner = claims->has_backup ? claims->backup : shard->partner;
    begin_epoch(coordinator, shard, primary,
                has_replicas && load->is_here[shard->partner] ? shard->partner : NO_TASK);
    if (is_lost && claims->epoch != 0 && (has_replicas || coordinator->ps[primary].serving)) {
        sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_LOST, primary);
    } else if (!is_lost && !was_primary) {
        sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_PROMOTED_AT_START,
                                      shard->partner);
    }
}

/* Numbers the home shards. Returns their number. */
static uint32_t number_shards(struct sl_coordinator *coordinator)
{
    uint32_t count = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        coordinator->ps[task].first_shard = count;
        count += coordinator->ps[task].shard_count;
    }
    return count;
}

static void set_home(struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[task];
        for (uint32_t i = 0; i < ps->shard_count; i++) {
            struct sl_coordinator_shard *shard =
                &coordinator->placement.shards[ps->first_shard + i];
            shard->home = task;
            if (shard->epoch == 0) {
                shard->primary = task;
                shard->backup = shard->partner = shard->moves_to = NO_TASK;
            }
        }
    }
}

bool sl_coordinator_placement_waits(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_coordinator_placement *placement = &coordinator->placement;
    const uint32_t count = number_shards(coordinator);
    struct claims *claims = placement->replicas > 0 ? NULL : find_claims(coordinator, count);
    bool waits = false;
    for (uint32_t i = 0; claims != NULL && i < count; i++) {
        waits = waits || (claims[i].epoch > 1 && claims[i].successor == NO_TASK);
    }
    free(claims);
    if (waits && placement->wait_until_ns == 0) {
        placement->wait_until_ns = now_ns + coordinator->options.lease_ns;
        sl_log_info("waiting for a server that joined the job before this coordinator began");
    }
    return waits && now_ns < placement->wait_until_ns;
}

int sl_coordinator_placement_begin(struct sl_coordinator *coordinator)
{
    if (coordinator->placement.shard_count != 0) {
        return 0;
    }
    const uint32_t count = number_shards(coordinator);
    struct claims *claims = find_claims(coordinator, count);
    struct sl_coordinator_load load;
    free(coordinator->placement.shards);
    coordinator->placement.shards = calloc(count, sizeof *coordinator->placement.shards);
    if (claims == NULL || coordinator->placement.shards == NULL) {
        free(claims);
        return SL_ERR_NO_MEMORY;
    }
    set_home(coordinator);
    coordinator->placement.shard_count = count;
    sl_coordinator_placement_load(coordinator, &load);
    for (uint32_t i = 0; i < count; i++) {
        begin_shard(coordinator, &coordinator->placement.shards[i], &claims[i], &load);
    }
    free(claims);
    sl_coordinator_placement_log(coordinator);
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (!sl_coordinator_placement_needs(coordinator, task)) {
            coordinator->ps[task].checkpoints.restore =
                0; /* another server serves its shards; it becomes the backup */
        }
    }
    return 0;
}

/* Records of an older version have the placement of all home shards of a server. */
static void convert(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard)
{
    const struct sl_coordinator_ps *home = &coordinator->ps[shard->home];
    const struct sl_message_placement *older = &home->older;
    shard->epoch = older->epoch == 0 ? 1 : older->epoch;
    if (older->epoch != 0) {
        shard->primary = older->primary;
        shard->backup = older->backup_plus_1 - 1; /* 0 becomes NO_TASK */
        shard->in_sync = older->in_sync;
        shard->deposed_id = home->older_deposed_id;
    }
    shard->partner = shard->primary == shard->home ? behind(coordinator, shard->home) : shard->home;
    placement_changed(coordinator, shard);
}

/* Other programs may write to the metastore: records that contradict each other must do no harm. */
static void drop_strangers(const struct sl_coordinator *coordinator,
                           struct sl_coordinator_shard *shard)
{
    if (!sl_coordinator_has_ps(coordinator, shard->primary)) {
        shard->primary = 0;
        while (shard->primary + 1 < coordinator->placement.ps_end &&
               !sl_coordinator_has_ps(coordinator, shard->primary)) {
            shard->primary++;
        }
    }
    if (shard->backup != NO_TASK &&
        (!sl_coordinator_has_ps(coordinator, shard->backup) || shard->backup == shard->primary)) {
        shard->backup = NO_TASK;
        shard->in_sync = false;
    }
    if (shard->moves_to != NO_TASK && (!sl_coordinator_has_ps(coordinator, shard->moves_to) ||
                                       shard->moves_to == shard->primary)) {
        shard->moves_to = NO_TASK;
    }
}

void sl_coordinator_placement_end_loading(struct sl_coordinator *coordinator)
{
    const uint32_t count = number_shards(coordinator);
    coordinator->placement.shard_count = 0;
    if (!coordinator->cluster.is_ready) {
        return;
    }
    if (coordinator->placement.shards == NULL) {
        coordinator->placement.shards =
            calloc(SL_LIMIT_SHARDS, sizeof *coordinator->placement.shards);
    }
    if (coordinator->placement.shards == NULL || count > SL_LIMIT_SHARDS) {
        sl_log_error("the places of the shards are not loaded: they are placed anew");
        return;
    }
    set_home(coordinator);
    coordinator->placement.shard_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->epoch == 0) {
            convert(coordinator, shard);
        }
        drop_strangers(coordinator, shard);
        coordinator->placement.has_new_roles =
            coordinator->placement.has_new_roles || shard->epoch > 1;
    }
}

/* Servers that come and go */

void sl_coordinator_placement_register(struct sl_coordinator *coordinator,
                                       const struct sl_coordinator_member *member,
                                       const struct sl_message_register *reg, bool is_new,
                                       uint64_t now_ns)
{
    const uint32_t task = member->hello.task_index;
    struct sl_coordinator_load load;
    sl_coordinator_placement_load(coordinator, &load);
    for (uint32_t i = 0;
         i < coordinator->placement.shard_count && coordinator->placement.replicas > 0; i++) {
        struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        const bool has_partner = shard->partner != shard->primary && shard->partner != NO_TASK &&
                                 load.is_here[shard->partner];
        if (is_moving(shard)) {
            continue; /* and neither its primary nor its target is new */
        }
        if (shard->primary == task && (is_new || (shard->backup == NO_TASK && has_partner))) {
            begin_epoch(coordinator, shard, task, has_partner ? shard->partner : NO_TASK);
        } else if (shard->primary != task && shard->partner == task &&
                   (is_new || shard->backup != task)) {
            begin_epoch(coordinator, shard, shard->primary, task);
            sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_BACKUP_STARTED, task);
        }
    }
    for (uint32_t i = 0; i < reg->replica_report_count; i++) {
        take_report(coordinator, task, &reg->replica_reports[i], now_ns);
    }
    sl_coordinator_placement_log(coordinator);
}

/* Promotes the backup. It may lack expirations that the former primary did not receive. */
static void take_over(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard,
                      uint64_t last_seen_ns)
{
    const uint32_t from = shard->primary;
    shard->deposed_id = coordinator->ps[from].client_id;
    if (is_moving(shard)) {
        sl_coordinator_placement_commit(
            coordinator, (uint32_t)(shard - coordinator->placement.shards), last_seen_ns);
    } else {
        shard->partner = from;
        begin_epoch(coordinator, shard, shard->backup, NO_TASK);
        sl_coordinator_expiry_mark_missed(
            coordinator, sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, shard->primary),
            last_seen_ns);
    }
    sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_PROMOTED, from);
}

/* The primary is gone, and no server has all that it acknowledged. */
static void lose_primary(struct sl_coordinator *coordinator, struct sl_coordinator_shard *shard)
{
    if (is_moving(shard)) {
        sl_coordinator_placement_abort(
            coordinator, (uint32_t)(shard - coordinator->placement.shards), "its primary is gone");
    } else if (coordinator->placement.replicas > 0) {
        begin_epoch(coordinator, shard, shard->primary, shard->backup);
    }
    if (coordinator->placement.replicas > 0) {
        sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_UNAVAILABLE, shard->primary);
    }
}

void sl_coordinator_placement_leave(struct sl_coordinator *coordinator, uint32_t task,
                                    uint64_t last_seen_ns)
{
    struct sl_coordinator_load load;
    sl_coordinator_placement_load(coordinator, &load);
    const bool ends = coordinator->job.stage == SL_COORDINATOR_ENDING ||
                      coordinator->job.stage == SL_COORDINATOR_OVER;
    for (uint32_t i = 0; i < coordinator->placement.shard_count && !ends; i++) {
        struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->moves_to == task) {
            sl_coordinator_placement_abort(coordinator, i, "the target is gone");
        } else if (shard->backup == task) {
            begin_epoch(coordinator, shard, shard->primary, NO_TASK);
            sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_BACKUP_LOST, task);
        } else if (shard->primary == task && shard->backup != NO_TASK && shard->in_sync &&
                   load.is_here[shard->backup]) {
            take_over(coordinator, shard, last_seen_ns);
        } else if (shard->primary == task) {
            lose_primary(coordinator, shard);
        }
    }
    sl_coordinator_placement_log(coordinator);
}

int sl_coordinator_placement_fill(const struct sl_coordinator *coordinator,
                                  struct sl_message_cluster *out)
{
    out->placements = calloc(coordinator->placement.shard_count, sizeof *out->placements);
    if (out->placements == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    out->shard_count = coordinator->placement.shard_count;
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        out->placements[i] = (struct sl_message_placement){
            .epoch = shard->epoch,
            .primary = shard->primary,
            .backup_plus_1 = shard->backup + 1, /* NO_TASK becomes 0 */
            .in_sync = shard->in_sync,
            .moves = is_moving(shard),
        };
    }
    return 0;
}

static bool is_degraded(const struct sl_coordinator *coordinator,
                        const struct sl_coordinator_shard *shard)
{
    return coordinator->placement.replicas > 0 && !shard->in_sync;
}

uint32_t sl_coordinator_placement_degraded(const struct sl_coordinator *coordinator)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        count += is_degraded(coordinator, &coordinator->placement.shards[i]) ? 1 : 0;
    }
    return count;
}

/* Begins new epochs for backups whose pause is over. The warning is repeated so that the tail of
 * the log shows degraded shards. */
void sl_coordinator_placement_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->retry_ns != 0 && now_ns >= shard->retry_ns) {
            retry_backup(coordinator, shard);
        }
        if (!is_degraded(coordinator, shard)) {
            shard->degraded_since_ns = shard->degraded_warned_ns = 0;
        } else if (shard->degraded_since_ns == 0) {
            shard->degraded_since_ns = shard->degraded_warned_ns = now_ns;
        } else if (now_ns - shard->degraded_warned_ns >= DEGRADED_WARN_NS) {
            shard->degraded_warned_ns = now_ns;
            sl_coordinator_placement_mark(shard, SL_COORDINATOR_SHARD_BACKUP_OVERDUE,
                                          shard->primary);
        }
    }
    sl_coordinator_placement_log(coordinator);
}
