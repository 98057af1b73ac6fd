#include "ps/leader/leader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/leader/coordinator_log.h"

enum ending { NOT_ENDING, WRITING, LEAVING, ENDED };

struct sl_leader {
    struct sl_leader_options options;
    char prefix[SL_METASTORE_KEY_BYTES];
    struct sl_election *election;
    struct sl_coordinator_log *ledger; /* NULL: the seat is not ours */
    uint64_t epoch;
    bool is_seated;                          /* the owner has been told */
    char failure[SL_METASTORE_REASON_BYTES]; /* of the ledger, which may not go from inside; "":
                                                none */

    enum ending ending;
    uint64_t ending_until_ns;
    bool has_left; /* the election is over */
    void (*done)(void *ctx);
    void *done_ctx;
};

static uint64_t now_of(const struct sl_leader *seat)
{
    return seat->options.now_ns(seat->options.ctx);
}

static uint64_t on_now(void *ctx)
{
    return now_of(ctx);
}

/* ---- A term -----------------------------------------------------------------------------------
 */

static void on_ready(void *ctx, bool anew)
{
    struct sl_leader *seat = ctx;
    struct sl_coordinator *coordinator = sl_coordinator_log_coordinator(seat->ledger);
    sl_coordinator_record_end(coordinator, now_of(seat));
    if (seat->ending == NOT_ENDING) {
        seat->is_seated = true;
        sl_log_info("hosts the coordinator from now on (term %" PRIu64 ")", seat->epoch);
        seat->options.seated(seat->options.ctx, coordinator, anew);
    }
}

static void on_failed(void *ctx, const char *why)
{
    struct sl_leader *seat = ctx;
    (void)snprintf(seat->failure, sizeof seat->failure, "%s", why);
    seat->options.wake(seat->options.ctx);
}

static void on_wake(void *ctx)
{
    const struct sl_leader *seat = ctx;
    seat->options.wake(seat->options.ctx);
}

static bool on_may_act(void *ctx)
{
    const struct sl_leader *seat = ctx;
    return seat->ending == NOT_ENDING && seat->failure[0] == '\0' &&
           sl_election_holds(seat->election, now_of(seat));
}

static void on_won(void *ctx, uint64_t epoch)
{
    struct sl_leader *seat = ctx;
    const struct sl_coordinator_log_options ledger = {
        .store = seat->options.store,
        .prefix = seat->prefix,
        .key = sl_election_key(seat->election),
        .value = sl_election_value(seat->election),
        .lease = sl_election_lease(seat->election),
        .epoch = epoch,
        .timeout_ns = seat->options.ttl_s * SL_CLOCK_NS_PER_S / 2,
        .bytes_max = seat->options.ledger_bytes_max,
        .coordinator = seat->options.coordinator,
        .ready = on_ready,
        .failed = on_failed,
        .wake = on_wake,
        .may_act = on_may_act,
        .ctx = seat,
    };
    seat->epoch = epoch;
    seat->failure[0] = '\0';
    int err = sl_coordinator_log_create(&ledger, &seat->ledger);
    if (err != 0) {
        on_failed(seat, sl_err_name(err));
    }
}

/* Of the ledger, when nobody is inside it. */
static void end_term(struct sl_leader *seat, const char *why)
{
    if (seat->is_seated) {
        seat->is_seated = false;
        sl_log_warn("does not host the coordinator any more: %s", why);
        seat->options.unseated(seat->options.ctx, why);
    } else {
        sl_log_warn("cannot host the coordinator: %s", why);
    }
    seat->failure[0] = '\0';
    if (seat->ledger != NULL) {
        sl_coordinator_log_destroy(&seat->ledger);
    }
}

static void on_lost(void *ctx, const char *why)
{
    end_term(ctx, why);
}

static void on_leader(void *ctx, const struct sl_election_leader *leader)
{
    const struct sl_leader *seat = ctx;
    seat->options.leader(seat->options.ctx, leader);
}

/* ---- The end ----------------------------------------------------------------------------------
 */

static void finish(struct sl_leader *seat)
{
    seat->ending = ENDED;
    seat->done(seat->done_ctx);
}

static void go_on_ending(struct sl_leader *seat)
{
    bool is_late = now_of(seat) >= seat->ending_until_ns;
    bool is_written = seat->ledger == NULL || seat->failure[0] != '\0' ||
                      sl_coordinator_log_is_clean(seat->ledger);
    if (seat->ending == WRITING && (is_written || is_late)) {
        seat->ending = LEAVING;
        sl_election_resign(seat->election, &seat->has_left);
    }
    if (seat->ending == LEAVING && (seat->has_left || is_late)) {
        finish(seat);
    }
}

void sl_leader_resign(struct sl_leader *seat, bool erases, uint64_t timeout_ns,
                      void (*done)(void *ctx), void *ctx)
{
    sl_assert(seat->ending == NOT_ENDING);
    seat->ending = WRITING;
    seat->ending_until_ns = now_of(seat) + timeout_ns;
    seat->is_seated = false;
    seat->done = done;
    seat->done_ctx = ctx;
    if (erases && seat->ledger != NULL) {
        sl_coordinator_log_erase(seat->ledger);
    }
    seat->options.wake(seat->options.ctx);
}

/* ---- Time -------------------------------------------------------------------------------------
 */

void sl_leader_run(struct sl_leader *seat)
{
    if (seat->failure[0] != '\0' && seat->ending == NOT_ENDING) {
        char why[sizeof seat->failure];
        memcpy(why, seat->failure, sizeof why);
        sl_election_depose(seat->election, why); /* `lost` follows */
    }
    if (seat->ledger != NULL) {
        sl_coordinator_log_run(seat->ledger);
    }
    if (seat->ending == WRITING || seat->ending == LEAVING) {
        go_on_ending(seat);
    }
}

void sl_leader_tick(struct sl_leader *seat)
{
    sl_election_tick(seat->election, now_of(seat));
    sl_leader_run(seat);
}

void sl_leader_gone(struct sl_leader *seat, sl_coordinator_peer peer)
{
    if (seat->ledger != NULL) {
        sl_coordinator_log_gone(seat->ledger, peer);
    }
}

const struct sl_election_leader *sl_leader_leader(const struct sl_leader *seat)
{
    return sl_election_leader(seat->election);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out)
{
    struct sl_leader *seat = calloc(1, sizeof *seat);
    if (seat == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    seat->options = *options;
    int length = snprintf(seat->prefix, sizeof seat->prefix, "%s", options->prefix);
    seat->options.prefix = seat->prefix;
    struct sl_election_options election = {
        .store = options->store,
        .prefix = seat->prefix,
        .campaigns = options->campaigns,
        .id = options->id,
        .ttl_s = options->ttl_s,
        .now_ns = on_now,
        .won = on_won,
        .lost = on_lost,
        .leader = on_leader,
        .ctx = seat,
    };
    memcpy(election.name, options->name, sizeof election.name);
    memcpy(election.endpoint, options->endpoint, sizeof election.endpoint);
    int err = length < (int)sizeof seat->prefix ? 0 : SL_ERR_INVALID;
    if (err == 0) {
        err = sl_election_create(&election, &seat->election);
    }
    if (err != 0) {
        free(seat);
        return err;
    }
    *out = seat;
    return 0;
}

void sl_leader_destroy(struct sl_leader **seat)
{
    struct sl_leader *gone = *seat;
    *seat = NULL;
    if (gone->ledger != NULL) {
        sl_coordinator_log_destroy(&gone->ledger);
    }
    sl_election_destroy(&gone->election);
    free(gone);
}
